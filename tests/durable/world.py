"""Tools and a model that count what durable runs carry out, and flows over one database."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.errors import JournalError
from agentflow.core.messages import ModelRequest

Flow = Callable[..., contextlib.AbstractAsyncContextManager[AgentFlow]]


class World:
    """Tools and a model that count what is carried out.

    ``hold`` names calls that never end by themselves; ``reached`` is set when the one that is ``awaited``, or any, begins.
    """

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.hold: set[str] = set()
        self.fail: set[str] = set()
        self.awaited = ""
        self.reached = asyncio.Event()

    async def carry_out(self, what: str) -> str:
        if what in self.hold:
            if self.awaited in ("", what):
                self.reached.set()
            await asyncio.Event().wait()
        self.done[what] += 1
        if what in self.fail:
            raise ValueError(f"{what} failed")
        return f"<{what}>"

    async def look(self, at: str) -> str:
        """Look at something."""
        return await self.carry_out(at)

    def answer(self, request: ModelRequest) -> str:
        asked = request.messages[-1].text
        self.done[asked] += 1
        return f"answer to {asked} after {len(request.messages)}"


async def interrupted(world: World, flow: Flow, text: str, at: str, run_id: str = "r", **options: Any) -> None:
    """Start a run and close its flow while it is at ``at``."""
    world.hold.add(at)
    world.awaited = at
    world.reached.clear()
    async with flow() as first:
        handle = await first.start(text, run_id=run_id, **options)
        await world.reached.wait()
    assert handle.status == "queued"
    with pytest.raises(JournalError, match="interrupted"):
        await handle.result()
    world.hold.clear()
