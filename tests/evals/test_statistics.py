"""The statistics of a report agree with scipy, and its intervals cover what they say."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import optimize, stats

from agentflow.evals.sequences import (
    Narrowing,
    asymptotic,
    asymptotic_p,
    betting,
    betting_p,
    difference_at_any_time,
    mean_at_any_time,
)
from agentflow.evals.statistics import (
    difference_of,
    holm,
    mcnemar,
    mean_of,
    pass_at,
    sign_flips,
    t_quantile,
    tango,
    wilson,
)

NONE: dict[str, str] = {}
minimize_scalar: Any = cast(Any, optimize).minimize_scalar


def cases(values: list[float]) -> dict[str, list[float]]:
    """One score for each case."""
    return {str(at): [value] for at, value in enumerate(values)}


def test_quantiles_and_tests_are_those_of_scipy() -> None:
    """Student's t, Wilson's interval, McNemar's exact test."""
    scipy: Any = stats
    for freedom in (1, 2, 3, 4, 9, 10, 29, 30, 999, 1_000):
        for p in (0.9, 0.95, 0.975, 0.995, 0.9999):
            assert math.isclose(t_quantile(p, freedom), scipy.t.ppf(p, freedom), rel_tol=1e-8)
    for passed, count in ((0, 5), (7, 10), (50, 50), (1, 200)):
        low, high = scipy.binomtest(passed, count).proportion_ci(method="wilson")
        assert wilson(passed, count) == pytest.approx((low, high))
    for only, other in ((0, 0), (3, 3), (16, 7), (1, 40)):
        expected = 1.0 if only + other == 0 else scipy.binomtest(min(only, other), only + other, 0.5).pvalue
        assert mcnemar(only, other) == pytest.approx(expected)


def test_a_mean_has_the_t_interval_of_its_cases() -> None:
    """Where they are not skewed; repeats are averaged within the case, and a group counts once."""
    scipy: Any = stats
    drawn = random.Random(1)
    halves = [drawn.gauss(0, 1) for _ in range(12)]
    values = [3.0, *[3 + each for each in halves], *[3 - each for each in halves]]
    found = mean_of(cases(values), NONE, passing=False)
    expected = scipy.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high)) and found.count == 25
    repeated = {name: [each[0] - 1, each[0] + 1] for name, each in cases(values).items()}
    assert mean_of(repeated, NONE, passing=False).low == pytest.approx(found.low)
    twice = {f"{name}{at}": each for name, each in cases(values).items() for at in "ab"}
    groups = {name: name[:-1] for name in twice}
    grouped = mean_of(twice, groups, passing=False)
    assert (grouped.low, grouped.count) == (pytest.approx(found.low), 25), "each case twice says nothing new"
    assert mean_of(twice, NONE, passing=False).low > found.low


@given(some.integers(0, 40), some.integers(0, 40), some.integers(1, 60))
def test_tangos_interval_holds_the_differences_that_its_score_test_accepts(only: int, other: int, same: int) -> None:
    """The constrained estimate is found numerically here: the limits are where the statistic is the normal quantile."""
    count = only + other + same
    low, high = tango(only, other, count)
    assert -1 <= low <= (only - other) / count <= high <= 1
    for delta, sign in ((low, 1), (high, -1)):
        if abs(delta) > 0.999:
            continue

        def unlikely(part: float, delta: float = delta) -> float:
            """Minus the log likelihood with ``part`` of the pairs passing under the second alone."""
            shares = ((only, part + delta), (other, part), (same, 1 - 2 * part - delta))
            return -sum([number * math.log(share) for number, share in shares if number])

        least, most = max(0.0, -delta) + 1e-12, (1 - delta) / 2 - 1e-12
        found: Any = minimize_scalar(unlikely, bounds=(least, most), method="bounded", options={"xatol": 1e-13})
        score = (only - other - count * delta) / math.sqrt(count * (2 * found.x + delta * (1 - delta)))
        assert score == pytest.approx(sign * 1.959964, abs=2e-3)


def test_signs_are_flipped_exactly_where_that_is_possible() -> None:
    """As scipy's permutation test does."""
    scipy: Any = stats
    values = [0.3, -0.1, 0.5, 0.2, 0.0, 0.4, -0.2, 0.1]
    exact = scipy.permutation_test((values,), sum, permutation_type="samples", n_resamples=10_000, vectorized=False)
    assert sign_flips(values) == pytest.approx(exact.pvalue)
    many = [random.Random(2).gauss(0.3, 1) for _ in range(60)]
    assert sign_flips(many) == pytest.approx(scipy.ttest_1samp(many, 0).pvalue, abs=0.02)
    assert sign_flips([0.0] * 5) == 1.0


