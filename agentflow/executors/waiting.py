"""Waiting for work that must not be abandoned half done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


async def settled(
    work: Coroutine[Any, Any, T],
    *,
    undo: Callable[[T], object] | None = None,
    undo_async: Callable[[T], Awaitable[object]] | None = None,
) -> T:
    """Await ``work``. When cancelled meanwhile, let it finish, undo its result, and only then go on cancelling.

    So what it opened is never lost, and no worker thread still uses what its caller closes next.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
            if not task.cancelled() and task.exception() is None:
                if undo is not None:
                    undo(task.result())
                if undo_async is not None:
                    await undo_async(task.result())
        raise
