"""A durable workflow in plain asyncio, whose process is killed while its tasks are active. You need no key and no model.

The order of completion is recorded, so the workflow continues as it began and repeats no recorded work.
"""

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from agentflow import AgentFlow, ScriptedProvider

DIRECTORY = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
LOG = DIRECTORY / "log.txt"
flow = AgentFlow(provider=ScriptedProvider("unused"), durable=f"sqlite:///{DIRECTORY}/runs.db")
quotes = {"Adams": 0.5, "Baker": 0.01, "Clark": 0.5}


@flow.tool
async def ask_price(supplier: str) -> str:
    """Ask a supplier for a price."""
    with LOG.open("a") as log:
        log.write(f"asked {supplier}\n")
    await asyncio.sleep(quotes[supplier])
    return f"{supplier}: {len(supplier)} EUR"


@flow.tool
async def order(quote: str) -> str:
    """Order at a price."""
    with LOG.open("a") as log:
        log.write(f"ordered from {quote}\n")
    if len(sys.argv) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"ordered from {quote}"


async def price(supplier: str) -> str:
    return await flow.call_tool("ask_price", supplier=supplier)


@flow.workflow
async def buy() -> list[str]:
    asked = [asyncio.create_task(price(supplier)) for supplier in quotes]
    first, rest = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    done = [await flow.call_tool("order", quote=first.pop().result())]
    try:
        async with asyncio.timeout(5):
            return [*done, *await asyncio.gather(*[task for task in asked if task in rest])]
    except TimeoutError:
        return done


async def main() -> None:
    if len(sys.argv) == 1:
        process = await asyncio.create_subprocess_exec(sys.executable, __file__, str(DIRECTORY))
        print("the process ended with signal", -await process.wait())
        quotes.update(Adams=0.0)  # who would be first now
    async with flow:
        handle = await flow.start(buy(), run_id="pencils")
        print(*(await handle.result()).value, sep="\n")
    print(LOG.read_text().replace("\n", "; "))


asyncio.run(main())
