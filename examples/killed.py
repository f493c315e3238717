"""A run whose process is killed, and which continues as an edited program. You need no key: the model is scripted.

Work that was stored before the kill is not repeated: no text is written twice, and nothing is published twice.
"""

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

from agentflow import AgentFlow, ScriptedProvider

PROGRAM = """
@task
def describe(city: str) -> str:
    '''Describe {{city}} in a line.'''

def report(city):
    text = describe(city)
    publish(city=city, text=text)
    return text

[report(city) for city in cities]
"""
EDITED = PROGRAM.replace(
    "[report(city) for city in cities]", '# how many there are\nf"{len([report(city) for city in cities])} reports"'
)
CITIES = {"cities": ["Oslo", "Lima", "Pune"]}


def open_flow(directory: Path, *, killed_at: str = "") -> AgentFlow:
    """A flow over the database of a directory, whose tool publishes to a file, and dies where it is told to."""
    log = directory / "log.txt"

    def note(line: str) -> None:
        with log.open("a") as out:
            out.write(f"{line}\n")

    async def publish(city: str, text: str) -> str:
        """Publish a text."""
        if city == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        note(f"published {city}")
        return "done"

    def write(request: object) -> str:
        note("wrote a text")
        return "A city by the water."

    provider = None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(write)
    return AgentFlow(provider=provider, tools=[publish], durable=f"sqlite:///{directory}/runs.db")


async def begin(directory: Path) -> None:
    """What the process does that is killed."""
    async with open_flow(directory, killed_at="Lima") as flow:
        await (await flow.start(PROGRAM, CITIES, run_id="cities", surface="python")).result()


async def main() -> None:
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        process = await asyncio.create_subprocess_exec(sys.executable, __file__, str(directory))
        print("the process ended with signal", -await process.wait())

        async with open_flow(directory) as flow:
            plan = await flow.plan("cities", program=EDITED, surface="python")
            print("the edited program would reuse", len(plan.reused), "effects")
            handle = await flow.resume("cities", program=EDITED, surface="python")
            print((await handle.result()).value)

        if "AGENTFLOW_MODEL" not in os.environ:
            print((directory / "log.txt").read_text().replace("\n", "; "))


if len(sys.argv) > 1:
    asyncio.run(begin(Path(sys.argv[1])))
else:
    asyncio.run(main())
