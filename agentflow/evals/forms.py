"""The forms of a report: text, Markdown, JUnit XML, and the page."""

from __future__ import annotations

import json
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from agentflow.core.data.errors import clip
from agentflow.core.data.values import plain
from agentflow.evals.apart import beside
from agentflow.evals.figures import EvaluationFigures, column_of
from agentflow.evals.sample import Sample
from agentflow.evals.scorers import ACCOUNT
from agentflow.evals.statistics import Difference, Interval

_SHOWN = 70
"""Characters of a value that a text shows."""
_MOST = 5
"""Number of cases of one kind that a text shows."""
_PAGE_MOST = 25
"""Number of cases of one kind that the page shows."""


def as_text(report: EvaluationFigures) -> str:
    """The report for a terminal."""
    lines = [_headline(report), ""]
    lines += aligned(_table(report))
    for title, items in _parts(report):
        lines += ["", f"{title}:", *[f"  {each}" for each in items]]
    return "\n".join(lines)


def as_markdown(report: EvaluationFigures) -> str:
    """The report as Markdown."""
    head, *rows = _table(report)
    lines = [_headline(report), "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join([each.replace("|", "\\|") for each in row]) + " |" for row in rows]
    for title, items in _parts(report):
        lines += ["", f"**{title}**", "", *[f"- {each}" for each in items]]
    return "\n".join(lines) + "\n"


def as_html(report: EvaluationFigures) -> str:
    """The report as a page: one file, which requests nothing."""
    from agentflow.observe.report.html import evaluation_html

    changes = [
        {"title": title, "base": report.baseline, "here": name, "cases": [_beside(*each) for each in cases]}
        for title, name, cases in _changes(report, _PAGE_MOST)
    ]
    title = f"Evaluation of {', '.join([each for each in report.variants if each != report.baseline])}".removesuffix(
        " of "
    )
    data = {
        "title": title,
        "run_id": report.run_id,
        "headline": _headline(report),
        "table": _table(report),
        "notices": _notices(report),
        "notes": _notes(report),
        "changes": changes,
        "failures": [[str(len(samples)), cause, _names(samples)] for cause, samples in _by_cause(report)],
        "missing": [[str(count), why] for why, count in missing_scores(report).items()],
    }
    return evaluation_html(title, data)


def _beside(change: float, sample: Sample, base: Sample) -> dict[str, Any]:
    """A case under two variants, as the page shows it."""
    return {
        "case": _title(sample),
        "change": f"{change:+.3g}",
        "base": _text(base.value) if base.status == "done" else _gave(base, None),
        "here": _text(sample.value) if sample.status == "done" else _gave(sample, None),
        "expected": _text(sample.case.expected) if sample.case.expects else None,
        "steps": [each.to_dict() for each in sample.apart],
    }


def as_junit(report: EvaluationFigures) -> str:
    """The report as JUnit XML."""
    suites: list[str] = []
    for name in report.own:
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


def _headline(report: EvaluationFigures) -> str:
    cases = _cases(report)
    of = f" of {len(report.order)}" if cases < len(report.order) else ""
    draws = f", {report.repeat} draws each" if report.repeat > 1 else ""
    paid = [report[name] for name in report.own]
    calls, reused = sum([each.calls_paid for each in paid]), sum([each.calls_reused for each in paid])
    judges = f"; judges: {report.judging_calls} model calls, {_usd(report.judging_usd)}" if report.judging_calls else ""
    return f"Evaluation {report.run_id}: {cases}{of} cases{draws}, {calls} model calls, {reused} reused{judges}"


def _cases(report: EvaluationFigures) -> int:
    """The number of cases that count."""
    return len({each.case.name for each in report.complete})


def _table(report: EvaluationFigures) -> list[list[str]]:
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
            cells.append(_cell(row[column_of(score)]))
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


def aligned(rows: list[list[str]]) -> list[str]:
    """The lines of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip() for row in rows]


def _parts(report: EvaluationFigures) -> list[tuple[str, list[str]]]:
    """The parts below the table that have something to say."""
    parts = [(title, [text]) for title, text in _notices(report)]
    parts += _notes(report)
    for title, _, cases in _changes(report, _MOST):
        parts.append((title, [_change(*each) for each in cases]))
    for title, samples in _by_cause(report):
        parts.append((title, [_names(samples)]))
    missing = missing_scores(report)
    if missing:
        parts.append(("Scores that are missing", [f"{count} x {why}" for why, count in missing.items()]))
    return parts


def _notices(report: EvaluationFigures) -> list[tuple[str, str]]:
    """Remarks to read before the figures."""
    notices: list[tuple[str, str]] = []
    if report.stopped is not None:
        more = f"continue with a higher one and run_id='{report.run_id}'"
        notices.append(("A limit ended it", f"{report.stopped.message}; {more}"))
    if report.until is not None:
        met = "was met" if report.enough else "was not met"
        cases = f"{_cases(report)} of {len(report.order)} cases"
        kinds = {score: report[report.variants[-1]].score(score).method for score in report.names}
        shown = ", ".join([f"{score}: {kind}" for score, kind in kinds.items() if kind != "none"])
        why = "all intervals are confidence sequences, which hold at any time"
        notices.append(
            (
                "Stopped early" if report.enough else "Not narrow",
                f"until={report.until:g} {met} by {cases}; {why} ({shown})",
            )
        )
    for score in report.primary:
        if score not in report.names:
            notices.append(("No such score", f"no sample has the primary score '{score}'"))
    if report.before is not None:
        both = {each.case.name for each in report[report.before].samples}
        alone = len({each.case.name for each in report.complete} - both)
        if alone:
            notices.append(("Other cases", f"{alone} cases are not in the saved report, and in no difference"))
    if report.has_few:
        notices.append(("Few cases", "below 20 cases, intervals are wide, and may be too narrow for skewed scores"))
    return notices


def _notes(report: EvaluationFigures) -> list[tuple[str, list[str]]]:
    """The information that repeats add to the means."""
    repeats: list[str] = []
    for score in [each for each in report.names if report.repeat > 1 and each not in ACCOUNT]:
        for name in report.variants:
            variant = report[name]
            told = [f"draws of a case differ by {spread:.3g}" for spread in (variant.spread(score),) if spread >= 0]
            if score in report.passing and (passed := variant.pass_at(score)).count:
                told.insert(0, f"passes in at least one of {report.repeat} draws: {passed}")
            if told:
                repeats.append(f"{score} of {name}: {'; '.join(told)}")
    return [("Repeats (the standard deviation within a case)", repeats)] if repeats else []


def _changes(report: EvaluationFigures, most: int) -> list[tuple[str, str, list[tuple[float, Sample, Sample]]]]:
    """The cases that changed most in each score and variant, with a title and the variant: first those that lost."""
    parts: list[tuple[str, str, list[tuple[float, Sample, Sample]]]] = []
    for name in report.variants:
        for score in [each for each in report.names if name != report.baseline and each not in ACCOUNT]:
            worse = report.worst(name, score, most)
            better = [each for each in report.changed(name, score, len(report.samples)) if each[0] > 0][:most]
            for title, cases in (("Worse", worse), ("Better", better)):
                if cases:
                    parts.append((f"{title} in {score} under {name}", name, cases))
    return parts


def _change(change: float, sample: Sample, base: Sample) -> str:
    one, other = [_text(each.value) if each.status == "done" else None for each in (base, sample)]
    texts = beside(one, other, _SHOWN)
    told = [
        f"{_title(sample)}: {change:+.3g}",
        *[f"{each.variant} {_gave(each, text)}" for each, text in zip((base, sample), texts, strict=True)],
    ]
    if sample.apart:
        first = sample.apart[0]
        parts = beside(first.base, first.here, _SHOWN)
        if parts != texts:
            shown = " and ".join(["nothing" if each is None else repr(each) for each in parts])
            told.append(f"first apart: {first.kind} {first.name} at {first.path}, {shown}")
    return _line("; ".join(told))


def _gave(sample: Sample, text: str | None) -> str:
    """The value of a sample as text, or why it has none."""
    return f"{sample.status}: {clip(sample.reason, 200)}" if text is None else f"gave {text!r}"


def _title(sample: Sample) -> str:
    return sample.case.name if sample.draw == 0 else f"{sample.case.name} #{sample.draw + 1}"


def _names(samples: list[Sample]) -> str:
    """The names of the cases of these samples, the first of them."""
    names = ", ".join(dict.fromkeys([f"{each.case.name} ({each.variant})" for each in samples[:_MOST]]))
    return names + (f", and {len(samples) - _MOST} more" if len(samples) > _MOST else "")


def missing_scores(report: EvaluationFigures) -> dict[str, int]:
    """How often a score is missing, by its name and the reason."""
    missing: dict[str, int] = {}
    for sample in report.samples:
        for score, why in sample.missing.items():
            missing[f"{score}: {why}"] = missing.get(f"{score}: {why}", 0) + 1
    return missing


def _by_cause(report: EvaluationFigures) -> list[tuple[str, list[Sample]]]:
    causes: dict[str, list[Sample]] = {}
    for sample in report.failures():
        causes.setdefault(f"{sample.status.capitalize()}, {clip(sample.reason, 200)}", []).append(sample)
    return sorted(causes.items(), key=lambda each: -len(each[1]))


def _value(value: Any) -> str:
    return repr(clip(_line(_text(value)), _SHOWN))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False)


def _line(text: str) -> str:
    return " ".join(text.split())


def _expected(sample: Sample) -> str:
    return f"expected {_value(sample.case.expected)}" if sample.case.expects else ""
