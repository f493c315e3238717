"""Two concurrent branches, their events as they arrive, and the value at the end. You need no key and no network."""

import asyncio
import os
import sys
from collections import defaultdict

from agentflow import AgentFlow, ScriptedProvider
from agentflow.events import BranchStarted, TextDelta


def model(request):  # answers like a model would, whatever the order of the branches
    city = "Rome" if "Rome" in request.messages[-1].text else "Oslo"
    return f"{city} is worth a visit."


flow = AgentFlow(provider=None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(model))


@flow.task
async def describe(city: str) -> str:
    """Describe {{city}} in one line."""
    ...


@flow.workflow
async def describe_all(cities: list[str]) -> list[str]:
    return await flow.map(describe, cities, limit=2)


async def main() -> None:
    async with flow, flow.stream(describe_all(["Rome", "Oslo"])) as run:
        pieces = defaultdict(list)
        async for event in run:
            if isinstance(event, BranchStarted):
                print(f"branch {event.index} is {event.path}")
            elif isinstance(event, TextDelta):  # of either branch, as they come; the path says of which
                pieces[event.path].append(event.text)
                print(f"{event.path} {event.text!r}", file=sys.stderr)
        for path, texts in sorted(pieces.items()):
            print(path, texts)
        print(await run.value())


asyncio.run(main())
