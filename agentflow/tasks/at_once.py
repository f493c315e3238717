"""Awaits several things side by side and gives their values in order."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


async def at_once(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The values of all, in order; several run side by side. When one fails the others are cancelled, and its error is raised."""
    if len(works) < 2:
        return [await work for work in works]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
