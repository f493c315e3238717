"""``equal?``: structural equality without recursion and without repeated comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentflow.core.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.records import Record, is_dict
from agentflow.core.shared_list import SharedList
from agentflow.core.values import MAX_DATA_DEPTH, Symbol
from agentflow.core.walk import LEAVES
from agentflow.core.work import CHARACTERS_PER_STEP, ELEMENTS_PER_STEP, PART, Work, finish, slices
from agentflow.lang.calling import begun

_NUMBERS = frozenset((int, bool, type(None)))
ATOMS = LEAVES | {Symbol}
"""The types of values that Python's ``==`` compares as the language does."""
_MISSING = object()
_LISTS: Any = (list, tuple, SharedList)


def equal(a: Any, b: Any) -> bool:
    """Whether two values are equal: lists and dicts by their elements, symbols by name, others by Python's ``==``.

    A tuple equals the list of its elements. A pair of shared parts is compared once, so that the cost is bounded by the
    size in memory. Raises LimitExceeded (``limits/depth``) past 1,000 levels, and SexpEvaluationError
    (``type/comparison``) if a host object cannot be compared.
    """
    return finish(equality(a, b))


def compared(a: Any, b: Any) -> Any:
    """:func:`equal` for a primitive: small values are compared at once, large ones in slices."""
    if type(a) in ATOMS and type(b) in ATOMS and (type(a) is not str or len(a) < CHARACTERS_PER_STEP):
        return a == b
    return begun(equality(a, b))


def equality(a: Any, b: Any) -> Work[bool]:
    """The work of :func:`equal`."""
    seen: set[tuple[int, int]] = set()
    keep: list[Any] = []  # keeps objects alive, so that no id in `seen` is reused
    count = 0
    pending: list[tuple[Any, Any, int]] = [((a,), (b,), -1)]
    while pending:
        left, right, depth = pending.pop()
        for these, those in _pairs(left, right):
            count += len(these) + 1
            if count >= PART:
                yield count // ELEMENTS_PER_STEP
                count = 0
            if _NUMBERS.issuperset(map(type, these)) and _NUMBERS.issuperset(map(type, those)):
                if these != those:
                    return False
                continue
            for x, y in zip(these, those, strict=True):
                if type(x) in LEAVES and type(y) in LEAVES:
                    if type(x) is str and len(x) >= CHARACTERS_PER_STEP and x is not y:
                        yield len(x) // CHARACTERS_PER_STEP
                    if x != y:
                        return False
                    continue
                pair = _parts(x, y)
                if pair is None:
                    if not _same(x, y):
                        return False
                elif x is not y:
                    if len(pair[0]) != len(pair[1]):
                        return False
                    if _new(seen, x, y, depth + 1):
                        keep.append(pair)
                        pending.append((*pair, depth + 1))
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    return True


def _pairs(left: Any, right: Any) -> Iterator[tuple[Any, Any]]:
    """The elements or values to be compared, in slices."""
    if is_dict(left):
        for keys in slices(list(left)):
            yield [left[key] for key in keys], [right.get(key, _MISSING) for key in keys]
    else:
        yield from zip(slices(left), slices(right), strict=True)


def _parts(x: Any, y: Any) -> tuple[Any, Any] | None:
    """Two lists or two dicts, to be compared by their elements; None for other values."""
    if isinstance(x, _LISTS) and isinstance(y, _LISTS):
        return (_elements(x), _elements(y)) if len(x) == len(y) else ((), (x,))
    return (x, y) if is_dict(x) and is_dict(y) else None


def _elements(value: Any) -> Any:
    return value.plain() if type(value) is SharedList else value


def _new(seen: set[tuple[int, int]], a: object, b: object, depth: int) -> bool:
    if depth > MAX_DATA_DEPTH:
        raise LimitExceeded(
            f"data is nested deeper than {MAX_DATA_DEPTH} levels, too deep to compare",
            limit="depth",
            allowed=MAX_DATA_DEPTH,
            hint="compare its parts",
        )
    pair = (id(a), id(b))
    if pair in seen:
        return False
    seen.add(pair)
    return True


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Record) != isinstance(b, Record):
        return False  # a record is a Python mapping but not a dict of the language
    try:
        return bool(a == b)
    except Exception as error:  # a host object's own == may raise anything
        raise SexpEvaluationError(
            f"these two values cannot be compared: {type(a).__name__} and {type(b).__name__}",
            code="type/comparison",
            hint="compare a field of them",
        ) from error
