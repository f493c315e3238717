"""Workflows as asyncio code is written anywhere, and what is written first and is wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.errors import JournalError, PythonOverlap, WorkflowError


def flow_of(tmp_path: Path, **options: Any) -> AgentFlow:
    """A flow whose model repeats what it is asked."""
    return AgentFlow(
        provider=ScriptedProvider(lambda request: request.messages[-1].text), root=str(tmp_path), **options
    )


@pytest.mark.parametrize("durable", [False, True])
async def test_twenty_lines(tmp_path: Path, durable: bool) -> None:
    """A group of reviews, the first of two answers, a time limit: plain and durable."""
    flow = flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db" if durable else None)

    @flow.task
    async def review(path: str) -> str:  # pyright: ignore[reportReturnType]
        """Review {{path}}"""

    async def checked(path: str) -> str:
        text = await review(path)
        return text if path in text else await review(path)

    @flow.workflow
    async def audit(paths: list[str]) -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(checked(path)) for path in paths]
        reviews = [task.result() for task in tasks]
        rivals = [asyncio.create_task(review(name)) for name in ("one", "two")]
        done, rest = await asyncio.wait(rivals, return_when=asyncio.FIRST_COMPLETED)
        for rival in rest:
            rival.cancel()
        try:
            async with asyncio.timeout(0.05):
                await (flow.ask_human("Anything else?", str) if durable else flow.sleep(60))
        except TimeoutError:
            reviews.append("nobody answered")
        return [*reviews, *await asyncio.gather(review("last"), review("least")), str(len(done) > 0)]

    async with flow:
        value = (await (await flow.start(audit(["a", "b"]), run_id="audit")).result()).value if durable else None
        value = value or await audit(["a", "b"])
    assert value == ["Review a", "Review b", "nobody answered", "Review last", "Review least", "True"]


async def test_a_gather_that_is_not_awaited(tmp_path: Path) -> None:
    """It is returned in place of its values: the error says what to write."""
    flow = flow_of(tmp_path)

    @flow.workflow
    async def both() -> Any:
        return asyncio.gather(flow.ask("one"), flow.ask("two"))

    async with flow:
        with pytest.raises(WorkflowError) as caught:
            await both()
    assert caught.value.code == "python/not-awaited" and "await" in (caught.value.hint or "")


async def test_a_task_that_is_left_behind(tmp_path: Path) -> None:
    """A task that makes calls ends with its workflow, and a warning says that it was still at work."""
    flow, ended, told = flow_of(tmp_path), list[str](), list[str]()
    flow.subscribe(lambda event: told.append(f"{event.code}: {event.message}") if event.type == "warning" else None)

    async def wait() -> None:
        try:
            await flow.sleep(60)
        finally:
            ended.append("wait")

    @flow.workflow
    async def forgets() -> str:
        left.append(asyncio.create_task(wait()))
        return await flow.ask("one")

    left: list[asyncio.Task[None]] = []
    async with flow:
        assert await forgets() == "one"
        assert ended == ["wait"] and left[0].cancelled()
    (warning,) = told
    assert warning.startswith("python/task-left: ") and "wait" in warning


async def test_calls_from_a_thread(tmp_path: Path) -> None:
    """``asyncio.run`` in a thread has a loop of its own, whose calls have no place in the workflow."""
    flow = flow_of(tmp_path)

    async def elsewhere() -> Any:
        return await flow.ask("one")

    @flow.workflow
    async def threaded() -> Any:
        return await asyncio.to_thread(lambda: asyncio.run(elsewhere()))

    async with flow:
        with pytest.raises(PythonOverlap, match="another event loop") as caught:
            await threaded()
    assert "to_thread" in (caught.value.hint or "")


async def test_a_task_that_catches_its_end_makes_no_more_calls(tmp_path: Path) -> None:
    """After its workflow has ended a task may clean up; what it goes on with raises again."""
    flow, calls = flow_of(tmp_path), list[str]()

    @flow.tool
    async def note(text: str) -> str:
        """Note a text."""
        calls.append(text)
        return text

    async def stubborn() -> None:
        try:
            await flow.sleep(60)
        except asyncio.CancelledError:
            await flow.call_tool("note", text="clean")
        for _ in range(3):
            try:
                await flow.call_tool("note", text="more")
            except asyncio.CancelledError:
                calls.append("refused")

    @flow.workflow
    async def forgets() -> str:
        task = asyncio.create_task(stubborn())
        await asyncio.sleep(0)
        assert not task.done()
        return await flow.ask("one")

    async with flow:
        assert await forgets() == "one"
    assert calls == ["clean", "refused", "refused", "refused"]


@pytest.mark.parametrize("wait", ["timeout", "wait_for", "anyio"])
async def test_a_time_limit_counts_while_a_durable_run_waits(tmp_path: Path, wait: str) -> None:
    """A run leaves the memory for a long wait only when no time limit of asyncio's own counts around it."""
    import anyio

    flow = flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db")

    @flow.workflow
    async def limited() -> str:
        try:
            if wait == "timeout":
                async with asyncio.timeout(0.05):
                    await flow.ask_human("Well?")
            elif wait == "wait_for":
                await asyncio.wait_for(flow.sleep(3_600), 0.05)
            else:
                with anyio.fail_after(0.05):
                    await asyncio.gather(flow.sleep(3_600), flow.ask_human("Well?"))
        except TimeoutError:
            return await flow.ask("late")
        return "in time"

    async with flow:
        assert (await (await flow.start(limited())).result()).value == "late"


