"""Conversations whose turns are stopped elsewhere: in branches that workers carry out, and in runs that another process goes on with."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from agentflow import AgentFlow, Durable, Session
from agentflow.core.data.messages import ModelDelta, ModelRequest
from tests.run.test_stopped_turns import INTERRUPTED, Model, chatting, seen, texts
from tests.scale.workers import working
from tests.support.children import HANG_S

BRANCHES = """
(list
  (pmap FORM (lambda (each) (content (chat (text each)))) '("one" "two" "stop"))
  (content (chat (text "And?"))))
"""


class Breaking(Model):
    """A model whose answer breaks off where it is asked to ``stop``."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        stops = request.messages[-1].text == "stop"
        self.begins, self.fails = ("It is so", True) if stops else ("", False)
        async for delta in super().stream(request):
            yield delta


def flow_of(model: Model, url: str) -> AgentFlow:
    flow = AgentFlow(provider=model, tools=[], durable=Durable(url, take_over=True))
    chatting(flow)
    flow.subscribe(seen)
    return flow


@pytest.mark.parametrize("keep", [False, True])
async def test_a_turn_that_is_stopped_on_a_worker_is_kept_as_here(keep: bool, postgres_url: str) -> None:
    """A branch that ends with the failed result of its task adds the same turns to the conversation of the run, wherever it was carried
    out; they are sent with the next prompt."""
    kept: list[list[list[str]]] = []
    for form in ("", ":on workers"):
        models = [Breaking("a", "b", "c"), Breaking("a", "b", "c")]
        session = Session(keep_partial=keep)
        async with flow_of(models[0], postgres_url) as flow, flow_of(models[1], postgres_url) as other:
            async with working(flow), working(other), asyncio.timeout(HANG_S):
                run = await flow.start(BRANCHES.replace("FORM", form), run_id=f"r{form[4:]}", session=session)
                answers, _ = (await run.result()).value
        assert answers[2] == "busy"
        kept.append([[turn[0], turn[-1] if turn[0] == "stop" else ""] for turn in texts(session)])
        last = next(each for model in models for each in model.requests if each.messages[-1].text == "And?")
        assert [message.text for message in last.messages if message.role == "user"] == [turn[0] for turn in kept[-1]]
    stopped = [["stop", f"It is so{INTERRUPTED}"]] if keep else []
    assert kept[0] == kept[1] == [["one", ""], ["two", ""], *stopped, ["And?", ""]]


async def test_a_run_that_another_process_goes_on_with_keeps_its_stopped_turn(postgres_url: str) -> None:
    """The process that began it is gone. The one that took the run over cancels it: the stored conversation has the turn, once, and
    nothing of the turn before, which only the end of a process had stopped."""
    model = Model(begins="It is")
    async with flow_of(model, postgres_url) as flow, asyncio.timeout(HANG_S):
        async with flow.session("ada", keep_partial=True) as session:
            await flow.start('(chat (text "Why?"))', run_id="r", session=session)
            await model.reached.wait()
    model = Model(begins="It is so")
    async with flow_of(model, postgres_url) as flow, asyncio.timeout(HANG_S):
        await flow.resume("r")
        await model.reached.wait()
        await flow.cancel("r")
        async with flow.session("ada", wait_s=HANG_S) as session:
            assert texts(session) == [["Why?", f"It is so{INTERRUPTED}"]]
