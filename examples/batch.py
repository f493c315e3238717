"""500 workflows under one budget: at most 50 at once, failed ones tried again, a progress bar, results as JSON lines.

python examples/batch.py > results.jsonl      needs no key; AGENTFLOW_MODEL=... for a real model
"""

import asyncio
import json
import os
import sys
from typing import Literal

from pydantic import BaseModel

from agentflow import AgentFlow, LimitExceeded, Limits, ScriptedProvider, TaskError

COUNT = 500
TICKETS = [f"Ticket {number}: {('the printer smokes', 'thank you')[number % 2]}" for number in range(COUNT)]


class Triage(BaseModel):
    urgent: bool
    team: Literal["hardware", "nobody"]


tried: set[str] = set()


async def model(request):  # a stand-in that fails at every tenth ticket once, and at one always
    await asyncio.sleep(0.001)
    ticket = request.messages[-1].text
    if "Ticket 13:" in ticket or ("0:" in ticket and ticket not in tried):
        tried.add(ticket)
        return {"error": "overloaded"}
    return json.dumps({"urgent": "smokes" in ticket, "team": "hardware" if "smokes" in ticket else "nobody"})


real = "AGENTFLOW_MODEL" in os.environ
flow = AgentFlow(provider=None if real else ScriptedProvider(model), limits=Limits(usd=2.00, tokens=200_000))
done: list[bool] = []


@flow.task(retries=3)
async def triage(ticket: str) -> Triage:
    """How urgent is this, and whose is it? {{ticket}}"""
    ...


async def handle(ticket: str) -> None:
    """One of the workflows. A ticket that fails for good is a result too; the budget's end is the end of all."""
    try:
        answer = await triage(ticket)
        record = {"ticket": ticket, **answer.model_dump()}
    except TaskError as error:
        record = {"ticket": ticket, "error": error.message}
    done.append("error" not in record)
    print(json.dumps(record), flush=True)
    show_progress()


def show_progress() -> None:
    if sys.stderr.isatty():
        width = 40 * len(done) // COUNT
        failed = done.count(False)
        sys.stderr.write(f"\r[{'#' * width:40}] {len(done)}/{COUNT}, {failed} failed" + "\n" * (len(done) == COUNT))


@flow.workflow
async def all_tickets(tickets: list[str]) -> None:
    await flow.map(handle, tickets, limit=50)


async def main() -> None:
    async with flow:
        try:
            result = await flow.run(all_tickets(TICKETS))
        except LimitExceeded as error:
            print(f"stopped after {len(done)}: {error.message}, ${error.cost}", file=sys.stderr)
        else:
            print(f"{done.count(True)} answered, {done.count(False)} failed, cost ${result.cost}", file=sys.stderr)


asyncio.run(main())
