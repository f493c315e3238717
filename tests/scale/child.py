"""A process that works on a durable run: ``python -m tests.scale.child URL RUN LOG [HANG]``.

Each call of its tool is a line of the log; the call of ``HANG`` says so on standard output, and ends when there is a file
``LOG.go``. How the run ended is the last line of standard output: ``done``, or the code of the error.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agentflow import AgentFlow, Durable
from agentflow.core.data.errors import AgentflowError

PROGRAM = """
(list (content (look (at "a"))) (pmap (lambda (i) (content (look (at i)))) '("p1" "p2")) (content (look (at "b"))))
"""
VALUE = ["<a>", ["<p1>", "<p2>"], "<b>"]


def app(url: str, log: Path, hang: str | None = None) -> AgentFlow:
    """The application: what every process of it is."""

    async def look(at: str) -> str:
        """Look at something."""
        with log.open("a") as file:
            file.write(f"{at}\n")
        if at == hang:
            print("hangs", flush=True)
            while not log.with_name(f"{log.name}.go").exists():
                await asyncio.sleep(0.02)
        return f"<{at}>"

    return AgentFlow(model="offline", tools=[look], durable=Durable(url, take_over=True))


async def main(url: str, run: str, log: str, hang: str | None = None) -> None:
    async with app(url, Path(log), hang) as flow:
        try:
            await (await flow.start(PROGRAM, run_id=run)).result()
            print("done", flush=True)
        except AgentflowError as error:
            print(error.code, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
