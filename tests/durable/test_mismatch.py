"""Records that do not fit a run any more: what is not as it was, and what may change without that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import JournalError


class Rounding(BaseModel):
    digits: int = 2


class Lives:
    """Lives of one run, whose workflow waits after its only effect."""

    def __init__(self, where: Path) -> None:
        self.calls: list[Any] = []
        self._database = f"sqlite:///{where}/runs.db"

    async def live(self, work: Callable[[AgentFlow], Any], tools: Any = (), **options: Any) -> JournalError | None:
        """Do ``work``, an effect of a flow; what it was refused with, if it was."""

        def reply(request: Any) -> str:
            self.calls.append(request)
            return "answer"

        options = {"provider": ScriptedProvider(reply), "model": "one", **options}
        flow = AgentFlow(**options, tools=list(tools), durable=self._database)

        @flow.workflow
        async def pay() -> str:
            await work(flow)
            await flow.ask_human("go on?", bool)
            return "end"

        async with flow:
            handle = await flow.start(pay(), run_id="r")
            if await handle.wait() == "waiting":
                return None
            with pytest.raises(JournalError) as caught:
                await handle.result()
            assert caught.value.code == "durable/mismatch"
            return caught.value


async def charge(amount: int, currency: str) -> str:
    """Charge a card."""
    return f"{amount} {currency}"


ARGUMENTS: dict[str, tuple[tuple[Any, ...], list[str]]] = {
    "the same": ((7, "EUR"), []),
    "another amount": ((8, "EUR"), ["argument 1"]),
    "another currency": ((7, "USD"), ["argument 2"]),
    "both": ((8, "USD"), ["argument 1", "argument 2"]),
}


@pytest.mark.parametrize("name", ARGUMENTS)
async def test_a_step_says_which_argument_differs(tmp_path: Path, name: str) -> None:
    """The error for a recorded step names the arguments that are not as they were, and nothing else."""
    lives, (arguments, differs) = Lives(tmp_path), ARGUMENTS[name]
    assert await lives.live(lambda flow: flow.step(charge, 7, "EUR")) is None
    error = await lives.live(lambda flow: flow.step(charge, *arguments))
    assert (error is None) == (not differs)
    if error is not None:
        assert error.details["differs"] == differs
        assert all([each in error.message for each in differs]) and "step charge" in error.message


ASKED: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "the same": ({}, {}, []),
    "another instruction": ({"system": "Be brief."}, {}, ["the definition of the task"]),
    "another model": ({}, {"model": "two"}, ["the model"]),
    "both": ({"max_output_tokens": 9}, {"model": "two"}, ["the definition of the task", "the model"]),
}


@pytest.mark.parametrize("name", ASKED)
async def test_a_task_says_whether_it_or_its_model_differs(tmp_path: Path, name: str) -> None:
    """The error for a recorded task tells its own definition from the model that answers."""
    settings, options, differs = ASKED[name]
    lives = Lives(tmp_path)
    assert await lives.live(lambda flow: flow.ask("Pay")) is None
    error = await lives.live(lambda flow: flow.ask("Pay", **settings), **options)
    assert ([] if error is None else error.details["differs"]) == differs
    assert len(lives.calls) == 1


class Order(BaseModel):
    """A model that is not stored, since it holds a secret: the run is given it again."""

    amount: int
    key: SecretStr = SecretStr("correct-horse")


async def test_an_argument_of_a_program_is_named(tmp_path: Path) -> None:
    """Where a program calls a tool, the parameter that differs has its name."""
    text = """(begin (charge (amount (get-field order 'amount)) (currency "EUR")) (ask-human "go on?" {"type" "boolean"}))"""
    database = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(provider=ScriptedProvider([]), tools=[charge], durable=database) as flow:
        assert await (await flow.start(text, {"order": Order(amount=7)}, run_id="r")).wait() == "waiting"
    async with AgentFlow(provider=ScriptedProvider([]), tools=[charge], durable=database) as flow:
        with pytest.raises(JournalError) as caught:
            await (await flow.resume("r", bindings={"order": Order(amount=8)})).result()
    assert caught.value.code == "durable/mismatch"
    assert caught.value.details["differs"] == ["the argument 'amount'"]


async def test_a_task_may_offer_a_tool_that_got_an_optional_parameter(tmp_path: Path) -> None:
    """What a model answered still fits a tool that has one more parameter, which may be left out, of whatever type; a parameter
    that must be given, or another type of one, is another definition."""

    async def first(amount: int) -> int:
        """Round."""
        return amount

    async def optional(amount: int, rounding: Rounding | None = None) -> int:
        """Round."""
        return amount

    async def needed(amount: int, digits: int) -> int:
        """Round."""
        return amount

    async def retyped(amount: str) -> str:
        """Round."""
        return amount

    for each in (first, optional, needed, retyped):
        each.__name__, each.__qualname__ = "rounded", "rounded"
    lives = Lives(tmp_path)
    for function, fits in ((first, True), (optional, True), (first, True), (needed, False), (retyped, False)):
        error = await lives.live(lambda flow, function=function: flow.ask("Pay", tools=[function]))
        assert (error is None) == fits, function
        if error is not None:
            assert error.details["differs"] == ["the definition of the task"]
    assert len(lives.calls) == 1


async def test_a_tool_may_get_an_optional_parameter_of_a_class_of_its_own(tmp_path: Path) -> None:
    """A program's recorded call of a tool still fits where the schema got a definition that only the new parameter refers to."""
    calls: list[int] = []

    async def first(amount: int) -> int:
        """Round."""
        calls.append(amount)
        return amount

    async def second(amount: int, rounding: Rounding | None = None) -> int:
        """Round."""
        calls.append(amount)
        return amount

    first.__name__ = second.__name__ = "round_it"
    text = '(begin (round_it (amount 3)) (ask-human "go on?" {"type" "boolean"}))'
    for function in (first, second):
        database = f"sqlite:///{tmp_path}/runs.db"
        async with AgentFlow(provider=ScriptedProvider([]), tools=[function], durable=database) as flow:
            assert await (await flow.start(text, run_id="r")).wait() == "waiting"
    assert calls == [3]


LONG = "Shall the order be paid, which came in by mail, and of which nobody knows who sent it, "

ASKED_OF: dict[str, tuple[tuple[Any, ...], list[str]]] = {
    "the same": ((f"{LONG}today?", bool), []),
    "another question": ((f"{LONG}tomorrow?", bool), ["the question"]),
    "another answer": ((f"{LONG}today?", int), ["the schema of its answer"]),
    "both": ((f"{LONG}tomorrow?", int), ["the question", "the schema of its answer"]),
}


@pytest.mark.parametrize("name", ASKED_OF)
async def test_a_question_says_what_of_it_differs(tmp_path: Path, name: str) -> None:
    """The error for an open question tells its text from what may be answered."""
    lives, (arguments, differs) = Lives(tmp_path), ASKED_OF[name]
    assert await lives.live(lambda flow: flow.ask_human(f"{LONG}today?", bool)) is None
    error = await lives.live(lambda flow: flow.ask_human(*arguments))
    assert ([] if error is None else error.details["differs"]) == differs


async def test_a_wait_says_that_its_time_differs(tmp_path: Path) -> None:
    """A recorded wait that is of another length now says so."""
    text = """(begin (sleep (get-field order 'amount)) (ask-human "go on?" {"type" "boolean"}))"""
    database = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(provider=ScriptedProvider([]), durable=database) as flow:
        assert await (await flow.start(text, {"order": Order(amount=0)}, run_id="r")).wait() == "waiting"
    async with AgentFlow(provider=ScriptedProvider([]), durable=database) as flow:
        with pytest.raises(JournalError) as caught:
            await (await flow.resume("r", bindings={"order": Order(amount=60)})).result()
    assert caught.value.code == "durable/mismatch"
    assert caught.value.details["differs"] == ["the time"]


INNER: dict[str, tuple[dict[str, Any], list[str]]] = {
    "the same": ({}, []),
    "another instruction": ({"system": "Be brief."}, ["the definition of the task"]),
}


@pytest.mark.parametrize("name", INNER)
async def test_a_task_in_the_code_of_a_tool_says_what_differs(tmp_path: Path, name: str) -> None:
    """The record of a task within an effect that was interrupted is explained as any other."""
    lives, (settings, differs) = Lives(tmp_path), INNER[name]

    def buying(**settings: Any) -> Callable[[AgentFlow], Any]:
        async def work(flow: AgentFlow) -> None:
            async def buy() -> str:
                await flow.ask("Pay", **settings)
                await flow.ask_human("sure?", bool)
                return "bought"

            await flow.step(buy)

        return work

    assert await lives.live(buying()) is None
    error = await lives.live(buying(**settings))
    assert ([] if error is None else error.details["differs"]) == differs


async def test_a_turn_says_that_the_task_around_it_differs(tmp_path: Path) -> None:
    """What a model answered within a task that was interrupted in a tool does not fit a task that is defined otherwise."""

    def reply(request: Any) -> Any:
        return {"tool_calls": [{"name": "sure", "arguments": {}}]}

    def buying(**settings: Any) -> Callable[[AgentFlow], Any]:
        async def work(flow: AgentFlow) -> None:
            async def sure() -> bool:
                """Ask."""
                return await flow.ask_human("sure?", bool)

            await flow.ask("Pay", tools=[sure], **settings)

        return work

    lives = Lives(tmp_path)
    assert await lives.live(buying(), provider=ScriptedProvider(reply)) is None
    error = await lives.live(buying(system="Be brief."), provider=ScriptedProvider(reply))
    assert error is not None and error.details["differs"] == ["the effect around it"]
