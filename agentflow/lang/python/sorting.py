"""Sorting as in Python, for keys that Python can compare without running foreign code."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from typing import Any

from agentflow.core.data.walk import CHARACTERS_PER_STEP, ELEMENTS_PER_STEP, PART, Work, slices
from agentflow.lang.abi import Runtime
from agentflow.lang.python.compare import NUMBERS, incomparable
from agentflow.lang.sorting import in_order, long_in_order

_MAX_PARTS = 64
_MAX_DEPTH = 4
_TEXT = frozenset((str,))
_HEAVY = 1 << 24
"""The most characters of long texts that Python may compare at once, each a dozen times."""


def sorted_values(rt: Runtime, values: list[Any], keys: list[Any] | None, *, reverse: bool) -> Work[list[Any]]:
    """A new list of ``values`` in the order of ``keys`` (None: their own). Equal ones keep their order, also if reversed."""
    by = values if keys is None else keys
    size, heavy = yield from _comparable(by)
    yield size // CHARACTERS_PER_STEP
    long = heavy > _HEAVY
    each_costs = size // max(1, len(by)) // CHARACTERS_PER_STEP
    if keys is None and not reverse and not long:
        return (yield from in_order(by))
    sign = -1 if reverse else 1
    pairs: list[Any] = []
    for start in range(0, len(by), PART):
        pairs += [(each, sign * at) for at, each in enumerate(by[start : start + PART], start)]
        if len(by) > PART:
            yield PART // ELEMENTS_PER_STEP
    try:
        pairs = yield from (long_in_order(pairs, lambda a, b: each_costs) if long else in_order(pairs))
    except TypeError:
        raise incomparable("<", by[0], by[-1]) from None
    if reverse:
        pairs.reverse()
    ordered: list[Any] = []
    for part in slices(pairs):
        ordered += [values[sign * at] for _, at in part]
        if len(pairs) > PART:
            yield 0
    return ordered


def _comparable(values: list[Any], depth: int = 0) -> Work[tuple[int, int]]:
    """The size of values that Python can order among each other, and the share of long texts in it.

    Raises ``type/comparison`` for others.
    """
    kinds: set[type[Any]] = set()
    for part in slices(values):
        kinds.update(map(type, part))
        if len(values) > PART:
            yield 0
    if NUMBERS.issuperset(kinds):
        return len(values), 0
    size = heavy = 0
    if _TEXT.issuperset(kinds):
        for part in slices(values):
            lengths = [*map(len, part)]
            size += sum(lengths)
            heavy += sum([each for each in lengths if each >= CHARACTERS_PER_STEP])
            if len(values) > PART:
                yield 0
        return size, heavy
    kind = next(iter(kinds))
    if len(kinds) > 1 or kind not in (tuple, list) or depth == _MAX_DEPTH:
        other = next((each for each in values if type(each) is not type(values[0])), values[0])
        raise incomparable("sorted", values[0], other)
    width = 0
    for part in slices(values):
        width = max(width, *map(len, part))
        if len(values) > PART:
            yield 0
    size = len(values)
    for column in range(width):
        if column >= _MAX_PARTS:
            raise incomparable("sorted", values[0], values[0])
        cells: list[Any] = []
        for part in slices(values):
            cells += [each[column] for each in part if len(each) > column]
            if len(values) > PART:
                yield PART // ELEMENTS_PER_STEP
        more, long = yield from _comparable(cells, depth + 1)
        size, heavy = size + more, heavy + long
    return size, heavy
