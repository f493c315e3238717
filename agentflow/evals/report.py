"""The report of an evaluation: the scores of its variants, their differences by case, and where they are saved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from statistics import quantiles
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from agentflow.core.data.errors import ConfigurationError, PurseEmpty, clip
from agentflow.core.data.limits import total
from agentflow.core.data.values import plain
from agentflow.evals.sample import Sample
from agentflow.evals.statistics import FEW, LEVEL, Difference, Interval, difference_of, holm, mean_of
from agentflow.lib.text.suggest import did_you_mean

_SHOWN = 70
"""Characters of a value that are shown."""
_MOST = 5
"""Number of cases that are shown of one kind."""


class VariantReport:
    """The samples of one variant in a :class:`EvaluationReport`."""

    def __init__(self, report: EvaluationReport, name: str) -> None:
        self.name = name
        self._report = report

    @cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Its samples of the cases that are complete in all variants."""
        return tuple([each for each in self._report.complete if each.variant == self.name])

    def scores(self, name: str) -> dict[str, list[float]]:
        """The scores called ``name`` of each case that has one, a score for each draw. Raises ConfigurationError
        (``evals/score``) for a name that no sample has."""
        self._report.check_score(name)
        scores: dict[str, list[float]] = {}
        for each in self.samples:
            if name in each.scores:
                scores.setdefault(each.case.name, []).append(each.scores[name])
        return scores

    def score(self, name: str) -> Interval:
        """The mean of a score, with its 95 % interval; not a number, of 0 cases, where no case has it. Raises as :meth:`scores`."""
        return mean_of(self.scores(name), self._report.groups, passing=name in self._report.passing)

    def difference(self, name: str) -> Difference:
        """The difference from the baseline in a score, paired by case. With several variants the intervals hold together: each
        has the level that is left of 95 % for one of them (Bonferroni). Raises as :meth:`scores`."""
        report = self._report
        others = max(1, len(report.variants) - 1)
        return difference_of(
            self.scores(name),
            report[report.baseline].scores(name),
            report.groups,
            passing=name in report.passing,
            level=1 - (1 - LEVEL) / others,
        )

    @property
    def cost_usd(self) -> float | None:
        """The cost of its samples in US dollars, as if none had been reused; None for an unknown price."""
        return total([each.cost_usd for each in self.samples])

    @property
    def paid_usd(self) -> float | None:
        """The part of the cost that was paid in this evaluation."""
        return total([each.paid_usd for each in self.samples])

    @property
    def latency_p95_s(self) -> float | None:
        """The 95th percentile of the times of samples that were carried out whole, in seconds; None with fewer than two."""
        times = [each.latency_s for each in self.samples if each.latency_s is not None]
        return quantiles(times, n=20, method="inclusive")[-1] if len(times) > 1 else None

    @property
    def calls_paid(self) -> int:
        """The model calls that were made for it."""
        return sum([each.paid_calls for each in self.samples])

    @property
    def calls_reused(self) -> int:
        """The model calls whose answers were reused."""
        return sum([each.usage.requests for each in self.samples]) - self.calls_paid


