"""Saved reports, read again: to print them in another form, and as the baseline of a later evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import AgentflowError, ConfigurationError, PurseEmpty, clip
from agentflow.core.data.messages import Usage
from agentflow.durable.samples import SampleEnd
from agentflow.evals.apart import ValuePair
from agentflow.evals.cases import Case
from agentflow.evals.figures import BASE, BEFORE
from agentflow.evals.report import EvaluationReport
from agentflow.evals.sample import Sample
from agentflow.evals.scorers import ToolUse


def read_report(path: str | Path) -> EvaluationReport:
    """The report that ``report.save("report.jsonl")`` wrote. Of its cases only names, groups and digests are left.

    Raises ConfigurationError (``evals/report``) for a file that cannot be read or is none.
    """
    path = Path(path)
    try:
        head, *lines = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]
        return _report(head, [_sample(each) for each in lines])
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong(f"the report {path} cannot be read: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise _wrong(f"{path} is not a report of an evaluation in JSON lines") from None


def _report(head: Mapping[str, Any], samples: Sequence[Sample]) -> EvaluationReport:
    stopped = head.get("stopped")
    names = ("variants", "baseline", "order", "repeat", "began", "took_s", "judging_calls", "judging_usd")
    more = ("primary", "until", "enough", "bounded", "before")
    return EvaluationReport(
        run_id=head["evaluation"],
        samples=samples,
        stopped=None if stopped is None else PurseEmpty(**stopped, purse=head["evaluation"], ends_at=None),
        **{name: head[name] for name in names},
        **{name: head[name] for name in more if name in head},
    )


def _sample(data: Mapping[str, Any]) -> Sample:
    """The sample of one line."""
    scores: dict[str, Any] = data["scores"]
    error = None
    if "error" in data:
        code, _, message = str(data["error"]).partition(": ")
        error = AgentflowError(message, code=code)
    return Sample(
        case=Case(name=data["case"], group=data.get("group")),
        digest=data["digest"],
        variant=data["variant"],
        draw=data["draw"],
        status=data["status"],
        value=data["value"],
        error=error,
        usage=Usage(requests=data["calls"]),
        cost_usd=data["cost_usd"],
        paid_usd=data["paid_usd"],
        paid_calls=data["paid_calls"],
        latency_s=data["latency_s"],
        reused=data["reused"],
        ran=data["ran"],
        tools=tuple([ToolUse("", each["name"], each["arguments"]) for each in data.get("tools", ())]),
        scores={name: float(score) for name, score in scores.items()},
        missing=data.get("missing", {}),
        passing=frozenset([name for name, score in scores.items() if isinstance(score, bool)]),
        apart=tuple([ValuePair(**each) for each in data.get("apart", ())]),
    )


class SavedBaseline:
    """A saved report as the baseline of an evaluation of ``cases``: its samples of those that have the same name and inputs.

    Of a report with several variants the unchanged program counts, or else its own baseline. Raises ConfigurationError
    (``evals/report``) for a report of other cases.
    """

    def __init__(self, report: EvaluationReport, cases: Sequence[Case]) -> None:
        chosen = BASE if BASE in report.variants else report.baseline
        keyed = {(each.name, each.digest): each for each in cases}
        self.samples = [
            replace(each, case=keyed[key], variant=BEFORE, paid_usd=0.0, paid_calls=0, latency_s=None)
            for each in report[chosen].samples
            if (key := (each.case.name, each.digest)) in keyed
        ]
        self._values = {(each.case.name, each.draw): each.value for each in self.samples if each.status == "done"}
        if not self.samples:
            raise _wrong(
                f"the report '{clip(report.run_id, 80)}' has none of these cases",
                "a case is the same if its name and its inputs are: name the cases, and give those of the report",
            )

    def end(self, case: Case, draw: int) -> SampleEnd:
        """How the case ended before, as a scorer that compares two answers takes it."""
        key = (case.name, draw)
        return SampleEnd(status="done", value=self._values[key]) if key in self._values else SampleEnd(status="blocked")


def _wrong(problem: str, hint: str = "report.save('report.jsonl') writes one") -> ConfigurationError:
    return ConfigurationError(problem, code="evals/report", hint=hint)
