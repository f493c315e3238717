"""``retries=`` of a task tries again what may pass, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, ScriptedProvider, TaskResult
from agentflow.core.data import provider_errors
from agentflow.core.data.messages import ModelRequest
from agentflow.errors import (
    AgentflowError,
    ConfigurationError,
    InvalidOutput,
    ProviderError,
    ResourceExhausted,
    TaskError,
)
from tests.support.model_server import ModelServer, Reply


class Row(BaseModel):
    n: int


PASSES = [
    provider_errors.RateLimited("too many", status=429),
    provider_errors.Overloaded("busy", status=529),
    provider_errors.ServerError("broken", status=500),
    provider_errors.ConnectionLost("lost"),
    provider_errors.ConnectionRefused("nobody there"),
    provider_errors.ConnectTimeout("no connection"),
    provider_errors.FirstByteTimeout("nothing came"),
    provider_errors.IdleTimeout("stalled"),
    provider_errors.CallTimeout("too long"),
    provider_errors.IncompleteStream("cut off"),
    InvalidOutput("no JSON"),
]
STAYS = [
    provider_errors.BadRequest("wrong", status=400),
    provider_errors.AuthenticationFailed("no key", status=401),
    provider_errors.PermissionDenied("not you", status=403),
    provider_errors.ContextWindowExceeded("too long", status=400),
    provider_errors.Refused("no"),
    provider_errors.ProtocolError("<html>"),
    ResourceExhausted("out of output", resource="output", used=1, limit=1),
    ProviderError("what is this"),
]


@pytest.mark.parametrize("error", [*PASSES, *STAYS], ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("whole", [False, True], ids=["value", "result"])
async def test_what_may_pass_is_tried_again(error: TaskError, whole: bool) -> None:
    """By the failure's kind, also where the task gives its result and raises nothing."""
    passes = error in PASSES
    assert error.may_pass is passes
    model = ScriptedProvider([error, error, "fine"])
    flow = AgentFlow(provider=model)

    @flow.task(retries=2)
    async def text(x: str) -> str:
        """About {{x}}"""

    @flow.task(retries=2)
    async def result(x: str) -> TaskResult:
        """About {{x}}"""

    async with flow:
        if whole:
            assert (await result("x")).status == ("COMPLETE" if passes else "FAILED")
        elif passes:
            assert await text("x") == "fine"
        else:
            with pytest.raises(AgentflowError) as caught:
                await text("x")
            assert caught.value.code == error.code
    assert len(model.requests) == (3 if passes else 1)


async def test_a_hopeless_table_costs_a_request_a_row(tmp_path: Path) -> None:
    """Twenty rows whose requests are refused as invalid are twenty requests, whatever ``retries`` says."""
    async with ModelServer(
        [Reply(status=400, error={"type": "invalid", "message": "no such model"})], repeat=True
    ) as server:
        flow = AgentFlow("openai-chat:m", base_url=server.url, api_key="key", root=tmp_path)

        @flow.task(retries=3)
        async def triage(row: int) -> Row:
            """{{row}}"""

        @flow.workflow
        async def table() -> list[Any]:
            async def one(row: int) -> Any:
                try:
                    return await triage(row)
                except ProviderError as error:
                    return error.code

            return await flow.map(one, range(20))

        async with flow:
            assert await table() == ["provider/bad-request"] * 20
    assert len(server.requests) == 20


async def test_an_answer_of_the_wrong_form_is_asked_for_again(tmp_path: Path) -> None:
    """After the round that repairs, each further try is a new prompt; a missing key or model is no reason for one."""
    model = ScriptedProvider(["{}", "{}", '{"n": 1}'])
    flow = AgentFlow(provider=model)

    @flow.task(retries=1)
    async def row(x: str) -> Row:
        """{{x}}"""

    async with flow:
        assert await row("x") == Row(n=1)
    assert [len(request.messages) for request in model.requests] == [1, 3, 1]

    nobody = AgentFlow(root=tmp_path, model="openai-chat:m", base_url="http://127.0.0.1:9")

    @nobody.task(retries=3)
    async def unasked(x: str) -> str:
        """{{x}}"""

    with pytest.raises((ConfigurationError, ProviderError)):
        await unasked("x")


async def test_a_recorded_failure_is_judged_as_a_live_one(tmp_path: Path) -> None:
    """A durable run that is interrupted between two tries goes on with the second: the first is answered from its record."""
    reached = asyncio.Event()
    asked: list[str] = []

    async def answer(request: ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        if len(asked) == 1:
            raise provider_errors.RateLimited("too many", status=429)
        if len(asked) == 2:
            reached.set()
            await asyncio.Event().wait()
        return "fine"

    for number in range(2):
        flow = AgentFlow(provider=ScriptedProvider(answer), durable=f"sqlite:///{tmp_path}/runs.db")
        async with flow:
            handle = await flow.start(flow.task(retries=2)(about)("x"), run_id="r")
            if not number:
                await reached.wait()
                continue
            assert (await handle.result()).value == "fine" and handle.replayed == 2, "the failure and the pause"
    assert len(asked) == 3


async def about(x: str) -> str:
    """About {{x}}"""
