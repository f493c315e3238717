"""Work on the entries of dicts and the elements of sets, part by part, because there may be a million."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import Work, slices

AT_ONCE = 16_384
"""The most elements that Python itself iterates over at once."""


def merged(into: dict[Any, Any], more: dict[Any, Any]) -> Work[None]:
    """``into.update(more)``. An empty dict receives the entries of another at once."""
    if len(more) <= AT_ONCE or not into:
        into.update(more)
        return
    for part in slices(list(more), AT_ONCE):
        into.update({each: more[each] for each in part})
        yield 0


def chosen(items: Sequence[Any] | dict[Any, Any], others: dict[Any, Any], within: bool) -> Work[dict[Any, None]]:
    """The elements of ``items`` found in ``others`` if ``within``, else those not found there."""
    chosen_keys: dict[Any, None] = {}
    for part in slices(list(items), AT_ONCE):
        chosen_keys.update(dict.fromkeys([each for each in part if (each in others) is within]))
        if len(part) < len(items):
            yield 0
    return chosen_keys


def joined(a: dict[Any, Any], b: dict[Any, Any]) -> Work[dict[Any, Any]]:
    """A new dict of the entries of both."""
    entries = a.copy()
    yield from merged(entries, b)
    return entries


def combined(sign: str, a: OrderedSet, b: OrderedSet) -> Work[OrderedSet]:
    """``a & b``, ``a | b``, ``a ^ b`` and ``a - b`` of sets."""
    if sign == "|":
        return OrderedSet.of((yield from joined(a.items, b.items)))
    elements = yield from chosen(a.items, b.items, sign == "&")
    if sign == "^":
        yield from merged(elements, (yield from chosen(b.items, a.items, False)))
    return OrderedSet.of(elements)


def included(sign: str, a: dict[Any, Any], b: dict[Any, Any]) -> Work[bool]:
    """The order of sets, by inclusion."""
    if sign in (">", ">="):
        a, b = b, a
    if len(a) > len(b) or (len(a) == len(b) and sign in ("<", ">")):
        return False
    for part in slices(list(a), AT_ONCE):
        if not all([each in b for each in part]):
            return False
        if len(part) < len(a):
            yield 0
    return True
