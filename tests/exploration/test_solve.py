"""``solve`` with ``explore``: a written program is tried out before it may act."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, SexpEvaluationError, TaskError

LIST = """(defatom list-them (params (what string)) (instructions "List {{what}}.")
  (output_format (type "json") (schema "string[]"))
  (history_config '((use_session_history false) (record_in_session_history false))))"""
RARE = '(send (text (first (value-of (list-them (what "birds"))))))'
MENDED = '(let ((them (value-of (list-them (what "birds"))))) (if (null? them) "none" (send (text (first them)))))'
ENDLESS = '(define (again) (if (null? (value-of (list-them (what "birds")))) (again) "done")) (again)'


class House:
    """A flow with a task and a tool, and what was sent by it."""

    def __init__(self, *programs: str) -> None:
        self.sent: list[str] = []

        async def send(text: str) -> str:
            """Send a text."""
            self.sent.append(text)
            return "sent"

        self.flow = AgentFlow(provider=ScriptedProvider(self.answer), tools=[send])
        self.programs = list(programs)
        self.prompts: list[str] = []

    def answer(self, request: Any) -> str:
        """A program for the solver, a list for the task."""
        prompt = "\n".join(message.text for message in request.messages)
        if "List birds" in prompt:
            return '["tit"]'
        self.prompts.append(prompt)
        return self.programs.pop(0)

    async def solve(self, options: str) -> Any:
        """The value of what is written for a goal."""
        await self.flow.define(LIST)
        async with self.flow:
            return (await self.flow.run(f'(value-of (solve "tell of a bird" (allow list-them send) {options}))')).value


async def test_what_a_program_may_come_to_goes_back_before_it_acts() -> None:
    """An error that the next answer would not bring about is found, told, and nothing was done."""
    house = House(RARE, MENDED)
    assert await house.solve("(max-rounds 3) (explore true)") == "sent"
    assert house.sent == ["tit"]
    told = "\n".join(house.prompts[1:])
    assert "list/empty" in told and "this happens when list-them gives []" in told and "exploring" in told


async def test_an_endless_program_never_begins() -> None:
    """A loop without an end is told as one, and when no round is left the result says what was found."""
    house = House(ENDLESS)
    with pytest.raises(TaskError, match="no end at 1:"):
        await house.solve("(max-rounds 1) (explore true)")
    assert house.sent == []


async def test_without_it_a_program_runs_as_it_is() -> None:
    """Nothing is explored unless that is asked for, and inputs that are not data are not tried out."""
    house = House(RARE)
    assert await house.solve("(max-rounds 1)") == "sent"
    house = House(RARE)
    assert await house.solve('(max-rounds 1) (explore true) (inputs (dict "f" (lambda (x) x)))') == "sent"


async def test_explore_is_true_or_false() -> None:
    """Anything else is an error that says so."""
    with pytest.raises(SexpEvaluationError, match="explore as true or false"):
        await House().solve('(explore "yes")')


async def test_from_python() -> None:
    """``flow.solve(explore=True)`` does the same."""
    house = House(RARE, MENDED)
    await house.flow.define(LIST)
    async with house.flow as flow:
        assert await flow.solve("tell of a bird", allow=["list-them", "send"], explore=True) == "sent"
    assert len(house.prompts) == 2
