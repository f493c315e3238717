"""Confidence sequences: intervals of a mean that hold at any time, so that an evaluation may stop when they are narrow.

An interval for a number of cases chosen before is too narrow for one chosen by looking at it. These hold for
all numbers of cases at once. The cases are taken to be drawn at random, which their seeded order sees to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist, fmean

from agentflow.evals.statistics import LEVEL, Difference, Interval, interval, solved

LEAST = 30
"""Minimum number of cases before an evaluation may stop."""
_BETTING, _ASYMPTOTIC = "betting sequence", "asymptotic sequence"
_CAP = 0.5
"""The largest share of its capital that a bet may lose."""
_FAR = 7.0
"""The normal quantile beyond which an interval is useless: too few cases for the expected number."""


class Narrowing:
    """Whether the cases so far are enough: those that ended before any unfinished one, so that quick cases do not come first.

    ``order`` are the names of the cases, ``is_narrow`` says whether the intervals are narrow enough; it is asked from 30 cases on,
    and again when their number has grown by a fiftieth.
    """

    def __init__(self, order: Sequence[str], is_narrow: Callable[[], bool]) -> None:
        self._order = order
        self._is_narrow = is_narrow
        self._ended: set[str] = set()
        self._count, self._next = 0, LEAST
        self.met = False

    def ended(self, name: str) -> None:
        """Take the end of a case."""
        self._ended.add(name)
        while self._count < len(self._order) and self._order[self._count] in self._ended:
            self._count += 1
        if not self.met and self._count >= self._next:
            self._next = self._count + max(1, self._count // 50)
            self.met = self._is_narrow()


def mean_at_any_time(scores: Mapping[str, Sequence[float]], *, bounded: bool, expected: int) -> Interval:
    """The mean of the ``scores`` of each case with its 95 % interval at any time; the cases are in their order, of ``expected``
    at most, and independent. ``bounded``: they are from 0 to 1."""
    values = [fmean(each) for each in scores.values()]
    if not values:
        return Interval(math.nan, math.nan, math.nan, 0, "none")
    low, high = betting(values, LEVEL) if bounded else asymptotic(values, LEVEL, expected)
    return Interval(fmean(values), low, high, len(values), _BETTING if bounded else _ASYMPTOTIC)


def difference_at_any_time(
    scores: Mapping[str, Sequence[float]],
    base: Mapping[str, Sequence[float]],
    *,
    bounded: bool,
    expected: int,
    level: float,
) -> Difference:
    """The difference of two variants in a score, paired by the cases that both have, as :func:`mean_at_any_time`."""
    values = [fmean(scores[name]) - fmean(base[name]) for name in scores if name in base]
    if not values:
        return Difference(math.nan, math.nan, math.nan, 1.0, 0, "none")
    if bounded:
        halves = [(1 + each) / 2 for each in values]
        low, high = [2 * each - 1 for each in betting(halves, level)]
        p = betting_p(halves, 0.5, level)
    else:
        low, high = asymptotic(values, level, expected)
        p = asymptotic_p(values, level, expected)
    return Difference(fmean(values), low, high, p, len(values), _BETTING if bounded else _ASYMPTOTIC)


def betting(values: Sequence[float], level: float) -> tuple[float, float]:
    """The interval of the mean of ``values`` from 0 to 1, by betting against each possible mean.

    It is the hedged capital confidence sequence of Waudby-Smith and Ramdas (2023, *Estimating means of bounded random variables by
    betting*, theorem 3) with their predictable plug-in bets: it excludes the means against which one of the two bettors,
    for and against a greater mean, has multiplied its half of the capital by ``2 / (1 - level)``.
    """
    goal, bets = math.log(2 / (1 - level)), _bets(values, level)
    if not values:
        return 0.0, 1.0
    mirrored = [1 - each for each in values]
    low = solved(lambda mean: _capital(values, bets, mean) - goal, 0.0, 1.0, 40)
    high = 1 - solved(lambda mean: _capital(mirrored, bets, mean) - goal, 0.0, 1.0, 40)
    return low, high


def betting_p(values: Sequence[float], mean: float, level: float) -> float:
    """The p value of the mean ``mean`` of ``values`` from 0 to 1, by the capital of the bets against it; it holds at any time."""
    bets = _bets(values, level)
    most = max(_capital(values, bets, mean), _capital([1 - each for each in values], bets, 1 - mean))
    return min(1.0, 2 * math.exp(-most))


def _bets(values: Sequence[float], level: float) -> list[float]:
    """The bet on each value, from those before it (Waudby-Smith and Ramdas 2023, equation 26)."""
    bets: list[float] = []
    total, squares, variance = 0.5, 0.25, 0.25
    for at, value in enumerate(values, 1):
        bets.append(math.sqrt(2 * math.log(2 / (1 - level)) / (variance * at * math.log(at + 1))))
        total += value
        squares += (value - total / (at + 1)) ** 2
        variance = squares / (at + 1)
    return bets


def _capital(values: Sequence[float], bets: Sequence[float], mean: float) -> float:
    """The logarithm of the capital of who bets that the mean is greater; it falls as ``mean`` grows."""
    cap = _CAP / mean if mean else math.inf
    return math.fsum([math.log1p(min(bet, cap) * (value - mean)) for value, bet in zip(values, bets, strict=True)])


def asymptotic(values: Sequence[float], level: float, expected: int) -> tuple[float, float]:
    """The interval of the mean of ``values`` without bounds, narrowest near half of the ``expected`` number of values.

    It is the asymptotic confidence sequence of Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas (2024, *Time-uniform central limit
    theory and asymptotic confidence sequences*, theorem 2.2): it holds for all numbers of cases from some number on, as
    a t interval does for one. Its normal quantile is exchanged for those of Student and Hall, as in other intervals: for skewed
    values the normal one holds less than it says.
    """
    return _at(values, 1 - level, _tuning(level, expected))


def asymptotic_p(values: Sequence[float], level: float, expected: int) -> float:
    """The p value of the mean 0 of ``values`` by the sequence of :func:`asymptotic`; it holds at any time."""
    if not values or not (mean := fmean(values)):
        return 1.0
    tuning, side = _tuning(level, expected), 1 if mean > 0 else -1
    upward = [side * each for each in values]
    return math.exp(-solved(lambda odds: _at(upward, math.exp(-odds), tuning)[0], 0.0, 16.0, 40))


# Student's and Hall's quantiles, since the normal one covers too little for skewed values (decision 60)
def _at(values: Sequence[float], error: float, tuning: float) -> tuple[float, float]:
    """The interval that all numbers of values leave with probability ``error`` at most."""
    count = len(values)
    if count < 2:
        return -math.inf, math.inf
    tuned = count * tuning
    quantile = math.sqrt(2 * (tuned + 1) / tuned * math.log(math.sqrt(tuned + 1) / error))
    if quantile > _FAR:
        return -math.inf, math.inf
    return interval([(each, 1) for each in values], fmean(values), 2 * NormalDist().cdf(quantile) - 1)


def _tuning(level: float, expected: int) -> float:
    """The square of the parameter that makes the sequence narrowest at half of ``expected`` values (the same, appendix B.2)."""
    odds = -2 * math.log(1 - level)
    return (odds + math.log(odds + 1)) / max(LEAST, expected / 2)
