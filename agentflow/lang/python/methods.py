"""Methods by name and exact type: the targets of ``x.name(...)``."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from typing import Any, cast

from agentflow.core.data.errors import SexpEvaluationError, cut
from agentflow.core.data.values import OrderedSet, SharedList
from agentflow.core.data.walk import ELEMENTS_PER_STEP, Work, slices
from agentflow.lang.abi import Runtime
from agentflow.lang.calling import begun
from agentflow.lang.charging import charge_collection, check_collection, touch_elements
from agentflow.lang.python import changes
from agentflow.lang.python.boxed.keyed import AT_ONCE, chosen, included, joined
from agentflow.lang.python.boxed.sharing import allowed, changing
from agentflow.lang.python.builtins import SORT
from agentflow.lang.python.changes import after, keys_of
from agentflow.lang.python.compare import key as as_key
from agentflow.lang.python.compare import position, times
from agentflow.lang.python.errors import article, kind_of, outside, wanted, wrong_value
from agentflow.lang.python.rows import Row, code, no_such, on, rows_in
from agentflow.lang.python.text_methods import TEXT_METHODS
from agentflow.lang.python.values import MISSING, elements


@code(long="always")
def method(rt: Runtime, name: str, value: Any, arguments: tuple[Any, ...], keywords: tuple[str, ...] = ()) -> Any:
    """``value.name(...)``; the last arguments are those by ``keywords``. Long work is returned as work."""
    kind = cast("type[Any]", type(value))
    if kind is SharedList:
        value, kind = value.plain(), list
    methods = METHODS.get(kind)
    if methods is None:
        raise SexpEvaluationError(
            f"{article(kind_of(value))} has no methods, and '{name}' is called on it",
            code="name/not-here",
            hint="x.name reads a field; f = x.name, and then f(), calls the value of a field"
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


@code("ok", long="always")
@on(list, changes="", puts=True, flow="k", size="put")
def append(rt: Runtime, value: Any, item: Any) -> Any:
    """``value.append(item)``, which takes no steps: the loop or recursion around it does. Returns None, or work."""
    if type(value) is not list:
        return method(rt, "append", value, (item,))
    work = changing(rt, value)
    if work is not None:
        return after(work, append, rt, value, item)
    if not len(value) % ELEMENTS_PER_STEP:
        check_collection(rt, len(value) + 1, "append")
    value.append(item)
    return None


# -- lists --------------------------------------------------------------------------------------------------------


@on(list, changes="i", puts=True, flow="i", takes="c", size="update")
def extend(rt: Runtime, value: list[Any], iterable: Any) -> Any:
    more = elements(rt, iterable, "extend")
    check_collection(rt, len(value) + len(more), "extend")
    work = changing(rt, value)
    if work is not None:
        return after(work, extend, rt, value, more)
    charge_collection(rt, len(more), "extend")
    value.extend(more)
    return None


@on(list, changes="i", puts=True, flow="rk", takes="i.", size="put")
def insert(rt: Runtime, value: list[Any], index: Any, item: Any) -> Any:
    if type(index) is not int:
        wanted("insert", "an integer as index", index)
    check_collection(rt, len(value) + 1, "insert")
    work = changing(rt, value)
    if work is not None:
        return after(work, insert, rt, value, index, item)
    touch_elements(rt, len(value))
    value.insert(max(min(index, len(value)), -len(value) - 1), item)
    return None


@on(list, changes="a", within=True, size="removed")
def remove_(rt: Runtime, value: list[Any], item: Any) -> Any:
    return begun(_remove(rt, value, item))


def _remove(rt: Runtime, value: list[Any], item: Any) -> Work[None]:
    yield from allowed(rt, value)
    at = yield from position(item, value)
    if at is None:
        wrong_value("the list has no such element")
    del value[at]


@on(list, changes="i", flow="rk", takes="i", size="removed")
def pop(rt: Runtime, value: list[Any], index: Any = -1) -> Any:
    if type(index) is not int:
        wanted("pop", "an integer as index", index)
    if not -len(value) <= index < len(value):
        outside(index, len(value))
    work = changing(rt, value)
    if work is not None:
        return after(work, pop, rt, value, index)
    if index != -1:
        touch_elements(rt, len(value))
    return value.pop(index)


@on(list, dict, OrderedSet, changes="", size="removed")
def clear(rt: Runtime, value: Any) -> Any:
    return begun(_clear(rt, value))


def _clear(rt: Runtime, value: Any) -> Work[None]:
    yield from allowed(rt, value)
    (value.items if type(value) is OrderedSet else value).clear()


@on(list, tuple, changes=None, within=True, size="whole")
def index(rt: Runtime, value: Any, item: Any) -> Any:
    return begun(_index(value, item))


def _index(value: Any, item: Any) -> Work[int]:
    at = yield from position(item, value)
    if at is None:
        wrong_value("there is no such element")
    return at


@on(list, tuple, changes=None, within=True, size="whole")
def count(rt: Runtime, value: Any, item: Any) -> Any:
    return begun(_count(value, item))


def _count(value: Any, item: Any) -> Work[int]:
    total = 0
    for part in slices(value):
        total += yield from times(item, part)
    return total


@on(list, changes="", size="removed")
def reverse(rt: Runtime, value: list[Any]) -> Any:
    return begun(_reverse(rt, value))


def _reverse(rt: Runtime, value: list[Any]) -> Work[None]:
    yield from allowed(rt, value)
    touch_elements(rt, len(value))
    value.reverse()


@on(list, dict, OrderedSet, changes=None, size="copy", doc="A copy, with the same elements in it.")
def copy(rt: Runtime, value: Any) -> Any:
    charge_collection(rt, len(value), "copy")
    return OrderedSet.of(value.items.copy()) if type(value) is OrderedSet else value.copy()


# -- dicts --------------------------------------------------------------------------------------------------------


@on(dict, changes=None, flow="rk", takes="k.", size="entry")
def get(rt: Runtime, value: dict[Any, Any], key: Any, default: Any = None) -> Any:
    return value.get(as_key(key), default)


@on(dict, changes=None, keys=True, size="keys", doc="A list of the keys.")
def keys(rt: Runtime, value: dict[Any, Any]) -> list[Any]:
    charge_collection(rt, len(value), "keys")
    return list(value)


@on(dict, changes=None, keys=True, size="values", doc="A list of the values.")
def values(rt: Runtime, value: dict[Any, Any]) -> list[Any]:
    charge_collection(rt, len(value), "values")
    return list(value.values())


@on(dict, changes=None, keys=True, size="items", doc="A list of pairs: a key and its value.")
def items(rt: Runtime, value: dict[Any, Any]) -> Any:
    charge_collection(rt, len(value), "items")
    return list(value.items()) if len(value) <= AT_ONCE else begun(_items(list(value), list(value.values())))


def _items(names: list[Any], values: list[Any]) -> Work[list[tuple[Any, Any]]]:
    pairs: list[tuple[Any, Any]] = []
    for start in range(0, len(names), AT_ONCE):
        pairs += zip(names[start : start + AT_ONCE], values[start : start + AT_ONCE], strict=True)
        yield 0
    return pairs


@on(dict, name="pop", changes="i", flow="rk", takes="k.", size="removed")
def pop_key(rt: Runtime, value: dict[Any, Any], key: Any, default: Any = MISSING) -> Any:
    name = as_key(key)
    if name in value:
        work = changing(rt, value)
        return value.pop(name) if work is None else after(work, pop_key, rt, value, key, default)
    if default is MISSING:
        raise SexpEvaluationError(f"the dict has no key {cut(str(name), 80)!r}", code="dict/missing")
    return default


@on(dict, changes="i", puts=True, flow="kk", takes="k.", size="setdefault")
def setdefault(rt: Runtime, value: dict[Any, Any], key: Any, default: Any = None) -> Any:
    name = as_key(key)
    if name not in value:
        check_collection(rt, len(value) + 1, "setdefault")
        work = changing(rt, value)
        if work is not None:
            return after(work, setdefault, rt, value, key, default)
        value[name] = default
    return value[name]


# -- sets ---------------------------------------------------------------------------------------------------------


@on(OrderedSet, changes="i", puts=True, flow="k", takes="k", size="put")
def add_(rt: Runtime, value: OrderedSet, item: Any) -> Any:
    name = as_key(item)
    if name not in value.items:
        check_collection(rt, len(value.items) + 1, "add")
        work = changing(rt, value)
        if work is not None:
            return after(work, add_, rt, value, item)
        value.items[name] = None
    return None


@on(OrderedSet, changes="i", takes="k", size="removed")
def discard(rt: Runtime, value: OrderedSet, item: Any) -> Any:
    return begun(_discard(rt, value, as_key(item)))


def _discard(rt: Runtime, value: OrderedSet, name: Any) -> Work[None]:
    yield from allowed(rt, value)
    value.items.pop(name, None)


@on(OrderedSet, name="remove", changes="a", takes="k", size="removed")
def remove_element(rt: Runtime, value: OrderedSet, item: Any) -> Any:
    name = as_key(item)
    if name not in value.items:
        raise SexpEvaluationError(f"the set has no element {cut(str(name), 80)!r}", code="dict/missing")
    return begun(_discard(rt, value, name))


@on(OrderedSet, changes=None, keys=True, takes="c", size="union")
def union(rt: Runtime, value: OrderedSet, *others: Any) -> Any:
    charge_collection(rt, len(value.items), "union")
    return begun(_union(rt, value, others))


def _union(rt: Runtime, value: OrderedSet, others: tuple[Any, ...]) -> Work[OrderedSet]:
    return OrderedSet.of((yield from joined(value.items, (yield from keys_of(rt, others)))))


@on(OrderedSet, changes=None, keys=True, takes="c", size="fewer")
def intersection(rt: Runtime, value: OrderedSet, other: Any) -> Any:
    return begun(_chosen(rt, value, (other,), True))


@on(OrderedSet, changes=None, keys=True, takes="c", size="fewer")
def difference(rt: Runtime, value: OrderedSet, *others: Any) -> Any:
    return begun(_chosen(rt, value, others, False))


def _chosen(rt: Runtime, value: OrderedSet, others: tuple[Any, ...], within: bool) -> Work[OrderedSet]:
    more = yield from keys_of(rt, others)
    touch_elements(rt, len(value.items))
    return OrderedSet.of((yield from chosen(value.items, more, within)))


@on(OrderedSet, changes=None, keys=True, takes="c")
def issubset(rt: Runtime, value: OrderedSet, other: Any) -> Any:
    return begun(_included(rt, "<=", value, other))


@on(OrderedSet, changes=None, keys=True, takes="c")
def issuperset(rt: Runtime, value: OrderedSet, other: Any) -> Any:
    return begun(_included(rt, ">=", value, other))


def _included(rt: Runtime, sign: str, value: OrderedSet, other: Any) -> Work[bool]:
    return (yield from included(sign, value.items, (yield from keys_of(rt, (other,)))))


METHODS: dict[type[Any], dict[str, Row]] = {
    str: TEXT_METHODS,
    **{kind: rows_in((*globals().values(), *vars(changes).values()), kind) for kind in (list, tuple, dict, OrderedSet)},
}
"""The methods of each type; ``sort`` is a separate function (``builtins.py``), because it calls its key."""
METHOD_ROWS = (*(row for methods in METHODS.values() for row in methods.values()), SORT)
ALL_METHODS = frozenset(row.name for row in METHOD_ROWS)
OF_TEXTS = frozenset(TEXT_METHODS) - {name for kind, methods in METHODS.items() if kind is not str for name in methods}
"""The methods that only texts have: none leaves its work for slices."""