def test_p_values_are_adjusted_and_passes_are_counted() -> None:
    """Holm's method keeps the order and never lowers; pass@k is the share of the draws of k that hold a pass."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == [] and holm([0.9, 0.8]) == [1.0, 1.0]
    assert (pass_at(1, 3, 10), pass_at(8, 3, 10)) == (pytest.approx(0.3), 1.0)
    assert pass_at(2, 1, 4) == pytest.approx(0.5)


def test_a_yes_or_no_is_compared_by_pairs() -> None:
    """Cases that both variants have; with repeats, or in groups, by the means of cases."""
    one, other = cases([1, 1, 1, 0, 1, 1]), cases([1, 0, 0, 0, 1])
    found = difference_of(one, other, NONE, passing=True)
    assert (found.mean, found.count, found.method) == (pytest.approx(0.4), 5, "Tango, McNemar")
    repeated = difference_of({"a": [1, 0], "b": [1, 1]}, {"a": [0, 0], "b": [1, 0]}, NONE, passing=True)
    assert (repeated.mean, repeated.method) == (0.5, "t and Hall, sign flips")
    assert difference_of({}, one, NONE, passing=True).count == 0


DRAWN: dict[str, Callable[[random.Random], float]] = {
    "normal": lambda drawn: drawn.gauss(0.2, 1),
    "uniform": lambda drawn: drawn.random() - 0.4,
    "grades": lambda drawn: drawn.choice([-0.5, -0.25, 0, 0, 0, 0.25, 0.25, 0.5]),
    "mostly the same": lambda drawn: drawn.gauss(0.3, 0.3) if drawn.random() < 0.4 else 0.0,
    "skewed": lambda drawn: drawn.expovariate(1),
    "near the top": lambda drawn: drawn.betavariate(5, 1),
    "two humps": lambda drawn: drawn.gauss(-1 if drawn.random() < 0.5 else 1, 0.2),
}
MEANS = {
    "normal": 0.2,
    "uniform": 0.1,
    "grades": 0.03125,
    "mostly the same": 0.12,
    "skewed": 1.0,
    "near the top": 5 / 6,
    "two humps": 0.0,
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 50, 150])
@pytest.mark.parametrize("kind", DRAWN)
def test_intervals_of_paired_differences_cover_the_true_one(kind: str, size: int) -> None:
    """At least 93.5 % of 2,000 simulated evaluations, for scores of these distributions and for yes or no."""
    drawn = random.Random(size)
    covered = 0
    for _ in range(2_000):
        found = mean_of(cases([DRAWN[kind](drawn) for _ in range(size)]), NONE, passing=False)
        covered += found.low <= MEANS[kind] <= found.high
    assert covered >= 1_870


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 50, 150])
@pytest.mark.parametrize(("only", "other"), [(0.1, 0.1), (0.3, 0.1), (0.05, 0.0), (0.4, 0.4)])
def test_intervals_of_paired_passes_cover_the_true_difference(only: float, other: float, size: int) -> None:
    """Yes or no, one draw each: by the shares of pairs that pass under one of the two alone."""
    drawn = random.Random(size)
    covered = 0
    for _ in range(2_000):
        kinds = drawn.choices(["only", "other", "same"], [only, other, 1 - only - other], k=size)
        low, high = tango(kinds.count("only"), kinds.count("other"), size)
        covered += low <= only - other <= high
    assert covered >= 1_870


# -- at any time ---------------------------------------------------------------------------------------------------------

LOOKS = [30, 33, 36, 40, 44, 48, 53, 59, 65, 72, 80, 88, 97, 107, 118, 130, 143, 158, 174, 192, 212, 234, 258, 284, 300]
"""The numbers of cases at which a simulated evaluation looks whether its interval is narrow."""
BOUNDED: dict[str, tuple[Callable[[random.Random], float], float]] = {
    "even": (lambda drawn: float(drawn.random() < 0.5), 0.5),
    "rare": (lambda drawn: float(drawn.random() < 0.03), 0.03),
    "pairs": (lambda drawn: drawn.choices([0.0, 0.5, 1.0], [0.05, 0.85, 0.1])[0], 0.525),
    "grades": (lambda drawn: drawn.choice([0.0, 0.25, 0.5, 0.75, 0.75, 1.0]), 3.25 / 6),
    "uniform": (lambda drawn: drawn.random(), 0.5),
    "near the top": (lambda drawn: drawn.betavariate(5, 1), 5 / 6),
}


def times_held(runs: int, draw: Callable[[random.Random], float], holds: Callable[[list[float]], bool]) -> int:
    """In how many of the simulated evaluations an interval holds at every look."""
    drawn, held = random.Random(3), 0
    for _ in range(runs):
        values = [draw(drawn) for _ in range(LOOKS[-1])]
        held += all([holds(values[:size]) for size in LOOKS])
    return held


def asymptotically(kind: str) -> Callable[[list[float]], bool]:
    """Whether the asymptotic sequence holds the true mean."""

    def holds(values: list[float]) -> bool:
        low, high = asymptotic(values, 0.95, LOOKS[-1])
        return low <= MEANS[kind] <= high

    return holds


def test_sequences_hold_at_all_looks_and_fixed_intervals_do_not() -> None:
    """Whoever looks 25 times, and stops when an interval excludes the truth, finds it excluded far more often than in 5 of 100."""
    draw, mean = BOUNDED["even"]
    fixed = times_held(
        200, draw, lambda values: (each := mean_of(cases(values), NONE, passing=True)).low <= mean <= each.high
    )
    assert fixed < 170
    assert times_held(200, draw, lambda values: betting_p(values, mean, 0.95) > 0.05) >= 187
    assert times_held(100, DRAWN["skewed"], asymptotically("skewed")) >= 93


@pytest.mark.slow
@pytest.mark.parametrize("kind", BOUNDED)
def test_betting_sequences_cover_the_true_mean_at_all_times(kind: str) -> None:
    """At least 93.5 % of 2,000 simulated evaluations that look 25 times."""
    draw, mean = BOUNDED[kind]
    assert times_held(2_000, draw, lambda values: betting_p(values, mean, 0.95) > 0.05) >= 1_870


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAWN)
def test_asymptotic_sequences_cover_the_true_mean_at_all_times(kind: str) -> None:
    """At least 93.5 % of 2,000 simulated evaluations that look 25 times."""
    assert times_held(2_000, DRAWN[kind], asymptotically(kind)) >= 1_870


def test_the_limits_of_a_sequence_are_where_its_p_value_says() -> None:
    """And bets do not depend on the value that they are placed on: a limit is where the capital has grown to twice 1 / 0.05."""
    drawn = random.Random(4)
    values = [drawn.betavariate(2, 3) for _ in range(120)]
    low, high = betting(values, 0.95)
    assert betting_p(values, low, 0.95) == pytest.approx(0.05, rel=1e-4) == betting_p(values, high, 0.95)
    assert betting_p(values, (low + high) / 2, 0.95) > 0.05 > betting_p(values, low - 0.01, 0.95)
    bets: list[float] = []
    for at in range(
        len(values)
    ):  # as the paper writes them: the variance of those before, with a half and a quarter as the first
        means = [(0.5 + sum(values[: to + 1])) / (to + 2) for to in range(at)]
        spread = (0.25 + sum([(value - mean) ** 2 for value, mean in zip(values, means, strict=False)])) / (at + 1)
        bets.append(math.sqrt(2 * math.log(2 / 0.05) / (spread * (at + 1) * math.log(at + 2))))
    capital = math.prod([1 + min(bet, 0.5 / low) * (value - low) for bet, value in zip(bets, values, strict=True)])
    assert capital == pytest.approx(2 / 0.05, rel=1e-4)
    assert asymptotic([], 0.95, 10) == (-math.inf, math.inf) and betting([], 0.95) == (0, 1)
    assert asymptotic_p([0.0] * 40, 0.95, 100) == 1.0


def test_an_asymptotic_limit_is_the_papers_where_values_are_not_skewed() -> None:
    """But for Student's quantile in place of the normal one, which 400 cases make small."""
    drawn = random.Random(5)
    halves = [drawn.gauss(0, 1) for _ in range(200)]
    values = [0.5 + each for each in halves] + [0.5 - each for each in halves]
    odds = -2 * math.log(0.05)
    tuning = (odds + math.log(odds + 1)) / 500
    tuned, width = 400 * tuning, cast(Any, stats).tstd(values)
    half = width * math.sqrt(2 * (tuned + 1) / (400 * tuned) * math.log(math.sqrt(tuned + 1) / 0.05))
    low, high = asymptotic(values, 0.95, 1_000)
    assert ((high - low) / 2, (high + low) / 2) == (pytest.approx(half, rel=0.02), pytest.approx(0.5))


