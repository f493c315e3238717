"""Events as data: the JSON form that every reader gets."""

from __future__ import annotations

import asyncio

from agentflow.core.events.events import Warning


async def test_large_values_become_data_in_parts() -> None:
    """Others run meanwhile, and the data are those of ``to_dict``; what has no JSON form is said here too."""
    deep: list[object] = []
    for _ in range(5_000):
        deep = [deep]
    wide = {"numbers": [[n] for n in range(300_000)], "pair": (1, 2)}
    turns = 0

    async def beside() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.create_task(beside())
    for details in (wide, {"deep": deep}, None):
        event = Warning("r", 1, 1, "0", None, None, 0.0, code="x", message="m", details=details)
        assert await event.to_data() == event.to_dict()
    other.cancel()
    assert turns > 3
