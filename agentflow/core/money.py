"""Sums of money. They are sums of integers, nano-dollars, so that no order of calls, branches or machines gives another total.

What is passed on is a float of US dollars: the one nearest to a whole number of nano-dollars, from which that number is read again
without loss up to two million dollars. Code that runs for every call writes :func:`added` out.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

NANO = 1_000_000_000
"""Nano-dollars in a US dollar."""


def added(one: float | None, other: float | None) -> float | None:
    """``one`` and ``other`` in US dollars; None if one of them is unknown, as what is no number is."""
    if one is None or other is None or not isfinite(one + other):
        return None
    return (round(one * NANO) + round(other * NANO)) / NANO


def total(costs: Iterable[float | None]) -> float | None:
    """The sum of ``costs`` in US dollars; None if one of them is unknown."""
    nanos = 0
    for cost in costs:
        if cost is None or not isfinite(cost):
            return None
        nanos += round(cost * NANO)
    return nanos / NANO


__all__ = ["NANO", "added", "total"]
