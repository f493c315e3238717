"""What is another value every time is the same again when a durable run goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agentflow import AgentFlow


async def test_chance_and_time_are_recorded(tmp_path: Path) -> None:
    """A run that goes on has the numbers, names and times it had before."""
    text = "(begin (define seen (list (now) (random) (random 1000000) (uuid) (sleep 0))) (note seen) (hold) (note seen) seen)"
    noted: list[Any] = []
    reached, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        reached.set()
        await release.wait()

    bindings = {"note": noted.append, "hold": hold}
    for last in (False, True):
        async with AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db", root=tmp_path) as flow:
            handle = await flow.start(text, bindings, run_id="r")
            if last:
                release.set()
                noted.append((await handle.result()).value)
            else:
                await reached.wait()
    assert noted[0] == noted[1] == noted[2] and handle.replayed == 6
