"""A long loop of tools that stays cheap: the model writes programs, and old results of tools leave its requests.

You need no key: the model is scripted. Set AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 for a real one.
"""

import asyncio
import os
from typing import Any

from agentflow import AgentFlow, Clear, ScriptedProvider, code, tool
from agentflow.events import Event, ModelFinished, ToolResultsCleared, ToolStarted

CUSTOMERS = [f"customer-{number}" for number in range(8)]


@tool(read_only=True)
async def orders(customer: str) -> list[dict[str, int]]:
    """All orders of a customer."""
    return [{"number": number, "eur": 10 * number + len(customer)} for number in range(60)]


PROGRAM = f"""
def total(name):
    return sum([order.eur for order in orders(customer=name)])
names = {CUSTOMERS}
totals = pmap(total, names, limit=4)
names[totals.index(max(totals))]
"""
ONE_BY_ONE = [{"tool_calls": [{"name": "orders", "arguments": {"customer": name}}]} for name in CUSTOMERS]
WITH_A_PROGRAM = [{"tool_calls": [{"name": "run_program", "arguments": {"program": PROGRAM}}]}]


def show(event: Event) -> None:
    """Print what the loop does."""
    if isinstance(event, ToolStarted):
        print(f"  {event.name}")
    elif isinstance(event, ToolResultsCleared):
        print(f"  (cleared {len(event.results)} results: {event.tokens_before:,} -> {event.tokens_after:,} tokens)")
    elif isinstance(event, ModelFinished) and event.usage is not None:
        print(f"  the model read {event.usage.input_tokens:,} tokens")


async def ask(title: str, replies: list[Any], **options: Any) -> None:
    """Ask with these options, and print the events."""
    print(title)
    model = os.environ.get("AGENTFLOW_MODEL")
    scripted = None if model else ScriptedProvider([*replies, "customer-0"])
    async with AgentFlow(model, provider=scripted, tools=[orders]) as flow:
        flow.subscribe(show)
        print(await flow.ask(f"Which of {CUSTOMERS} ordered the most?", **options))


async def main() -> None:
    await ask(
        "One call after the other", ONE_BY_ONE, tools=[orders], clear_tool_results=Clear(after_tokens=2_000, keep=2)
    )
    await ask("\nA program", WITH_A_PROGRAM, tools=[code([orders])])


asyncio.run(main())
