"""A refund that a person approves, perhaps tomorrow and in another process. Needs no key: the model is scripted.

What was paid for before the question is not paid for again: the letter is written once.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from agentflow import AgentFlow, ScriptedProvider

PROGRAM = """
(defatom write-letter (params (customer string) (amount number))
  (instructions "Write to {{customer}}: we give back {{amount}} EUR."))

(define letter (value-of (write-letter (customer customer) (amount amount))))

(if (ask-human (format "Refund {} EUR to {}?" amount customer) {"type" "boolean"})
    (begin (refund (customer customer) (amount amount)) letter)
    'refused)
"""
REFUND = {"customer": "Ada", "amount": 20}
paid: list[str] = []


async def refund(customer: str, amount: float) -> str:
    """Pay money back."""
    paid.append(f"{amount:g} EUR to {customer}")
    return "done"


def open_flow(database: Path, letters: list[str]) -> AgentFlow:
    """A flow over the database. Its model may write the ``letters`` that are left."""
    provider = None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(letters)
    return AgentFlow(provider=provider, tools=[refund], durable=f"sqlite:///{database}")


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        database = Path(directory) / "runs.db"

        # The shop: starts the run, which waits. Nothing of it is in memory, and the process may end.
        async with open_flow(database, ["Dear Ada, ..."]) as shop:
            handle = await shop.start(PROGRAM, REFUND, run_id="refund-4711")
            assert await handle.wait() == "waiting"

        # The office: sees what is asked, and answers. The first answer counts.
        async with open_flow(database, []) as office:
            (question,) = await office.questions("refund-4711")
            print(f"{question.question} {question.schema}")
            await office.send("refund-4711", question.key, True)

        # The shop again: goes on with it. The model has no letter left to write, and need not.
        async with open_flow(database, []) as shop:
            handle = await shop.resume("refund-4711")
            print((await handle.result()).value, paid)
            assert paid == ["20 EUR to Ada"] and handle.replayed == 2


asyncio.run(main())
