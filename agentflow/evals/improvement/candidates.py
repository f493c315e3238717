"""The candidates of a search: forms of a program with their figures, and the cases that they are compared on."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.durable.generations import Overrides
from agentflow.evals.cases import Case
from agentflow.evals.evaluation import Variation
from agentflow.evals.figures import BASE, EvaluationFigures
from agentflow.lib.option_table import wrong_value

Stage: TypeAlias = Literal["base", "refused", "proposed", "screened", "searched"]
"""How far a candidate came: ``refused`` before any call, only ``proposed`` at a limit, ``screened`` on a few cases, or ``searched``
on all cases of the search."""

LEAST_PARTS = 2
"""Number of cases, or groups of cases, that both parts of the cases must have."""
CHEAPER = 0.9
"""A candidate with an equal score must cost at most this part of its parent."""


@frozen(kw_only=True)
class ProgramCandidate(Variation):
    """One form of the program: the ``overrides`` of its tasks, or another ``program`` text.

    ``name`` is its name in reports, ``parent`` that of the candidate that it was derived from, ``change`` says how. ``stage`` is how far
    it came, and ``why`` is the reason if it was refused or screened out. ``faster``: only its latency can be better, with the same score. ``score`` (the mean of the score to raise), ``cost_usd`` (US dollars of a case)
    and ``paid_calls`` are from the cases of the search.
    """

    name: str
    parent: str = ""
    change: str = ""
    stage: Stage = "base"
    why: str = ""
    score: float | None = None
    cost_usd: float | None = None
    paid_calls: int = 0
    faster: bool = False

    @property
    def figures(self) -> Figures:
        """Its score and cost; 0 without a score."""
        return self.score or 0.0, self.cost_usd

    @property
    def fields(self) -> frozenset[tuple[str, str]]:
        """The overridden fields, each with its task."""
        return frozenset([(task, name) for task, fields in self.overrides.items() for name in fields])

    @property
    def text(self) -> str | None:
        """Its program text; None if that is unchanged."""
        return None if self.program is None else self.program.text

    def with_field(self, task: str, name: str, value: Any) -> Overrides:
        """Its overrides with one more field of a task."""
        return {**self.overrides, task: {**self.overrides.get(task, {}), name: value}}

    def measured(self, report: EvaluationFigures, score: str, stage: Stage, why: str = "") -> ProgramCandidate:
        """The candidate with its figures in an evaluation where it is a variant: no score if the scorer gave none."""
        mean, cost = figures_of(report, self.name, score)
        paid = self.paid_calls + report[self.name].calls_paid
        return replace(
            self, stage=stage, why=why, score=None if math.isnan(mean) else mean, cost_usd=cost, paid_calls=paid
        )

    def to_dict(self) -> dict[str, Any]:
        """The candidate as JSON data."""
        names = ("name", "parent", "change", "stage", "why", "score", "cost_usd", "paid_calls")
        return {
            **{each: getattr(self, each) for each in names},
            "overrides": {task: dict(fields) for task, fields in self.overrides.items()},
            "program": self.text,
        }


Figures: TypeAlias = "tuple[float, float | None]"
"""A score, and the US dollars of a case; None for an unknown price."""


def figures_of(report: EvaluationFigures, name: str, score: str) -> Figures:
    """The mean of a score of a variant, and the US dollars of one of its samples."""
    variant = report[name]
    cost = variant.cost_usd
    return variant.score(score).mean, None if cost is None else cost / max(1, len(variant.samples))


def is_better(one: Figures, other: Figures) -> bool:
    """Whether a score and its cost are better than others: a higher score, or the same one, above 0, for clearly less money."""
    (score, cost), (before, paid) = one, other
    if score != before or score <= 0 or cost is None or paid is None:
        return score > before
    return cost <= CHEAPER * paid and cost < paid


def front(candidates: Sequence[ProgramCandidate]) -> list[ProgramCandidate]:
    """The candidates that no other one beats in both score and cost, the best score first."""

    def beats(one: ProgramCandidate, other: ProgramCandidate) -> bool:
        a, b = _axes(one), _axes(other)
        return a != b and all([x >= y for x, y in zip(a, b, strict=True)])

    kept = [each for each in candidates if not any([beats(other, each) for other in candidates])]
    return sorted(kept, key=_axes, reverse=True)


def _axes(candidate: ProgramCandidate) -> tuple[float, float]:
    return candidate.score or 0.0, -(candidate.cost_usd or 0.0)


def split(cases: Sequence[Case], holdout: float, seed: int) -> tuple[list[Case], list[Case]]:
    """The cases to search on, and those held out, which are the part ``holdout``; groups stay together. The same cases are
    split in the same way in any order.

    Raises ConfigurationError: ``config/option`` for another ``holdout`` than a part, ``evals/holdout`` for too few cases.
    """
    if not (type(holdout) in (int, float) and 0 < holdout < 1):
        raise wrong_value("flow.improve", "holdout", holdout, "is not a part of the cases", "for example holdout=0.3")
    units: dict[tuple[bool, str], list[Case]] = {}
    for case in sorted(cases, key=lambda each: (each.digest, each.name)):
        units.setdefault((case.group is None, case.group or f"{case.digest} {case.name}"), []).append(case)
    order = list(units.values())
    random.Random(seed).shuffle(order)
    count = min(max(round(len(order) * holdout), LEAST_PARTS), max(len(order) - LEAST_PARTS, 0))
    if count < LEAST_PARTS:
        raise ConfigurationError(
            f"{len(cases)} cases ({len(order)} independent ones) cannot be split into cases to search on and cases to decide"
            f" on: each part needs {LEAST_PARTS}",
            code="evals/holdout",
            hint=f"give at least {2 * LEAST_PARTS} cases; from about 40 on, the held-out ones can show a difference",
        )
    held = [case for unit in order[:count] for case in unit]
    names = {case.name for case in held}
    return [case for case in cases if case.name not in names], [case for case in cases if case.name in names]


def fails(report: EvaluationFigures, name: str, score: str) -> int:
    """The number of samples of a variant that failed, were blocked, or did not pass a yes-or-no score."""
    passes = score in report.passing
    return sum(
        [
            each.status in ("failed", "blocked") or (passes and each.scores.get(score) == 0.0)
            for each in report[name].samples
        ]
    )


def chosen_score(report: EvaluationFigures, primary: str | None, account: Sequence[str]) -> str:
    """The score to raise: ``primary``, or else the first one that is not of the account. Raises ConfigurationError
    (``evals/score``)."""
    if primary is not None:
        report.check_score(primary)
    scored = {name for each in report.samples for name in each.scores}
    names = [name for name in report.names if name not in account] if primary is None else [primary]
    quality = [name for name in names if name in scored]
    if not quality:
        missing = [(each, name) for each in report.samples for name in names if name in each.missing]
        failed = report.failures()
        hint = "give a scorer of the answer, and cases that the unchanged program can run: scorers=[contains(), cost]"
        if missing:
            sample, name = missing[0]
            why = f"the scorer '{name}' gave none for '{sample.case.name}': {sample.missing[name]}"
            hint = "mend the scorer, for example: def polite(case, run): return 'please' in run.value"
        elif failed:
            why = f"'{failed[0].case.name}' {failed[0].reason}"
        else:
            why = "cost, latency, calls and steps are an account"
        raise ConfigurationError(f"no case has a score to raise: {why}", code="evals/score", hint=hint)
    return quality[0]


def base_candidate() -> ProgramCandidate:
    """The unchanged program."""
    return ProgramCandidate(name=BASE, change="the unchanged program")
