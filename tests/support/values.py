"""The values of runs that are begun in one place and awaited in another."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TypeVar

from agentflow import RunResult

R = TypeVar("R")


async def value_of(run: Awaitable[RunResult[R]]) -> R:
    """The value of ``flow.run(...)``, as a coroutine: for a task, or beside others."""
    return (await run).value
