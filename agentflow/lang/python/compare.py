"""Python's equality, order and membership, without recursion and without running code of a host's class."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from agentflow.core.data.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.data.labels import NO_SOURCES, Label, Sources, blame, joined
from agentflow.core.data.values import MAX_DATA_DEPTH, OrderedSet, SharedList, Symbol
from agentflow.core.data.walk import CHARACTERS_PER_STEP, ELEMENTS_PER_STEP, LEAVES, PART, Work, slices
from agentflow.lang.abi import Runtime
from agentflow.lang.calling import begun
from agentflow.lang.equality import MAX_KEY_PARTS, is_key
from agentflow.lang.python.boxed.keyed import included
from agentflow.lang.python.errors import article, kind_of, wanted
from agentflow.lang.python.rows import code

NUMBERS = frozenset((int, float, bool))
_ORDERED = frozenset((list, tuple))
_CONTAINERS = frozenset((list, tuple, dict, OrderedSet))
_KEYS = frozenset((*LEAVES, tuple, Symbol, Label))
_NUMBERS_AND_NONE = frozenset((*NUMBERS, type(None)))
SMALL = 64
"""The most elements of a container of leaves to compare at once."""
_SYMBOLS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@code(tested="rr", long="always")
def eq(rt: Runtime, a: Any, b: Any) -> Any:
    """``a == b``."""
    if type(a) in LEAVES and type(b) in LEAVES and (type(a) is not str or _is_quick(a, b)):
        return a == b
    return begun(_same(a, b))


@code(tested="rr", long="always")
def ne(rt: Runtime, a: Any, b: Any) -> Any:
    """``a != b``."""
    if type(a) in LEAVES and type(b) in LEAVES and (type(a) is not str or _is_quick(a, b)):
        return a != b
    return begun(_different(a, b))


def _is_quick(a: str, b: Any) -> bool:
    """Whether comparing a text takes negligible time: texts of different lengths differ in any case."""
    return len(a) < CHARACTERS_PER_STEP or type(b) is not str or len(a) != len(b)


def _different(a: Any, b: Any) -> Work[bool]:
    return not (yield from _same(a, b))


def _same(a: Any, b: Any) -> Work[bool]:
    """Whether two values are equal. Objects of the host are equal only to themselves."""
    seen: set[tuple[int, int]] = set()
    keep: list[Any] = []
    pending: list[tuple[Any, Any, int]] = [(a, b, 0)]
    count = 0
    while pending:
        x, y, depth = pending.pop()
        count += 1
        if count >= PART:
            yield count // ELEMENTS_PER_STEP
            count = 0
        if type(x) in LEAVES and type(y) in LEAVES:
            if type(x) is str and len(x) >= CHARACTERS_PER_STEP and x is not y:
                yield len(x) // CHARACTERS_PER_STEP
            if not (x is y or x == y):
                return False
            continue
        if type(x) in _CONTAINERS and type(x) is type(y) and len(x) == len(y) > PART:
            if x is y or (id(x), id(y)) in seen:
                continue
            seen.add((id(x), id(y)))
            keep.append((x, y))
            if type(x) in _ORDERED:
                pending.extend((x[at : at + PART], y[at : at + PART], depth) for at in range(0, len(x), PART))
            elif not (yield from _same_keys(x, y, pending, depth)):
                return False
            continue
        if depth < MAX_DATA_DEPTH and type(x) in _ORDERED and type(x) is type(y) and _numeric(x) and _numeric(y):
            count += len(x)
            if x != y:
                return False
            continue
        pairs = _pairs(x, y)
        if pairs is None:
            return False
        if x is y or not pairs or (id(x), id(y)) in seen:
            continue
        if depth >= MAX_DATA_DEPTH:
            raise _too_deep()
        seen.add((id(x), id(y)))
        keep.append((x, y))
        count += len(pairs)
        pending.extend((p, q, depth + 1) for p, q in reversed(pairs))
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    return True


def _same_keys(x: Any, y: Any, pending: list[tuple[Any, Any, int]], depth: int) -> Work[bool]:
    """Whether two large dicts or sets have the same keys; ``pending`` gets lists of the values of dicts."""
    for part in slices(list(x)):
        if not _plain(part) or not all([each in y for each in part]):
            return False
        if type(x) is dict:
            pending.append(([x[each] for each in part], [y[each] for each in part], depth))
        yield len(part) // ELEMENTS_PER_STEP
    return True


def _numeric(values: Any) -> bool:
    return len(values) <= PART and _NUMBERS_AND_NONE.issuperset(map(type, values))


def _plain(keys: Iterable[Any]) -> bool:
    """Whether keys are values of programs, not objects of the host, because a look-up of those would run their code."""
    return _KEYS.issuperset(map(type, keys))


def _pairs(x: Any, y: Any) -> list[tuple[Any, Any]] | None:
    """The parts to compare of two values; None if they differ already."""
    kind = type(x)
    if kind is SharedList:
        return _pairs(x.plain(), y)
    if type(y) is SharedList:
        return _pairs(x, y.plain())
    if kind is Symbol or type(y) is Symbol:
        return [] if kind in (Symbol, str) and type(y) in (Symbol, str) and str(x) == str(y) else None
    if kind is not type(y):
        return None
    if kind is list or kind is tuple:
        return list(zip(x, y, strict=True)) if len(x) == len(y) else None
    if x is y:
        return []
    if kind is dict:
        return [(x[key], y[key]) for key in x] if _same_names(x, y) else None
    if kind is OrderedSet:
        return [] if x.items.keys() == y.items.keys() else None
    return None


def _same_names(x: dict[Any, Any], y: dict[Any, Any]) -> bool:
    return len(x) == len(y) and _plain(x) and _plain(y) and x.keys() == y.keys()


def _too_deep() -> LimitExceeded:
    return LimitExceeded(
        f"data is nested deeper than {MAX_DATA_DEPTH} levels, too deep to compare",
        limit="depth",
        allowed=MAX_DATA_DEPTH,
        hint="compare its parts",
    )


@code(tested="rr", long="always")
def ordered(rt: Runtime, sign: str, a: Any, b: Any) -> Any:
    """``a < b`` and similar: numbers, texts, lists and tuples of them, and sets by inclusion."""
    kind = type(a)
    if kind in NUMBERS and type(b) in NUMBERS:
        return _SYMBOLS[sign](a, b)
    if kind is str and type(b) is str:
        if len(a) >= CHARACTERS_PER_STEP:
            rt.charge(min(len(a), len(b)) // CHARACTERS_PER_STEP)
        return _SYMBOLS[sign](a, b)
    if kind is OrderedSet and type(b) is OrderedSet:
        rt.charge((len(a.items) + len(b.items)) // ELEMENTS_PER_STEP)
        return begun(included(sign, a.items, b.items))
    return begun(compared(sign, a, b))


def compared(sign: str, a: Any, b: Any) -> Work[bool]:
    """The order of two sequences: that of their first different parts."""
    test = _SYMBOLS[sign]
    depth = count = 0
    while (type(a) is list and type(b) is list) or (type(a) is tuple and type(b) is tuple):
        depth += 1
        if depth > MAX_DATA_DEPTH:
            raise _too_deep()
        for x, y in zip(a, b, strict=False):
            count += 1
            if count >= PART:
                yield PART // ELEMENTS_PER_STEP
                count = 0
            if type(x) in LEAVES and type(y) in LEAVES and type(x) is not str:
                same = x is y or x == y
            else:
                same = yield from _same(x, y)
            if not same:
                a, b = x, y
                break
        else:
            return test(len(a), len(b))
    if (type(a) in NUMBERS and type(b) in NUMBERS) or (type(a) is str and type(b) is str):
        return test(a, b)
    raise incomparable(sign, a, b)


def incomparable(sign: str, a: Any, b: Any) -> SexpEvaluationError:
    """The error for two values without an order."""
    return SexpEvaluationError(
        f"{article(kind_of(a))} and {article(kind_of(b))} have no order: '{sign}' compares numbers, or texts, or lists of them",
        code="type/comparison",
        hint="compare parts of them, or sort by a key",
    )


@code("rc", tested="rc", long="always")
def contains(rt: Runtime, value: Any, container: Any) -> Any:
    """``value in container``."""
    kind = type(container)
    if kind is str:
        if type(value) is not str:
            wanted("'in' on a text", "a text", value)
        rt.charge(len(container) // CHARACTERS_PER_STEP)
        return value in container
    if kind is dict or kind is OrderedSet:
        items = container if kind is dict else container.items
        if type(value) in NUMBERS and not is_key(value):
            return False
        return key(value) in items
    if kind is SharedList:
        container, kind = container.plain(), list
    if kind is list or kind is tuple:
        if len(container) <= SMALL and _is_short(value) and LEAVES.issuperset(map(type, container)):
            return value in container
        return begun(_found(value, container))
    wanted("'in'", "a list, tuple, set, dict or text on its right", container)


def _found(value: Any, container: Any) -> Work[bool]:
    return (yield from position(value, container)) is not None


def _is_short(value: Any) -> bool:
    """Whether comparing a value with a leaf takes negligible time."""
    return type(value) in LEAVES and (type(value) is not str or len(value) < CHARACTERS_PER_STEP)


def position(value: Any, container: Any) -> Work[int | None]:
    """The index of the first element equal to ``value``; None without one."""
    count = 0
    short = _is_short(value)
    for index, each in enumerate(container):
        count += 1
        if count >= PART:
            yield count // ELEMENTS_PER_STEP
            count = 0
        if short and type(each) in LEAVES:
            if each is value or each == value:
                return index
        elif each is value or (yield from _same(each, value)):
            return index
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    return None


def times(value: Any, container: Any) -> Work[int]:
    """The number of elements equal to ``value``, in a container of a few thousand at most."""
    if len(container) >= ELEMENTS_PER_STEP:
        yield len(container) // ELEMENTS_PER_STEP
    if _is_short(value) and LEAVES.issuperset(map(type, container)):
        return container.count(value)
    total = 0
    for each in container:
        if each is value or (yield from _same(each, value)):
            total += 1
    return total


@code("k", within=True)
def key(value: Any) -> Any:
    """``value`` as a key of a dict or an element of a set. Raises ``dict/key``."""
    if type(value) is str or is_key(value):
        return value
    if type(value) is Symbol:
        return value.name
    if type(value) is Label:
        try:
            return Label(key(value.value), value.sources)  # equal to its content, and the key keeps its sources
        except SexpEvaluationError as error:
            blame(error, value.sources)
            raise
    raise _no_key(value)


def _no_key(value: Any) -> SexpEvaluationError:
    error = SexpEvaluationError(
        f"{article(kind_of(value))} cannot be a key of a dict or an element of a set",
        code="dict/key",
        hint="keys are texts, integers of at most 60 bits, floats up to 2**53, True, False, None, and tuples of them",
    )
    blame(error, _sources_of_parts(value))
    return error


def _sources_of_parts(value: Any) -> Sources:
    """The sources of those parts of a tuple that decide that it is no key."""
    sources = NO_SOURCES
    count, pending = 0, [value]
    while pending and count <= MAX_KEY_PARTS:
        each = pending.pop()
        count += 1
        if type(each) is Label:
            sources = joined(sources, each.sources)
            each = each.value
        if type(each) is tuple:
            pending += each[:MAX_KEY_PARTS]
    return sources
