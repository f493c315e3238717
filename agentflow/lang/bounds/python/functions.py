"""Abstract interpretation of the functions and methods that texts in Python call by name."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.interpret import Outcome
from agentflow.lang.bounds.polynomial import ONE, Bound
from agentflow.lang.bounds.primitives import RULES as SIZES
from agentflow.lang.bounds.primitives import like
from agentflow.lang.bounds.python.expressions import (
    Keyed,
    PairSite,
    at_key,
    element_of,
    is_keyed,
    is_number,
    iterations,
)
from agentflow.lang.bounds.python.heap import scalar
from agentflow.lang.bounds.python.interpret import NONE, Function, Python
from agentflow.lang.bounds.values import DATA, NEVER, NIL, PLAIN, TEXT, Value, joined, number, sequence
from agentflow.lang.bounds.values import text as one_of
from agentflow.lang.python.builtins import BUILTINS, ISINSTANCE
from agentflow.lang.python.methods import METHOD_ROWS

_PLAIN = scalar(PLAIN)
_TEXT = scalar(TEXT)
Named = Mapping[str, Value]


def _given(value: Value) -> Function:
    """A function that gives ``value`` whatever it is called with."""

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
    """What it costs to call a key with each element; ``None`` is no key."""
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
    """The elements of a value in a new list, tuple or set."""
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
    """A change that puts in the last argument: ``append``, ``insert``, ``add``."""
    return NONE, i.heap.change(values[0], joined([*values[1:], *named.values()]), ONE)


def _setdefault(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    value, *rest = values
    default = _at(rest, named, 1, "default") or NONE
    cost = i.heap.change(value, default, ONE)
    return (at_key(value, rest[0]) if rest else value.element()).join(default), cost


def _update(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    """A change that puts in the elements of the arguments, or the values of a dict."""
    more = [*values[1:], *named.values()]
    cost = FREE
    for each in more:
        put = joined([element_of(i, each), each.element(), each.element().element()])
        cost = cost.then(i.heap.change(values[0], put, iterations(i, each)))
    return NONE, cost


def _removed(i: Python, node: ast.AST, values: list[Value], named: Named) -> Outcome:
    """A change that takes something out."""
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
"""The analysis of methods, by name alone: what a value is, is not known."""
