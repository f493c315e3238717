"""The figures of an evaluation: the scores of its variants, and their differences by case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import fmean, quantiles, variance
from typing import Any

from agentflow.core.data.errors import ConfigurationError, PurseEmpty, clip
from agentflow.core.data.limits import total
from agentflow.evals.sample import Sample
from agentflow.evals.scorers import ACCOUNT
from agentflow.evals.sequences import LEAST, difference_at_any_time, mean_at_any_time
from agentflow.evals.statistics import FEW, LEVEL, Difference, Interval, difference_of, holm, mean_of, pass_at
from agentflow.lib.text.suggest import did_you_mean

BASE = "base"
"""The name of the variant for the unchanged program, or the recorded run."""
BEFORE = "before"
"""The name of the variant for a saved report."""


class VariantReport:
    """The samples of one variant in a report."""

    def __init__(self, report: EvaluationFigures, name: str) -> None:
        self.name = name
        self._report = report

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Its samples of the cases complete in all variants."""
        return tuple([each for each in self._report.complete if each.variant == self.name])

    def scores(self, name: str) -> dict[str, list[float]]:
        """The scores called ``name`` of each case that has one, a score for each draw. Raises ConfigurationError
        (``evals/score``) for a name missing from all samples."""
        self._report.check_score(name)
        scores: dict[str, list[float]] = {}
        for each in self.samples:
            if name in each.scores:
                scores.setdefault(each.case.name, []).append(each.scores[name])
        return scores

    def score(self, name: str) -> Interval:
        """The mean of a score, with its 95 % interval; not a number, of 0 cases, where no case has it. Raises as :meth:`scores`."""
        report, scores = self._report, self.scores(name)
        if report.until is not None:
            return mean_at_any_time(scores, bounded=report.is_bounded(name), expected=len(report.order))
        return mean_of(scores, report.groups, passing=name in report.passing)

    def difference(self, name: str) -> Difference:
        """The difference from the baseline in a score, paired by case. Several intervals hold together: each takes its share
        of the 95 % level (Bonferroni), among all variants, and all primary scores if there are some. Raises as
        :meth:`scores`."""
        report, scores = self._report, self.scores(name)
        base, level = report[report.baseline].scores(name), 1 - (1 - LEVEL) / report.family(name)
        if report.until is not None:
            return difference_at_any_time(
                scores, base, bounded=report.is_bounded(name), expected=len(report.order), level=level
            )
        return difference_of(scores, base, report.groups, passing=name in report.passing, level=level)

    def pass_at(self, name: str, k: int | None = None) -> Interval:
        """The share of cases that pass in at least one of ``k`` draws (default: all draws), from the draws of each case, with
        its 95 % interval. Raises ConfigurationError (``evals/score``) for a score other than yes or no, or with fewer draws."""
        report, scores = self._report, self.scores(name)
        drawn = report.repeat if k is None else k
        if name not in report.passing or not 1 <= drawn <= report.repeat:
            problem = f"there is no pass@{drawn} of '{name}'"
            hint = f"a score that is yes or no, and k from 1 to the number of draws, {report.repeat}"
            raise ConfigurationError(problem, code="evals/score", hint=hint)
        shares = {
            case: [pass_at(drawn, round(sum(each)), len(each))] for case, each in scores.items() if len(each) >= drawn
        }
        whole = all([share in (0, 1) for (share,) in shares.values()])
        mean = mean_of(shares, report.groups, passing=whole)
        return replace(mean, low=max(0.0, mean.low), high=min(1.0, mean.high))

    def spread(self, name: str) -> float:
        """The standard deviation of a score among the draws of one case, over all cases; not a number without repeats. It
        is not part of the intervals, which count cases. Raises as :meth:`scores`."""
        variances = [variance(each) for each in self.scores(name).values() if len(each) > 1]
        return math.sqrt(fmean(variances)) if variances else math.nan

    @property
    def cost_usd(self) -> float | None:
        """The cost of its samples in US dollars, without any reuse; None for an unknown price."""
        return total([each.cost_usd for each in self.samples])

    @property
    def paid_usd(self) -> float | None:
        """The part of the cost paid in this evaluation."""
        return total([each.paid_usd for each in self.samples])

    @property
    def latency_p95_s(self) -> float | None:
        """The 95th percentile of the times of samples that were carried out whole, in seconds; None with fewer than two."""
        times = [each.latency_s for each in self.samples if each.latency_s is not None]
        return quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else None

    @property
    def calls_paid(self) -> int:
        """The model calls made for it."""
        return sum([each.paid_calls for each in self.samples])

    @property
    def calls_reused(self) -> int:
        """The model calls answered by reused results."""
        return sum([each.usage.requests for each in self.samples]) - self.calls_paid


