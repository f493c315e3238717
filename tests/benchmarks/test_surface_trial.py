"""The paired trial of the surfaces runs, with a scripted model in place of a real one."""

from __future__ import annotations

from typing import Any

from agentflow import ScriptedProvider
from tests.benchmarks.surface_trial import GOALS, flow_of, trial


def model(request: Any) -> str:
    """Writes the sum in both surfaces, in Python only after its errors; for any other goal what is wrong."""
    text = request.messages[-1].text
    python = "in the subset of Python" in request.system
    if "The sum of numbers" not in text:
        return "```python\n-1\n```" if python else "-1.5 (list)"
    if not python:
        return "(apply + numbers)"
    return "sum(numbers)" if "attempts left" in text else "sum(nmbers)"


async def test_a_trial_counts_rounds_outcomes_and_tokens() -> None:
    """Both surfaces get the same goals; what is wrong at first counts in a later round, a wrong value never."""
    async with flow_of(None, ScriptedProvider(model)) as flow:
        scores = await trial(flow, GOALS[:2])
    sexp, python = scores["sexp"], scores["python"]
    assert (sexp.goals, sexp.first, sexp.reached, sexp.rounds) == (2, 1, 1, 2)
    assert (python.goals, python.first, python.reached, python.rounds) == (2, 0, 1, 3)
    assert python.refused == {"name/unbound: ... is not bound": 1} and not sexp.refused
    assert python.tokens > 0 and "python" in python.line("m", "python")


def test_there_are_sixty_goals() -> None:
    """Each with its own words."""
    assert len({goal.text for goal in GOALS}) == 60