class EvaluationReport:
    """The outcome of an evaluation. ``report["short"]`` is one of its ``variants``.

    ``samples`` are all samples, ``order`` the names of the cases in the order in which they were taken; ``repeat`` is the
    number of draws. ``stopped`` is the error of the limit that ended it early: then it is ``partial``, and counts the cases
    that are complete in all variants. ``began`` is a unix time, ``took_s`` a number of seconds. Judges, and
    tasks that score, made ``judging_calls`` model calls for ``judging_usd`` dollars, which are in no sample. ``run_id`` carries it on:
    ``flow.evaluate(..., run_id=report.run_id)`` with a higher limit pays for the rest.
    """

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

    def __getitem__(self, name: str) -> VariantReport:
        if name not in self.variants:
            raise ConfigurationError(
                f"the evaluation has no variant '{clip(name, 80)}'",
                code="evals/variant",
                hint=did_you_mean(name, self.variants) or f"it has {', '.join(self.variants)}",
            )
        return VariantReport(self, name)

    @property
    def partial(self) -> bool:
        """Whether a limit ended it before all cases were complete."""
        return self.stopped is not None

    @cached_property
    def complete(self) -> tuple[Sample, ...]:
        """The samples that count: of the longest beginning of the order whose cases are complete in all variants."""
        wanted = len(self.variants) * self.repeat
        counts: dict[str, int] = {}
        for each in self.samples:
            if each.status != "unpaid":
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
        """The names of the scores, in the order in which they first occur."""
        return tuple(dict.fromkeys([name for each in self.samples for name in (*each.scores, *each.missing)]))

    @cached_property
    def passing(self) -> frozenset[str]:
        """The names of the scores that are yes or no in every sample that ended well."""
        seen = {name for each in self.samples if each.status == "done" for name in each.scores.keys() - each.passing}
        return frozenset([name for each in self.samples for name in each.passing]) - seen

    @cached_property
    def groups(self) -> Mapping[str, str]:
        """The groups of the cases that have one."""
        return {each.case.name: each.case.group for each in self.samples if each.case.group}

    def check_score(self, name: str) -> None:
        """Raise ConfigurationError (``evals/score``) for the name of a score that no sample has."""
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
        """The cases that lost most against the baseline: the change of ``score``, the sample and the baseline's."""
        self.check_score(score)
        base = {(each.case.name, each.draw): each for each in self[self.baseline].samples if score in each.scores}
        changes = [
            (each.scores[score] - other.scores[score], each, other)
            for each in self[variant].samples
            if score in each.scores and (other := base.get((each.case.name, each.draw))) is not None
        ]
        return sorted([each for each in changes if each[0] < 0], key=lambda each: each[0])[:count]

    def below(self, least: Mapping[str, float]) -> list[str]:
        """The means that are below those in ``least``, by the name of the score, in a sentence each. A variant without the score
        is below, too."""
        told: list[str] = []
        for score, number in least.items():
            for name in self.variants:
                mean = self[name].score(score).mean if score in self.names else math.nan
                if math.isnan(mean):
                    told.append(f"no sample of {name} has a score '{score}'")
                elif mean < number:
                    told.append(f"{score} of {name} is {mean:.3g}, below {number:g}")
        return told

    def adjusted(self, score: str) -> dict[str, float]:
        """The p values of the differences of all variants from the baseline in ``score``, adjusted for their number (Holm)."""
        others = [name for name in self.variants if name != self.baseline]
        return dict(zip(others, holm([self[name].difference(score).p for name in others]), strict=True))

    # -- forms ----------------------------------------------------------------------------------------------------------

    def rows(self) -> list[dict[str, Any]]:
        """One dict for each variant, as the table of the report shows it."""
        rows: list[dict[str, Any]] = []
        for name in self.variants:
            variant = self[name]
            row: dict[str, Any] = {"variant": name, "samples": len(variant.samples)}
            for score in self.names:
                row[score] = variant.score(score)
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

    def __str__(self) -> str:
        return as_text(self)

    def to_markdown(self) -> str:
        """The report as Markdown."""
        return as_markdown(self)

    def to_junit(self) -> str:
        """The report as JUnit XML: a test case for each case and variant, which fails unless all its yes-or-no scores are yes."""
        return as_junit(self)

    def to_jsonl(self) -> str:
        """The report as JSON lines: one for the evaluation, then one for each sample."""
        head = {
            "evaluation": self.run_id,
            "variants": list(self.variants),
            "baseline": self.baseline,
            "order": list(self.order),
            "repeat": self.repeat,
            "began": self.began,
            "took_s": self.took_s,
            "partial": self.partial,
            "judging_calls": self.judging_calls,
            "judging_usd": self.judging_usd,
        }
        lines = [head, *[each.to_dict() for each in self.samples]]
        return "".join([json.dumps(plain(each), ensure_ascii=False) + "\n" for each in lines])

    def to_frame(self) -> Any:
        """The samples as a pandas data frame, a row each. Raises ConfigurationError (``config/extra``) without pandas."""
        try:
            import pandas  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
        except ImportError:
            raise ConfigurationError(
                "a data frame needs pandas", code="config/extra", hint="python3 -m pip install pandas"
            ) from None
        records = [{**(data := each.to_dict()), **data.pop("scores")} for each in self.samples]
        return pandas.DataFrame(records)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]

    def save(self, path: str | Path) -> None:
        """Write the report to ``path``, in the form of its ending: ``.jsonl``, ``.md``, ``.xml`` (JUnit) or ``.txt``.

        Raises ConfigurationError (``evals/report``) for another ending, OSError.
        """
        path = Path(path)
        forms = {".jsonl": self.to_jsonl, ".md": self.to_markdown, ".xml": self.to_junit, ".txt": self.__str__}
        form = forms.get(path.suffix.lower())
        if form is None:
            raise ConfigurationError(
                f"a report has no form for '{path.name}'",
                code="evals/report",
                hint=f"end the name with one of {', '.join(forms)}",
            )
        path.write_text(form(), "utf-8")

    @property
    def has_few(self) -> bool:
        """Whether so few cases count that intervals say little."""
        return len({each.case.name for each in self.complete}) < FEW


