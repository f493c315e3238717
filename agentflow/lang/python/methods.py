"""Methods by name and exact type: what ``x.name(...)`` calls."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from agentflow.core.errors import SexpEvaluationError, cut
from agentflow.core.ordered_set import OrderedSet
from agentflow.core.shared_list import SharedList
from agentflow.core.work import ELEMENTS_PER_STEP, Work
from agentflow.lang.abi import Runtime
from agentflow.lang.calling import begun
from agentflow.lang.charging import charge_collection, check_collection, touch_elements
from agentflow.lang.python.compare import key, position
from agentflow.lang.python.errors import article, kind_of, outside, wanted, wrong_value
from agentflow.lang.python.sharing import changing
from agentflow.lang.python.table import Entry, no_such, table
from agentflow.lang.python.text_methods import TEXT_METHODS
from agentflow.lang.python.values import MISSING, elements, entries_of


def method(rt: Runtime, name: str, value: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...] = ()) -> Any:
    """``value.name(...)``; the last arguments are those by ``keywords``. For long work, that."""
    kind = cast("type[Any]", type(value))
    if kind is SharedList:
        value, kind = value.plain(), list
    methods = METHODS.get(kind)
    if methods is None:
        raise SexpEvaluationError(
            f"{article(kind_of(value))} has no methods, and '{name}' is called on it",
            code="name/not-here",
            hint="x.name reads a field; f = x.name, and then f(), calls what a field holds"
            if kind is not int
            else None,
        )
    entry = methods.get(name)
    if entry is None:
        no_such(kind_of(value), name, methods)
    count = len(arguments) - len(keywords)
    if not keywords and entry.least <= count <= entry.positional:
        return entry.function(rt, value, *arguments)
    problem = entry.problem(count, keywords)
    if problem is not None:
        raise problem
    if not keywords:
        return entry.function(rt, value, *arguments)
    return entry.function(rt, value, *arguments[:count], **dict(zip(keywords, arguments[count:], strict=True)))


def append(rt: Runtime, value: Any, item: Any) -> Any:
    """``value.append(item)``. Every 64th element pays for the 64 before it (``native.py`` appends those)."""
    if type(value) is not list:
        return method(rt, "append", value, (item,))
    changing(rt, value)
    if value and not len(value) % ELEMENTS_PER_STEP:
        charge_collection(rt, ELEMENTS_PER_STEP, "append")
        check_collection(rt, len(value) + 1, "append")
    value.append(item)
    return None


# -- lists --------------------------------------------------------------------------------------------------------


def extend(rt: Runtime, value: list[Any], iterable: Any) -> None:
    more = elements(rt, iterable, "extend")
    check_collection(rt, len(value) + len(more), "extend")
    charge_collection(rt, len(more), "extend")
    changing(rt, value)
    value.extend(more)


def insert(rt: Runtime, value: list[Any], index: Any, item: Any) -> None:
    if type(index) is not int:
        wanted("insert", "an integer as index", index)
    check_collection(rt, len(value) + 1, "insert")
    touch_elements(rt, len(value))
    changing(rt, value)
    value.insert(max(min(index, len(value)), -len(value) - 1), item)


def remove_(rt: Runtime, value: list[Any], item: Any) -> Any:
    changing(rt, value)
    return begun(_remove(value, item))


def _remove(value: list[Any], item: Any) -> Work[None]:
    at = yield from position(item, value)
    if at is None:
        wrong_value("the list has no such element")
    del value[at]


def pop(rt: Runtime, value: list[Any], index: Any = -1) -> Any:
    if type(index) is not int:
        wanted("pop", "an integer as index", index)
    if not -len(value) <= index < len(value):
        outside(index, len(value))
    changing(rt, value)
    if index != -1:
        touch_elements(rt, len(value))
    return value.pop(index)


def clear(rt: Runtime, value: Any) -> None:
    changing(rt, value)
    (value.items if type(value) is OrderedSet else value).clear()


def index(rt: Runtime, value: Any, item: Any) -> Any:
    return begun(_index(value, item))


def _index(value: Any, item: Any) -> Work[int]:
    at = yield from position(item, value)
    if at is None:
        wrong_value("there is no such element")
    return at


def count(rt: Runtime, value: Any, item: Any) -> Any:
    return begun(_count(value, item))


def _count(value: Any, item: Any) -> Work[int]:
    total, start = 0, 0
    while (at := (yield from position(item, value[start:] if start else value))) is not None:
        yield (len(value) - start) // 64
        total += 1
        start += at + 1
    return total


def reverse(rt: Runtime, value: list[Any]) -> None:
    touch_elements(rt, len(value))
    changing(rt, value)
    value.reverse()


def copy(rt: Runtime, value: Any) -> Any:
    charge_collection(rt, len(value), "copy")
    return OrderedSet(value.items) if type(value) is OrderedSet else value.copy()


# -- dicts --------------------------------------------------------------------------------------------------------


def get(rt: Runtime, value: dict[Any, Any], wanted_key: Any, default: Any = None) -> Any:
    return value.get(key(wanted_key), default)


def keys(rt: Runtime, value: dict[Any, Any]) -> list[Any]:
    charge_collection(rt, len(value), "keys")
    return list(value)


def values(rt: Runtime, value: dict[Any, Any]) -> list[Any]:
    charge_collection(rt, len(value), "values")
    return list(value.values())


def items(rt: Runtime, value: dict[Any, Any]) -> list[Any]:
    charge_collection(rt, len(value), "items")
    return list(value.items())


def pop_key(rt: Runtime, value: dict[Any, Any], wanted_key: Any, default: Any = MISSING) -> Any:
    name = key(wanted_key)
    if name in value:
        changing(rt, value)
        return value.pop(name)
    if default is MISSING:
        raise SexpEvaluationError(f"the dict has no key {cut(str(name), 80)!r}", code="dict/missing")
    return default


def setdefault(rt: Runtime, value: dict[Any, Any], wanted_key: Any, default: Any = None) -> Any:
    name = key(wanted_key)
    if name not in value:
        check_collection(rt, len(value) + 1, "setdefault")
        changing(rt, value)
        value[name] = default
    return value[name]


def update(rt: Runtime, value: dict[Any, Any], other: Any) -> None:
    entries = entries_of(rt, other, "update")
    check_collection(rt, len(value) + len(entries), "update")
    changing(rt, value)
    value.update(entries)


# -- sets ---------------------------------------------------------------------------------------------------------


def add_(rt: Runtime, value: OrderedSet, item: Any) -> None:
    name = key(item)
    if name not in value.items:
        check_collection(rt, len(value.items) + 1, "add")
        changing(rt, value)
        value.items[name] = None


def discard(rt: Runtime, value: OrderedSet, item: Any) -> None:
    changing(rt, value)
    value.items.pop(key(item), None)


def remove_element(rt: Runtime, value: OrderedSet, item: Any) -> None:
    name = key(item)
    if name not in value.items:
        raise SexpEvaluationError(f"the set has no element {cut(str(name), 80)!r}", code="dict/missing")
    changing(rt, value)
    del value.items[name]


def set_update(rt: Runtime, value: OrderedSet, *others: Any) -> None:
    more = _keys(rt, others)
    changing(rt, value)
    value.items.update(more)


def union(rt: Runtime, value: OrderedSet, *others: Any) -> OrderedSet:
    charge_collection(rt, len(value.items), "union")
    return OrderedSet([*value.items, *_keys(rt, others)])


def intersection(rt: Runtime, value: OrderedSet, other: Any) -> OrderedSet:
    more = _keys(rt, (other,))
    touch_elements(rt, len(value.items))
    return OrderedSet([each for each in value.items if each in more])


def difference(rt: Runtime, value: OrderedSet, *others: Any) -> OrderedSet:
    more = _keys(rt, others)
    touch_elements(rt, len(value.items))
    return OrderedSet([each for each in value.items if each not in more])


def issubset(rt: Runtime, value: OrderedSet, other: Any) -> bool:
    return value.items.keys() <= _keys(rt, (other,)).keys()


def issuperset(rt: Runtime, value: OrderedSet, other: Any) -> bool:
    return value.items.keys() >= _keys(rt, (other,)).keys()


def _keys(rt: Runtime, values: tuple[Any, ...]) -> dict[Any, None]:
    keys: dict[Any, None] = {}
    for each in values:
        parts = elements(rt, each, "a set")
        check_collection(rt, len(keys) + len(parts), "a set")
        keys.update(dict.fromkeys(map(key, parts)))
    return keys


def _named(name: str, function: Callable[..., Any]) -> dict[str, Entry]:
    return {name: Entry.of(name, function, 2)}


METHODS: dict[type[Any], dict[str, Entry]] = {
    str: TEXT_METHODS,
    list: {
        **table((extend, insert, remove_, pop, clear, index, count, reverse, copy), 2),
        **_named("append", append),
    },
    tuple: table((index, count), 2),
    dict: {**table((get, keys, values, items, setdefault, update, clear, copy), 2), **_named("pop", pop_key)},
    OrderedSet: {
        **table((add_, discard, union, intersection, difference, issubset, issuperset, clear, copy), 2),
        **_named("remove", remove_element),
        **_named("update", set_update),
    },
}
"""The methods of each type; ``sort`` is a function of its own (``builtins.py``), because it calls its key."""
ALL_METHODS = frozenset(name for methods in METHODS.values() for name in methods) | {"sort"}
