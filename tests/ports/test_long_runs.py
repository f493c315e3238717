"""Ports of examples about runs that somebody talks to while they work: steering, signals, queries, stops, and a last answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, Limits, ModelRequest, ModelResponse, ScriptedProvider, Session, ToolCall
from agentflow.core.data.results import TaskResult
from agentflow.errors import DataError
from agentflow.events import HostData, TaskStarted, ToolFinished
from agentflow.testing import Script
from tests.ports.replies import calls, told

RunModel = Callable[[ModelRequest], Awaitable[ModelResponse]]


def lines(session: Session) -> list[str]:
    """What a conversation has, a line each: calls and results by their texts."""
    return [part.text for message in session.messages for part in message.parts if getattr(part, "text", "")]


async def test_a_stream_that_is_stopped_keeps_its_finished_turns(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, ``result.cancel()``: the session has the turns that were done, and the next run goes on from there."""
    session = Session(keep_partial=True)

    async def search(query: str) -> str:
        """Search."""
        return f"found {query}"

    @flow.task(tools=[search], history=True)
    async def researcher(question: str) -> str:
        """{{question}}"""
        raise NotImplementedError

    script.on("researcher", calls("search", query="whales"), "Whales sing.", "So it is.")
    async with flow.stream(researcher("Do whales sing?"), session=session) as run:
        async for event in run:
            if isinstance(event, ToolFinished):
                await run.cancel()
                break
    assert lines(session) == ["Do whales sing?", "found whales", "\n\n[interrupted]"]
    assert session.messages[-1].interrupted
    assert (await flow.run(researcher("And then?"), session=session)).value
    assert [message.text for message in script.requests("researcher")[-1].messages][-1] == "And then?"


