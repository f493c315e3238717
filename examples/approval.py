"""A refund that a person approves, perhaps tomorrow and in another process. You need no key: the model is scripted.

Small refunds need no approval. For a large one the office may approve less, or refuse with a reason that the model reads. Work that was
paid for before the question is not repeated: the model is asked for the refund once.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import agentflow
from agentflow import AgentFlow, Approved, Denied, ScriptedProvider, tool

paid: list[str] = []


@tool(approval=lambda arguments, ctx: arguments["amount"] > 10)
async def refund(customer: str, amount: float) -> str:
    """Pay money back."""
    paid.append(f"{amount:g} EUR to {customer}")
    return "done"


@agentflow.task(tools=[refund])
async def settle(customer: str, amount: float) -> str:
    """Give {{customer}} {{amount}} EUR back, and write a line to them."""
    ...


def asks(customer: str, amount: float) -> dict[str, Any]:
    """The model's call of the tool."""
    return {"tool_calls": [{"name": "refund", "arguments": {"customer": customer, "amount": amount}}]}


def writes(request: Any) -> str:
    """The model's line, which says what it was told."""
    return f"Dear customer: {request.messages[-1].parts[0].text.splitlines()[0]}"


def open_flow(database: Path, *answers: Any) -> AgentFlow:
    """A flow over the database. Its model gives the ``answers`` that are left."""
    provider = None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(list(answers))
    return AgentFlow(provider=provider, tasks=[settle], durable=f"sqlite:///{database}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory) / "runs.db"

        # The shop: five EUR are paid, twenty wait. Nothing of a run that waits is in memory, and the process may end.
        for run_id, customer, amount in (("small", "Bob", 5), ("large", "Ada", 20), ("odd", "Eve", 900)):
            async with open_flow(database, asks(customer, amount), writes) as shop:
                handle = await shop.start(settle(customer, amount), run_id=run_id)
                print(run_id, await handle.wait(), paid)

        # The office reads the question and answers. The first answer counts.
        decisions = {
            "large": Approved(arguments={"customer": "Ada", "amount": 15}),
            "odd": Denied("Eve has bought nothing"),
        }
        async with open_flow(database) as office:
            for run_id, decision in decisions.items():
                for question in await office.questions(run_id):
                    print(question.question)
                    await office.send(run_id, question.key, decision)

        # The shop again continues them. The model repeats no request; it reads the outcome of its call.
        for run_id in decisions:
            async with open_flow(database, writes) as shop:
                handle = await shop.resume(run_id)
                print((await handle.result()).value)
        assert "900 EUR to Eve" not in paid, paid


asyncio.run(main())
