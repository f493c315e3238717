"""Tools and a model that count what durable runs carry out, and flows over one database."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import JournalError
from agentflow.core.data.messages import ModelRequest
from agentflow.core.events.journal_rows import EffectRow
from agentflow.journal.sqlite import SqliteJournal

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


async def time_passes(database: Path, kind: str) -> EffectRow:
    """Store that the time of the one ``timeout`` or ``timer`` of the run ``r`` is over, as if it had passed. Gives the record before."""
    store = SqliteJournal(database)
    try:
        owned = await store.own("r")
        [row] = [each for each in owned.records if each.kind == kind]
        due = time.time() - 1
        value = due if kind == "timeout" else {**row.value, "due": due}
        await store.put("r", owned.run.epoch, [replace(row, value=value)])
        await store.finish("r", owned.run.epoch, "queued")
    finally:
        await store.aclose()
    return row