async def test_a_run_is_steered_by_another_message_of_the_user(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, ``ctx.enqueue``: a message that comes while a tool works is in the next request, and in the history."""

    async def inspect(path: str, ctx: CallContext) -> str:
        """Inspect a directory."""
        await flow.say(ctx.run_id, "Only the tests, please.")
        return f"{path} has three files"

    @flow.task(tools=[inspect], history=True)
    async def reviewer(request: str) -> str:
        """{{request}}"""
        raise NotImplementedError

    session = Session()
    script.on("reviewer", calls("inspect", path="src"), lambda request: f"Then {request.messages[-1].text}")
    result = await flow.run(reviewer("Review the code."), session=session)
    assert result.value == "Then Only the tests, please."
    assert "Only the tests, please." in lines(session)


async def test_a_workflow_is_asked_for_its_state_and_sent_updates(flow: AgentFlow) -> None:
    """Temporal, queries and updates: the state is read at any time, an update is checked before it is taken, and its effect is seen."""

    @flow.workflow
    async def cart(owner: str) -> list[str]:
        items: list[str] = []
        await flow.publish("cart", {"owner": owner, "items": items})
        while (item := await flow.signal("add", str)) != "done":
            items.append(item)
            await flow.publish("cart", {"owner": owner, "items": items})
        return items

    async with flow.stream(cart("ada")) as run:
        while not await flow.questions(run.run_id):
            await asyncio.sleep(0.001)
        assert await run.state() == {"cart": {"owner": "ada", "items": []}}
        with pytest.raises(DataError, match="string"):
            await run.signal("add", 5)
        await run.signal("add", "bread")
        while not (await run.state())["cart"]["items"]:
            await asyncio.sleep(0.001)
        await run.signal("add", "done")
        assert await run.value() == ["bread"]


async def test_a_message_is_sent_before_anybody_asks(tmp_path: Path) -> None:
    """Temporal, signal-with-start: the run begins, has its message before it waits, and another process would have kept it too."""
    async with AgentFlow(durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.workflow
        async def greeter() -> str:
            await flow.sleep(0.01)
            return f"Hello, {await flow.signal('name', str)}!"

        run = await flow.start(greeter(), run_id="g")
        await run.signal("name", "Ada")
        assert (await run.result()).value == "Hello, Ada!"


async def test_an_agent_is_driven_step_by_step(flow: AgentFlow, script: Script) -> None:
    """Pydantic AI, ``agent.iter``: code outside sees each step before it is done, and lets it be done, one at a time."""
    steps: asyncio.Queue[tuple[str, asyncio.Event]] = asyncio.Queue()

    async def gate(name: str) -> None:
        go = asyncio.Event()
        steps.put_nowait((name, go))
        await go.wait()

    async def model_step(request: ModelRequest, run: RunModel, ctx: CallContext) -> ModelResponse:
        await gate(f"model with {len(request.messages)} messages")
        return await run(request)

    async def tool_step(
        call: ToolCall, run: Callable[[ToolCall], Awaitable[TaskResult]], ctx: CallContext
    ) -> TaskResult:
        await gate(f"{call.name} {call.arguments}")
        return await run(call)

    async def capital(country: str) -> str:
        """The capital of a country."""
        return "Paris"

    @flow.task(tools=[capital])
    async def guide(question: str) -> str:
        """{{question}}"""
        raise NotImplementedError

    script.on("guide", calls("capital", country="France"), told)
    seen: list[str] = []
    async with flow.stream(guide("Where?"), around_model=[model_step], around_tool=[tool_step]) as run:
        for _ in range(3):
            name, go = await steps.get()
            seen.append(name)
            go.set()
        assert await run.value() == "Paris"
    assert seen == ["model with 1 messages", "capital {'country': 'France'}", "model with 3 messages"]


async def test_a_last_answer_when_the_turns_run_out(flow: AgentFlow, script: Script) -> None:
    """OpenAI Agents SDK, the handler of max_turns: the last turn is for an answer from what there is, and the run does not fail."""

    async def look(page: int) -> str:
        """Look at a page."""
        return f"page {page}"

    @flow.task(tools=[look], max_turns=3)
    async def reader(question: str) -> str:
        """{{question}}"""
        raise NotImplementedError

    def model(request: ModelRequest) -> Any:
        if request.tool_choice == "none":
            return f"After {len(request.messages) // 2} pages: I do not know yet."
        return calls("look", page=len(request.messages))

    script.on("reader", model)
    result = await flow.run(reader("What is it about?"), wrap_up=True)
    assert result.value == "After 2 pages: I do not know yet."


async def test_steps_send_data_of_their_own_to_the_stream(flow: AgentFlow) -> None:
    """LangGraph, ``get_stream_writer``: a node writes progress that a reader of the stream gets at once, typed."""

    @flow.workflow
    async def import_rows(count: int) -> int:
        for done in range(count):
            flow.emit({"done": done}, name="progress")
        return count

    seen: list[tuple[str, Any]] = []
    async with flow.stream(import_rows(2)) as run:
        async for event in run.of(HostData):
            seen.append((event.name, event.data))
        assert await run.value() == 2
    assert seen == [("progress", {"done": 0}), ("progress", {"done": 1})]


async def test_a_memory_across_conversations(tmp_path: Path) -> None:
    """LangGraph, the store: what one conversation noted, another finds, also in another process."""
    url = f"sqlite:///{tmp_path}/app.db"

    def model(request: ModelRequest) -> Any:
        if told(request):
            return told(request)
        asked = request.messages[-1].text
        return calls("remember", text=asked) if "like" in asked else calls("recall", query=asked)

    for question, found in (("I like metric units.", ""), ("Which units?", "metric")):
        async with AgentFlow(provider=ScriptedProvider(model), notes="flow", durable=url) as flow:

            @flow.task(tools=["remember", "recall"])
            async def assistant(message: str) -> str:
                """{{message}}"""
                raise NotImplementedError

            assert found in await assistant(question)


async def test_a_run_is_taken_up_again_from_a_step_with_another_result(tmp_path: Path) -> None:
    """LangGraph, time travel with ``update_state``: a step is done again with another prompt, what came before it is not paid again."""
    asked, seen = list[str](), list[TaskStarted]()

    def model(request: ModelRequest) -> str:
        asked.append(request.messages[-1].text)
        return request.messages[-1].text.upper()

    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        flow.subscribe(lambda event: seen.append(event) if isinstance(event, TaskStarted) else None)

        @flow.task
        async def topic(about: str) -> str:
            """topic {{about}}"""
            raise NotImplementedError

        @flow.task
        async def joke(about: str) -> str:
            """joke {{about}}"""
            raise NotImplementedError

        @flow.workflow
        async def comedy() -> str:
            return await joke(await topic("cats"))

        await (await flow.start(comedy(), run_id="r", limits=Limits(model_calls=5))).result()
        at = next(event.path for event in seen if event.name == "joke")
        changed = {"joke": {"instructions": "limerick {{about}}"}}
        again = await (await flow.fork("r", at, overrides=changed)).result()
        assert again.value == "LIMERICK TOPIC CATS"
        assert asked == ["topic cats", "joke TOPIC CATS", "limerick TOPIC CATS"]
