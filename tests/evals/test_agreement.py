"""A judge is held to what people say of the same answers."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agentflow import ConfigurationError
from agentflow.evals import Case, EvaluationReport, Sample, agreement

Pair = tuple[float, float]


def judged(pairs: Sequence[Pair], *, groups: bool = False, **fields: Any) -> EvaluationReport:
    """A report in which people said the first, and the judge the second, of each answer."""
    samples = [
        Sample(
            case=Case(inputs={"q": at}, name=str(at), metadata={"people": one}, group=f"g{at // 2}" if groups else None),
            variant="base", draw=0, status="done", scores={"polite": other}, **fields,
        )
        for at, (one, other) in enumerate(pairs)
    ]  # fmt: skip
    order = [each.case.name for each in samples]
    return EvaluationReport(run_id="e", variants=["base"], baseline="base", order=order, samples=samples)


def table(cells: Mapping[Pair, int]) -> list[Pair]:
    """As many pairs as the table counts."""
    return [pair for pair, number in cells.items() for _ in range(number)]


def textbook(cells: Mapping[Pair, int]) -> tuple[float, float]:
    """Kappa and its standard error as Fleiss, Cohen and Everitt (1969) write them."""
    count, kinds = sum(cells.values()), sorted({each for pair in cells for each in pair})
    share = {(i, j): cells.get((i, j), 0) / count for i in kinds for j in kinds}
    row = {i: sum([share[i, j] for j in kinds]) for i in kinds}
    column = {j: sum([share[i, j] for i in kinds]) for j in kinds}
    seen, chance = sum([share[i, i] for i in kinds]), sum([row[i] * column[i] for i in kinds])
    kappa = (seen - chance) / (1 - chance)
    same = sum([share[i, i] * (1 - (row[i] + column[i]) * (1 - kappa)) ** 2 for i in kinds])
    apart = sum([share[i, j] * (column[i] + row[j]) ** 2 for i in kinds for j in kinds if i != j])
    variance = same + (1 - kappa) ** 2 * apart - (kappa - chance * (1 - kappa)) ** 2
    return kappa, math.sqrt(variance / count) / (1 - chance)


@pytest.mark.parametrize(
    "cells",
    [
        {(1.0, 1.0): 200, (1.0, 0.0): 50, (0.0, 1.0): 100, (0.0, 0.0): 150},
        {
            (0.0, 0.0): 300,
            (0.5, 0.0): 20,
            (0.5, 0.5): 140,
            (0.0, 0.5): 60,
            (1.0, 1.0): 90,
            (1.0, 0.5): 30,
            (0.0, 1.0): 9,
        },
    ],
)
def test_kappa_and_its_interval_are_those_of_the_books(cells: dict[Pair, int]) -> None:
    """Of yes and no, and of more grades: kappa is exact, and the interval at least as wide as that of its standard error."""
    told = agreement(judged(table(cells)), "polite")
    kappa, error = textbook(cells)
    assert told.kappa.mean == pytest.approx(kappa) and told.count == sum(cells.values()) and told.verdicts == cells
    assert (told.kappa.low, told.kappa.high) == pytest.approx(
        (kappa - 1.96 * error, kappa + 1.96 * error), abs=0.2 * error
    )
    assert told.share.mean == pytest.approx(
        sum([number for (one, other), number in cells.items() if one == other]) / told.count
    )
    assert (
        "kappa " in str(told)
        and agreement(judged(table(cells), groups=True), "polite").share.count == (told.count + 1) // 2
    )


def test_few_answers_without_a_disagreement_prove_little() -> None:
    """The interval of kappa is not the one point that its standard error says; where both only said yes, there is no kappa."""
    told = agreement(judged([(1.0, 1.0)] * 10 + [(0.0, 0.0)] * 10), "polite")
    assert told.kappa.mean == told.kappa.high == 1 and told.kappa.low < 0.8
    assert math.isnan(agreement(judged([(1.0, 1.0)] * 10), "polite").kappa.mean)


def test_only_the_answers_that_people_saw_count() -> None:
    """Cases without a verdict, later draws and samples that failed are left out; verdicts may stand beside the report."""
    report = judged([(True, 1.0), (False, 1.0), (None, 0.0)])  # type: ignore[list-item]
    assert agreement(report, "polite").verdicts == {(1.0, 1.0): 1, (0.0, 1.0): 1}
    assert agreement(report, "polite", {"0": False, "2": False}).share.mean == 0.5
    for wrong, code in (
        (lambda: agreement(report, "polit"), "evals/score"),
        (lambda: agreement(report, "polite", "nobody"), "evals/people"),
        (lambda: agreement(report, "polite", {"0": "yes"}), "evals/people"),  # type: ignore[dict-item]
        (lambda: agreement(report, "polite", variant="short"), "evals/variant"),
        (lambda: agreement(judged([(1.0, 1.0)], error=None, ran=0), "polite", {}), "evals/people"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            wrong()
        assert caught.value.code == code and caught.value.hint


TABLES: dict[str, dict[Pair, float]] = {
    "even": {(1, 1): 0.4, (1, 0): 0.1, (0, 1): 0.1, (0, 0): 0.4},
    "mostly yes": {(1, 1): 0.8, (1, 0): 0.05, (0, 1): 0.05, (0, 0): 0.1},
    "nearly one": {(1, 1): 0.48, (1, 0): 0.02, (0, 1): 0.02, (0, 0): 0.48},
    "by chance": {(1, 1): 0.25, (1, 0): 0.25, (0, 1): 0.25, (0, 0): 0.25},
    "a strict judge": {(1, 1): 0.3, (1, 0): 0.3, (0, 1): 0.05, (0, 0): 0.35},
}


@pytest.mark.slow
@pytest.mark.parametrize("size", [20, 50, 150])
@pytest.mark.parametrize("kind", TABLES)
def test_intervals_of_kappa_cover_the_true_one(kind: str, size: int) -> None:
    """At least 93.5 % of 2,000 simulated judges."""
    cells, drawn = TABLES[kind], random.Random(size)
    yes = [sum([share for pair, share in cells.items() if pair[side]]) for side in (0, 1)]
    seen, chance = cells[1, 1] + cells[0, 0], yes[0] * yes[1] + (1 - yes[0]) * (1 - yes[1])
    true = (seen - chance) / (1 - chance)
    covered = 0
    for _ in range(2_000):
        told = agreement(judged(drawn.choices([*cells], [*cells.values()], k=size)), "polite").kappa
        covered += math.isnan(told.mean) or told.low <= true <= told.high
    assert covered >= 1_870
