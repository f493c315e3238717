"""Evaluators of other libraries as scorers: those of pydantic-evals and of autoevals, without changes.

Neither is imported: an evaluator is known by its methods, ``evaluate`` with one parameter, or ``eval_async``.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

from agentflow.evals.cases import Case
from agentflow.evals.sample import Sample


def is_foreign(scorer: object) -> bool:
    """Whether it is an evaluator of one of these libraries."""
    return not inspect.isclass(scorer) and any(
        [callable(getattr(scorer, name, None)) for name in ("evaluate", "eval_async")]
    )


def foreign_name(scorer: Any) -> str:
    """The name of its score: that of its class, or a name of its own."""
    stated: object = getattr(scorer, "evaluation_name", None)
    return stated if isinstance(stated, str) else type(scorer).__name__


async def foreign_score(scorer: Any, case: Case, run: Sample) -> Any:
    """The score of an evaluator: a number, a bool, a dict of them, or None. Raises the errors of the evaluator."""
    expected = case.expected if case.expects else None
    if callable(getattr(scorer, "eval_async", None)):  # autoevals
        judged = await scorer.eval_async(run.value, expected, input=_input(case))
        return judged.score
    context = SimpleNamespace(
        name=case.name,
        inputs=_input(case),
        metadata=dict(case.metadata),
        expected_output=expected,
        output=run.value,
        duration=run.latency_s,
        attributes={},
        metrics={"cost": run.cost_usd, "requests": run.usage.requests},
    )
    judged = scorer.evaluate(context)  # pydantic-evals
    judged = await judged if inspect.isawaitable(judged) else judged
    if isinstance(judged, Mapping):
        entries = cast("Mapping[str, Any]", judged)
        return {name: _number(each) for name, each in entries.items()}
    return _number(judged)


def _input(case: Case) -> Any:
    """The inputs as one value where there is one: other libraries have cases of one input."""
    values = [*case.inputs.values()]
    return values[0] if len(values) == 1 else dict(case.inputs)


def _number(judged: Any) -> Any:
    """The value of a judgement with a reason; None for a label, which is not a score."""
    value = getattr(judged, "value", judged)
    return None if isinstance(value, str) else value