class EvaluationFigures:
    """The samples of an evaluation, and the figures that follow from them; the base of
    :class:`~agentflow.evals.report.EvaluationReport`, which documents the fields."""

    def __init__(
        self,
        *,
        run_id: str,
        variants: Sequence[str],
        baseline: str,
        order: Sequence[str],
        samples: Sequence[Sample],
        repeat: int = 1,
        stopped: PurseEmpty | None = None,
        began: float = 0.0,
        took_s: float = 0.0,
        judging_calls: int = 0,
        judging_usd: float | None = 0.0,
        primary: Sequence[str] = (),
        until: float | None = None,
        enough: bool = False,
        bounded: Iterable[str] = (),
        before: str | None = None,
    ) -> None:
        self.run_id = run_id
        self.variants = tuple(variants)
        self.baseline = baseline
        self.order = tuple(order)
        self.samples = tuple(samples)
        self.repeat = repeat
        self.stopped = stopped
        self.began = began
        self.took_s = took_s
        self.judging_calls = judging_calls
        self.judging_usd = judging_usd
        self.primary = tuple(primary)
        self.until = until
        self.enough = enough
        self.bounded = frozenset(bounded)
        self.before = before

    def __getitem__(self, name: str) -> VariantReport:
        check_variant(name, self.variants)
        return VariantReport(self, name)

    @property
    def partial(self) -> bool:
        """Whether a limit ended it before all cases were complete."""
        return self.stopped is not None

    @property
    def own(self) -> tuple[str, ...]:
        """The variants that it carried out: all but the saved report used as its baseline."""
        return tuple([each for each in self.variants if each != self.before])

    @cached_property
    def complete(self) -> tuple[Sample, ...]:
        """The samples that count: those of the longest prefix of the order with all cases complete in all variants."""
        wanted = len(self.own) * self.repeat
        counts: dict[str, int] = {}
        for each in self.samples:
            if each.status != "unpaid" and each.variant != self.before:
                counts[each.case.name] = counts.get(each.case.name, 0) + 1
        whole: set[str] = set()
        for name in self.order:
            if counts.get(name, 0) < wanted:
                break
            whole.add(name)
        position = {name: at for at, name in enumerate(self.order)}
        kept = [each for each in self.samples if each.case.name in whole]
        return tuple(sorted(kept, key=lambda each: (position[each.case.name], each.draw)))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the scores, in the order of their first occurrence."""
        return tuple(dict.fromkeys([name for each in self.samples for name in (*each.scores, *each.missing)]))

    @cached_property
    def passing(self) -> frozenset[str]:
        """The names of the yes-or-no scores: those with such a value in every sample that ended well."""
        seen = {name for each in self.samples if each.status == "done" for name in each.scores.keys() - each.passing}
        return frozenset([name for each in self.samples for name in each.passing]) - seen

    def is_bounded(self, score: str) -> bool:
        """Whether a score is from 0 to 1 in every case: yes or no, or that of a judge."""
        return score in self.passing or score in self.bounded

    def family(self, score: str) -> int:
        """The number of differences with intervals that hold together with one in ``score``."""
        others = max(1, len(self.variants) - 1)
        if not self.primary:
            return others
        return others * len(self.primary) if score in self.primary else 1

    @property
    def is_narrow(self) -> bool:
        """Whether ``until`` is met: by the differences in the primary scores (default: the first score), or their means with one
        variant. Fewer than 30 cases are never enough."""
        quality = [name for name in self.names if name not in ACCOUNT] or self.names
        primary = self.primary or quality[:1]
        if self.until is None or not primary or not set(primary) <= set(self.names):
            return False
        if len(self.variants) == 1:
            intervals = [self[self.baseline].score(score) for score in primary]
        else:
            others = [name for name in self.variants if name != self.baseline]
            intervals = [self[name].difference(score) for name in others for score in primary]
        # a score that was the same in all cases so far says nothing about cases with another
        return all([each.count >= LEAST and 0 < each.high - each.low <= 2 * self.until for each in intervals])

    @cached_property
    def groups(self) -> Mapping[str, str]:
        """The groups of the cases that have one."""
        return {each.case.name: each.case.group for each in self.samples if each.case.group}

    def check_score(self, name: str) -> None:
        """Raise ConfigurationError (``evals/score``) for the name of a score missing from all samples."""
        if name not in self.names:
            raise ConfigurationError(
                f"no sample has a score '{clip(name, 80)}'",
                code="evals/score",
                hint=did_you_mean(name, self.names) or f"there are {', '.join(self.names) or 'none'}",
            )

    def failures(self, variant: str | None = None) -> list[Sample]:
        """The samples that failed or were blocked, of one variant or of all."""
        names = self.variants if variant is None else (self[variant].name,)
        return [each for each in self.samples if each.status in ("failed", "blocked") and each.variant in names]

    def worst(self, variant: str, score: str, count: int = 5) -> list[tuple[float, Sample, Sample]]:
        """The cases that lost most against the baseline: the change of ``score``, the sample and the baseline's. Raises as
        :meth:`changed`."""
        return [each for each in self.changed(variant, score, len(self.samples)) if each[0] < 0][:count]

    def changed(self, variant: str, score: str, count: int = 5) -> list[tuple[float, Sample, Sample]]:
        """The cases that changed most against the baseline, up or down: the change of ``score``, the sample and the baseline's.

        ``sample.apart`` has the effects of both from the first value that differs. Raises ConfigurationError (``evals/score``,
        ``evals/variant``).
        """
        self.check_score(score)
        base = {(each.case.name, each.draw): each for each in self[self.baseline].samples if score in each.scores}
        changes = [
            (each.scores[score] - other.scores[score], each, other)
            for each in self[variant].samples
            if score in each.scores and (other := base.get((each.case.name, each.draw))) is not None
        ]
        return sorted([each for each in changes if each[0]], key=lambda each: -abs(each[0]))[:count]

    def below(self, least: Mapping[str, float]) -> list[str]:
        """The means below those in ``least``, by the name of the score, in a sentence each. A variant without the score
        is below, too."""
        told: list[str] = []
        for score, number in least.items():
            for name in self.own:
                mean = self[name].score(score).mean if score in self.names else math.nan
                if math.isnan(mean):
                    told.append(f"no sample of {name} has a score '{score}', but {', '.join(self.names) or 'none'}")
                elif mean < number:
                    told.append(f"{score} of {name} is {mean:.3g}, below {number:g}")
        return told

    def adjusted(self, score: str) -> dict[str, float]:
        """The p values of the differences of all variants from the baseline in ``score``, adjusted for their number (Holm): among
        all variants, and all primary scores if there are some. Raises ConfigurationError (``evals/score``)."""
        self.check_score(score)
        others = [name for name in self.variants if name != self.baseline]
        scores = [score] if not self.primary else self.primary if score in self.primary else ()
        keys = [(name, each) for each in scores for name in others if each in self.names]
        values = holm([self[name].difference(each).p for name, each in keys])
        told = dict(zip(keys, values, strict=True))
        return {name: told.get((name, score), self[name].difference(score).p) for name in others}

    def rows(self) -> list[dict[str, Any]]:
        """One dict for each variant, as the table of the report shows it: the scores by their names, with ``score`` after the name
        of one named like a column of the account."""
        rows: list[dict[str, Any]] = []
        for name in self.variants:
            variant = self[name]
            row: dict[str, Any] = {"variant": name, "samples": len(variant.samples)}
            for score in self.names:
                row[column_of(score)] = variant.score(score)
                if name != self.baseline:
                    row[f"{score} difference"] = variant.difference(score)
            row |= {
                "cost_usd": variant.cost_usd,
                "paid_usd": variant.paid_usd,
                "latency_p95_s": variant.latency_p95_s,
                "calls": variant.calls_paid,
                "reused": variant.calls_reused,
                "failed": len(self.failures(name)),
            }
            rows.append(row)
        return rows

    @property
    def has_few(self) -> bool:
        """Whether so few cases count that intervals say little."""
        return len({each.case.name for each in self.complete}) < FEW


_COLUMNS = ("variant", "samples", "cost_usd", "paid_usd", "latency_p95_s", "calls", "reused", "failed")


def column_of(score: str) -> str:
    """The key of a score in a row of :meth:`EvaluationFigures.rows`."""
    return f"{score} score" if score in _COLUMNS else score


def check_variant(name: str, variants: Sequence[str]) -> None:
    """Raise ConfigurationError (``evals/variant``) for the name of an unknown variant."""
    if name not in variants:
        raise ConfigurationError(
            f"the evaluation has no variant '{clip(name, 80)}'",
            code="evals/variant",
            hint=did_you_mean(name, variants) or f"it has {', '.join(variants)}",
        )
