"""A support desk: an agent with tools that belong to one user, and an agent as a tool of another; a tool that asks a model; a no with a reason.

You need no key: the model is scripted. Set AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 for a real one.
"""

import asyncio
import os
from dataclasses import dataclass, field

import agentflow
from agentflow import AgentFlow, ApprovalRequest, Approved, Denied, ScriptedProvider, tool


@dataclass
class Account:
    """What one user has. Its methods are tools of whoever is given them, and one is an agent."""

    user: str
    cents: int
    sent: list[str] = field(default_factory=list)

    async def balance(self) -> str:
        """The balance of the user's account, in EUR."""
        return f"{self.cents / 100:.2f}"

    @tool(approval=lambda arguments, ctx: arguments["eur"] > 5)
    async def refund(self, eur: float, reason: str) -> str:
        """Pay money back to the user.

        Args:
            eur: how much
            reason: why, in one sentence
        """
        self.sent.append(f"{eur:.2f} EUR to {self.user}: {reason}")
        return "paid"

    @agentflow.task(
        system="You answer questions about money, and pay back where the customer is right.", tools=[balance, refund]
    )
    async def billing(self, question: str) -> str:
        """{{question}}"""
        ...


async def approve(request: ApprovalRequest) -> Approved | Denied:
    """Whoever answers for money. Small sums pass unasked; a large one is cut down, or refused with a reason."""
    eur = request.arguments["eur"]
    print(f"  asked: refund {eur:.2f} EUR?")
    return (
        Denied("at most 50 EUR; offer a voucher instead")
        if eur > 50
        else Approved(arguments={**request.arguments, "eur": 20})
    )


def call(name: str, **arguments: object) -> dict[str, object]:
    """An answer of the scripted model that calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


SCRIPT = [
    # Ada: the desk asks billing, which reads her account and pays her back
    call("billing", question="Was I charged twice?"),
    call("balance"),
    call("refund", eur=30, reason="charged twice"),
    "Ada had -30.00 EUR; 20.00 EUR are paid back, as approved.",
    call("say_kindly", text="20 EUR are on their way."),
    "We are sorry, Ada: 20 EUR are on their way.",
    "We are sorry, Ada: 20 EUR are on their way.",
    # Bo asks for too much
    call("billing", question="Give me 500 EUR."),
    call("refund", eur=500, reason="he asks for it"),
    "Not possible: at most 50 EUR. A voucher is.",
    "We can offer a voucher, Bo.",
]

flow = AgentFlow(provider=None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(SCRIPT), approve=approve)


@flow.task
async def rephrase(text: str) -> str:
    """Say this kindly, in one sentence: {{text}}"""
    ...


async def say_kindly(text: str) -> str:
    """Rephrase a text for a customer."""
    return await rephrase(text)  # a tool is your code: it may ask a model, or anything else


async def answer(account: Account, question: str) -> str:
    """One customer's question. Two of them at once have tools of the same names, and each its own account."""
    return await flow.ask(
        f"{account.user} writes: {question}", system="You are a support desk.", tools=[account.billing, say_kindly]
    )


async def main() -> None:
    async with flow:
        for account, question in (
            (Account("Ada", -3000), "Was I charged twice?"),
            (Account("Bo", 0), "Give me 500 EUR."),
        ):
            print(await answer(account, question))
            print("  paid:", *(account.sent or ["nothing"]))


if __name__ == "__main__":
    asyncio.run(main())
