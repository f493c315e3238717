"""Workers in the process of a test, and runs that are left to them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from agentflow import AgentFlow
from agentflow.durable.handle import DurableRun
from tests.scale.child import PROGRAM


@contextlib.asynccontextmanager
async def working(
    flow: AgentFlow, queues: Mapping[str, int] | None = None, **options: Any
) -> AsyncIterator[asyncio.Event]:
    """A worker in this process; it stops, and has stopped, at the end of the block."""
    stop = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        group.create_task(flow.work(queues or {"default": 0}, stop=stop, **options))
        try:
            yield stop
        finally:
            stop.set()


async def detached(flow: AgentFlow, run: str, program: str = PROGRAM, **options: Any) -> DurableRun:
    """Leave a run to workers."""
    return await flow.start(program, run_id=run, where="workers", **options)
