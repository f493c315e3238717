"""Sums of money. They are sums of integers, nano-dollars, so that no order of calls, branches or machines gives another total.

What is passed on is a float of US dollars: the one nearest to a whole number of nano-dollars, from which that number is read again
without loss up to two million dollars. Code that runs for every call writes :func:`added` out.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import ceil, isfinite

NANO = 1_000_000_000
"""Nano-dollars in a US dollar."""
_MOST_USD = 4e9
"""What no sum comes near, and what 64 bits hold in nano-dollars."""
_GRAIN = 1e-3
"""Nano-dollars that a float of dollars may be off."""


def nanos(usd: float) -> int:
    """The whole number of nano-dollars that is nearest to ``usd``; of more than four billion dollars that of four billion."""
    return round(min(usd, _MOST_USD) * NANO)


def nanos_covering(usd: float) -> int:
    """The fewest whole nano-dollars that are enough for ``usd``."""
    return ceil(min(usd, _MOST_USD) * NANO - _GRAIN)


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


__all__ = ["NANO", "added", "nanos", "nanos_covering", "total"]
