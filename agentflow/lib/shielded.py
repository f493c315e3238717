"""Waits for work that must not be abandoned half done, even if the waiter is cancelled repeatedly.

``asyncio.shield`` protects the work but lets the waiter go; an anyio shield holds back cancellation by scopes, but not
``Task.cancel()``, which may come twice. Here the work is a task of its own, and its waiter stays until it is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from agentflow.lib.event_loop import outlast

T = TypeVar("T")


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` to its end. A cancellation that arrives meanwhile is raised afterwards, instead of the result."""
    task = asyncio.ensure_future(work)
    cancelled = await outlast(task)
    if cancelled is not None:
        raise cancelled
    return task.result()


async def run_or_undo(
    work: Coroutine[Any, Any, T],
    *,
    undo: Callable[[T], object] | None = None,
    undo_async: Callable[[T], Coroutine[Any, Any, object]] | None = None,
) -> T:
    """Await ``work``. If cancelled meanwhile, let it finish, undo its result, and only then raise CancelledError.

    No opened resource is lost, and no worker thread still uses one that the caller closes next.
    """
    task = asyncio.ensure_future(work)
    cancelled = await outlast(task)
    if cancelled is None:
        return task.result()
    if not task.cancelled() and task.exception() is None:
        if undo is not None:
            undo(task.result())
        if undo_async is not None:
            await outlast(asyncio.ensure_future(undo_async(task.result())))
    raise cancelled
