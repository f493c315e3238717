"""Guards around an assistant: a judge checks a question during the answer, a tool is watched, and models never see a card number.

You need no key: the model is scripted. Set AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 for a real one.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace

from agentflow import (
    AgentFlow,
    CallContext,
    Denied,
    ModelRequest,
    ModelResponse,
    ScriptedProvider,
    TaskResult,
    ToolCall,
)
from agentflow.core.data.messages import Message, TextPart
from agentflow.core.ports.ports import ModelCall

CARD = re.compile(r"\b\d{4}( ?\d{4}){3}\b")


class Refused(Exception):
    """The question is none for this assistant."""


async def without_cards(
    request: ModelRequest, run: Callable[[ModelRequest], ModelCall], ctx: CallContext
) -> ModelResponse:
    """Around each call of a model: card numbers stay in the house."""

    def clean(message: Message) -> Message:
        parts = [
            replace(each, text=CARD.sub("[card]", each.text)) if isinstance(each, TextPart) else each
            for each in message.parts
        ]
        return replace(message, parts=tuple(parts))

    return await run(replace(request, messages=tuple(map(clean, request.messages))))


async def at_most_50(call: ToolCall, run: Callable[[ToolCall], Awaitable[TaskResult]], ctx: CallContext) -> TaskResult:
    """Around each call of a tool: a refund of more than 50 EUR is refused with a reason that the model reads."""
    if call.name == "refund" and call.arguments["eur"] > 50:
        raise Denied("at most 50 EUR without a person")
    return await run(call)


async def refund(eur: int) -> str:
    """Pay money back."""
    return f"{eur} EUR paid back"


def scripted(request: ModelRequest) -> object:
    """The scripted model: judges, asks for a refund, and says what it read."""
    said = request.messages[-1].text
    if said.startswith("Is this"):
        return "false" if "poem" in said else "true"
    if len(request.messages) == 1:
        if "[card]" in said:
            print("  the model reads:", said)
        return {"tool_calls": [{"name": "refund", "arguments": {"eur": 30 if "30" in said else 900}}]}
    return request.messages[-1].parts[0].text.splitlines()[0]  # type: ignore[union-attr]


flow = AgentFlow(
    provider=None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(scripted),
    around_tool=[at_most_50],
    around_model=[without_cards],
)


@flow.task
async def concerns_us(question: str) -> bool:
    """Is this about an order or a payment? {{question}}"""
    ...


@flow.task(tools=[refund])
async def answer(question: str) -> str:
    """{{question}}"""
    ...


async def judged(question: str) -> None:
    """Raises as soon as the question turns out to be none for us; that cancels the answer."""
    if not await concerns_us(question):
        raise Refused(question)


@flow.workflow
async def assistant(question: str) -> str:
    text, _ = await flow.parallel(answer(question), judged(question))
    return text


async def main() -> None:
    async with flow:
        for question in (
            "I paid 30 EUR twice with 4111 1111 1111 1111.",
            "I want 900 EUR.",
            "Write a poem about refunds.",
        ):
            print("asked:", question)
            try:
                print("answered:", await assistant(question))
            except Refused:
                print("refused")


if __name__ == "__main__":
    asyncio.run(main())
