"""Continues a deep recursion in a fresh task, on an empty Python stack."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import anyio

from agentflow.lang.trace import annotate


async def on_fresh_task(work: Coroutine[Any, Any, Any]) -> Any:
    """Run ``work`` in a new task, which starts with an empty stack, and wait for it.

    It waits on a plain future, because cancelling a chain of tasks that await each other recurses. On cancellation, the
    task is cancelled and has ended before CancelledError propagates. Tracebacks are cut here.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
    task = asyncio.Task(_resolve(work, done), loop=loop)
    try:
        value, error = await done
    except asyncio.CancelledError:
        task.cancel()
        with anyio.CancelScope(shield=True):
            await _ended(task)
        raise
    if error is not None:
        raise error
    return value


async def _resolve(work: Coroutine[Any, Any, Any], done: asyncio.Future[tuple[Any, BaseException | None]]) -> None:
    value: Any = None
    error: BaseException | None = None
    try:
        value = await work
    except asyncio.CancelledError as cancelled:
        error = cancelled
    except Exception as failure:  # noqa: BLE001 - passed to the waiting task, and raised there
        error = annotate(failure)
        error.__traceback__ = None
    if not done.done():
        done.set_result((value, error))


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait until a task has ended, even if cancelled again meanwhile."""
    if task.done():
        return
    ended = asyncio.get_running_loop().create_future()

    def tell(_: object) -> None:
        if not ended.done():
            ended.set_result(None)

    task.add_done_callback(tell)
    while not task.done():
        try:
            await ended
        except asyncio.CancelledError:
            task.cancel()
            ended = asyncio.get_running_loop().create_future()
            task.add_done_callback(tell)
