"""The functions that nodes of texts in Python call, followed: operators, displays, changes of containers, effects."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.data.known_names import ASK, SIGNAL
from agentflow.lang.bounds.containers import (
    SHORT,
    Keyed,
    PairSite,
    at_key,
    element_of,
    is_number,
    is_positional,
    part_of,
)
from agentflow.lang.bounds.cost import FREE
from agentflow.lang.bounds.heap import NOWHERE, scalar
from agentflow.lang.bounds.interpret import Interpreter
from agentflow.lang.bounds.nodes import CODED
from agentflow.lang.bounds.polynomial import ONE, ZERO, Bound
from agentflow.lang.bounds.primitives import RULES as SIZES
from agentflow.lang.bounds.python.functions import FUNCTIONS, METHODS
from agentflow.lang.bounds.tables import NONE, Coded, Named, Outcome, Performed, Tables, keywords_of
from agentflow.lang.bounds.values import DATA, NEVER, NIL, PLAIN, TEXT, Value, constant, joined, number, sequence
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.inline import as_list
from agentflow.lang.kernel.lowered_functions import (
    as_set as as_set_of_keys,
)
from agentflow.lang.kernel.lowered_functions import (
    as_tuple,
    call_main,
    call_method,
    endorsed,
    entries_of,
    gathered_of,
    is_false,
    is_within,
    itself,
    log_text,
)
from agentflow.lang.kernel.nodes import Const, Node, Prim
from agentflow.lang.python import changes, compare, methods, values, world
from agentflow.lang.python.builtins import BUILTINS, is_instance, rounds
from agentflow.lang.python.declarations import declared
from agentflow.lang.python.displays import as_set, spread_dict
from agentflow.lang.python.failure import raised, raised_again
from agentflow.lang.python.requests import (
    asked,
    below,
    program_text,
    published,
    signal,
    sources_of,
    unwrapped,
    waiting,
)
from agentflow.lang.python.support import binding, check_global, context_paths, listed, reached, task_procedure
from agentflow.lang.python.texts import formatted, text, written
from agentflow.lang.python.texts import joined as joined_text


def _always(value: Value) -> Coded:
    """A function that returns ``value`` for any arguments."""

    def follow(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
        return value, FREE

    return follow


_NOTHING = _always(NONE)
_TEXT = _always(scalar(TEXT))
_TRUTH = _always(scalar(PLAIN))

# -- operators ----------------------------------------------------------------------------------------------------

_SIGNS: Mapping[str, str] = {"+": "+", "-": "-", "*": "*", "/": "/", "//": "quotient", "%": "modulo"}


def _binary(sign: str) -> Coded:
    def follow(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
        return _operated(i, node, sign, arguments[0], arguments[1]), FREE

    return follow


def _written_sign(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return _operated(i, node, _sign_of(node), arguments[1], arguments[2]), FREE


def _sign_of(node: Prim) -> str:
    return str(cast(Const, node.args[0]).value)


def _operated(i: Interpreter, site: Node, sign: str, left: Value, right: Value) -> Value:
    """The abstract value of ``left op right``: a number, a text or a new container."""
    if left.never or right.never:
        return NEVER
    word = _SIGNS.get(sign)
    total = scalar(number(None, None, whole=False)) if word is None else scalar(SIZES[word]([left, right]))
    if sign in ("//", "%") and not (left.whole and right.whole):
        total = total.but(whole=False)
    if is_number(left) and is_number(right):
        return total
    size, item = None, DATA
    if sign in ("+", "|"):
        lengths = left.elements, right.elements
        size = lengths[0] + lengths[1] if lengths[0] is not None and lengths[1] is not None else None
        item = joined([left.element(), right.element()])
    elif sign in ("-", "&", "^"):
        size, item = left.elements, joined([left.element(), right.element()])
        size = None if sign == "^" else size
    elif sign == "*":
        size, item = _repeated(left, right), joined([left.element(), right.element()])
    result = i.made(Keyed(site) if sign == "|" else site, sequence(size, item))
    return result.but(texts=None, low=total.low, high=total.high, whole=total.whole, marks=total.marks)


def _repeated(left: Value, right: Value) -> Bound | None:
    """The length of a list times a number, in either order."""
    for whole, times in ((left, right), (right, left)):
        if is_number(times):
            length = whole.elements
            return length * times.high if length is not None and times.high is not None else None
    return None


def _in_place(sign: str | None) -> Coded:
    """``before op= value``, which changes a list, set or dict itself. Without a sign, the first argument is that."""

    def follow(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
        before, value = arguments[-2:]
        op = sign or _sign_of(node)
        after = _operated(i, node, op, before, value)
        if is_number(value) or is_number(before):
            return after, FREE
        put = element_of(value).join(value.element()).join(value.element().element())
        cost = i.heap.change(before, put, i.iterations(value) if op in ("+", "|", "^") else ZERO)
        if before.sites == NOWHERE:
            return after, cost
        return (before if before.texts == frozenset() and not before.foreign else after.join(before)), cost

    return follow


def _negative(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    exactly = arguments[0].exactly
    return scalar(SIZES["-"](arguments) if exactly is None else constant(-exactly)), FREE


# -- collections --------------------------------------------------------------------------------------------------


def _display(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    """A list or tuple of its arguments, by position if they are few."""
    if any(each.never for each in arguments):  # an element that never has a value means that the list is never built
        return NEVER, FREE
    if len(arguments) > SHORT or not arguments:
        return i.made(node, sequence(len(arguments), joined(arguments)) if arguments else NIL), FREE
    fields = {f"{at}": each for at, each in enumerate(arguments)}
    return i.made(PairSite(node), Value(size=Bound.of(len(arguments)), fields=fields)), FREE


def _set_display(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    if any(each.never for each in arguments):
        return NEVER, FREE
    return i.made(node, sequence(len(arguments), joined(arguments)) if arguments else NIL), FREE


def _gathered(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    """A list of its arguments, some of which are lists of more."""
    (spread,) = cast("partial[Any]", node.function).args
    size: Bound | None = Bound.of(0)
    for is_spread, each in zip(spread, arguments, strict=True):
        length = i.iterations(each) if is_spread else ONE
        size = size + length if size is not None and length is not None else None
    if any(each.never for each in arguments):
        return NEVER, FREE
    items = [element_of(each) if is_spread else each for is_spread, each in zip(spread, arguments, strict=True)]
    return i.made(node, sequence(size, joined(items))), FREE


def _entries(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    """A dict of keys and values by turns, some of which are dicts of more."""
    (spread,) = cast("partial[Any]", node.function).args
    size: Bound | None = Bound.of(0)
    items: list[Value] = []
    for is_spread, each in zip(spread, arguments[1::2], strict=True):
        length = each.length if is_spread else ONE
        size = size + length if size is not None and length is not None else None
        items.append(each.element() if is_spread else each)
    return i.made(Keyed(node), sequence(size, joined(items)) if items else NIL), FREE


def _element(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return at_key(*arguments), FREE


def _part(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    whole, *ends = arguments
    absent = [isinstance(each, Const) and each.value is None for each in node.args[1:]]
    lower, upper = (None if is_absent else end for is_absent, end in zip(absent[:2], ends[:2], strict=True))
    return i.made(node, part_of(i, whole, lower, upper, stepped=not absent[2])), FREE


def _member(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return arguments[0].part(str(cast(Const, node.args[1]).value)), FREE


def _unpacked(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    """The parts of a value that targets get, as a list."""
    parts = list(_leaves(i, node, cast(Const, node.args[1]).value, arguments[0]))
    fields = {f"{at}": each for at, each in enumerate(parts)}
    return Value(size=Bound.of(len(parts)), fields=fields, sites=frozenset({PairSite(node)})), FREE


def _leaves(i: Interpreter, node: Prim, shape: tuple[Any, ...], value: Value) -> Iterator[Value]:
    fields = value.fields if value.fields is not None and is_positional(value) else None
    for at, each in enumerate(shape):
        if each == "*":
            fields = None
            yield i.made(node, sequence(value.elements, element_of(value)))
            continue
        inner = element_of(value) if fields is None else fields.get(f"{at}", NEVER)
        if each is None:
            yield inner
        else:
            yield from _leaves(i, node, each, inner)


def _taken(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    """One of the parts that a value was taken apart into."""
    return (arguments[0].fields or {}).get(f"{arguments[1].exactly}", NEVER), FREE


def _stored(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return NONE, i.heap.change(arguments[1], arguments[0], ONE)


def _removed(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return NONE, i.heap.change(arguments[0])


def _method(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    names = keywords_of(node)
    name, count = cast("partial[Any]", node.function).args[0], len(arguments) - len(names)
    return i.tables.methods[name](i, node, arguments[:count], dict(zip(names, arguments[count:], strict=True)))


def _append(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return i.tables.methods["append"](i, node, arguments, {})


def _range(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return i.tables.functions["range"](i, node, arguments, {})


# -- functions and effects ----------------------------------------------------------------------------------------


def _task_value(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    named = Named(str(cast(Const, node.args[1]).value), "effect")
    return Value(procedures=frozenset({named}), sites=NOWHERE), FREE


def _main(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return i.call(arguments[0], arguments[1:], node.at)


def _bound(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return i.from_outside(str(cast(Const, node.args[1]).value)), FREE


def _opened(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return arguments[0].opened("value"), FREE


def _sources(i: Interpreter, node: Prim, arguments: list[Value]) -> Outcome:
    return i.heap.given(Keyed(node), DATA), FREE


_CODED: Mapping[Any, Coded] = MappingProxyType(
    {
        **CODED,
        as_list: _display,
        as_set_of_keys: _set_display,
        as_tuple: _display,
        asked: _NOTHING,
        binding: _bound,
        call_main: _main,
        call_method: _method,
        changes.add_to: _in_place("+"),
        changes.bitwise_to: _in_place(None),
        changes.remove: _removed,
        changes.store: _stored,
        changes.subtract_from: _in_place("-"),
        check_global: _NOTHING,
        compare.eq: _TRUTH,
        compare.ne: _TRUTH,
        compare.ordered: _TRUTH,
        declared: _NOTHING,
        entries_of: _entries,
        formatted: _TEXT,
        gathered_of: _gathered,
        is_false: _TRUTH,
        is_instance: _TRUTH,
        is_within: _TRUTH,
        joined_text: _TEXT,
        log_text: _TEXT,
        methods.append: _append,
        operator.getitem: _taken,
        operator.is_: _TRUTH,
        operator.is_not: _TRUTH,
        operator.not_: _TRUTH,
        published: _NOTHING,
        raised: _NOTHING,
        reached: _NOTHING,
        rounds: _range,
        signal: _NOTHING,
        sources_of: _sources,
        task_procedure: _task_value,
        text: _TEXT,
        unwrapped: _opened,
        values.add: _binary("+"),
        values.bitwise: _written_sign,
        values.divide: _binary("/"),
        values.element: _element,
        values.floor_divide: _binary("//"),
        values.inverted: _always(scalar(number(None, None, whole=True))),
        values.member: _member,
        values.modulo: _binary("%"),
        values.multiply: _binary("*"),
        values.negative: _negative,
        values.part: _part,
        values.power: _binary("**"),
        values.shift: _written_sign,
        values.subtract: _binary("-"),
        values.unpacked: _unpacked,
        waiting: _NOTHING,
        written: _TEXT,
    }
)
_PASSING = frozenset(
    {
        *(as_set, below, compare.key, context_paths, endorsed, listed, program_text, raised_again, spread_dict, tuple),
        *(values.elements, values.iterated, values.positive),
    }
)
_ARITHMETIC = (
    *(values.add, values.bitwise, values.divide, values.floor_divide, values.inverted, values.modulo, values.multiply),
    *(values.negative, values.positive, values.power, values.shift, values.subtract),
)
_SIZED = ("length", "min", "max", "absolute", "int")
"""The sizes of the functions that tests of loops call."""

# -- effects ------------------------------------------------------------------------------------------------------

_NUMBER = scalar(number(None, None, whole=False))


_REQUESTS = MappingProxyType({asked: ASK, signal: SIGNAL})


def _requested(i: Interpreter, node: nodes.Perform, arguments: list[Value]) -> Outcome:
    """An effect that its argument makes: a question or signal, or one that nothing counts."""
    request = node.args[0]
    name = _REQUESTS.get(request.function) if isinstance(request, Prim) else None
    if name is None:
        return NONE, FREE
    return i.heap.given(Keyed(node), DATA), i.effect("ask", name, node.at)[1]


def _drawn(i: Interpreter, node: nodes.Perform, arguments: list[Value]) -> Outcome:
    source = cast("partial[Any]", node.make).args[0]
    if source == "random":
        return scalar(number(0, arguments[0].high if arguments else ONE, whole=bool(arguments))), FREE
    return (_NUMBER if source == "now" else scalar(TEXT)), FREE


def _logged(i: Interpreter, node: nodes.Perform, arguments: list[Value]) -> Outcome:
    return NONE, FREE


def _question(i: Interpreter, node: nodes.Perform, arguments: list[Value]) -> Outcome:
    value, cost = i.effect("context", "get_context", node.at)
    return i.heap.given(Keyed(node), value), cost


def _workflow(i: Interpreter, node: nodes.Perform, arguments: list[Value]) -> Outcome:
    name, names = cast("partial[Any]", node.make).args
    value, cost = i.workflow(name, dict(zip(names, arguments, strict=True)), node.at)
    return i.heap.given(Keyed(node), value), cost


def _tool(i: Interpreter, node: nodes.Perform, arguments: list[Value]) -> Outcome:
    return i.task(node, cast("partial[Any]", node.make).args[0], raw=True)


_PERFORMED: Mapping[Any, Performed] = MappingProxyType(
    {
        itself: _requested,
        world.drawn_effect: _drawn,
        world.message_effect: _logged,
        world.question_effect: _question,
        world.tool_effect: _tool,
        world.workflow_effect: _workflow,
    }
)


def _takes_one(node: Prim) -> bool:
    """Whether a function removes an element of its first argument, unless it fails."""
    function = node.function
    if isinstance(function, partial):
        return function.func is call_method and function.args[0] == "pop" and len(node.args) <= 2
    return function is changes.remove


PYTHON = Tables(
    coded=_CODED,
    performed=_PERFORMED,
    functions=FUNCTIONS,
    methods=METHODS,
    signs={
        changes.add_to: "+",
        changes.subtract_from: "-",
        compare.eq: "=",
        compare.ne: "!=",
        compare.ordered: "ordered",
        is_false: "not",
        values.add: "+",
        values.subtract: "-",
    },
    lists={
        **{BUILTINS[each].function: "same-length" for each in ("list", "sorted", "reversed", "tuple")},
        BUILTINS["len"].function: "length",
        as_list: "list",
        as_tuple: "list",
        (call_method, "copy"): "same-length",
        gathered_of: "gathered",
        tuple: "same-length",
        values.add: "append",
        values.element: "element",
        values.elements: "same-length",
        values.part: "slice",
    },
    passing=_PASSING,
    lasting=frozenset(
        {*_ARITHMETIC, is_false, values.element}
        | {row.function for row in BUILTINS.values() if row.size in _SIZED and row.name.isalpha()}
    ),
    takes_one=_takes_one,
)
"""How the functions of texts in Python are followed."""
