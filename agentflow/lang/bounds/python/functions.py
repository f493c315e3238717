"""The functions and methods of Python, followed by the word ``size`` of their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agentflow.lang.bounds.containers import Keyed, PairSite, at_key, element_of, is_keyed, is_number
from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.heap import scalar
from agentflow.lang.bounds.interpret import Interpreter
from agentflow.lang.bounds.polynomial import ONE, Bound
from agentflow.lang.bounds.primitives import RULES as SIZES
from agentflow.lang.bounds.primitives import like
from agentflow.lang.bounds.tables import NONE, Function, Outcome
from agentflow.lang.bounds.values import DATA, NEVER, NIL, PLAIN, TEXT, Value, joined, number, sequence
from agentflow.lang.bounds.values import text as one_of
from agentflow.lang.kernel.nodes import Node
from agentflow.lang.python.builtins import BUILTINS, ISINSTANCE
from agentflow.lang.python.methods import METHOD_ROWS

_PLAIN = scalar(PLAIN)
_TEXT = scalar(TEXT)
Names = Mapping[str, Value]


def _given(value: Value) -> Function:
    """A function that returns ``value`` for any arguments."""

    def follow(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
        return value, FREE

    return follow


def _first(name: str, values: Sequence[Value], named: Names) -> Value:
    return values[0] if values else named.get(name, NIL)


def _at(values: Sequence[Value], named: Names, at: int, name: str) -> Value | None:
    return values[at] if len(values) > at else named.get(name)


# -- numbers ------------------------------------------------------------------------------------------------------


def _len(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value = _first("obj", values, named)
    length = scalar(number(0, i.iterations(value), whole=True))
    return length.but(length_of=value.marks), FREE


def _int(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value = _first("x", values, named)
    if is_number(value) and value.low is not None and value.low >= 0 and len(values) == 1:
        return scalar(value if value.whole else number(0, value.high, whole=True)), FREE
    return scalar(number(None, None, whole=True)), FREE


def _abs(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    return scalar(SIZES["absolute"]([_first("x", values, named)])), FREE


def _extreme(word: str) -> Function:
    def follow(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
        several = len(values) > 1
        element = joined(values) if several else element_of(_first("values", values, named))
        count = Bound.of(len(values)) if several else i.iterations(_first("values", values, named))
        key, default = named.get("key"), named.get("default", NEVER)
        if key is not None:
            return element.join(default), _keys(i, node, key, element, count)
        if several and all(map(is_number, values)):
            return scalar(SIZES[word](values)), FREE
        return element.join(default), FREE

    return follow


def _keys(i: Interpreter, node: Node, key: Value, element: Value, count: Bound | None) -> Cost:
    """The cost of calling a key function once per element; ``None`` is not a key."""
    if not key.procedures and not key.foreign:
        return FREE
    return i.each(key, [element], count, node.at)[1]


def _sum(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    listed, start = _first("iterable", values, named), _at(values, named, 1, "start")
    total = scalar(number(None, None, whole=False))
    if start is None or is_number(start):
        return total, FREE
    within = start.element().join(listed.element().element())
    return i.made(node, sequence(None, within)).join(total), FREE


def _product(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    start, total = _at(values, named, 1, "start"), scalar(number(None, None, whole=False))
    if start is None or is_number(start):
        return total, FREE
    repeated = i.made(node, sequence(None, start.element()))  # a list times a number
    return start.join(repeated).join(total).but(texts=None), FREE


def _range(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    if not 1 <= len(values) <= 3:
        return NEVER, FREE
    numbers = SIZES["range"](values)
    return i.made(node, numbers.but(item=scalar(numbers.item or PLAIN))), FREE


# -- collections --------------------------------------------------------------------------------------------------


def _collected(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    """A new list, tuple or set with the elements of a value."""
    if not values and not named:
        return i.made(node, NIL), FREE
    value = _first("iterable", values, named)
    return _new(i, node, value, element_of(value)), FREE


def _new(i: Interpreter, site: Node, value: Value, item: Value) -> Value:
    """A new list with as many elements as ``value``, or fewer."""
    result = like(value, i.iterations(value), item)
    return i.made(site, result.but(origins=value.origins) if value.origins else result)


def _sorted(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value = _first("iterable", values, named)
    element = element_of(value)
    key = named.get("key")
    cost = FREE if key is None else _keys(i, node, key, element, i.iterations(value))
    return _new(i, node, value, element), cost


def _dict(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    if not values and not named:
        return i.made(Keyed(node), NIL), FREE
    value = _first("pairs", values, named)
    if value.fields is not None and is_keyed(value):
        return i.made(Keyed(node), Value(size=value.size, fields=value.fields)), FREE
    within = value.element().join(value.element().element())
    return i.made(Keyed(node), sequence(i.iterations(value), within)), FREE


def _pair(i: Interpreter, node: Node, *parts: Value) -> Value:
    fields = {f"{at}": each for at, each in enumerate(parts)}
    return i.made(PairSite(node), Value(size=Bound.of(len(parts)), fields=fields))


def _enumerate(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value = _first("iterable", values, named)
    index = scalar(number(None, None, whole=True))
    return _list_of(i, node, value, i.iterations(value), _pair(i, node, index, element_of(value))), FREE


def _list_of(i: Interpreter, node: Node, value: Value, size: Bound | None, item: Value) -> Value:
    return i.made(node, sequence(size, item).but(marks=like(value, None, NEVER).marks))


def _zip(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    size = _shortest(i, values)
    return i.made(node, sequence(size, _pair(i, node, *(element_of(each) for each in values)))), FREE


def _shortest(i: Interpreter, values: Sequence[Value]) -> Bound | None:
    lengths = [i.iterations(each) for each in values]
    bounded = [each for each in lengths if each is not None and each.terms is not None]
    numbers = [each.number for each in bounded if each.number is not None]
    return Bound.of(min(numbers)) if numbers else bounded[0] if bounded else None


def _map(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    function, *listed = values
    count = _shortest(i, listed)
    value, cost = i.each(function, [element_of(each) for each in listed], count, node.at)
    if not listed:
        return NEVER, FREE
    return _list_of(i, node, listed[0], count, value), cost


def _filter(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    if len(values) < 2:
        return NEVER, FREE
    function, listed = values
    element, count = element_of(listed), i.iterations(listed)
    return _new(i, node, listed, element), _keys(i, node, function, element, count)


def _loads(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    return i.heap.given(Keyed(node), DATA), FREE


# -- methods ------------------------------------------------------------------------------------------------------


def _append(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    """A change that adds the last argument: ``append``, ``insert``, ``add``."""
    return NONE, i.heap.change(values[0], joined([*values[1:], *named.values()]), ONE)


def _setdefault(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value, *rest = values
    default = _at(rest, named, 1, "default") or NONE
    cost = i.heap.change(value, default, ONE)
    return (at_key(value, rest[0]) if rest else value.element()).join(default), cost


def _update(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    """A change that adds the elements of the arguments, or the values of a dict."""
    more = [*values[1:], *named.values()]
    cost = FREE
    for each in more:
        put = joined([element_of(each), each.element(), each.element().element()])
        cost = cost.then(i.heap.change(values[0], put, i.iterations(each)))
    return NONE, cost


def _removed(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    """A change that removes an element."""
    value, *rest = values
    default = _at(rest, named, 1, "default") or NEVER
    return value.element().join(NONE).join(default), i.heap.change(value)


def _sort(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value, key = values[0], named.get("key")
    cost = FREE if key is None else _keys(i, node, key, value.element(), i.iterations(value))
    return NONE, cost.then(i.heap.change(value))


def _get(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value, *rest = values
    default = _at(rest, named, 1, "default") or NONE
    element = at_key(value, rest[0]) if rest else value.element()
    return element.join(default), FREE


def _of_keys(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    return i.made(node, sequence(values[0].length, element_of(values[0]).join(_TEXT))), FREE


def _of_values(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    return i.made(node, sequence(values[0].length, values[0].element())), FREE


def _of_items(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value = values[0]
    key = scalar(one_of(*value.fields)) if value.fields else DATA
    return i.made(node, sequence(value.length, _pair(i, node, key, value.element()))), FREE


def _copy(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    value = values[0]
    if value.fields is not None:
        return i.made(Keyed(node), sequence(value.size, value.element())), FREE
    copy = like(value, value.length, value.element())
    return i.made(Keyed(node), copy.but(origins=value.origins)), FREE


def _union(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    total: Bound | None = Bound.of(0)
    for each in values:
        length = i.iterations(each)
        total = total + length if total is not None and length is not None else None
    return i.made(node, sequence(total, joined(element_of(each) for each in values))), FREE


def _fewer(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    return _new(i, node, values[0], element_of(values[0])), FREE


def _texts(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    return i.made(node, sequence(None, _TEXT)), FREE


def _three(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
    return i.made(node, sequence(3, _TEXT)), FREE


def _divmod(i: Interpreter, node: Node, values: list[Value], named: Names) -> Outcome:
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
        "product": _product,
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
METHODS: Mapping[str, Function] = MappingProxyType({row.name: _SIZES[row.size] for row in METHOD_ROWS})
"""The analysis of methods, by name alone, because the type of the receiver is unknown."""
