"""Ports of examples whose agents are put together with asyncio, guards that stop a run, and retries of one's own.

They were written from the documentation alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, CallContext, ModelRequest, ModelResponse, ProviderError, Session, TaskError
from agentflow.errors import AgentflowError, BadRequest, Overloaded, RateLimited
from agentflow.testing import Script

RunModel = Callable[[ModelRequest], Awaitable[ModelResponse]]


# -- side by side ---------------------------------------------------------------------------------------------------


async def test_the_best_of_three_at_once(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agent_patterns/parallelization.py: ``asyncio.gather`` of three agents, and another one picks the best."""

    @flow.task(system="You translate to Spanish.")
    async def translate(message: str) -> str:
        """{{message}}"""

    @flow.task(system="You pick the best translation.")
    async def pick(message: str, translations: list[str]) -> str:
        """Input: {{message}} Translations: {{translations}}"""

    @flow.workflow
    async def best(message: str) -> str:
        return await pick(message, await asyncio.gather(*[translate(message) for _ in range(3)]))

    script.on("translate", "Buenos días", "Buen día", "Hola")
    script.on("pick", lambda request: "Buenos días" if "Buen día" in request.messages[0].text else "?")
    assert await best("Good morning!") == "Buenos días"
    assert len(script.prompts("translate")) == 3


async def test_a_queue_with_workers(flow: AgentFlow, script: Script) -> None:
    """asyncio's own queue example and DBOS, queues: workers take jobs from a queue, at most two at once, and jobs add jobs."""

    @flow.task
    async def links(page: str) -> list[str]:
        """List the pages that {{page}} links to."""

    @flow.workflow
    async def crawl(start: str) -> list[str]:
        queue: asyncio.Queue[str] = asyncio.Queue()
        queue.put_nowait(start)
        seen = [start]

        async def worker() -> None:
            while True:
                page = await queue.get()
                for each in await links(page):
                    if each not in seen:
                        seen.append(each)
                        queue.put_nowait(each)
                queue.task_done()

        workers = [asyncio.create_task(worker()) for _ in range(2)]
        await queue.join()
        for each in workers:
            each.cancel()
        return sorted(seen)

    pages = {"a": '["b", "c"]', "b": '["c", "d"]', "c": "[]", "d": '["a"]'}
    script.on("links", lambda request: pages[request.messages[0].text.split()[4]])
    assert await crawl("a") == ["a", "b", "c", "d"]
    assert len(script.prompts("links")) == 4


# -- loops and guards -----------------------------------------------------------------------------------------------


class Feedback(BaseModel):
    """What the judge says."""

    feedback: str
    score: Literal["pass", "needs_improvement", "fail"]


