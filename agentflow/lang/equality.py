"""``equal?``: structural equality without recursion and without repeated comparisons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from agentflow.core.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.records import Record, is_dict
from agentflow.core.shared_list import SharedList
from agentflow.core.values import MAX_DATA_DEPTH
from agentflow.lang.charging import CHARACTERS_PER_STEP, ELEMENTS_PER_STEP

_ATOMS = (str, int, float, bool, type(None))


def equal(a: Any, b: Any, charge: Callable[[int], None] | None = None) -> bool:
    """Whether two values are equal: lists and dicts by their elements, symbols by name, others by Python's ``==``.

    A tuple equals the list of its elements. A pair of shared parts is compared once, so that the cost is bounded by the
    size in memory; ``charge`` is called with the steps of each part. Raises LimitExceeded (``limits/depth``) past 1,000 levels, and SexpEvaluationError
    (``type/comparison``) if a host object cannot be compared.
    """
    if type(a) in _ATOMS and type(b) in _ATOMS:
        return _same(a, b, charge)
    seen: set[tuple[int, int]] = set()
    keep: list[Any] = []  # keeps objects alive, so that no id in `seen` is reused
    pending: list[tuple[Any, Any, int]] = [(a, b, 0)]
    while pending:
        left, right, depth = pending.pop()
        if type(left) is SharedList or type(right) is SharedList:
            if left is right or not _new(seen, left, right, depth):
                continue
            left = left.plain() if type(left) is SharedList else left
            right = right.plain() if type(right) is SharedList else right
            keep.append((left, right))
        if isinstance(left, list | tuple) and isinstance(right, list | tuple):
            one, other = cast("list[Any]", left), cast("list[Any]", right)
            if one is other:
                continue
            if len(one) != len(other):
                return False
            if _new(seen, one, other, depth):
                if charge is not None and len(one) >= ELEMENTS_PER_STEP:
                    charge(len(one) // ELEMENTS_PER_STEP)
                pending.extend((x, y, depth + 1) for x, y in zip(reversed(one), reversed(other), strict=True))
        elif is_dict(cast("object", left)) and is_dict(cast("object", right)):
            these, those = cast("Mapping[Any, Any]", left), cast("Mapping[Any, Any]", right)
            if these is those:
                continue
            if len(these) != len(those):
                return False
            if _new(seen, these, those, depth):
                if charge is not None and len(these) >= ELEMENTS_PER_STEP:
                    charge(len(these) // ELEMENTS_PER_STEP)
                for key, value in these.items():
                    if key not in those:
                        return False
                    pending.append((value, those[key], depth + 1))
        elif isinstance(left, Record) != isinstance(right, Record):
            return False  # a record is a Python mapping but not a dict of the language
        elif not _same(left, right, charge):
            return False
    return True


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


def _same(a: Any, b: Any, charge: Callable[[int], None] | None) -> bool:
    if type(a) in _ATOMS and type(b) in _ATOMS:
        if charge is not None and type(a) is type(b) is str and len(a) >= CHARACTERS_PER_STEP:
            charge(len(a) // CHARACTERS_PER_STEP)
        return a == b
    try:
        return bool(a == b)
    except Exception as error:  # a host object's own == may raise anything
        raise SexpEvaluationError(
            f"these two values cannot be compared: {type(a).__name__} and {type(b).__name__}",
            code="type/comparison",
            hint="compare a field of them",
        ) from error
