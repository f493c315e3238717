"""Intervals and tests of an evaluation: of the mean of a score, and of the difference of two variants by case.

The unit is the case: repeats are averaged within it first, and cases of one group count as one. Numbers have the interval of
the case means that holds Student's and Hall's; yes or no without repeats has Wilson's, and Tango's for the difference of pairs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import compress
from statistics import NormalDist, fmean

from agentflow.core.data.frozen import frozen

LEVEL = 0.95
"""The confidence level of intervals."""
FEW = 20
"""Number of cases below which a report says that there are few."""


@frozen
class Interval:
    """A mean with the interval that covers the true one in 95 of 100 evaluations; ``count`` is the number of independent
    cases or groups, ``method`` the name of the interval."""

    mean: float
    low: float
    high: float
    count: int
    method: str

    def __str__(self) -> str:
        return f"{self.mean:.3g} [{self.low:.3g}, {self.high:.3g}]"


@frozen
class Difference:
    """The difference of two variants in one score, paired by case: ``mean``, the interval from ``low`` to ``high``, and the ``p``
    value of no difference. ``count`` is the number of independent pairs, ``method`` the names of the interval and the test."""

    mean: float
    low: float
    high: float
    p: float
    count: int
    method: str

    @property
    def is_clear(self) -> bool:
        """Whether the interval excludes no difference."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.mean:+.3g} [{self.low:+.3g}, {self.high:+.3g}]"


def mean_of(
    scores: Mapping[str, Sequence[float]], groups: Mapping[str, str], *, passing: bool, level: float = LEVEL
) -> Interval:
    """The mean of a score with its interval; not a number without any case.

    ``scores`` are those of each case, one for each draw; ``groups`` the group of a case that has one; ``passing``: it is yes or no.
    """
    if not scores:
        return Interval(math.nan, math.nan, math.nan, 0, "none")
    units = _units({name: fmean(each) for name, each in scores.items()}, groups)
    mean = _weighted(units)
    single = all([len(each) == 1 for each in scores.values()]) and len(units) == len(scores)
    if passing and single:
        low, high = wilson(round(sum([total for total, _ in units])), len(units), level)
        return Interval(mean, low, high, len(units), "Wilson")
    low, high = interval(units, mean, level)
    if passing:
        low, high = max(0.0, low), min(1.0, high)
    return Interval(mean, low, high, len(units), "t and Hall")


def difference_of(
    scores: Mapping[str, Sequence[float]],
    base: Mapping[str, Sequence[float]],
    groups: Mapping[str, str],
    *,
    passing: bool,
    level: float = LEVEL,
) -> Difference:
    """The difference of two variants in a score, paired by the cases that both have; not a number without any."""
    both = [name for name in scores if name in base]
    if not both:
        return Difference(math.nan, math.nan, math.nan, 1.0, 0, "none")
    single = all([len(scores[name]) == 1 == len(base[name]) for name in both])
    deltas = {name: fmean(scores[name]) - fmean(base[name]) for name in both}
    units = _units(deltas, groups)
    mean = _weighted(units)
    if passing and single and len(units) == len(both):
        only, other = sum([each > 0 for each in deltas.values()]), sum([each < 0 for each in deltas.values()])
        low, high = tango(only, other, len(both), level)
        return Difference(mean, low, high, mcnemar(only, other), len(units), "Tango, McNemar")
    low, high = interval(units, mean, level)
    if passing:
        low, high = max(-1.0, low), min(1.0, high)
    return Difference(mean, low, high, sign_flips([total for total, _ in units]), len(units), "t and Hall, sign flips")


def holm(values: Sequence[float]) -> list[float]:
    """The p values, adjusted for their number by Holm's method (Holm 1979)."""
    order = sorted(range(len(values)), key=values.__getitem__)
    adjusted, before = [0.0] * len(values), 0.0
    for rank, at in enumerate(order):
        before = max(before, min(1.0, (len(values) - rank) * values[at]))
        adjusted[at] = before
    return adjusted


def pass_at(k: int, passed: int, count: int) -> float:
    """The probability that at least one of ``k`` draws passes, where ``passed`` of ``count`` did (Chen et al. 2021)."""
    if count - passed < k:
        return 1.0
    return 1.0 - math.prod([(count - passed - at) / (count - at) for at in range(k)])


