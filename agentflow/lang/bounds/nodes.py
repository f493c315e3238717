"""The nodes of a program that have values, followed: variables, calls, effects and operations of the runtime."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.data.source import Span
from agentflow.lang.bounds.containers import Keyed, element_of
from agentflow.lang.bounds.control import over_at, repeated
from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.facts import defined_name
from agentflow.lang.bounds.inner import text_of
from agentflow.lang.bounds.interpret import SETTINGS, Interpreter
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.primitives import like, shortest
from agentflow.lang.bounds.tables import LEFT_OUT, Coded, Higher, Outcome, Tables, bare_function, value_of, ways_of
from agentflow.lang.bounds.values import (
    DATA,
    FOREIGN,
    NEVER,
    NIL,
    AbstractClosure,
    AbstractScope,
    Value,
    constant,
    joined,
    number,
    position,
    sequence,
    text,
    widened,
)
from agentflow.lang.bounds.ways import WaysOut
from agentflow.lang.builtins.registry import Primitive
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.kernel.inline import as_dict, operator_of, owned
from agentflow.lang.kernel.nodes import Const, Lambda, Node, Prim, Ref, Set
from agentflow.lang.support import fresh, rounds

# -- values -------------------------------------------------------------------------------------------------------


@value_of(Const)
def _const(i: Interpreter, node: Const, scope: AbstractScope) -> Outcome:
    return i.constant(node), FREE


@value_of(nodes.Env)
def _environment(i: Interpreter, node: nodes.Env, scope: AbstractScope) -> Outcome:
    return DATA, FREE


@value_of(Ref)
def _ref(i: Interpreter, node: Ref, scope: AbstractScope) -> Outcome:
    return i.read(node.variable, scope), FREE


@value_of(Set)
def _set(i: Interpreter, node: Set, scope: AbstractScope) -> Outcome:
    """An assignment within an expression of Python, which may not be reached: the variable may also keep its value."""
    value, cost = i.follow(node.value, scope)
    variable = i.facts.variable(node.variable)
    before = scope.value(variable) if i.python and variable is not None and variable.name else NEVER
    if node.how != "set":
        i.assign(node.variable, value.join(before), scope)
    return value, cost


@value_of(Lambda)
def _lambda(i: Interpreter, node: Lambda, scope: AbstractScope) -> Outcome:
    return i.scalar(Value(procedures=frozenset({AbstractClosure(node, scope)}))), FREE


@value_of(nodes.Thunk)
def _thunk(i: Interpreter, node: nodes.Thunk, scope: AbstractScope) -> Outcome:
    return i.follow(node.body, scope)


# -- comprehensions -----------------------------------------------------------------------------------------------


@value_of(text_nodes.Collect)
def _collect(i: Interpreter, node: text_nodes.Collect, scope: AbstractScope) -> Outcome:
    inner = AbstractScope(scope)
    for variable in i.facts.own.get(node.frame, ()):
        inner.bind(variable, NEVER)
    value, cost, count, listed = _elements(i, node.body, inner)
    if node.kind in ("any", "all"):
        return i.scalar(constant(value=True)), cost
    result = sequence(count, value) if count is None or count.number != 0 else NIL
    if listed is not None:
        result = result.but(marks=like(listed, None, NEVER).marks)
    return i.made(Keyed(node) if node.kind == "dict" else node, result), cost


def _elements(i: Interpreter, node: Node, scope: AbstractScope) -> tuple[Value, Cost, Bound | None, Value | None]:
    """An element of a comprehension, the cost of all, their number, and the iterable if there is one only."""
    match node:
        case nodes.For():
            listed, cost = i.follow(node.over, scope)
            count = i.iterations(listed)
            if count is not None and count.number == 0:
                return NEVER, cost, count, listed
            if node.item is not None:
                i.assign(node.item, element_of(listed), scope)
            guards = len(i.guards)
            value, each, inner, within = _elements(i, node.body, scope)
            del i.guards[guards:]
            total = count * inner if count is not None and inner is not None else None
            whole = cost.then(repeated(i, over_at(i, node.over), each, count))
            return value, whole, total, listed if inner is ONE and within is None else None
        case nodes.Seq():
            before = FREE
            for part in node.items[:-1]:
                before = before.then(i.ways(part, scope).whole())
            value, cost, count, listed = _elements(i, node.items[-1], scope)
            return value, before.then(cost), count, listed
        case nodes.If():
            (test, body), *_ = node.clauses
            _, tested = i.follow(test, scope)
            i.guards.extend(i.guards_in(test, scope)[0])
            value, cost, count, listed = _elements(i, body, scope)
            return value, tested.then(cost), count, listed
        case _:
            element = cast(text_nodes.Yield, node)
            parts = [each for each in (element.key, element.value) if each is not None]
            values, cost = i.in_order(parts, scope)
            return values[-1], cost, ONE, None


# -- calls --------------------------------------------------------------------------------------------------------


@value_of(Prim)
def _prim(i: Interpreter, node: Prim, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    value, more = i.prim(node, values)
    return value, cost.then(more)


@value_of(nodes.Call)
def _call(i: Interpreter, node: nodes.Call, scope: AbstractScope) -> Outcome:
    name = _unbound_name(node.function)
    if name is not None:
        _, cost = i.in_order(node.args, scope)
        value, called = i.named(name, node.at)
        return value, cost.then(called)
    operator, cost = i.follow(node.function, scope)
    values, more = i.in_order(node.args, scope)
    if node.callee is not None:
        arguments = [LEFT_OUT if at is None else values[at] for at in node.order]
        value, called = i.call(operator, arguments, node.at)
    else:
        count = len(values) - len(node.names)
        keywords = dict(zip(node.names, values[count:], strict=True))
        value, called = i.by_name(operator, values[:count], keywords, node.at)
    return value, cost.then(more).then(called)


def _unbound_name(operator: Node) -> str | None:
    """The name of an operator that was unbound when the program was read."""
    if isinstance(operator, Prim) and operator.function is operator_of:
        return str(cast(Const, operator.args[1]).value)
    return None


@value_of(nodes.Either)
def _either(i: Interpreter, node: nodes.Either, scope: AbstractScope) -> Outcome:
    """Pairs are arguments by name if the operator turns out to name a task or tool, and calls otherwise."""
    name, inner = _unbound_name(node.function), AbstractScope(scope)
    operator, cost = (NEVER, FREE) if name is not None else i.follow(node.function, scope)
    for each in node.pairs:
        value, more = i.follow(each.value, inner)
        cost = cost.then(more)
        inner.bind(each.variable, value)
    applied = [each.applied for each in node.pairs]
    if name is not None:
        _, nested = i.in_order(applied, inner)
        value, called = i.named(name, node.at)
        return value, (cost if nested.free else cost.then(nested)).then(called)
    by_name = operator.but(procedures=frozenset[Any](), foreign=False)
    value, called = i.call(by_name, [], node.at)
    named = {each.names[-1]: inner.value(each.variable) for each in node.pairs}
    for each in sorted(operator.texts) if operator.texts is not None else [""]:
        called = called.then(i.settings(each, named, node.at))
    if operator.procedures or operator.foreign:
        values, more = i.in_order(applied, inner)
        other, most = i.call(operator.but(texts=frozenset[str]()), values, node.at)
        value, called = value.join(other), called.otherwise(more.then(most))
    return value, cost.then(called)


# -- effects ------------------------------------------------------------------------------------------------------


@value_of(text_nodes.Effect)
def _effect(i: Interpreter, node: text_nodes.Effect, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order([*node.args, *node.spread], scope)
    keywords = dict(zip(node.names, values, strict=False))
    for each in values[len(node.args) :]:  # a dict of arguments may hold any of the settings
        keywords |= dict.fromkeys(SETTINGS, FOREIGN) if each.fields is None else each.fields
    value, called = i.task(node, node.name, raw=node.gives == "outcome")
    return value, cost.then(called).then(i.settings(node.name, keywords, node.at))


@value_of(nodes.Perform)
def _perform(i: Interpreter, node: nodes.Perform, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    make: Any = node.make
    if isinstance(make, nodes.NamedEffect):
        value, more = named_effect(i, node, make.kind, make.name, dict(zip(make.names, values, strict=True)))
    else:
        value, more = i.tables.performed[bare_function(make)](i, node, values)
    return value, cost.then(more)


def named_effect(i: Interpreter, node: Node, kind: str, name: str, arguments: Mapping[str, Value]) -> Outcome:
    """An effect with arguments by name."""
    if kind == "workflow":
        return i.workflow(name, arguments, node.at)
    value, cost = i.effect("context" if kind == "items" else kind, name, node.at)
    return value, cost.then(i.settings(name, arguments, node.at)) if kind == "task" else cost


# -- operations ---------------------------------------------------------------------------------------------------


def _branches(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    listed = cast(Prim, node.args[0])
    values, cost = i.together([partial(i.follow, item, scope) for item in listed.args])
    whole = joined(values)
    return (whole if node.operation == "race" else i.made(node, sequence(len(values), whole))), cost


def _pmap(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    (procedure, listed, *limit), cost = i.in_order(node.args, scope)
    if listed.never or procedure.never:
        return NEVER, cost
    first, count = node.args[0], i.iterations(listed)
    written_out = isinstance(first, Lambda) and not first.info.portable  # parallel(*[f(x) for x in xs])
    at = over_at(i, node.args[1]) if i.python and written_out else node.at
    item = element_of(listed) if i.python else listed.element()
    value, more = i.mapped(procedure, item, count, limit[0] if limit else None, at)
    return i.made(node, like(listed, count, value)), cost.then(more)


def _branches_on(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    procedures, cost = i.in_order(node.args, scope)
    values, together = i.together([partial(i.call, each, list[Value](), node.at) for each in procedures])
    whole = joined(values)
    result = whole if node.operation == "race-on" else i.made(node, sequence(len(values), whole))
    return result, cost.then(together)


def _timeout(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    return values[-1], cost


def _retry(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    tries, cost = i.follow(node.args[0], scope)
    value, body = i.follow(node.args[1], scope)
    if tries.high is None:
        return value, cost.then(i.loose(node.at, "how often 'retry' tries is not known", body))
    return value, cost.then(body.times(tries.high.join(ONE)))


def _define_task(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    _, cost = i.in_order(node.args, scope)
    return text(defined_name(node)), cost


def _eval_program(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    (_, program, *values), cost = i.in_order(node.args, scope)
    source, allow = text_of(node.args[1], program), node.constants[0]
    options = dict(zip(node.constants[1], values, strict=True))
    bindings = options["bindings"].fields if "bindings" in options else dict[str, Value]()
    word = "eval_program" if i.python else "eval-program"
    if i.programs is None or source is None or bindings is None:
        i.reached(allow, node.at)
        return FOREIGN, cost.then(i.anything(node.at, f"'{word}' runs a program that is not known before it runs"))
    surface = "python" if i.python else "sexp"
    inner = i.programs.text(source, frozenset(allow), frozenset(bindings), i.visits, surface)
    return FOREIGN, cost.then(i.program(inner, f"the program of '{word}'", bindings, node.at))


def _solve(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    (_, _, *values), cost = i.in_order(node.args, scope)
    options = dict(zip(node.constants[1], values, strict=True))
    i.reached(node.constants[0], node.at)
    most = options.get("max-model-calls")
    if "inputs" in options and _has_lists(options["inputs"]):  # a program in Python may change them
        cost = cost.then(i.changed("the program of 'solve'", [options["inputs"]], node.at))
    if most is None or most.high is None:
        return FOREIGN, cost.then(i.anything(node.at, "'solve' runs a program that a model is yet to write"))
    return FOREIGN, cost.then(i.effect("solve", "solve", node.at)[1].times(most.high))


def _has_lists(inputs: Value) -> bool:
    """Whether there may be a list or a dict among the inputs of a program."""
    parts = inputs.fields
    return parts is None or any(each.high is None and each.texts in (None, frozenset()) for each in parts.values())


def _director(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    values, cost = i.in_order(node.args, scope)
    clauses = dict(zip(node.constants[0], values, strict=True))
    most, turn = clauses["max-iterations"].high, number(1, None, whole=True)
    plan, planned = i.call(clauses["director"], [FOREIGN, turn], node.at)
    result, executed = i.call(clauses["executor"], [plan, turn], node.at)
    judged, evaluated = i.call(clauses["evaluator"], [result, plan, turn], node.at)
    decided, controlled = i.call(clauses["controller"], [judged, plan, result, turn], node.at)
    whole = planned.then(executed).then(evaluated).then(controlled)
    value = joined([result, decided.element()])
    if most is None:
        return value, cost.then(i.loose(node.at, "the number of iterations is not known", whole))
    return value, cost.then(whole.times(most))


def _configuration(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> Outcome:
    return DATA, FREE


_OPERATIONS = MappingProxyType(
    {
        "define-task": _define_task,
        "director-loop": _director,
        "eval-program": _eval_program,
        "loop-config": _configuration,
        "parallel": _branches,
        "parallel-on": _branches_on,
        "pmap": _pmap,
        "pmap-on": _pmap,
        "race": _branches,
        "race-on": _branches_on,
        "retry": _retry,
        "solve": _solve,
        "timeout": _timeout,
    }
)


@ways_of(nodes.Op)
def _operation(i: Interpreter, node: nodes.Op, scope: AbstractScope) -> WaysOut:
    if node.operation in ("raise", "error"):
        cost = i.in_order(node.args, scope)[1]
        return WaysOut(raised=cost) if i.python else WaysOut(falls=cost)
    value, cost = _OPERATIONS[node.operation](i, node, scope)
    return WaysOut(falls=cost, result=value)


# -- primitives that call procedures ------------------------------------------------------------------------------


def _map(i: Interpreter, arguments: list[Value], at: Span | None) -> Outcome:
    procedure, *lists = arguments
    count = shortest(lists)
    value, cost = i.each(procedure, [each.element() for each in lists], count, at)
    return like(lists[0], count, value), cost


def _for_each(i: Interpreter, arguments: list[Value], at: Span | None) -> Outcome:
    return NIL, _map(i, arguments, at)[1]


def _filter(i: Interpreter, arguments: list[Value], at: Span | None) -> Outcome:
    procedure, listed = arguments
    cost = i.each(procedure, [listed.element()], shortest([listed]), at)[1]
    return like(listed, listed.elements, joined([]) if listed.size == ZERO else listed.element()), cost


def _reduce(i: Interpreter, arguments: list[Value], at: Span | None) -> Outcome:
    procedure, listed = arguments[0], arguments[-1]
    element = listed.element()
    total = arguments[1] if len(arguments) == 3 else element
    count = shortest([listed])
    notes = i.reach.noted()
    for _ in range(2):
        value, _ = i.each(procedure, [total, element], count, at)
        total = widened(total, value)
    i.reach.forget(notes)
    value, cost = i.each(procedure, [total, element], count, at)
    if widened(total, value) != total:
        total = FOREIGN
        value, cost = i.each(procedure, [total, element], count, at)
    return total.join(value), cost


def _apply(i: Interpreter, arguments: list[Value], at: Span | None) -> Outcome:
    procedure, *first, last = arguments
    number_of = last.size.number if last.size is not None else None
    outcomes: list[Outcome] = []
    value, cost = NEVER, FREE
    for each in sorted(procedure.procedures, key=position):
        least, most = _arity(each)
        most_given = most if most is not None else len(first) + int(number_of or 0)
        counts = range(max(least, len(first)), max(most_given, len(first), least) + 1)
        if most is None and number_of is None:
            counts = range(max(least, len(first)), max(least, len(first)) + 1)
        for count in list(counts)[:8]:
            operator = Value(procedures=frozenset({each}))
            outcomes.append(i.call(operator, [*first, *[last.element()] * (count - len(first))], at))
        if most is None:
            outcomes.append((FOREIGN if _hold_procedures(*arguments) else DATA, FREE))
    rest = procedure.but(procedures=frozenset[Any]())
    if rest.foreign or rest.texts is None or rest.texts:
        outcomes.append(i.call(rest, [FOREIGN], at))
    for each, more in outcomes:
        value, cost = value.join(each), cost.otherwise(more)
    return value, cost


def _hold_procedures(*values: Value) -> bool:
    return any(each.holds_procedures for each in values)


def _arity(procedure: Any) -> tuple[int, int | None]:
    if isinstance(procedure, Primitive):
        return procedure.arity
    code = cast(AbstractClosure, procedure).code
    return len(code.params), None if code.rest is not None else len(code.params)


def _sort(i: Interpreter, arguments: list[Value], at: Span | None) -> Outcome:
    listed = arguments[0]
    result = like(listed, listed.elements, joined([]) if listed.size == ZERO else listed.element())
    if len(arguments) == 1:
        return result, FREE
    length = shortest([listed])
    count = None if length is None else length * length
    element = listed.element()
    return result, i.each(arguments[1], [element, element], count, at)[1]


HIGHER: Mapping[str, Higher] = MappingProxyType(
    {
        "apply": _apply,
        "filter": _filter,
        "for-each": _for_each,
        "map": _map,
        "reduce": _reduce,
        "sort": _sort,
    }
)
"""The analysis of primitives that call procedures, by name."""


def _first(i: Interpreter, node: Prim, values: list[Value]) -> Outcome:
    return values[0], FREE


def _quoted(i: Interpreter, node: Prim, values: list[Value]) -> Outcome:
    return constant(cast(Const, node.args[0]).value), FREE


def _fails(i: Interpreter, node: Prim, values: list[Value]) -> Outcome:
    return NEVER, FREE


def record_of(i: Interpreter, node: Prim, values: list[Value]) -> Outcome:
    """A dict with the keys that the text has."""
    (keys,) = cast("partial[Any]", node.function).args
    size = Bound.of(len(keys))
    if all(isinstance(key, str) for key in keys):
        return i.made(Keyed(node), Value(size=size, fields=dict(zip(keys, values, strict=True)))), FREE
    return i.made(Keyed(node), sequence(size, joined(values)) if values else NIL), FREE


CODED: Mapping[Any, Coded] = MappingProxyType(
    {
        Primitive.check_arity: _fails,
        as_dict: record_of,
        fresh: _quoted,
        owned: _first,
        rounds: _first,
    }
)
"""The analysis of functions that nodes of both surfaces call."""
SEXP = Tables(CODED, HIGHER, lasting=frozenset({fresh}))
"""How the functions of S-expressions are followed."""
