"""Changes of lists, dicts and sets in place. Waits and long work are returned as work."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from agentflow.core.data.labels import BOXED_KEYS
from agentflow.core.data.values import OrderedSet, Symbol
from agentflow.core.data.walk import ELEMENTS_PER_STEP, Work, slices
from agentflow.lang.abi import Runtime
from agentflow.lang.calling import Sliced, begun
from agentflow.lang.charging import charge_collection, check_collection, touch_elements
from agentflow.lang.python.boxed.keyed import AT_ONCE, combined, merged
from agentflow.lang.python.boxed.repeated import Repeated
from agentflow.lang.python.boxed.sharing import allowed, changing
from agentflow.lang.python.compare import key
from agentflow.lang.python.errors import outside, wanted, wrong_value
from agentflow.lang.python.rows import code, on
from agentflow.lang.python.values import add, bitwise, element, elements, subtract

_PAIRS = frozenset((list, tuple))


def after(work: Work[None], function: Callable[..., Any], *arguments: Any) -> Any:
    """The value of ``function`` after ``work``; as work if either takes long."""
    return begun(_after(work, function, arguments))


def _after(work: Work[None], function: Callable[..., Any], arguments: tuple[Any, ...]) -> Work[Any]:
    yield from work
    value = function(*arguments)
    return (yield from value.work) if type(value) is Sliced else value


# -- elements -----------------------------------------------------------------------------------------------------


@code(tested="oor", long="always")
def store(rt: Runtime, new: Any, value: Any, at: Any) -> Any:
    """``value[at] = new``; the parameters are in Python's order of evaluation. Returns None, or work."""
    kind = type(value)
    if kind is dict:
        name = at if type(at) is str else key(at)
        if name not in value:
            check_collection(rt, len(value) + 1, "an assignment")
    elif kind is list:
        name = at
        if type(at) is not int and type(at) is not bool:
            wanted("an index", "an integer", at)
        if not -len(value) <= at < len(value):
            outside(at, len(value))
    else:
        _unchangeable(value)
    if rt.fork is not None:
        work = changing(rt, value)
        if work is not None:
            return after(work, store, rt, new, value, at)
    value[name] = new
    return None


@code(long="always")
def remove(rt: Runtime, value: Any, at: Any) -> Any:
    """``del value[at]``. Returns None, or work."""
    if type(value) not in (dict, list):
        _unchangeable(value)
    element(rt, value, at)
    work = changing(rt, value)
    if work is not None:
        return after(work, remove, rt, value, at)
    if type(value) is list:
        rt.charge(len(value) // ELEMENTS_PER_STEP)
    entry: Any = at.name if type(at) is Symbol else at
    del value[entry]
    return None


def _unchangeable(value: Any) -> NoReturn:
    wanted("[...] = ...", "a list or dict before it", value, "build a new one")


# -- operators ----------------------------------------------------------------------------------------------------


@code("oi", long="always")
def add_to(rt: Runtime, a: Any, b: Any) -> Any:
    """``a += b``: a list is extended in place."""
    if type(a) is not list:
        return add(rt, a, b)
    more = elements(rt, b, "+=")
    check_collection(rt, len(a) + len(more), "+=")
    work = changing(rt, a)
    if work is not None:
        return after(work, add_to, rt, a, b)
    a += more
    return a


@code("kne", within=True, long="always")
def bitwise_to(rt: Runtime, sign: str, a: Any, b: Any) -> Any:
    """``a |= b`` and similar operators: sets and dicts are changed in place, dicts by pairs too."""
    if sign == "|" and type(a) is dict:
        return begun(_updated(rt, a, b))
    if type(a) is OrderedSet and type(b) is OrderedSet:
        charge_collection(rt, len(a.items) + len(b.items), sign)
        return begun(_combined(rt, sign, a, b))
    return bitwise(rt, sign, a, b)


@code("nn", long="always")
def subtract_from(rt: Runtime, a: Any, b: Any) -> Any:
    """``a -= b``: a set is changed in place."""
    if type(a) is OrderedSet and type(b) is OrderedSet:
        touch_elements(rt, len(a.items))
        return begun(_combined(rt, "-", a, b))
    return subtract(rt, a, b)


def _combined(rt: Runtime, sign: str, a: OrderedSet, b: OrderedSet) -> Work[OrderedSet]:
    changed = yield from combined(sign, a, b)
    yield from allowed(rt, a)
    a.items = changed.items
    return a


# -- entries ------------------------------------------------------------------------------------------------------


@on(dict, changes="d", puts=True, flow="i", takes="m", size="update", doc="Add the entries of another one.")
def update(rt: Runtime, value: dict[Any, Any], other: Any) -> Any:
    """``value.update(other)``."""
    return begun(_update(rt, value, other, "update"))


def _updated(rt: Runtime, value: dict[Any, Any], other: Any) -> Work[dict[Any, Any]]:
    yield from _update(rt, value, other, "'|='")
    return value


def _update(rt: Runtime, value: dict[Any, Any], other: Any, who: str) -> Work[None]:
    entries = yield from entries_of(rt, other, who)
    check_collection(rt, len(value) + len(entries), who)
    yield from allowed(rt, value)
    yield from merged(value, entries)


@on(
    OrderedSet,
    name="update",
    changes="d",
    puts=True,
    flow="i",
    takes="c",
    size="update",
    doc="Add the entries of another one.",
)
def set_update(rt: Runtime, value: OrderedSet, *others: Any) -> Any:
    """``value.update(...)`` of a set."""
    return begun(_set_update(rt, value, others))


def _set_update(rt: Runtime, value: OrderedSet, others: tuple[Any, ...]) -> Work[None]:
    more = yield from keys_of(rt, others)
    yield from allowed(rt, value)
    yield from merged(value.items, more)


def entries_of(rt: Runtime, value: Any, who: str) -> Work[dict[Any, Any]]:
    """The entries of a dict, which is returned itself, or of a sequence of pairs."""
    if type(value) is dict:
        charge_collection(rt, len(value), who)
        return value
    entries: dict[Any, Any] = {}
    repeated = Repeated()
    pairs = elements(rt, value, who)
    for part in slices(pairs):
        for each in part:
            pair = each if type(each) in _PAIRS else elements(rt, each, who)
            if len(pair) != 2:
                wrong_value(f"{who} takes pairs of a key and a value")
            repeated.put(entries, key(pair[0]), pair[1])
        if len(part) < len(pairs):
            yield 0
    charge_collection(rt, len(entries), who)
    return (yield from repeated.said(entries))


def keys_of(rt: Runtime, values: Iterable[Any], who: str = "a set") -> Work[dict[Any, None]]:
    """The elements of all these collections as keys."""
    keys: dict[Any, None] = {}
    for each in values:
        parts = elements(rt, each, who)
        check_collection(rt, len(keys) + len(parts), who)
        yield from merged(keys, (yield from as_keys(parts)))
    return keys


def as_keys(values: Sequence[Any]) -> Work[dict[Any, None]]:
    """The elements of a sequence as keys. Raises ``dict/key``."""
    keys: dict[Any, None] = {}
    repeated = Repeated()
    for part in slices(values, AT_ONCE):
        some = list(map(key, part))
        if BOXED_KEYS.isdisjoint(map(type, some)):
            keys.update(dict.fromkeys(some))
        else:
            for each in some:
                repeated.put(keys, each, None)
        if len(part) < len(values):
            yield 0
    return (yield from repeated.said(keys))
