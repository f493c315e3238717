"""Tools that somebody else carries out: a call is a question of the run with name, arguments and call id, and its answer the result."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from agentflow import AgentFlow, ConfigurationError, ScriptedProvider, external
from agentflow.core.data.errors import DataError
from agentflow.core.data.messages import ToolResultPart
from agentflow.core.events.events import WaitStarted
from agentflow.core.events.questions import ExternalCall, Question

SEAT = external(
    "choose_seat",
    {"rows": "integer[]"},
    description="Let the customer choose a seat on the screen.",
    returns={"type": "string"},
)


def told(request: Any) -> str:
    """The text of the tool result that the model was sent last."""
    return "".join([part.text for part in request.messages[-1].parts if isinstance(part, ToolResultPart)])


def model() -> ScriptedProvider:
    """A model that has a seat chosen, and says what was chosen."""
    call = {"id": "call_7", "name": "choose_seat", "arguments": {"rows": [12, 13]}}
    return ScriptedProvider([{"tool_calls": [call]}, lambda request: f"You sit in {told(request)}."])


async def test_a_durable_run_waits_for_an_external_tool_outside_of_memory(tmp_path: Path) -> None:
    """The run parks; another process finds the call with its name, arguments and id, gives the result, and the model goes on with it."""
    provider = model()

    def app() -> AgentFlow:
        flow = AgentFlow(provider=provider, durable=f"sqlite:///{tmp_path}/runs.db")

        @flow.task(name="seats", tools=[SEAT])
        async def seats(wish: str) -> str:
            """{{wish}}"""

        return flow

    async with app() as flow:
        run = await flow.start('(content (seats (wish "a window")))', run_id="r")
        assert await run.wait() == "waiting"
    async with app() as flow:
        (question,) = await flow.questions("r")
        assert question.external == ExternalCall("choose_seat", {"rows": [12, 13]}, "call_7")
        with pytest.raises(DataError, match="answer"):
            await flow.send("r", question.key, 12)
        await flow.send("r", question.key, "12A")
        assert (await (await flow.resume("r")).result()).value == "You sit in 12A."
    assert len(provider.requests) == 2


async def test_a_run_that_is_not_durable_asks_the_answerer() -> None:
    """``answer=`` of the flow gets the question with the call; events show it too."""
    seen: list[ExternalCall | None] = []

    async def answer(question: Question) -> str:
        seen.append(question.external)
        return "12A"

    async with AgentFlow(provider=model(), answer=answer) as flow:
        assert await flow.ask("a window", tools=[SEAT]) == "You sit in 12A."
    assert seen == [ExternalCall("choose_seat", {"rows": [12, 13]}, "call_7")]


async def test_the_events_of_an_open_call_have_what_a_front_end_needs() -> None:
    """While the call is open the stream shows its key, name, arguments and call id, and ``flow.send`` answers."""
    async with AgentFlow(provider=model(), approval_ttl=30) as flow:
        async with flow.stream(flow.ask("a window", tools=[SEAT])) as run:
            async for event in run:
                if isinstance(event, WaitStarted) and event.external is not None:
                    assert dict(event.external) == {
                        "name": "choose_seat",
                        "arguments": {"rows": [12, 13]},
                        "call_id": "call_7",
                    }
                    await flow.send(event.run_id, event.key, "13C")
            assert await run.value() == "You sit in 13C."


async def test_a_program_calls_an_external_tool() -> None:
    """Programs call it like any tool; such a call has no id of a model."""
    calls: list[ExternalCall | None] = []

    def answer(question: Question) -> str:
        calls.append(question.external)
        return "1A"

    async with AgentFlow(tools=[SEAT], answer=answer) as flow:
        assert (await flow.run("(content (choose_seat (rows (list 1))))")).value == "1A"
    assert calls == [ExternalCall("choose_seat", {"rows": [1]}, None)]


# -- the wrong ones that a user tries first -------------------------------------------------------------------------


async def test_without_anybody_to_answer_the_model_reads_that() -> None:
    """A run that is not durable, in a flow without ``answer=``: the call fails, and the model reads why."""
    async with AgentFlow(provider=model()) as flow:
        assert "no answer" in await flow.ask("x", tools=[SEAT])


def test_parameters_that_are_no_schema_are_refused() -> None:
    """A list of names is not a schema: the error says what to write."""
    with pytest.raises(ConfigurationError, match="say no types"):
        external("x", cast(Any, ["rows"]))