def as_text(report: EvaluationReport) -> str:
    """The report for a terminal."""
    lines = [_headline(report), ""]
    lines += _aligned(_table(report))
    for title, items in _parts(report):
        lines += ["", f"{title}:", *[f"  {each}" for each in items]]
    return "\n".join(lines)


def as_markdown(report: EvaluationReport) -> str:
    """The report as Markdown."""
    head, *rows = _table(report)
    lines = [_headline(report), "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join([each.replace("|", "\\|") for each in row]) + " |" for row in rows]
    for title, items in _parts(report):
        lines += ["", f"**{title}**", "", *[f"- {each}" for each in items]]
    return "\n".join(lines) + "\n"


def as_junit(report: EvaluationReport) -> str:
    """The report as JUnit XML."""
    suites: list[str] = []
    for name in report.variants:
        cases: list[str] = []
        failed = broken = 0
        for sample in [each for each in report.samples if each.variant == name]:
            title = sample.case.name if report.repeat == 1 else f"{sample.case.name} #{sample.draw + 1}"
            time = "" if sample.latency_s is None else f' time="{sample.latency_s:.3f}"'
            inner = ""
            wrong = sorted([score for score in sample.passing if not sample.scores[score]])
            if sample.status == "unpaid":
                inner = f"<skipped message={quoteattr(clip(sample.reason, 500))}/>"
            elif sample.status != "done":
                broken += 1
                inner = f"<error message={quoteattr(clip(sample.reason, 500))}/>"
            elif wrong:
                failed += 1
                told = f"{', '.join(wrong)}: {_value(sample.value)}"
                inner = f"<failure message={quoteattr(clip(told, 500))}>{escape(_valid(_expected(sample)))}</failure>"
            cases.append(
                f"<testcase classname={quoteattr(name)} name={quoteattr(_valid(title))}{time}>{_valid(inner)}</testcase>"
            )
        counts = f'tests="{len(cases)}" failures="{failed}" errors="{broken}"'
        suites.append(f"<testsuite name={quoteattr(name)} {counts}>\n" + "\n".join(cases) + "\n</testsuite>")
    return '<?xml version="1.0" encoding="utf-8"?>\n<testsuites>\n' + "\n".join(suites) + "\n</testsuites>\n"


def _valid(text: str) -> str:
    """Text without the characters that XML cannot hold."""
    return "".join([each for each in text if each in "\t\n\r" or each >= " "])


def _headline(report: EvaluationReport) -> str:
    cases = len({each.case.name for each in report.complete})
    of = f" of {len(report.order)}" if cases < len(report.order) else ""
    draws = f", {report.repeat} draws each" if report.repeat > 1 else ""
    paid = [report[name] for name in report.variants]
    calls, reused = sum([each.calls_paid for each in paid]), sum([each.calls_reused for each in paid])
    judges = f"; judges: {report.judging_calls} model calls, {_usd(report.judging_usd)}" if report.judging_calls else ""
    return f"Evaluation {report.run_id}: {cases}{of} cases{draws}, {calls} model calls, {reused} reused{judges}"


def _table(report: EvaluationReport) -> list[list[str]]:
    head = ["variant"]
    for score in report.names:
        head.append(score)
        if len(report.variants) > 1:
            head.append("difference")
    head += ["cost", "paid", "p95", "calls", "reused", "failed"]
    rows = [head]
    for row in report.rows():
        cells = [row["variant"]]
        for score in report.names:
            cells.append(_cell(row[score]))
            if len(report.variants) > 1:
                cells.append(_cell(row.get(f"{score} difference")))
        late = row["latency_p95_s"]
        cells += [_usd(row["cost_usd"]), _usd(row["paid_usd"]), "" if late is None else f"{late:.2f} s"]
        cells += [str(row["calls"]), str(row["reused"]), str(row["failed"])]
        rows.append(cells)
    return rows


def _cell(value: Interval | Difference | None) -> str:
    return "" if value is None or not value.count else str(value)


def _usd(value: float | None) -> str:
    return "?" if value is None else f"${value:.4f}"


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip() for row in rows]


