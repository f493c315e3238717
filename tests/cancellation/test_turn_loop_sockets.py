"""Cancelled at many moments over real sockets and SDKs, the turn loop leaves no task and no connection it cannot use."""

from __future__ import annotations

import asyncio
import math
import time

import pytest

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import TextPart
from agentflow.core.data.session import Session
from agentflow.core.ports.ports import Prompt
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.turn_loop import TurnLoop
from agentflow.providers.table import Router
from tests.support.fakes import FakeRun, check_strictly
from tests.support.model_server import ModelServer, Request
from tests.support.spending import at_most

POINTS = 50


async def work(n: int) -> int:
    """Take a few milliseconds."""
    for _ in range(3):
        await asyncio.sleep(0.001)
    return n


def reply(request: Request) -> object:
    """Three parallel calls, then text once their results are there."""
    if "call_work" in str(request.body) or "tool_result" in str(request.body) or "'tool'" in str(request.body):
        return "all of it done " * 5
    if "again" in str(request.body):
        return "fine"
    return {"text": "let me see", "tool_calls": [{"name": "work", "arguments": {"n": n}} for n in range(3)]}


@pytest.mark.parametrize("model", ["anthropic:claude-x", "openai-chat:gpt-x"])
async def test_real_connections(model: str) -> None:
    """At 50 moments from start to end: CancelledError once, soon, no task left, the client still usable."""
    async with ModelServer(reply) as server:
        router = Router(model, base_url=server.url, api_key="k")
        registry = ToolRegistry()
        registry.add(work)
        loop = TurnLoop(router, registry)

        async def prompt(text: str, session: Session, run: FakeRun) -> str:
            asked = Prompt(parts=(TextPart(text),))
            return (await loop.run_prompt(asked, run.call(session))).response.text

        await prompt("go", Session(), FakeRun())  # the client is built, the SDK imported
        whole = (
            math.inf
        )  # the least of several: one during which the machine did something else would be cancelled after its end
        for _ in range(5):
            began = time.perf_counter()
            assert (await prompt("go", Session(), FakeRun())).startswith("all of it done")
            whole = min(whole, time.perf_counter() - began)
        before = len(asyncio.all_tasks())
        cancelled = 0
        for point in range(POINTS):
            session, run = Session(), FakeRun()
            task = asyncio.create_task(prompt("go", session, run))
            await asyncio.sleep(whole * point / POINTS)
            task.cancel()
            with at_most(0.25):
                try:
                    await task
                except asyncio.CancelledError:
                    cancelled += 1
                    assert not session.turns()
            assert not run.unbalanced()
            check_strictly((*session.messages, *session.messages[:1]))
        assert cancelled > POINTS // 3
        assert (await prompt("again", Session(), FakeRun())) == "fine"
        for _ in range(100):
            if len(asyncio.all_tasks()) <= before + 1 and server.live <= 2:
                break
            await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) <= before + 1 and server.live <= 2
        await router.aclose()


async def test_without_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing key is a ConfigurationError of the first prompt, not of the construction."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    loop = TurnLoop(Router("anthropic:claude-x"), ToolRegistry())
    with pytest.raises(ConfigurationError, match="ANTHROPIC_API_KEY"):
        await loop.run_prompt(Prompt(parts=(TextPart("go"),)), FakeRun().call())
