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
