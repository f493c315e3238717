"""A call from Python where asyncio wants a coroutine, and what is not a call where a program is wanted."""

from __future__ import annotations

import asyncio

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.errors import AgentflowError


def echoing() -> AgentFlow:
    """A flow whose model repeats what it is asked."""
    return AgentFlow(provider=ScriptedProvider(lambda request: request.messages[-1].text))


def test_asyncio_run_takes_a_call() -> None:
    """The first line of a script may be ``asyncio.run(review("a.py"))``."""
    flow = echoing()

    @flow.task
    async def review(path: str) -> str:
        """Review {{path}}"""

    assert asyncio.run(review("a.py")) == "Review a.py"
    assert asyncio.run(flow.map(review, ["b", "c"])) == ["Review b", "Review c"]


async def test_tasks_of_ones_own_take_calls() -> None:
    """Outside of a workflow each is a run of its own, in whatever task; a cancelled one has ended."""
    flow = echoing()
    held = asyncio.Event()

    async def hold(request: object) -> str:
        held.set()
        await asyncio.Event().wait()
        return "never"

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(flow.ask(text)) for text in ("one", "two")]
    assert [task.result() for task in tasks] == ["one", "two"]
    stuck = AgentFlow(provider=ScriptedProvider(hold))
    ended: list[str] = []
    stuck.subscribe(lambda event: ended.append(event.outcome) if event.type == "run_finished" else None)
    task = asyncio.create_task(stuck.ask("three"))
    await held.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


async def test_tasks_of_ones_own_in_a_workflow_are_branches_of_it() -> None:
    """Within a run each task is a branch, so that calls in two of them may be at work at once."""
    flow = echoing()

    @flow.workflow
    async def both() -> list[str]:
        tasks = [asyncio.create_task(flow.ask(text)) for text in ("one", "two")]
        return [await task for task in tasks]

    assert await both() == ["one", "two"]


async def test_a_function_that_was_not_called() -> None:
    """``flow.run(review)`` says that it is to be called, and so does every entry that takes a program."""
    flow = echoing()

    @flow.task
    async def review(path: str) -> str:
        """Review {{path}}"""

    for entry in (flow.run, flow.define):
        with pytest.raises(AgentflowError) as caught:
            await entry(review)  # pyright: ignore[reportArgumentType]
        assert caught.value.code == "program/kind" and "flow.run(review(" in (caught.value.hint or "")
