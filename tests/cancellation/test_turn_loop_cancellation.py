"""Cancelled at any await of (model turn, three parallel tools, model turn), a prompt ends at once and leaves nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentflow.core.data.messages import TextPart
from agentflow.core.data.session import Session
from agentflow.core.ports.ports import Prompt
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.turn_loop import TurnLoop
from agentflow.spec.handler import BaseHandler
from tests.support.fakes import FakeProvider, FakeRouter, FakeRun, check_strictly, tool_calls


class _Steps:
    """Counts the loop iterations of a task and cancels it at a given one."""

    def __init__(self, cancel_at: int) -> None:
        self.cancel_at = cancel_at
        self.count = 0

    def watch(self, task: asyncio.Task[Any]) -> None:
        if task.done():
            return
        if self.count == self.cancel_at:
            task.cancel()
        self.count += 1
        asyncio.get_running_loop().call_soon(self.watch, task)


async def work(n: int) -> int:
    """Take a while, in many small steps, and clean up asynchronously."""
    try:
        for _ in range(20 + n):
            await asyncio.sleep(0)
    finally:
        await asyncio.sleep(0)
    return n


async def attempt(cancel_at: int) -> bool:
    """Run the prompt, cancelled at a step; whether it was cancelled before it had ended."""
    first = tool_calls(*[("work", {"n": n}) for n in (1, 2, 3)], text="one two three " * 30)
    provider = FakeProvider(first, "four five six " * 30, "after")
    registry = ToolRegistry()
    registry.add(work)
    loop = TurnLoop(FakeRouter(provider), registry)
    run, session = FakeRun(), Session()
    steps = _Steps(cancel_at)
    task = asyncio.create_task(loop.run_prompt(Prompt(parts=(TextPart("go"),)), run.call(session)))
    steps.watch(task)
    cancelled = False
    try:
        await task
    except asyncio.CancelledError:
        cancelled = True
        assert task.cancelled()
    assert not cancelled or steps.count - cancel_at < 20, "it went on after it was cancelled"
    assert asyncio.all_tasks() == {asyncio.current_task()}, "a task was left behind"
    assert provider.open_streams == 0, "a stream was left open"
    assert not run.unbalanced(), "an event was left open"
    assert len(session.turns()) == (0 if cancelled else 1)
    provider.replies = ["after"]
    assert (await loop.run_prompt(Prompt(parts=(TextPart("again"),)), run.call(session))).response.text == "after"
    check_strictly((*session.messages, *provider.requests[-1].messages[-1:]))
    return cancelled


async def test_two_hundred_points() -> None:
    """At each of the first 200 points: CancelledError once, no task or stream left, events whole, history valid."""
    outcomes = [await attempt(point) for point in range(200)]
    assert sum(outcomes) > 150, "the prompt is long enough for the points to lie within it"
    assert outcomes == sorted(outcomes, reverse=True)


async def test_reader_that_leaves_stops_the_producer() -> None:
    """A reader that breaks out of a streamed prompt, or is cancelled between events, stops the model's stream."""
    text = "word " * 10_000

    async def leave_after(handler: BaseHandler, chunks: int) -> None:
        seen = 0
        async for _ in handler.stream_prompt("go"):
            seen += 1
            if seen == chunks:
                break

    async def stay(handler: BaseHandler, ready: asyncio.Event) -> None:
        async for _ in handler.stream_prompt("go"):
            ready.set()
            await asyncio.sleep(10)

    for how in ("break", "cancel"):
        provider = FakeProvider(text)
        handler = BaseHandler(None, None, provider)
        if how == "break":
            await leave_after(handler, 3)
        else:
            ready = asyncio.Event()
            reader = asyncio.create_task(stay(handler, ready))
            await ready.wait()
            reader.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reader
        for _ in range(50):
            if provider.open_streams == 0 and len(asyncio.all_tasks()) == 1:
                break
            await asyncio.sleep(0.02)
        assert provider.open_streams == 0 and provider.chunks_sent < 200
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert handler.conversation_history == []
        provider.replies = ["fine"]
        assert (await handler.execute_prompt("again")).content == "fine"
