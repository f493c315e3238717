"""Calls that the code of a workflow cancels: wherever the cancel falls, a resumed run fits its records, and ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, Limits, ScriptedProvider
from tests.support.children import HANG_S

STEPS = 30
"""The iterations of the loop by which one thing follows another: from none to more than an outcome takes to reach the code."""


class Steps:
    """What the forms are made of: calls that end, calls that do not, and things that happen some iterations later."""

    def __init__(self, flow: AgentFlow, steps: int) -> None:
        self.flow = flow
        self.steps = steps
        self.seen = asyncio.Event()

    async def look(self, at: str) -> str:
        return str(await self.flow.call_tool("look", at=at))

    async def quick(self) -> str:
        value = await self.look("quick")
        self.seen.set()
        return value

    async def stop(self, limit: asyncio.Timeout) -> str:
        """Look, and end the time of ``limit`` soon after it."""
        value = await self.look("quick")
        loop = asyncio.get_running_loop()

        def soon(left: int) -> None:
            if left:
                loop.call_soon(soon, left - 1)
            else:
                with contextlib.suppress(RuntimeError):  # the block has ended
                    limit.reschedule(0)

        soon(self.steps)
        return value

    async def other(self) -> str:
        """Hold a permit until some time after the quick call."""
        await self.seen.wait()
        for _ in range(self.steps):
            await asyncio.sleep(0)
        return "other"


async def race_in_time(do: Steps) -> None:
    """A race whose time is up when it has an outcome, or nearly."""
    try:
        async with asyncio.timeout(None) as limit:
            await do.flow.race(do.stop(limit), do.look("slow"))
    except TimeoutError:
        pass


async def race_in_race(do: Steps) -> None:
    """A race that is lost when it has an outcome, or nearly."""
    await do.flow.race(do.flow.race(do.quick(), do.look("slow")), do.other())


async def late_branch(do: Steps) -> None:
    """A race whose last branch may begin when its first has ended, or nearly."""
    await do.flow.parallel(do.flow.race(do.quick(), do.look("slow")), do.other())


FORMS: dict[str, Callable[[Steps], Coroutine[Any, Any, None]]] = {
    each.__name__: each for each in (race_in_time, race_in_race, late_branch)
}


def flow_of(root: Path, *, fails: bool) -> tuple[AgentFlow, Any]:
    """A durable flow with a tool that ends, and one that does not, and the workflow of all forms, which ends with a call that ``fails``."""
    flow = AgentFlow(provider=ScriptedProvider(), durable=f"sqlite:///{root}/runs.db")

    @flow.tool
    async def look(at: str) -> str:
        """Look at something."""
        if at == "slow":
            await asyncio.sleep(HANG_S)
        if at == "last" and fails:
            raise ValueError("no luck")
        return at

    @flow.workflow
    async def walk(form: str, steps: int) -> str:
        do = Steps(flow, steps)
        await FORMS[form](do)
        return await do.look("last")

    return flow, walk


async def ended(handle: Any) -> str:
    try:
        return await asyncio.wait_for(handle.result(), HANG_S) and "value"
    except AgentflowError as error:
        return error.code


@pytest.mark.parametrize("form", FORMS)
async def test_a_resumed_run_fits_its_records_wherever_the_cancel_fell(form: str, tmp_path: Path) -> None:
    """A call that was cancelled with its outcome on the way, or its decision being stored, waits for its cancel when it is replayed.

    It had its outcome, the others waited for the cancel without end, and the run ended as `durable/mismatch` or not at all.
    """
    limits = Limits(concurrency=2 if form == "late_branch" else 8)
    flow, walk = flow_of(tmp_path, fails=True)
    async with flow:
        handles = [await flow.start(walk(form, n), run_id=str(n), limits=limits) for n in range(STEPS)]
        assert {*await asyncio.gather(*map(ended, handles))} == {"host/raised"}
    flow, _ = flow_of(tmp_path, fails=False)
    async with flow:
        handles = [await flow.resume(str(n)) for n in range(STEPS)]
        assert {*await asyncio.gather(*map(ended, handles))} == {"value"}


async def test_branches_of_a_lost_one_that_do_not_begin_again_are_not_waited_for(tmp_path: Path) -> None:
    """With fewer permits a branch that is lost may get less far than it did: what was cancelled in it has no place in the order then."""
    flow = AgentFlow(provider=ScriptedProvider(), durable=f"sqlite:///{tmp_path}/runs.db")
    began = asyncio.Semaphore(0)
    fails = True

    @flow.tool
    async def look(at: str) -> str:
        """Look at something."""
        if at == "winner" and fails:
            for _ in range(3):
                await began.acquire()
        if at == "loser":
            began.release()
            await asyncio.sleep(HANG_S)
        if at == "last" and fails:
            raise ValueError("no luck")
        return at

    async def one(at: str) -> Any:
        return await flow.call_tool("look", at=at)

    @flow.workflow
    async def walk() -> str:
        await flow.race(one("winner"), flow.map(one, ["loser"] * 3))
        await asyncio.gather(one("last"), one("other"))
        return "value"

    async with flow:
        assert await ended(await flow.start(walk(), run_id="r", limits=Limits(concurrency=8))) == "host/raised"
        fails = False
        assert await ended(await flow.resume("r", limits=Limits(concurrency=2))) == "value"


async def test_branches_that_a_failure_stopped_are_not_lost_once_it_is_tried_again(tmp_path: Path) -> None:
    """The places of the calls that a failed form cancelled go with its failure: else the run waits for cancels that do not come."""
    flow = AgentFlow(provider=ScriptedProvider(), durable=f"sqlite:///{tmp_path}/runs.db")
    began = asyncio.Event()
    fails = True

    @flow.tool
    async def look(at: str) -> str:
        """Look at something."""
        if at == "bad" and fails:
            await began.wait()
            raise ValueError("no luck")
        if at == "other" and fails:
            began.set()
            await asyncio.sleep(HANG_S)
        return at

    async def one(at: str) -> Any:
        return await flow.call_tool("look", at=at)

    async def several() -> Any:
        for _ in range(20):  # calls that begin while the form ends store the places of the cancelled ones
            await one("beside")

    @flow.workflow
    async def walk() -> str:
        await asyncio.gather(flow.map(one, ["bad", "other"]), several())
        return "value"

    async with flow:
        assert await ended(await flow.start(walk(), run_id="r")) == "host/raised"
        fails = False
        assert await ended(await flow.resume("r")) == "value"
