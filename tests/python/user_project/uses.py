"""What a user's project says to a type checker. It is checked strictly, by two checkers, and never run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, assert_type

from pydantic import BaseModel

import agentflow
from agentflow import AgentFlow, CallContext, Limits, RunResult, TaskResult, Usage, tool
from agentflow.events import PartialOutput, TextDelta


class Review(BaseModel):
    worst: str
    grade: Literal["low", "high"]


@dataclass
class Window:
    first: int
    last: int


flow = AgentFlow(model="anthropic:claude-sonnet-5-5", limits=Limits(usd=1), durable="sqlite:///runs.db")


@flow.tool
async def search(question: str, most: int = 5) -> list[str]:
    """Search."""
    return [question] * most


@flow.tool(reuse="1d")
def measure(text: str) -> int:
    """Measure."""
    return len(text)


@flow.tool(name="deep", description="Digs.", sequential=True, timeout_s=5, retries=1, approval=True, source="web")
async def dig(depth: int) -> str:
    """Dig."""
    return str(depth)


@tool(approval=True, sinks={"to": "user"}, idempotent=False)
def send(to: str) -> bool:
    """Send."""
    return bool(to)


@flow.task
async def review(path: str, strict: bool = False) -> Review:
    """Name the worst bug in {{path}} (strict: {{strict}})."""
    raise NotImplementedError


@flow.task(model="openai:gpt-5", tools=[search, "measure"], retries=2, timeout_s=60, settings={"temperature": 0})
async def cut(window: Window) -> list[Window]:
    """Cut {{window}}."""
    raise NotImplementedError


@flow.task(
    name="named", description="Answers.", subtype="qa", max_turns=4, max_output_tokens=500, priority=1, decompose=0
)
async def named(question: str) -> str:
    """{{question}}"""
    raise NotImplementedError


@flow.task(history={"use_session_history": False}, context={"inherit_context": "none"})
async def whole(topic: str) -> TaskResult:
    """Everything about {{topic}}."""
    raise NotImplementedError


def weigh(text: str, *, unit: str = "g") -> float:
    return float(len(text))


async def fetch(number: int) -> bytes:
    return bytes(number)


@flow.workflow
async def audit(paths: list[str], limit: int = 8) -> str:
    """Audit files."""
    assert_type(await flow.map(review, paths, limit=limit), list[Review])
    assert_type(await flow.parallel(review("a"), cut(Window(1, 2))), tuple[Review, list[Window]])
    assert_type(await flow.race(review("a"), review("b", strict=True)), Review)
    assert_type(await flow.timeout(2, cut(Window(1, 2))), list[Window])
    assert_type(await flow.retry(3, lambda: review("a")), Review)
    assert_type(await flow.ask("Why?"), str)
    assert_type(await flow.ask("Why?", output=Review, model="offline"), Review)
    assert_type(await flow.ask("Why?", system="Be brief.", max_output_tokens=100), str)
    assert_type(await flow.step(weigh, "a", unit="kg"), float)
    assert_type(await flow.step(fetch, 3), bytes)
    assert_type(await flow.now(), float)
    assert_type(await flow.random(6), int)
    assert_type(await flow.random(), float)
    assert_type(await flow.uuid(), str)
    assert_type(await flow.ask_human("How many?", int), int)
    assert_type(await flow.context("cats"), list[str])
    assert_type(await flow.program(Path("review.sexp"), {"path": str}, returns=Review)(path="a"), Review)
    assert_type(await review.with_options(model="offline")("a"), Review)
    assert_type((await whole("cats")).failed, bool)
    graded: Any = await flow.ask("Grade.", output=Literal["good", "bad"])
    await flow.sleep(1)
    return f"{graded}: {(await review(paths[0])).worst}"


@agentflow.task
async def free(path: str, strict: bool = False) -> Review:
    """Name the worst bug in {{path}} (strict: {{strict}})."""
    raise NotImplementedError


class Support:
    def __init__(self, customer: str) -> None:
        self.customer = customer

    @tool
    async def balance(self) -> str:
        """The balance."""
        return self.customer

    def polite(self, ctx: CallContext[Window]) -> str:
        return f"You talk to {self.customer} until {ctx.deps.last}."

    async def brief(self, review: Review, ctx: CallContext) -> Review:
        return review

    @agentflow.task(model="offline", tools=[balance], system=polite, check=brief)
    async def reply(self, question: str, most: int = 3) -> Review:
        """{{question}} {{most}}"""
        raise NotImplementedError

    @agentflow.workflow
    async def handle(self, questions: list[str]) -> int:
        assert_type(await self.reply(questions[0], most=2), Review)
        return len(questions)

    @flow.task
    async def bound(self, question: str) -> str:
        """{{question}}"""
        raise NotImplementedError


def greeting(ctx: CallContext[Window]) -> str:
    return f"Until {ctx.deps.last}."


@flow.task(system=greeting, check=lambda value, ctx: value, tools=lambda ctx: [search])
async def greeted(question: str) -> str:
    """{{question}}"""
    raise NotImplementedError


async def without_a_flow(support: Support) -> None:
    with_tasks = AgentFlow(tasks=[free, support.handle, "templates"])
    assert_type(await with_tasks.run(free("a.py", strict=True)), RunResult[Review])
    assert_type(await free.with_options(model="offline")("a.py"), Review)
    assert_type(await with_tasks.map(free, ["a.py"]), list[Review])
    assert_type(await support.reply("Why?", most=2), Review)
    assert_type((await with_tasks.run(support.handle(["a"]))).value, int)
    assert_type(await support.bound("Why?"), str)
    assert_type(await support.reply.with_options(retries=1)("Why?"), Review)
    assert_type(await Support.reply(support, "Why?"), Review)


async def main() -> None:
    async with flow:
        assert_type(await audit(["a.py"]), str)
        result = await flow.run(audit(["a.py"], limit=2), limits=Limits(usd=1), run_id="audit-1")
        assert_type(result, RunResult[str])
        assert_type(result.usage, Usage)
        assert_type((await flow.run("(+ 1 2)", bindings={"x": 1})).value, Any)
        async with flow.stream(review("a.py"), labels={"user": "ada"}) as run:
            async for part in run.of(PartialOutput):
                assert_type(part, PartialOutput)
            async for delta in run.of(TextDelta):
                print(delta.text)
            assert_type(await run.value(), Review)
        handle = await flow.start(audit(["a.py"]), run_id="audit-1")
        assert_type((await handle.result()).value, str)
        assert_type(await search("cats", most=3), list[str])
        assert_type(measure("cats"), int)
        assert_type(await dig(3), str)
        assert_type(send("ann"), bool)
        assert_type(await named("Why?"), str)
