"""Work in a task of its own: cancelled with its waiter, waited for, and no trace in the waiter's task."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import pytest

from agentflow.lib.event_loop import outlast

AWAITS = 6
T = TypeVar("T")


async def in_own_task(work: Coroutine[Any, Any, T]) -> T:
    """Await work as code that another framework's task hosts does: in a task of its own, which its waiter outlasts."""
    task = asyncio.get_running_loop().create_task(work)
    if (cancelled := await outlast(task, cancel=True)) is not None:
        raise cancelled
    return task.result()


async def steps(log: list[str], *, last: int = AWAITS) -> str:
    """Some awaits, and a clean-up that awaits too."""
    try:
        for number in range(last):
            log.append(f"step {number}")
            await asyncio.sleep(0)
        return "value"
    finally:
        try:
            await asyncio.sleep(0)
        finally:
            log.append("cleaned")


async def test_the_value_and_the_error_of_the_work_are_the_waiters() -> None:
    """What the work gives or raises is given and raised, the error unwrapped."""
    assert await in_own_task(steps([])) == "value"

    async def fail() -> None:
        raise KeyError("lost")

    with pytest.raises(KeyError):
        await in_own_task(fail())


@pytest.mark.parametrize("turns", range(1, AWAITS + 4))
async def test_a_cancellation_at_every_await(turns: int) -> None:
    """Cancelled at any of its awaits, the work has ended, clean-up included, before its waiter does; nothing is left."""
    log: list[str] = []
    before = asyncio.all_tasks()
    waiter = asyncio.create_task(in_own_task(steps(log)))
    for _ in range(turns):
        await asyncio.sleep(0)
    ended = waiter.done()
    waiter.cancel()
    outcome = (await asyncio.gather(waiter, return_exceptions=True))[0]
    assert isinstance(outcome, asyncio.CancelledError) or (ended and outcome == "value")
    assert log == [] or log[-1] == "cleaned"
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("turns", range(AWAITS + 4))
async def test_a_cancelled_scope_around_it_at_every_await(turns: int) -> None:
    """An anyio scope cancels its task again and again; the work is cancelled once, and its clean-up is not cut short."""
    log: list[str] = []
    with anyio.CancelScope() as scope:
        loop = asyncio.get_running_loop()

        def later(left: int) -> None:
            scope.cancel() if left == 0 else loop.call_soon(later, left - 1)

        later(turns)
        await in_own_task(steps(log, last=AWAITS))
        log.append("waited")
    current = asyncio.current_task()
    assert current is not None and current.cancelling() == 0
    assert log == [] or log[-1] in ("cleaned", "waited")
    await asyncio.sleep(0)  # no stray cancellation follows


async def test_a_cancellation_that_the_work_swallows_is_the_waiters_all_the_same() -> None:
    """Work that ends with a value or an error after it was cancelled does not hide that its waiter was."""

    async def stubborn(error: Exception | None) -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            if error is not None:
                raise error from None
        return "all the same"

    for error in (None, ValueError("in clean-up")):
        waiter = asyncio.create_task(in_own_task(stubborn(error)))
        await asyncio.sleep(0.001)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter


async def test_a_failing_group_inside_leaves_no_cancellation_in_an_anyio_host() -> None:
    """What it is for: a task group that fails while its parent waits at its end leaves its task half cancelled on 3.11."""

    async def user_code() -> str:
        async def boom() -> None:
            await asyncio.sleep(0)
            raise ValueError("boom")

        handled: list[str] = []
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(boom())
        except* ValueError:
            handled.append("handled")
        return handled[0]

    async with anyio.create_task_group() as group:
        with anyio.CancelScope():
            assert await in_own_task(user_code()) == "handled"
        await anyio.lowlevel.checkpoint()
        group.cancel_scope.cancel()
    current = asyncio.current_task()
    assert current is not None and current.cancelling() == 0


async def test_outlast_waits_without_cancelling() -> None:
    """Without ``cancel`` the work goes on to its end, and the waiter is told that it was cancelled meanwhile."""
    log: list[str] = []
    task = asyncio.create_task(steps(log))
    waiter = asyncio.create_task(outlast(task))
    await asyncio.sleep(0)
    waiter.cancel()
    assert isinstance(await waiter, asyncio.CancelledError)
    assert task.result() == "value" and log[-1] == "cleaned"
