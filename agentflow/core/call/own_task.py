"""Work in a task of its own, for code that another framework's task hosts.

On CPython 3.11 and 3.12 a task group whose child fails while the parent waits at the group's end leaves the parent's
``cancelling()`` count at 1. An anyio cancel scope around it, in the same task, then ends in a stray CancelledError. So a run,
a tool or a hook that is started from inside an anyio-hosted handler (Starlette, an MCP session) runs in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def in_own_task(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` in a task of its own, and return its result.

    A cancellation of the waiter cancels the work and is raised when the work has ended, even if the work fails.
    """
    task = asyncio.get_running_loop().create_task(work)
    cancelled = await outlast(task, cancel=True)
    if cancelled is not None:
        raise cancelled
    return task.result()


async def outlast(task: asyncio.Task[Any], *, cancel: bool = False) -> asyncio.CancelledError | None:
    """Wait for the end of ``task``, however often the waiter is cancelled; give the first of those cancellations.

    With ``cancel`` the task is cancelled too, once. Its result or error is left in it, and marked as seen.
    """
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            if cancelled is None:
                await asyncio.wait([task])
            else:
                # a cancelled anyio scope of the host cancels again and again until the task gives in
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([task])
        except asyncio.CancelledError as error:
            if cancel and cancelled is None:
                task.cancel()
            cancelled = cancelled or error
    if not task.cancelled():
        task.exception()
    return cancelled
