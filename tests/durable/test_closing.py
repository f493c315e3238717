"""A flow that closes while something begins: nothing is stored as an end, and what was acknowledged is found by the next process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from agentflow.core.data.messages import ModelRequest
from tests.support.children import HANG_S

ITERATIONS = [0, 1, 2, 3, 5, 8, 13]
"""The iterations of the loop between the beginning of an operation and the closing of the flow."""
TEXT = "look at tests too"


def flow_of(root: Path) -> tuple[AgentFlow, Any]:
    """A flow over a database, and its workflow: a question, a signal, and a model that is shown all texts that were said."""

    async def model(request: ModelRequest) -> str:
        return " | ".join([each.text for each in request.messages if each.role == "user"])

    flow = AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{root}/runs.db")

    @flow.tool
    async def look(at: str) -> str:
        """Look at something."""
        return at

    @flow.task(tools=[look])
    async def agent(about: str) -> str:
        """{{about}}"""
        raise NotImplementedError

    @flow.workflow
    async def work() -> list[Any]:
        answer = await flow.ask_human("which?", str)
        return [answer, await flow.signal("go", int), await agent("report")]

    return flow, work


async def start(flow: AgentFlow, work: Any) -> None:
    await flow.start(work(), run_id="r")


async def answer(flow: AgentFlow, work: Any = None) -> None:
    (question,) = await flow.questions("r")
    await flow.send("r", question.key, "this")


async def say(flow: AgentFlow, work: Any = None) -> None:
    await flow.say("r", TEXT)


async def signal(flow: AgentFlow, work: Any = None) -> None:
    await flow.send_signal("r", "go", 7)


async def resume(flow: AgentFlow, work: Any = None) -> None:
    await flow.resume("r")


async def cancel(flow: AgentFlow, work: Any = None) -> None:
    await flow.cancel("r")


OPERATIONS: dict[str, Callable[[AgentFlow, Any], Awaitable[None]]] = {
    each.__name__: each for each in (start, answer, say, signal, resume, cancel)
}


async def acknowledged(work: Awaitable[None]) -> bool:
    """Whether an operation returned. It may be refused, by a flow that is closed, in every other case."""
    try:
        await asyncio.wait_for(work, HANG_S)
    except AgentflowError:
        return False
    return True


async def closed_while(root: Path, name: str, iterations: int, *, after: bool) -> bool:
    """A process that closes its flow some iterations after the operation has begun, or ``after`` its end. Returns whether it was
    acknowledged."""
    flow, work = flow_of(root)
    async with flow:
        going = asyncio.create_task(acknowledged(OPERATIONS[name](flow, work)))
        if after:
            await asyncio.wait([going])
        for _ in range(iterations):
            await asyncio.sleep(0)
    return await going


async def is_kept(root: Path, name: str, done: bool) -> None:
    """Finish the run in the next process, and compare it with the operation, if that is ``done``."""
    flow, _ = flow_of(root)
    async with flow, asyncio.timeout(HANG_S):
        info = await flow.find_run("r")
        if name == "start" and info is None:
            assert not done
            return
        assert info is not None
        if name == "cancel" and info.status == "cancelled":
            return
        assert info.status not in ("failed", "cancelled", "done"), info
        handle = await flow.resume("r")
        if name == "cancel" and done:
            assert await handle.wait() == "cancelled"
            return
        if not (name == "answer" and done):
            while not await flow.questions("r"):
                await asyncio.sleep(0.005)
            if (await flow.questions("r"))[0].reason == "question":
                await answer(flow)
        if not (name == "signal" and done):
            await flow.send_signal("r", "go", 7)
        which, number, said = (await handle.result()).value
        assert which == "this" and number == 7
        assert name != "say" or not done or said.count(TEXT) == 1


async def tried(root: Path, name: str, iterations: int, *, after: bool) -> bool:
    await asyncio.to_thread(root.mkdir)
    if name != "start":
        flow, work = flow_of(root)
        async with flow:
            await start(flow, work)
            if name != "resume":
                while not await flow.questions("r"):
                    await asyncio.sleep(0.005)
    done = await closed_while(root, name, iterations, after=after)
    assert done or not after
    await is_kept(root, name, done)
    return done


@pytest.mark.parametrize("after", [False, True], ids=["begins", "has ended"])
@pytest.mark.parametrize("name", OPERATIONS)
async def test_a_flow_may_close_while_an_operation_begins(name: str, after: bool, tmp_path: Path) -> None:
    """At every iteration: the run is neither failed nor cancelled by it, and an operation that returned has happened."""
    for iterations in ITERATIONS:
        await tried(tmp_path / str(iterations), name, iterations, after=after)


@pytest.mark.slow
@pytest.mark.timeout(0)
async def test_operations_and_a_close_in_any_order(tmp_path: Path) -> None:
    """The same with more iterations, in random order, all at once."""
    dice = random.Random()
    jobs = [(dice.choice([*OPERATIONS]), dice.randrange(60), dice.random() < 0.7) for _ in range(200)]
    for at in range(0, len(jobs), 10):
        some = enumerate(jobs[at : at + 10])
        tries = [tried(tmp_path / str(at + n), name, steps, after=after) for n, (name, steps, after) in some]
        await asyncio.gather(*tries)