def wilson(passed: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """Wilson's interval of a proportion (Wilson 1927)."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, wide = passed / count, z * z / count
    centre = (share + wide / 2) / (1 + wide)
    half = z * math.sqrt(share * (1 - share) / count + wide / (4 * count)) / (1 + wide)
    low = 0.0 if passed == 0 else centre - half
    return low, 1.0 if passed == count else centre + half


def tango(only: int, other: int, count: int, level: float = LEVEL) -> tuple[float, float]:
    """Tango's score interval of the difference of paired proportions (Tango 1998).

    ``only`` pairs pass under the first alone, ``other`` under the second alone, of ``count``.
    """
    z = NormalDist().inv_cdf((1 + level) / 2)

    def score(delta: float) -> float:
        a, b = 2 * count, -only - other + (2 * count - only + other) * delta
        c = -other * delta * (1 - delta)
        root = (math.sqrt(max(0.0, b * b - 4 * a * c)) - b) / (2 * a)
        variance = count * (2 * root + delta * (1 - delta))
        if variance <= 0:
            return 0.0 if only - other == count * delta else math.copysign(math.inf, only - other - count * delta)
        return (only - other - count * delta) / math.sqrt(variance)

    estimate = (only - other) / count
    return solved(lambda at: score(at) - z, -1.0, estimate), solved(lambda at: score(at) + z, estimate, 1.0)


def solved(falling: Callable[[float], float], low: float, high: float, steps: int = 100) -> float:
    """Where a falling function is 0, from ``low`` to ``high``; the nearer end where it is not 0 between them.
    Each of the ``steps`` halves the uncertain interval."""
    if falling(low) <= 0:
        return low
    if falling(high) >= 0:
        return high
    for _ in range(steps):
        middle = (low + high) / 2
        if falling(middle) > 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def mcnemar(only: int, other: int) -> float:
    """The exact p value of McNemar's test: of ``only`` and ``other`` discordant pairs (binomial, two sides)."""
    count = only + other
    if count == 0:
        return 1.0
    tail = sum([math.comb(count, at) for at in range(min(only, other) + 1)]) / 2**count
    return min(1.0, 2 * tail)


_EXACT = 16
_DRAWS = 10_000
_BITS = {ord("0"): 0, ord("1"): 1}


def sign_flips(differences: Sequence[float]) -> float:
    """The p value of no difference by flipping signs: all of them up to 16 pairs, else 10,000 at random with a fixed seed."""
    observed = abs(sum(differences)) - 1e-12
    values = [each for each in differences if each]
    if not values:
        return 1.0
    if len(values) <= _EXACT:
        sums = [0.0]
        for each in values:
            sums = [before + sign for before in sums for sign in (each, -each)]
        return sum([abs(each) >= observed for each in sums]) / len(sums)
    drawn = random.Random(0)
    hits = 0
    whole = math.fsum(values)
    for _ in range(_DRAWS):
        kept = compress(values, f"{drawn.getrandbits(len(values)):0{len(values)}b}".translate(_BITS).encode())
        hits += abs(2 * sum(kept) - whole) >= observed
    return (hits + 1) / (_DRAWS + 1)


def _units(values: Mapping[str, float], groups: Mapping[str, str]) -> list[tuple[float, int]]:
    """The sum and the number of cases of each independent unit: a group, or a case without one."""
    units: dict[tuple[bool, str], tuple[float, int]] = {}
    for name, value in values.items():
        key = (True, groups[name]) if name in groups else (False, name)
        total, count = units.get(key, (0.0, 0))
        units[key] = total + value, count + 1
    return list(units.values())


def _weighted(units: Sequence[tuple[float, int]]) -> float:
    return math.fsum([total for total, _ in units]) / sum([count for _, count in units])


# Two intervals together, since neither covers enough alone (decision 55)
def interval(units: Sequence[tuple[float, int]], mean: float, level: float) -> tuple[float, float]:
    """The interval of the ratio of sums that holds Student's t interval and that of Hall's transformation, which follows the
    skewness of the values (Hall 1992), by the residuals of the units (Cochran 1977, section 6)."""
    count = len(units)
    if count < 2:
        return -math.inf, math.inf
    average = sum([each for _, each in units]) / count
    residuals = [(total - mean * each) / average for total, each in units]
    if min(residuals) == max(residuals):
        return mean, mean
    spread = math.sqrt(math.fsum([each * each for each in residuals]) / (count - 1))
    error, quantile = spread / math.sqrt(count), t_quantile((1 + level) / 2, count - 1)
    skewness = math.fsum([each**3 for each in residuals]) / count / spread**3
    if count > 2:
        skewness *= count * count / ((count - 1) * (count - 2))
    skewed = skewness / math.sqrt(count)

    def untransformed(x: float) -> float:
        return x if abs(skewed) < 1e-9 else (math.cbrt(1 + skewed * (x - skewed / 6)) - 1) * 3 / skewed

    low = mean - error * max(quantile, untransformed(quantile))
    return low, mean - error * min(-quantile, untransformed(-quantile))


@cache
def t_quantile(p: float, freedom: int) -> float:
    """The ``p`` quantile of Student's t distribution, for ``p`` above one half."""
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < p:
        low, high = high, 2 * high
    while (middle := (low + high) / 2) not in (low, high):
        if t_cdf(middle, freedom) < p:
            low = middle
        else:
            high = middle
    return low


def t_cdf(t: float, freedom: int) -> float:
    """The distribution function of Student's t, for ``t`` not below 0, by the closed sums for whole degrees of freedom
    (Abramowitz and Stegun 26.7.3 and 26.7.4)."""
    angle = math.atan2(t, math.sqrt(freedom))
    cosine = math.cos(angle) ** 2
    term = total = 1.0
    if freedom % 2:
        for at in range(2, freedom - 1, 2):
            term *= at / (at + 1) * cosine
            total += term
        inner = math.sin(angle) * math.cos(angle) * total if freedom > 1 else 0.0
        return 0.5 + (angle + inner) / math.pi
    for at in range(1, freedom - 1, 2):
        term *= at / (at + 1) * cosine
        total += term
    return 0.5 + math.sin(angle) * total / 2
