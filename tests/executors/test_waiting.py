"""Work that outlasts the cancellation of its waiter."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from agentflow.lib.shielded import run_or_undo, run_to_completion
from tests.support.spending import at_most


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_work_is_finished_however_often_its_waiter_is_cancelled(times: int) -> None:
    """The work ends, then the cancellation goes on; its result is undone."""
    log: list[str] = []

    async def work() -> str:
        await asyncio.sleep(0.05)
        log.append("done")
        return "thing"

    async def undo(thing: str) -> None:
        await asyncio.sleep(0.01)
        log.append(f"undone {thing}")

    waiter = asyncio.ensure_future(run_or_undo(work(), undo_async=undo))
    for _ in range(times):
        await asyncio.sleep(0.005)
        waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert log == ["done", "undone thing"]


async def test_without_cancellation_the_result_is_given() -> None:
    """So are errors, as they are."""
    assert await run_to_completion(asyncio.sleep(0, 5)) == 5
    assert await run_or_undo(asyncio.sleep(0, 6), undo=lambda _: 1 / 0) == 6

    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await run_or_undo(fail())


async def test_a_hosts_scope_does_not_make_it_spin() -> None:
    """An anyio scope re-delivers its cancellation until it is obeyed: the waiter sleeps through that."""
    turns = 0

    async def work() -> None:
        nonlocal turns
        for _ in range(20):
            await asyncio.sleep(0.005)
            turns += 1

    with at_most(0.08), anyio.move_on_after(0.01) as scope:  # spinning would use all of the tenth of a second
        await run_to_completion(work())
    assert scope.cancelled_caught and turns == 20
