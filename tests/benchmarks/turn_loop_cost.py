"""What the turn loop and the tool registry add to a model call: ``python tests/benchmarks/turn_loop_cost.py``.

Ratios against the same work done by hand in the same run: a provider that answers at once, five turns with one tool call
each, a stream of chunks, and a tool called directly. Medians of interleaved rounds; nothing but the process's CPU time.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


from agentflow.core.call.call import CallContext
from agentflow.core.data.messages import (
    Message,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    Usage,
    user,
)
from agentflow.core.data.session import Session
from agentflow.core.ports.ports import Prompt
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.turn_loop import TurnLoop
from tests.benchmarks.timing import Work, medians
from tests.support.fakes import FakeRun

TURNS, CHUNKS, ROUNDS = 5, 2_000, 25


class Instant:
    """Calls a tool ``turns`` times, then answers in ``chunks`` chunks; no network, no waiting."""

    def __init__(self, turns: int, chunks: int) -> None:
        self.turns, self.chunks, self.at = turns, chunks, 0
        self.known = ModelProfile("instant", "m", "instant", 200_000)

    def profile(self, model: str) -> ModelProfile:
        return self.known

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        self.at += 1
        if self.at % (self.turns + 1):
            yield ModelDelta(
                response=ModelResponse((ToolCallPart(f"c{self.at}", "add", {"a": 1, "b": 2}),), "tool_calls")
            )
            return
        delta = ModelDelta(text="word ")
        for _ in range(self.chunks):
            yield delta
        yield ModelDelta(response=ModelResponse((TextPart("done"),), "end", Usage(10, 5, requests=1)))

    async def count_tokens(self, request: ModelRequest) -> int:
        return 1

    async def aclose(self) -> None: ...


class Listening(FakeRun):
    """A run somebody watches."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def publish(self, event: Any) -> None:
        self.seen += 1


def unwatched() -> FakeRun:
    """A run nobody watches."""
    return FakeRun(watched=False)


async def add(a: int, b: int) -> int:
    return a + b


PROMPT = Prompt(parts=(TextPart("go"),))


async def by_hand(provider: Instant, history: tuple[Message, ...]) -> None:
    messages = [*history, user("go")]
    while True:
        response: ModelResponse | None = None
        async with aclosing(provider.stream(ModelRequest(tuple(messages)))) as stream:
            async for delta in stream:
                response = delta.response
        assert response is not None
        messages.append(response.message())
        if not response.tool_calls:
            return
        for part in response.tool_calls:
            messages.append(user(str(await add(**part.arguments))))


def bench_loop(turns: int, chunks: int, run: Callable[[], FakeRun], history: int = 0) -> tuple[Any, Any]:
    registry = ToolRegistry()
    registry.add(add)
    provider = Instant(turns, chunks)
    loop = TurnLoop(Router(provider), registry)
    turn = (user("question " * 20), Message("assistant", (TextPart("answer " * 20),)))

    async def ours() -> None:
        session = Session()
        for _ in range(history // 2):
            session.commit(turn)
        await loop.run_prompt(PROMPT, CallContext(run(), session=session))

    async def base() -> None:
        await by_hand(provider, turn * (history // 2))

    return ours, base


class Router:
    def __init__(self, provider: Instant) -> None:
        self.provider = provider

    def resolve(self, model: str | None) -> tuple[Instant, str]:
        return self.provider, "m"

    def full_name(self, model: str | None) -> str:
        return "m"


async def report(name: str, ours: Work, base: Work, times: int, per: int = 1) -> None:
    mine, theirs = (await medians({"ours": ours, "by hand": base}, ROUNDS, times)).values()
    a, b = mine / per * 1e6, theirs / per * 1e6
    print(f"{name:44} {a:9.2f} us   by hand {b:9.2f} us   added {a - b:9.2f} us")


async def main() -> None:
    await report("one call", *bench_loop(0, 1, unwatched), times=40)
    await report("one call after 300 messages", *bench_loop(0, 1, unwatched, 300), times=20)
    await report("five tool turns", *bench_loop(TURNS, 1, unwatched), times=20)
    await report("per chunk, nobody listening", *bench_loop(0, CHUNKS, unwatched), times=2, per=CHUNKS)
    await report("per chunk, events delivered", *bench_loop(0, CHUNKS, Listening), times=2, per=CHUNKS)
    registry = ToolRegistry()
    registry.add(add)
    registry.register({"name": "plain", "input_schema": {"type": "object"}}, lambda_tool)
    call = unwatched().call()

    async def typed() -> None:
        await registry.execute("add", {"a": 1, "b": 2}, call)

    async def spec() -> None:
        await registry.execute("plain", {"a": 1}, call)

    async def direct() -> None:
        await add(a=1, b=2)

    await report("a typed tool", typed, direct, times=300)
    await report("a tool of one dict", spec, direct, times=300)


async def lambda_tool(params: dict[str, Any]) -> str:
    return "ok"


if __name__ == "__main__":
    asyncio.run(main())