async def test_a_shielded_task_goes_on(tmp_path: Path) -> None:
    """``asyncio.shield`` keeps the call within it from the time limit around it."""
    flow = flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db")

    async def slow() -> str:
        await flow.sleep(0.1)
        return await flow.ask("kept")

    @flow.workflow
    async def shielded() -> str:
        task = asyncio.create_task(slow())
        try:
            await asyncio.wait_for(asyncio.shield(task), 0.01)
        except TimeoutError:
            return f"{await flow.ask('late')}, {await task}"
        return "in time"

    async with flow:
        assert (await (await flow.start(shielded())).result()).value == "late, kept"


async def test_a_set_of_tasks_has_the_same_order_when_a_run_is_resumed(tmp_path: Path) -> None:
    """``for task in done`` makes the same calls again, though the tasks lie elsewhere in the memory."""
    spacers: list[object] = []

    def opened() -> tuple[AgentFlow, Any]:
        flow = flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db")

        async def one(n: int) -> str:
            return await flow.ask(str(n))

        @flow.workflow
        async def sets() -> list[str]:
            tasks: list[asyncio.Task[str]] = []
            for n in range(9):
                spacers.extend(object() for _ in range(len(spacers) + 7))
                tasks.append(asyncio.create_task(one(n)))
            done, _ = await asyncio.wait(tasks)
            order = [await flow.ask(f"seen {task.result()}") for task in done]
            await flow.ask_human("On?", bool)
            return order

        return flow, sets

    flow, sets = opened()
    async with flow:
        handle = await flow.start(sets(), run_id="sets")
        while not handle.waiting:
            await asyncio.sleep(0.01)
        key = handle.waiting[0].key
    flow, sets = opened()
    async with flow:
        await flow.send("sets", key, True)
        handle = await flow.start(sets(), run_id="sets")
        value = (await handle.result()).value
    assert sorted(value) == [f"seen {n}" for n in range(9)]


@pytest.mark.slow
async def test_a_workflow_without_a_recorded_task_is_told(tmp_path: Path) -> None:
    """An edit that renames the function of a task is ``durable/mismatch``, which names the task, and no endless wait."""

    def opened(*, edited: bool) -> tuple[AgentFlow, Any]:
        flow = flow_of(tmp_path, durable=f"sqlite:///{tmp_path}/runs.db")

        async def one(n: int) -> str:
            return await flow.ask(f"one {n}")

        async def two(n: int) -> str:
            return await flow.ask(f"two {n}")

        @flow.workflow
        async def works() -> list[str]:
            values = await asyncio.gather(one(1), one(2), two(3) if edited else one(3))
            await flow.ask_human("On?", bool)
            return [*values]

        return flow, works

    flow, works = opened(edited=False)
    async with flow:
        handle = await flow.start(works(), run_id="works")
        while not handle.waiting:
            await asyncio.sleep(0.01)
        key = handle.waiting[0].key
    flow, works = opened(edited=True)
    async with flow:
        await flow.send("works", key, True)
        with pytest.raises(JournalError, match=r"at 0/@one\.2, call 1") as caught:
            await (await flow.start(works(), run_id="works")).result()
    assert caught.value.code == "durable/mismatch"
