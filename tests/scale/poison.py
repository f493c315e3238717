"""A worker that one of its runs kills: ``python -m tests.scale.poison URL LOG``. Each call of a tool is a line of the log."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from agentflow import AgentFlow


def app(url: str, log: Path) -> AgentFlow:
    """The application of the worker, and of whoever leaves it runs."""

    def note(line: str) -> None:
        with log.open("a") as file:
            file.write(f"{line}\n")

    async def die() -> None:
        """Take the process along, as a fault in a native library does, once there are others beside it."""
        note("die")
        await asyncio.sleep(0.2)
        os._exit(9)

    async def nap(name: str) -> str:
        """Take a while."""
        note(name)
        await asyncio.sleep(0.6)
        return name

    return AgentFlow(model="offline", tools=[die, nap], durable=url)


async def main(url: str, log: str) -> None:
    async with app(url, Path(log)) as flow:
        await flow.work({"default": 0})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