async def test_a_judge_who_is_asked_until_it_is_satisfied(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agent_patterns/llm_as_a_judge.py: an outline is written, judged, and written again with the feedback."""

    @flow.task(system="Write a short outline. Use the feedback, if there is any.", history=True)
    async def outline(message: str) -> str:
        """{{message}}"""

    @flow.task(system="Judge the outline. Never pass the first.")
    async def judge(story: str) -> Feedback:
        """{{story}}"""

    @flow.workflow
    async def write(wish: str) -> str:
        story = await outline(wish)
        while (verdict := await judge(story)).score != "pass":
            story = await outline(f"Feedback: {verdict.feedback}")
        return story

    script.on("outline", "A detective.", "A detective in space.")
    script.on("judge", '{"feedback": "in space", "score": "needs_improvement"}', '{"feedback": "", "score": "pass"}')
    assert await write("A detective story in space.") == "A detective in space."
    said = [message.text for message in script.requests("outline")[1].messages]
    assert said == ["A detective story in space.", "A detective.", "Feedback: in space"]


class Homework(BaseModel):
    """What the guard says."""

    reasoning: str
    is_math_homework: bool


class NoHomework(Exception):
    """The input is homework."""


async def test_a_guard_beside_the_agent(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agent_patterns/input_guardrails.py: a guard reads the input while the agent answers; if it trips, the agent is
    cancelled, the user reads a refusal, and the conversation goes on."""

    @flow.task(system="Is this math homework?")
    async def classify(message: str) -> Homework:
        """{{message}}"""

    @flow.task(system="You help customers.", history=True)
    async def support(message: str) -> str:
        """{{message}}"""

    async def guard(message: str) -> None:
        if (await classify(message)).is_math_homework:
            raise NoHomework

    @flow.workflow
    async def answer(message: str) -> str:
        said, _ = await flow.parallel(support(message), guard(message))
        return said

    script.on(
        "classify",
        lambda request: Homework(reasoning="", is_math_homework="x" in request.messages[0].text).model_dump_json(),
    )
    script.on("support", "Sacramento.", {"text": "x = 3", "delay_s": 30}, "San Francisco.")
    session, said = Session(), list[str]()
    for message in ("What is the capital of California?", "Solve 2x + 5 = 11.", "And a larger city?"):
        try:
            said.append((await flow.run(answer(message), session=session)).value)
        except NoHomework:
            said.append("Sorry, no homework.")
    assert said == ["Sacramento.", "Sorry, no homework.", "San Francisco."]
    last = [message.text for message in script.requests("support")[-1].messages]
    assert last == ["What is the capital of California?", "Sacramento.", "And a larger city?"]


class Message(BaseModel):
    """What the assistant answers."""

    reasoning: str
    response: str


class Tripped(Exception):
    """The answer has a phone number."""


async def test_a_guard_of_the_answer_that_halts(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, agent_patterns/output_guardrails.py: an answer with a phone number stops the run, with what was found."""

    def no_phone_number(message: Message, ctx: CallContext) -> Message:
        if "650" in message.response + message.reasoning:
            raise Tripped(message.response)
        return message

    @flow.task(check=no_phone_number)
    async def assist(message: str) -> Message:
        """{{message}}"""

    script.on("assist", '{"reasoning": "", "response": "Sacramento"}', '{"reasoning": "", "response": "650 is near"}')
    assert (await assist("The capital?")).response == "Sacramento"
    with pytest.raises(TaskError) as error:
        await assist("My number is 650-123-4567. Where do I live?")
    assert isinstance(error.value.__cause__, Tripped) and str(error.value.__cause__) == "650 is near"


# -- retries of one's own -------------------------------------------------------------------------------------------


async def test_a_retry_policy_of_ones_own_for_calls_of_the_model(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, basic/retry.py: a policy looks at the error and the attempt, waits longer each time, and gives up."""
    log: list[str] = []

    async def policy(request: ModelRequest, run: RunModel, ctx: CallContext) -> ModelResponse:
        for attempt in range(1, 4):
            try:
                return await run(request)
            except ProviderError as error:
                if not error.retryable or attempt == 3:
                    log.append(f"stop after {attempt}")
                    raise
                log.append(f"retry {attempt}")
                await asyncio.sleep(0.001 * 2**attempt)
        raise AssertionError

    script.on(
        "ask",
        Overloaded("overloaded", status=503),
        RateLimited("slow down", status=429),
        "Back off.",
        BadRequest("no such model", status=404),
    )
    assert await flow.ask("Explain back-off.", around_model=[policy]) == "Back off."
    with pytest.raises(ProviderError):
        await flow.ask("Explain back-off.", around_model=[policy])
    assert log == ["retry 1", "retry 2", "stop after 1"]


async def test_a_step_is_tried_again_until_it_succeeds(tmp_path: Path) -> None:
    """LangGraph, ``RetryPolicy(max_attempts=3)`` of a node: failures are recorded, so that a run that goes on elsewhere makes one call
    alone. An error that the workflow raises itself is not tried again."""
    tried, held = list[str](), asyncio.Event()

    async def fetch(page: str) -> str:
        tried.append(page)
        if len(tried) < 3:
            raise ConnectionError("reset")
        if len(tried) == 3:
            held.set()
            await asyncio.Event().wait()
        return f"read {page}"

    def declared(flow: AgentFlow) -> Any:
        @flow.workflow
        async def read(page: str) -> str:
            return await flow.retry(3, lambda: flow.step(fetch, page))

        return read

    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(durable=url) as flow:
        await flow.start(declared(flow)("index"), run_id="r")
        await held.wait()
    async with AgentFlow(durable=url) as flow:
        declared(flow)
        assert (await (await flow.resume("r")).result()).value == "read index"
        assert len(tried) == 4

        async def mine() -> str:
            tried.append("mine")
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await flow.retry(3, mine)
        assert tried.count("mine") == 1


async def test_a_step_is_tried_again_after_errors_of_one_kind(tmp_path: Path) -> None:
    """LangGraph, ``RetryPolicy(retry_on=ConnectionError, backoff_factor=2)`` of a node: other errors come through at once, and a run
    that goes on elsewhere decides by what was recorded."""
    fails: list[Exception] = [ConnectionError("reset"), ConnectionError("reset"), PermissionError("no")]

    async def fetch(page: str) -> str:
        raise fails.pop(0)

    async with AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.workflow
        async def read(page: str) -> str:
            for attempt in range(5):
                try:
                    return await flow.step(fetch, page)
                except AgentflowError as error:
                    if error.details.get("exception") != "ConnectionError":
                        return f"gave up: {error.details['exception']}"
                    await flow.sleep(0.001 * 2**attempt)
            return "gave up"

        assert (await (await flow.start(read("index"), run_id="r")).result()).value == "gave up: PermissionError"
    assert not fails
