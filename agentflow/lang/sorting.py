"""Sorting in slices: chunks are sorted by Python, and merged in parts that each hold a range of the values."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, TypeVar

from agentflow.core.data.walk import CHARACTERS_PER_STEP, ELEMENTS_PER_STEP, Work, slices

T = TypeVar("T")
_CHUNK = 4_096
"""Values sorted at once."""


def in_order(values: list[Any]) -> Work[list[Any]]:
    """A new list of ``values``, which Python can order, in ascending order; equal ones keep their order."""
    if len(values) <= _CHUNK:
        return sorted(values)
    chunks: list[list[Any]] = []
    for chunk in slices(values, _CHUNK):
        yield len(chunk) * len(chunk).bit_length() // ELEMENTS_PER_STEP
        chunks.append(sorted(chunk))
    return (yield from _by_ranges(chunks))


def _by_ranges(chunks: list[list[Any]]) -> Work[list[Any]]:
    """Merge sorted chunks: repeatedly the values of all chunks up to a bound, chosen so that their number stays about
    equal.

    Equal values are in one range, and Python's sort keeps their order and uses the existing order.
    """
    yield len(chunks)
    sample = sorted(each for chunk in chunks for each in chunk[len(chunks) // 2 :: len(chunks)])
    bounds = sample[_CHUNK // len(chunks) :: max(1, _CHUNK // len(chunks))]
    starts = [0] * len(chunks)
    merged: list[Any] = []
    for bound in [*bounds, None]:
        ends = [
            len(chunk) if bound is None else bisect_left(chunk, bound, start)
            for chunk, start in zip(chunks, starts, strict=True)
        ]
        part = [chunk[a:b] for chunk, a, b in zip(chunks, starts, ends, strict=True) if a < b]
        together = [each for piece in part for each in piece]
        yield len(together) * len(part).bit_length() // ELEMENTS_PER_STEP
        if len(part) > 1 and min(each[0] for each in part) != max(each[-1] for each in part):
            together.sort()
        merged += together
        starts = ends
    return merged


def long_texts_in_order(values: list[str]) -> Work[list[str]]:
    """A new list of ``values`` in ascending order. They may be long, so each comparison is charged."""
    return (yield from long_in_order(values, lambda a, b: min(len(a), len(b)) // CHARACTERS_PER_STEP))


def long_in_order(values: list[T], cost: Callable[[T, T], int]) -> Work[list[T]]:
    """A new list of ``values``, which Python can order, in ascending order; a comparison takes ``cost`` steps."""
    runs = [[each] for each in values]
    while len(runs) > 1:
        merged: list[list[T]] = []
        for at in range(0, len(runs) - 1, 2):
            merged.append((yield from _merged(runs[at], runs[at + 1], cost)))
        runs = merged if len(runs) % 2 == 0 else [*merged, runs[-1]]
    return runs[0]


def _merged(left: list[T], right: list[T], cost: Callable[[T, T], int]) -> Work[list[T]]:
    out: list[T] = []
    i = j = 0
    while i < len(left) and j < len(right):
        a, b = left[i], right[j]
        yield cost(a, b)
        if b < a:  # type: ignore[operator]
            out.append(b)
            j += 1
        else:
            out.append(a)
            i += 1
    return [*out, *left[i:], *right[j:]]
