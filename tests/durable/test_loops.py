"""A flow of a module serves one event loop after the other, as task queues, notebooks of other kinds and tests make them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import JournalError


def flow_in(where: Path) -> tuple[AgentFlow, Any]:
    """A flow with a workflow that asks a person."""
    flow = AgentFlow(provider=ScriptedProvider(lambda request: "hi"), durable=f"sqlite:///{where / 'runs.db'}")

    @flow.workflow
    async def asks() -> str:
        first = await flow.ask("well?")
        return f"{first}, {await flow.ask_human('Go on?')}"

    return flow, asks


def test_loop_after_loop(tmp_path: Path) -> None:
    """Each ``asyncio.run`` starts durable runs of the same flow and gets their results."""
    flow, _ = flow_in(tmp_path)

    async def once(number: int) -> Any:
        return (await (await flow.start("(+ 1 2)", run_id=f"r{number}")).result()).value

    assert [asyncio.run(once(number)) for number in range(3)] == [3, 3, 3]
    asyncio.run(flow.aclose())


def test_what_waited_on_a_closed_loop_is_resumed_on_the_next(tmp_path: Path) -> None:
    """Its handle says that it waits; the next loop resumes it, answers it, and pays for nothing twice."""
    flow, asks = flow_in(tmp_path)

    async def begin() -> Any:
        handle = await flow.start(asks(), run_id="r")
        assert await handle.wait() == "waiting"
        return handle

    async def go_on() -> Any:
        handle = await flow.resume("r")
        assert await handle.wait() == "waiting"
        await flow.send("r", handle.waiting[0].key, "yes")
        return (await handle.result()).value, handle.replayed

    old = asyncio.run(begin())
    assert asyncio.run(go_on()) == ("hi, yes", 2)
    assert old.status == "waiting"
    with pytest.raises(JournalError) as refused:
        asyncio.run(old.result())
    assert refused.value.code == "durable/waiting"
    asyncio.run(flow.aclose())


def test_what_worked_on_a_closed_loop_goes_on(tmp_path: Path) -> None:
    """A run that its loop left at work is interrupted; naming it again goes on with it."""
    flow, _ = flow_in(tmp_path)
    times: list[int] = []

    @flow.workflow
    async def slow() -> str:
        await flow.step(times.append, 1)
        if len(times) == 1:
            times.append(2)
            await asyncio.sleep(60)
        return "done"

    async def begin() -> None:
        await flow.start(slow(), run_id="r")
        while len(times) < 2:
            await asyncio.sleep(0.01)

    async def go_on() -> Any:
        return (await (await flow.start(slow(), run_id="r")).result()).value

    asyncio.run(begin())
    assert asyncio.run(go_on()) == "done" and times == [1, 2]
    asyncio.run(flow.aclose())


async def test_two_loops_at_once_are_refused_in_a_sentence(tmp_path: Path) -> None:
    """Runs of one flow on two open loops would wait for each other's tasks."""
    flow, asks = flow_in(tmp_path)
    async with flow:
        handle = await flow.start(asks(), run_id="r")
        assert await handle.wait() == "waiting"
        errors: list[BaseException] = []

        def elsewhere() -> None:
            try:
                asyncio.run(flow.resume("r"))  # type: ignore[arg-type]
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert isinstance(errors[0], JournalError) and errors[0].code == "durable/other-loop"
        assert handle.status == "waiting"


def test_an_interrupt_leaves_the_flow_usable(tmp_path: Path) -> None:
    """Ctrl-C in a notebook, whose loop goes on: the run is given up, and naming it again goes on with it."""
    flow, _ = flow_in(tmp_path)
    times: list[int] = []

    def once() -> None:
        times.append(1)
        if len(times) == 1:
            raise KeyboardInterrupt

    async def act() -> str:
        once()
        return "done"

    @flow.workflow
    async def work() -> str:
        return await flow.step(act)

    async def begin() -> Any:
        return await (await flow.start(work(), run_id="r")).result()

    loop = asyncio.new_event_loop()
    interrupted = loop.create_task(begin())
    with pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(interrupted)
    result = loop.run_until_complete(asyncio.wait_for(begin(), 20))
    assert result.value == "done" and times == [1, 1]
    assert (
        interrupted.exception() is not None
    )  # one that is not asked for is reported when the task is collected, in another test
    loop.run_until_complete(flow.aclose())
    loop.close()
