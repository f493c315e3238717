"""What a call says of a durable run that there is already counts, or is an error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.provider_errors import BadRequest
from agentflow.durable.handle import DurableRun
from agentflow.errors import JournalError, LimitExceeded, ProviderError, ResourceExhausted
from tests.support.fakes import tool_calls

PROGRAM = '(list (look (at "a")) (look (at "b")) (look (at "c")))'


def flow_of(directory: Path, **options: Any) -> tuple[AgentFlow, list[str]]:
    """A flow with a tool, and what the tool was called with."""
    seen: list[str] = []
    options.setdefault("provider", ScriptedProvider(lambda request: "fine"))
    flow = AgentFlow(durable=f"sqlite:///{directory}/runs.db", **options)

    @flow.tool
    async def look(at: str) -> str:
        """Look."""
        seen.append(at)
        return at

    return flow, seen


async def ended(handle: DurableRun[Any]) -> Any:
    return (await handle.result()).value


async def refused(call: Any, *words: str) -> None:
    with pytest.raises(JournalError) as caught:
        await call
    assert caught.value.code == "durable/argument" and caught.value.hint
    assert all(word in caught.value.message for word in words), caught.value.message


async def test_a_run_that_ended_at_a_limit_goes_on_with_a_higher_one(tmp_path: Path) -> None:
    """Started again with the same limit it gives its end; with more it goes on, and pays for nothing twice."""
    flow, seen = flow_of(tmp_path)
    async with flow:
        for _ in range(2):
            with pytest.raises(LimitExceeded):
                await ended(await flow.start(PROGRAM, run_id="r", limits=Limits(effects=2)))
        assert seen == ["a", "b"]
        await refused(flow.start(PROGRAM, run_id="r", limits=Limits(effects=1)), "effects=1", "ended")
        handle = await flow.start(PROGRAM, run_id="r", limits=Limits(effects=10))
        assert len(await ended(handle)) == 3 and seen == ["a", "b", "c"] and handle.replayed == 2
        again = await flow.start(PROGRAM, run_id="r", limits=Limits(effects=10))
        assert again.status == "done" and seen == ["a", "b", "c"]
        await refused(flow.start(PROGRAM, run_id="r", limits=Limits(effects=1)), "effects=1")


async def test_a_higher_limit_of_the_flow_counts_too(tmp_path: Path) -> None:
    """A run without limits of its own is under the flow's, which may have been raised since."""
    flow, _ = flow_of(tmp_path, limits=Limits(effects=2))
    async with flow:
        with pytest.raises(LimitExceeded):
            await ended(await flow.start(PROGRAM, run_id="r"))
    flow, seen = flow_of(tmp_path, limits=Limits(effects=20))
    async with flow:
        assert len(await ended(await flow.start(PROGRAM, run_id="r"))) == 3 and seen == ["c"]


async def test_turns_are_a_limit_like_others(tmp_path: Path) -> None:
    """A task that had all of its turns goes on when the run is started with more."""

    def answer(request: ModelRequest) -> Any:
        return tool_calls(("look", {"at": "x"})) if len(request.messages) < 5 else "seen"

    flow, _ = flow_of(tmp_path, provider=ScriptedProvider(answer))
    text = '(defatom t (params) (instructions "Look.") (tools look)) (value-of (t))'
    async with flow:
        with pytest.raises(ResourceExhausted):
            await ended(await flow.start(text, run_id="r", limits=Limits(turns=2)))
        assert await ended(await flow.start(text, run_id="r", limits=Limits(turns=9))) == "seen"


async def test_what_a_start_says_again_has_to_be_the_same(tmp_path: Path) -> None:
    """Labels and priority of a run are those it began with; what is left out is as it was."""
    flow, _ = flow_of(tmp_path)
    async with flow:
        said: dict[str, Any] = {"labels": {"user": "ada"}, "priority": 3}
        await ended(await flow.start(PROGRAM, run_id="r", **said))
        for options in (said, {}, {"approve": lambda request: True}):
            assert (await flow.start(PROGRAM, run_id="r", **options)).status == "done"
        await refused(flow.start(PROGRAM, run_id="r", labels={"user": "eve"}), "labels", "ada")
        await refused(flow.start(PROGRAM, run_id="r", priority=4), "priority=4")


async def test_a_resume_says_nothing_in_vain(tmp_path: Path) -> None:
    """Bindings and lower limits of a run that has ended are refused, and so is the language of a program that is not given."""
    flow, _ = flow_of(tmp_path)
    async with flow:
        await ended(await flow.start("(+ x 1)", {"x": 1}, run_id="r"))
        await refused(flow.resume("r", bindings={"x": 5}), "bindings x", "ended")
        await refused(flow.resume("r", limits=Limits(steps=1)), "steps=1")
        await refused(flow.resume("r", surface="python"), "surface")
        assert (await flow.resume("r", limits=Limits(steps=20_000_000))).status == "done"
        assert await ended(await flow.resume("r", program="(+ x 2)", bindings={"x": 5})) == 7


async def test_a_run_at_work_keeps_its_limits(tmp_path: Path) -> None:
    """Other limits and bindings are refused while it works; one that waits takes them from its next slice on."""
    gate, reached = asyncio.Event(), asyncio.Event()
    flow, seen = flow_of(tmp_path)

    async def hold() -> int:
        reached.set()
        await gate.wait()
        return 1

    async with flow:
        text = '(begin (hold) (ask-human "?") (look (at "a")) (look (at "b")))'
        limits = Limits(effects=3)
        handle = await flow.start(text, {"hold": hold}, run_id="r", limits=limits)
        await reached.wait()
        assert await flow.start(text, {"hold": hold}, run_id="r", limits=limits) is handle
        await refused(flow.start(text, {"hold": hold}, run_id="r", limits=Limits(effects=9)), "at work")
        await refused(flow.resume("r", bindings={"hold": print}), "bindings hold")
        gate.set()
        assert await handle.wait() == "waiting"
        assert await flow.start(text, {"hold": hold}, run_id="r", limits=Limits(effects=9)) is handle
        await flow.send("r", handle.waiting[0].key, "yes")
        await handle.result()
        assert seen == ["a", "b"]


async def test_recorded_errors_keep_what_the_run_cost(tmp_path: Path) -> None:
    """An error that is read back says what the run had used and cost, as it did when it was raised; so does its account."""
    model = ScriptedProvider(["fine", BadRequest("wrong", status=400)])
    flow, _ = flow_of(tmp_path, provider=model)
    text = '(defatom t (params) (instructions "Go.")) (value-of (t)) (value-of (t))'
    async with flow:
        with pytest.raises(ProviderError) as live:
            await ended(await flow.start(text, run_id="r"))
    assert live.value.usage is not None and live.value.usage.requests == 1
    flow, _ = flow_of(tmp_path)
    async with flow:
        handle = await flow.start(text, run_id="r")
        with pytest.raises(ProviderError) as read:
            await handle.result()
        for error in (read.value, handle.account):
            assert (error.usage, error.cost, error.run_id) == (live.value.usage, live.value.cost, "r")
        with pytest.raises(ProviderError) as found:
            await flow.recorded_result("r")
        assert found.value.usage == live.value.usage