def test_a_sequence_of_pairs_is_that_of_their_differences() -> None:
    """Bounded ones by bets on a half, which is no difference; the interval of 40 pairs is wider than that of a fixed number."""
    one, other = cases([1.0, 0.0, 1.0, 1.0] * 10), cases([0.0, 0.0, 1.0, 0.0] * 10)
    found = difference_at_any_time(one, other, bounded=True, expected=100, level=0.95)
    fixed = difference_of(one, other, NONE, passing=True)
    assert (found.mean, found.count, found.method) == (0.5, 40, "betting sequence")
    assert found.low < fixed.low < fixed.high < found.high and (found.p < 0.05) is found.is_clear
    loose = difference_at_any_time(one, other, bounded=False, expected=100, level=0.95)
    assert (loose.method, loose.p < 0.05) == ("asymptotic sequence", loose.is_clear)
    assert mean_at_any_time(one, bounded=True, expected=100).low > 0.5
    assert (
        mean_at_any_time({}, bounded=True, expected=9).count
        == 0
        == difference_at_any_time({}, one, bounded=True, expected=9, level=0.95).count
    )


def test_quick_cases_do_not_come_first() -> None:
    """Those that have ended before the first that has not count: if quick cases counted at once, the mean would be theirs."""
    asked: list[int] = []

    def is_narrow() -> bool:
        asked.append(1)
        return len(asked) == 3

    stop = Narrowing([str(at) for at in range(100)], is_narrow)
    for at in range(1, 99):
        stop.ended(str(at))
    assert not asked
    stop.ended("0")
    assert asked == [1] and not stop.met
    stop.ended("99")
    assert len(asked) == 2
