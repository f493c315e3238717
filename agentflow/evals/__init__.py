"""Evaluations: cases of a program, under variants of it, scored and compared.

Change a prompt, a model or the program, and run a thousand recorded runs again, paying only for the calls that the change touches.
``flow.evaluate`` carries an evaluation out; this package has its cases and scorers::

    from agentflow.evals import exact, judge, read_cases

    report = await flow.evaluate(answer, read_cases("cases.jsonl"), scorers=[exact(), judge("Is it polite?")])

Read ``evaluation`` first, then ``sample`` and ``report``; ``scoring`` applies scorers; ``scorers``, ``judges`` and ``cases`` have the functions that users call.
"""

from __future__ import annotations

from agentflow.core.events.live_scores import LiveScore
from agentflow.evals.agreement import Agreement, agreement
from agentflow.evals.case_files import read_cases
from agentflow.evals.cases import NOTHING, Case, Scorer
from agentflow.evals.figures import BASE, BEFORE, VariantReport
from agentflow.evals.forecast import Forecast, ForecastPart
from agentflow.evals.judges import Judge, judge
from agentflow.evals.report import EvaluationReport
from agentflow.evals.sample import Sample
from agentflow.evals.saved import read_report
from agentflow.evals.scorers import (
    SampleRun,
    ToolUse,
    calls,
    close,
    contains,
    cost,
    exact,
    json_equal,
    latency,
    matches,
    schema_ok,
    steps,
    tool_called,
)
from agentflow.evals.scoring import SampleBlocked
from agentflow.evals.statistics import Difference, Interval

__all__ = [
    "BASE",
    "BEFORE",
    "NOTHING",
    "Agreement",
    "Case",
    "Difference",
    "EvaluationReport",
    "Forecast",
    "ForecastPart",
    "Interval",
    "Judge",
    "LiveScore",
    "Sample",
    "SampleBlocked",
    "SampleRun",
    "Scorer",
    "ToolUse",
    "VariantReport",
    "agreement",
    "calls",
    "close",
    "contains",
    "cost",
    "exact",
    "json_equal",
    "judge",
    "latency",
    "matches",
    "read_cases",
    "read_report",
    "schema_ok",
    "steps",
    "tool_called",
]
