"""A chat with an airline: a desk that hands over to seats and refunds, tools that share a booking, and a check of promises.

You need no key: the model is scripted. Set AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 for a real one.
"""

import asyncio
import os
from dataclasses import dataclass

from agentflow import AgentFlow, CallContext, Retry, ScriptedProvider, Session


@dataclass
class Booking:
    """The dependencies of a run: the booking of the customer who is on the line."""

    name: str
    seat: str = "12A"
    refundable_eur: int = 100


def call(name: str, **arguments: object) -> dict[str, object]:
    """An answer of the scripted model that calls a tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


SCRIPT = [
    call("transfer_to_seats", wish="a seat at the window"),
    call("change_seat", seat="17F"),
    "You have seat 17F now, Ada.",
    call("transfer_to_refunds", question="my money back"),
    "You get 500 EUR back.",
    "You get 100 EUR back.",
]
flow = AgentFlow(provider=None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(SCRIPT), system="Be brief.")


async def change_seat(seat: str, ctx: CallContext[Booking]) -> str:
    """Give the customer another seat."""
    ctx.deps.seat = seat
    return f"{ctx.deps.name} sits in {seat}"


def knows_the_booking(ctx: CallContext[Booking]) -> str:
    return f"You change seats. The customer is {ctx.deps.name}, in seat {ctx.deps.seat}."


def keeps_to_the_fare(answer: str, ctx: CallContext[Booking]) -> str:
    """Refuses an answer that promises more than the fare allows: the model is told, and answers again."""
    promised = [int(word) for word in answer.split() if word.isdigit()]
    if any(eur > ctx.deps.refundable_eur for eur in promised):
        raise Retry(f"The fare gives back {ctx.deps.refundable_eur} EUR at most. Answer again.")
    return answer


@flow.task(system=knows_the_booking, tools=[change_seat], handoffs=["refunds"], history=True)
async def seats(wish: str) -> str:
    """The wish: {{wish}}"""
    ...


@flow.task(system="You give money back.", check=keeps_to_the_fare, rounds=2, history=True)
async def refunds(question: str) -> str:
    """The question: {{question}}"""
    ...


@flow.task(system="You find out who can help.", handoffs=[seats, refunds], history=True)
async def desk(message: str) -> str:
    """{{message}}"""
    ...


async def main() -> None:
    agents = {"desk": desk, "seats": seats, "refunds": refunds}
    session, booking = Session(), Booking("Ada")
    async with flow:
        for message in ("I would like to sit at the window.", "I want my money back."):
            agent = agents[session.agent or "desk"]  # the last agent to answer continues
            result = await flow.run(agent(message), session=session, deps=booking)
            print(f"Ada: {message}\n{session.agent}: {result.value}")
    print("booked:", booking.seat)


if __name__ == "__main__":
    asyncio.run(main())
