"""Abstract interpretation of the calls of a text in Python: of tasks and tools, and of the forms of the language."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import cast

from agentflow.core.data.known_names import ASK, SIGNAL
from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.interpret import SETTINGS, Outcome
from agentflow.lang.bounds.polynomial import ONE, Bound
from agentflow.lang.bounds.primitives import RULES as SIZES
from agentflow.lang.bounds.primitives import like
from agentflow.lang.bounds.python.expressions import (
    Keyed,
    PairSite,
    assign_to,
    at_key,
    element_of,
    is_keyed,
    is_number,
    iterations,
)
from agentflow.lang.bounds.python.heap import scalar
from agentflow.lang.bounds.python.interpret import LEFT_OUT, NONE, Form, Function, Python
from agentflow.lang.bounds.values import (
    DATA,
    FOREIGN,
    NEVER,
    NIL,
    PLAIN,
    TEXT,
    AbstractScope,
    Value,
    joined,
    number,
    sequence,
)
from agentflow.lang.bounds.values import text as one_of
from agentflow.lang.python.builtins import BUILTINS, ISINSTANCE
from agentflow.lang.python.methods import METHOD_ROWS
from agentflow.lang.python.names import Function as Defined

_PLAIN = scalar(PLAIN)
_TEXT = scalar(TEXT)
Named = Mapping[str, Value]


def _given(value: Value) -> Function:
    """A function that returns ``value`` for any arguments."""

    def follow(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
        return value, FREE

    return follow


def _first(name: str, values: Sequence[Value], named: Named) -> Value:
    return values[0] if values else named.get(name, NIL)


def _at(values: Sequence[Value], named: Named, at: int, name: str) -> Value | None:
    return values[at] if len(values) > at else named.get(name)


# -- numbers ------------------------------------------------------------------------------------------------------


def _len(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value = _first("obj", values, named)
    length = scalar(number(0, iterations(i, value), whole=True))
    return length.but(length_of=value.marks), FREE


def _int(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value = _first("x", values, named)
    if is_number(value) and value.low is not None and value.low >= 0 and len(values) == 1:
        return scalar(value if value.whole else number(0, value.high, whole=True)), FREE
    return scalar(number(None, None, whole=True)), FREE


def _abs(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    return scalar(SIZES["absolute"]([_first("x", values, named)])), FREE


def _extreme(word: str) -> Function:
    def follow(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
        several = len(values) > 1
        element = joined(values) if several else element_of(i, _first("values", values, named))
        count = Bound.of(len(values)) if several else iterations(i, _first("values", values, named))
        key, default = named.get("key"), named.get("default", NEVER)
        if key is not None:
            return element.join(default), _keys(i, node, key, element, count)
        if several and all(map(is_number, values)):
            return scalar(SIZES[word](values)), FREE
        return element.join(default), FREE

    return follow


def _keys(i: Python, node: ast.AST, key: Value, element: Value, count: Bound | None) -> Cost:
    """The cost of calling a key function once per element; ``None`` is not a key."""
    if not key.procedures and not key.foreign:
        return FREE
    return i.each(key, [element], count, i.at(node))[1]


def _sum(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    listed, start = _first("iterable", values, named), _at(values, named, 1, "start")
    total = scalar(number(None, None, whole=False))
    if start is None or is_number(start):
        return total, FREE
    within = start.element().join(listed.element().element())
    return i.made(node, sequence(None, within)).join(total), FREE


def _range(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    if not 1 <= len(values) <= 3:
        return NEVER, FREE
    numbers = SIZES["range"](values)
    return i.made(node, numbers.but(item=scalar(numbers.item or PLAIN))), FREE


# -- collections --------------------------------------------------------------------------------------------------


def _collected(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    """A new list, tuple or set with the elements of a value."""
    if not values and not named:
        return i.made(node, NIL), FREE
    value = _first("iterable", values, named)
    return _new(i, node, value, element_of(i, value)), FREE


def _new(i: Python, site: ast.AST, value: Value, item: Value) -> Value:
    """A new list with as many elements as ``value``, or fewer."""
    result = like(value, iterations(i, value), item)
    return i.made(site, result.but(origins=value.origins) if value.origins else result)


def _sorted(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value = _first("iterable", values, named)
    element = element_of(i, value)
    key = named.get("key")
    cost = FREE if key is None else _keys(i, node, key, element, iterations(i, value))
    return _new(i, node, value, element), cost


def _dict(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    if not values and not named:
        return i.made(Keyed(node), NIL), FREE
    value = _first("pairs", values, named)
    if value.fields is not None and is_keyed(value):
        return i.made(Keyed(node), Value(size=value.size, fields=value.fields)), FREE
    within = value.element().join(value.element().element())
    return i.made(Keyed(node), sequence(iterations(i, value), within)), FREE


def _pair(i: Python, node: ast.AST, *parts: Value) -> Value:
    fields = {f"{at}": each for at, each in enumerate(parts)}
    return i.made(PairSite(node), Value(size=Bound.of(len(parts)), fields=fields))


def _enumerate(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value = _first("iterable", values, named)
    index = scalar(number(None, None, whole=True))
    return _list_of(i, node, value, iterations(i, value), _pair(i, node, index, element_of(i, value))), FREE


def _list_of(i: Python, node: ast.AST, value: Value, size: Bound | None, item: Value) -> Value:
    return i.made(node, sequence(size, item).but(marks=like(value, None, NEVER).marks))


def _zip(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    size = _shortest(i, values)
    return i.made(node, sequence(size, _pair(i, node, *(element_of(i, each) for each in values)))), FREE


def _shortest(i: Python, values: Sequence[Value]) -> Bound | None:
    lengths = [iterations(i, each) for each in values]
    bounded = [each for each in lengths if each is not None and each.terms is not None]
    numbers = [each.number for each in bounded if each.number is not None]
    return Bound.of(min(numbers)) if numbers else bounded[0] if bounded else None


def _map(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    function, *listed = values
    count = _shortest(i, listed)
    value, cost = i.each(function, [element_of(i, each) for each in listed], count, i.at(node))
    if not listed:
        return NEVER, FREE
    return _list_of(i, node, listed[0], count, value), cost


def _filter(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    if len(values) < 2:
        return NEVER, FREE
    function, listed = values
    element, count = element_of(i, listed), iterations(i, listed)
    return _new(i, node, listed, element), _keys(i, node, function, element, count)


def _loads(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    return i.heap.given(Keyed(node), DATA), FREE


# -- methods ------------------------------------------------------------------------------------------------------


def _append(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    """A change that adds the last argument: ``append``, ``insert``, ``add``."""
    return NONE, i.heap.change(values[0], joined([*values[1:], *named.values()]), ONE)


def _setdefault(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value, *rest = values
    default = _at(rest, named, 1, "default") or NONE
    cost = i.heap.change(value, default, ONE)
    return (at_key(value, rest[0]) if rest else value.element()).join(default), cost


def _update(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    """A change that adds the elements of the arguments, or the values of a dict."""
    more = [*values[1:], *named.values()]
    cost = FREE
    for each in more:
        put = joined([element_of(i, each), each.element(), each.element().element()])
        cost = cost.then(i.heap.change(values[0], put, iterations(i, each)))
    return NONE, cost


def _removed(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    """A change that removes an element."""
    value, *rest = values
    default = _at(rest, named, 1, "default") or NEVER
    return value.element().join(NONE).join(default), i.heap.change(value)


def _sort(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value, key = values[0], named.get("key")
    cost = FREE if key is None else _keys(i, node, key, value.element(), iterations(i, value))
    return NONE, cost.then(i.heap.change(value))


def _get(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value, *rest = values
    default = _at(rest, named, 1, "default") or NONE
    element = at_key(value, rest[0]) if rest else value.element()
    return element.join(default), FREE


def _of_keys(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    return i.made(node, sequence(values[0].length, element_of(i, values[0]).join(_TEXT))), FREE


def _of_values(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    return i.made(node, sequence(values[0].length, values[0].element())), FREE


def _of_items(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value = values[0]
    key = scalar(one_of(*value.fields)) if value.fields else DATA
    return i.made(node, sequence(value.length, _pair(i, node, key, value.element()))), FREE


def _copy(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value = values[0]
    if value.fields is not None:
        return i.made(Keyed(node), sequence(value.size, value.element())), FREE
    copy = like(value, value.length, value.element())
    return i.made(Keyed(node), copy.but(origins=value.origins)), FREE


def _union(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    total: Bound | None = Bound.of(0)
    for each in values:
        length = iterations(i, each)
        total = total + length if total is not None and length is not None else None
    return i.made(node, sequence(total, joined(element_of(i, each) for each in values))), FREE


def _fewer(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    return _new(i, node, values[0], element_of(i, values[0])), FREE


def _texts(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    return i.made(node, sequence(None, _TEXT)), FREE


def _three(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    return i.made(node, sequence(3, _TEXT)), FREE


def _divmod(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    each = scalar(number(None, None, whole=False))
    return _pair(i, node, each, each), FREE


_SIZES: Mapping[str, Function] = MappingProxyType(
    {
        "absolute": _abs,
        "collected": _collected,
        "copy": _copy,
        "data": _loads,
        "dict": _dict,
        "entry": _get,
        "enumerate": _enumerate,
        "fewer": _fewer,
        "filter": _filter,
        "int": _int,
        "items": _of_items,
        "keys": _of_keys,
        "length": _len,
        "map": _map,
        "max": _extreme("max"),
        "min": _extreme("min"),
        "pair": _divmod,
        "plain": _given(_PLAIN),
        "put": _append,
        "range": _range,
        "removed": _removed,
        "setdefault": _setdefault,
        "sort": _sort,
        "sorted": _sorted,
        "sum": _sum,
        "text": _given(_TEXT),
        "texts": _texts,
        "three": _three,
        "union": _union,
        "update": _update,
        "values": _of_values,
        "whole": _given(scalar(number(None, None, whole=True))),
        "zip": _zip,
    }
)
"""The analysis of calls, by the word ``size`` of a row (:class:`~agentflow.lang.python.rows.Row`)."""
FUNCTIONS: Mapping[str, Function] = MappingProxyType(
    {row.name: _SIZES[row.size] for row in (*BUILTINS.values(), ISINSTANCE)}
)
"""The analysis of functions, by name."""
METHOD_RULES: Mapping[str, Function] = MappingProxyType({row.name: _SIZES[row.size] for row in METHOD_ROWS})
"""The analysis of methods, by name alone, because the type of the receiver is unknown."""


def call(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    """A call of any kind, by the meaning that the text gives the called name."""
    meaning = i.text.meaning(node)
    if meaning is None:
        return FOREIGN, i.anything(i.at(node), "nothing is known of this call")
    kind, about = meaning
    if kind == "effect":
        _, keywords, cost = arguments_of(i, node, scope)
        value, called = i.task(about, i.at(node))
        return value, cost.then(called).then(i.settings(about, keywords, i.at(node)))
    if kind == "form":
        return i.tables.forms[about](i, node, scope)
    if kind == "generic":
        operator, cost = i.value(node.func, scope)
        arguments, keywords, more = arguments_of(i, node, scope)
        value, called = i.by_name(operator, arguments, keywords, i.at(node))
        return value, cost.then(more).then(called)
    if kind == "method":
        receiver, cost = i.value(cast(ast.Attribute, node.func).value, scope)
        arguments, keywords, more = arguments_of(i, node, scope)
        value, called = i.tables.methods[about](i, node, [receiver, *arguments], keywords)
        return value, cost.then(more).then(called)
    arguments, keywords, cost = arguments_of(i, node, scope)
    if kind == "builtin":
        value, called = i.tables.functions[about](i, node, arguments, keywords)
    elif kind == "direct":
        value, called = _direct(i, node, about, arguments, keywords, scope)
    else:
        value, called = _record(i, node, about, arguments, keywords, scope), FREE
    return value, cost.then(called)


def arguments_of(i: Python, node: ast.Call, scope: AbstractScope) -> tuple[list[Value], dict[str, Value], Cost]:
    """The abstract values of arguments, by position and by name, and their cost."""
    values, cost = list[Value](), FREE
    if node.args:
        values, cost = i.values([each.value if isinstance(each, ast.Starred) else each for each in node.args], scope)
    keywords: dict[str, Value] = {}
    for each in node.keywords:
        value, more = i.value(each.value, scope)
        cost = cost.then(more)
        if each.arg:
            keywords[each.arg] = value
        elif value.fields is not None:
            keywords |= value.fields
        else:
            keywords |= dict.fromkeys(SETTINGS, FOREIGN)  # a dict of arguments may hold any of them
    return values, keywords, cost


def _direct(
    i: Python,
    node: ast.Call,
    function: Defined,
    arguments: list[Value],
    keywords: Mapping[str, Value],
    scope: AbstractScope,
) -> Outcome:
    code = i.text.code(function)
    names = i.text.signature(code).names
    rest = [keywords.get(name, LEFT_OUT) for name in names[len(arguments) :]]
    name = cast(ast.Name, node.func)
    operator, _ = i.value(name, scope)
    return i.call(operator, [*arguments, *rest], i.at(node))


def _record(
    i: Python, node: ast.Call, name: str, arguments: list[Value], keywords: Mapping[str, Value], scope: AbstractScope
) -> Value:
    fields = i.text.g.records[name]
    values = {**dict(zip(fields, arguments, strict=False)), **keywords}
    for each, default in fields.items():
        if each not in values and default is not None:
            values[each] = i.value(default, scope)[0]
    return i.made(Keyed(node), Value(size=Bound.of(len(values)), fields=values))


# -- forms --------------------------------------------------------------------------------------------------------


def _run(i: Python, node: ast.expr, scope: AbstractScope) -> Outcome:
    """An expression that the form evaluates itself; for a lambda without parameters, its body."""
    if isinstance(node, ast.Lambda) and not i.text.parameters[node]:
        return i.value(node.body, scope)
    return i.value(node, scope)


def _parallel(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    only = node.args[0] if len(node.args) == 1 else None
    if isinstance(only, ast.Starred) and isinstance(only.value, ast.ListComp | ast.GeneratorExp):
        return _each(i, node, only.value, scope)
    values, cost = i.together([partial(_run, i, each, scope) for each in node.args])
    return i.made(node, sequence(len(values), joined(values))), cost


def _each(i: Python, node: ast.Call, over: ast.ListComp | ast.GeneratorExp, scope: AbstractScope) -> Outcome:
    inner = AbstractScope(scope)
    for var in i.text.own[over]:
        inner.bind(var, NEVER)
    generator = over.generators[0]
    listed, cost = i.value(generator.iter, scope)
    count = iterations(i, listed)
    if count is not None and count.number == 0:
        return i.made(node, sequence(0, NEVER)), cost
    assign_to(i, generator.target, element_of(i, listed), inner)
    i.beside += 1
    value, each = i.value(over.elt, inner)
    i.beside -= 1
    results = i.made(node, sequence(count, value))
    if count is None or count.terms is None:
        reason = "how often this is done depends on a length that is not known"
        return results, cost.then(i.loose(i.at(generator.iter), reason, each))
    return results, cost.then(each.times(count, count))


def _race(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    values, cost = i.together([partial(_run, i, each, scope) for each in node.args])
    return joined(values), cost


def _pmap(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    (procedure, listed, *limits), keywords, cost = arguments_of(i, node, scope)
    limit = limits[0] if limits else keywords.get("limit")
    count = iterations(i, listed)
    if listed.never or procedure.never:
        return NEVER, cost
    value, more = i.mapped(procedure, element_of(i, listed), count, limit, i.at(node))
    return i.made(node, sequence(count, value)), cost.then(more)


def _timeout(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    _, cost = i.value(node.args[0], scope)
    value, body = _run(i, node.args[1], scope)
    return value, cost.then(body)


def _wait_for(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    seconds = [*node.args[1:], *(each.value for each in node.keywords)]
    _, cost = i.values(seconds, scope)
    value, body = _run(i, node.args[0], scope)
    return value, cost.then(body)


def _retry(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    tries, cost = i.value(node.args[0], scope)
    value, body = _run(i, node.args[1], scope)
    return value, cost.then(i.retried(tries, body, i.at(node)))


def _outcome(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    inner = node.args[0]
    called = inner.value if isinstance(inner, ast.Await) else inner
    assert isinstance(called, ast.Call)
    meaning = i.text.meaning(called)
    _, keywords, cost = arguments_of(i, called, scope)
    if meaning is None:
        return FOREIGN, i.anything(i.at(node), "nothing is known of this call")
    if meaning == ("form", "call_workflow"):
        return _workflow(i, called, scope)
    value, more = i.task(meaning[1], i.at(node), raw=True)
    return value, cost.then(more).then(i.settings(meaning[1], keywords, i.at(node)))


def _plain(value: Value) -> Form:
    """A form without a countable effect that returns ``value``."""

    def follow(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
        return value, arguments_of(i, node, scope)[2]

    return follow


def _from_outside(name: str) -> Form:
    """A form that waits for data from outside of the run."""

    def follow(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
        _, cost = i.value(node.args[0], scope)
        answer = i.heap.given(Keyed(node), DATA)
        return answer, cost.then(i.effect("ask", name, i.at(node))[1])

    return follow


def _sources(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    return i.heap.given(Keyed(node), DATA), arguments_of(i, node, scope)[2]


def _endorse(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    arguments, _, cost = arguments_of(i, node, scope)
    return arguments[0], cost


def _get_context(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    _, _, cost = arguments_of(i, node, scope)
    value, more = i.effect("context", "get_context", i.at(node))
    return i.heap.given(Keyed(node), value), cost.then(more)


def _workflow(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    _, keywords, cost = arguments_of(i, node, scope)
    name = cast(str, cast(ast.Constant, node.args[0]).value)
    value, called = i.workflow(name, keywords, i.at(node))
    return i.heap.given(Keyed(node), value), cost.then(called)


def _allowed(node: ast.Call) -> list[str]:
    """The names that ``allow=`` lists."""
    for each in node.keywords:
        if each.arg == "allow" and isinstance(each.value, ast.List | ast.Tuple):
            return [str(name.value) for name in each.value.elts if isinstance(name, ast.Constant)]
    return []


def _solve(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    _, keywords, cost = arguments_of(i, node, scope)
    i.reached(_allowed(node), i.at(node))
    if "inputs" in keywords:
        i.heap.handed(keywords["inputs"])
    most = keywords.get("max_model_calls")
    if most is None or most.high is None:
        return FOREIGN, cost.then(i.anything(i.at(node), "'solve' runs a program that a model is yet to write"))
    return FOREIGN, cost.then(i.effect("solve", "solve", i.at(node))[1].times(most.high))


def _eval_program(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    (program, *_), keywords, cost = arguments_of(i, node, scope)
    texts = program.texts
    bindings = keywords["bindings"].fields if "bindings" in keywords else dict[str, Value]()
    text = next(iter(texts)) if texts is not None and len(texts) == 1 and not program.foreign else None
    if i.programs is None or text is None or bindings is None:
        i.reached(_allowed(node), i.at(node))
        reason = "'eval_program' runs a program that is not known before it runs"
        return FOREIGN, cost.then(i.anything(i.at(node), reason))
    inner = i.programs.text(text, frozenset(_allowed(node)), frozenset(bindings), i.visits, "python")
    called = i.program(inner, "the program of 'eval_program'", bindings, i.at(node))
    return FOREIGN, cost.then(called)


def _director(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    names = ("max_iterations", "first", "director", "executor", "evaluator", "controller")
    arguments, keywords, cost = arguments_of(i, node, scope)
    options = {**dict(zip(names, arguments, strict=False)), **keywords}
    value, rounds = i.directed(options, options["max_iterations"].high, i.at(node))
    return value, cost.then(rounds)


def _random(i: Python, node: ast.Call, scope: AbstractScope) -> Outcome:
    arguments, _, cost = arguments_of(i, node, scope)
    most = arguments[0].high if arguments else ONE
    return scalar(number(0, most, whole=bool(arguments))), cost


_NUMBER = scalar(number(None, None, whole=False))
FORMS: Mapping[str, Form] = MappingProxyType(
    {
        "ask_human": _from_outside(ASK),
        "asyncio.gather": _parallel,
        "asyncio.sleep": _plain(NONE),
        "asyncio.wait_for": _wait_for,
        "call_workflow": _workflow,
        "director_evaluator_loop": _director,
        "endorse": _endorse,
        "eval_program": _eval_program,
        "get_context": _get_context,
        "now": _plain(_NUMBER),
        "outcome": _outcome,
        "parallel": _parallel,
        "pmap": _pmap,
        "print": _plain(NONE),
        "publish_state": _plain(NONE),
        "race": _race,
        "random": _random,
        "random.random": _random,
        "retry": _retry,
        "sleep": _plain(NONE),
        "solve": _solve,
        "sources": _sources,
        "time.sleep": _plain(NONE),
        "time.time": _plain(_NUMBER),
        "timeout": _timeout,
        "uuid": _plain(scalar(TEXT)),
        "uuid.uuid4": _plain(scalar(TEXT)),
        "wait_for_signal": _from_outside(SIGNAL),
    }
)
"""The analysis of forms, by name. Those that ask a model or a note have the meaning of an effect."""
