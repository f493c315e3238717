"""Sorting as Python does, of keys that Python can compare without anybody's code."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from typing import Any

from agentflow.core.work import CHARACTERS_PER_STEP, Work
from agentflow.lang.abi import Runtime
from agentflow.lang.python.compare import NUMBERS, incomparable
from agentflow.lang.sorting import in_order, long_texts_in_order

_MAX_PARTS = 64
_MAX_DEPTH = 4
_TEXT = frozenset((str,))


def sorted_values(rt: Runtime, values: list[Any], keys: list[Any] | None, *, reverse: bool) -> Work[list[Any]]:
    """A new list of ``values`` in the order of ``keys`` (None: their own). Equal ones keep their order, reversed too."""
    by = values if keys is None else keys
    size = _comparable(by)
    yield size // CHARACTERS_PER_STEP
    if keys is None and not reverse:
        if size > len(by) * CHARACTERS_PER_STEP and _TEXT.issuperset(map(type, by)):
            return (yield from long_texts_in_order(by))
        return (yield from in_order(by))
    sign = -1 if reverse else 1
    try:
        pairs: list[Any] = yield from in_order([(each, sign * at) for at, each in enumerate(by)])
    except TypeError:
        raise incomparable("<", by[0], by[-1]) from None
    return [values[sign * at] for _, at in (reversed(pairs) if reverse else pairs)]


def _comparable(values: list[Any], depth: int = 0) -> int:
    """The size of values that Python can order among each other. Raises ``type/comparison`` for others."""
    kinds = frozenset(map(type, values))
    if NUMBERS.issuperset(kinds):
        return len(values)
    if _TEXT.issuperset(kinds):
        return sum(map(len, values))
    kind = next(iter(kinds))
    if len(kinds) > 1 or kind not in (tuple, list) or depth == _MAX_DEPTH:
        other = next((each for each in values if type(each) is not type(values[0])), values[0])
        raise incomparable("sorted", values[0], other)
    size = len(values)
    for column in range(max(map(len, values), default=0)):
        if column >= _MAX_PARTS:
            raise incomparable("sorted", values[0], values[0])
        size += _comparable([each[column] for each in values if len(each) > column], depth + 1)
    return size