def _parts(report: EvaluationReport) -> list[tuple[str, list[str]]]:
    """The parts below the table that have something to say."""
    parts: list[tuple[str, list[str]]] = []
    if report.stopped is not None:
        parts.append(
            ("A limit ended it", [f"{report.stopped.message}; continue with a higher one and run_id='{report.run_id}'"])
        )
    if report.has_few:
        parts.append(("Few cases", ["below 20 cases, intervals are wide, and may be too narrow for skewed scores"]))
    for name in report.variants:
        if name == report.baseline:
            continue
        for score in report.names:
            worst = report.worst(name, score, _MOST)
            if worst:
                parts.append((f"Worse in {score} under {name}", [_change(*each) for each in worst]))
    for title, samples in _by_cause(report):
        names = ", ".join(dict.fromkeys([f"{each.case.name} ({each.variant})" for each in samples[:_MOST]]))
        parts.append((title, [names + (f", and {len(samples) - _MOST} more" if len(samples) > _MOST else "")]))
    missing: dict[str, int] = {}
    for sample in report.samples:
        for score, why in sample.missing.items():
            missing[f"{score}: {why}"] = missing.get(f"{score}: {why}", 0) + 1
    if missing:
        parts.append(("Scores that are missing", [f"{count} x {why}" for why, count in missing.items()]))
    return parts


def _change(change: float, sample: Sample, base: Sample) -> str:
    one, other = _value(base.value), _value(sample.value)
    return f"{sample.case.name}: {change:+.3g}; {base.variant} gave {one}; {sample.variant} gave {other}"


def _by_cause(report: EvaluationReport) -> list[tuple[str, list[Sample]]]:
    causes: dict[str, list[Sample]] = {}
    for sample in report.failures():
        causes.setdefault(f"{sample.status.capitalize()}, {clip(sample.reason, 200)}", []).append(sample)
    return sorted(causes.items(), key=lambda each: -len(each[1]))


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)
    return repr(clip(" ".join(text.split()), _SHOWN))


def _expected(sample: Sample) -> str:
    return f"expected {_value(sample.case.expected)}" if sample.case.expects else ""
