"""What the same work costs here and in other libraries, all on one SDK against one loopback server.

Run it in an environment of its own, outside of the checkout:

    uv venv peers && uv pip install --python peers ".[cli]" psutil \\
        "pydantic-ai-slim[openai]" langgraph langchain langchain-openai openai-agents
    peers/bin/python tests/benchmarks/peers.py

Figures are client CPU (the server is a process of its own), medians of interleaved rounds in one process; the last
lines are the CPU of a fresh interpreter that only imports. Each library is used as its documentation shows, without
telemetry.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import operator
import os
import resource
import subprocess
import sys
from contextlib import AsyncExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, TypedDict

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import openai

from tests.benchmarks.timing import Work, medians
from tests.support.model_server import model_server_process

MODEL = "bench-model"
CHUNKS = 2_000
FAN = 100
STEPS = 100
TOOL_CALLS = 5
REPLIES: dict[str, list[Any]] = {
    "call": ["It is a short answer of a few words."],
    "tools": [
        *({"tool_calls": [{"id": f"c{n}", "name": "add", "arguments": {"a": n}}]} for n in range(TOOL_CALLS)),
        "done",
    ],
    "chunk": [{"chunks": ["word "] * CHUNKS}],
}
UNITS = {"call": 1, "tools": 1, "chunk": CHUNKS, "fan": FAN, "step": STEPS}
WHAT = {
    "call": "one call",
    "tools": f"{TOOL_CALLS} tool turns",
    "chunk": "a streamed chunk",
    "fan": f"a call among {FAN} at once",
    "step": "a step without a model",
}


async def add(a: int) -> str:
    """Adds."""
    return str(a + 1)


class Sdk:
    """The bare SDK, by hand."""

    name = f"openai {version('openai')}"
    begins = "from openai import AsyncOpenAI"

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        """Connect to the server."""
        self.client: Any = await stack.enter_async_context(openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0))

    async def _create(self, messages: list[Any], **more: Any) -> Any:
        return await self.client.chat.completions.create(model=MODEL, messages=messages, **more)

    async def call(self) -> None:
        answer = await self._create([{"role": "user", "content": "go on"}])
        assert answer.choices[0].message.content

    async def tools(self) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        function = {"name": "add", "description": "Adds.", "parameters": schema}
        messages: list[Any] = [{"role": "user", "content": "add and add again"}]
        while True:
            answer = await self._create(messages, tools=[{"type": "function", "function": function}])
            messages.append(message := answer.choices[0].message)
            if not message.tool_calls:
                return
            for call in message.tool_calls:
                text = await add(json.loads(call.function.arguments)["a"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": text})

    async def chunk(self) -> None:
        stream = await self._create([{"role": "user", "content": "go on"}], stream=True)
        seen = 0
        async for event in stream:
            seen += bool(event.choices and event.choices[0].delta.content)
        assert seen == CHUNKS

    async def fan(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(FAN):
                group.create_task(self.call())

    async def step(self) -> None:
        for _ in range(STEPS):
            await asyncio.create_task(add(1))


class Agentflow:
    """A program with one task through ``flow.run``; ``pmap`` for many."""

    name = f"agentflow {version('agentflow')}"
    begins = "from agentflow import AgentFlow"

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        """Build the flows and compile the programs."""
        from agentflow import AgentFlow

        plain, self.flow = [
            await stack.enter_async_context(AgentFlow(f"openai-chat:{MODEL}", base_url=url, api_key="k", tools=tools))
            for tools in ([], [add])
        ]
        ask = '(defatom ask (params (q string)) (instructions "{{q}}"))'
        self.plain = plain
        self.one = plain.compile(f'{ask} (value-of (ask (q "go on")))')
        self.with_tools = self.flow.compile(f'{ask} (value-of (ask (q "add and add again")))')
        self.many = plain.compile(f"{ask} (pmap (lambda (q) (value-of (ask (q q)))) xs)", bindings={"xs": []})
        self.steps = self.flow.compile(f"(loop {STEPS} (add (a 1)))")

    async def call(self) -> None:
        assert (await self.plain.run(self.one)).value

    async def tools(self) -> None:
        assert (await self.flow.run(self.with_tools)).value == "done"

    async def chunk(self) -> None:
        from agentflow.events import TextDelta

        seen = 0
        async with self.plain.stream(self.one) as run:
            async for event in run:
                seen += isinstance(event, TextDelta)
        assert seen == CHUNKS

    async def fan(self) -> None:
        assert len((await self.plain.run(self.many, bindings={"xs": ["go on"] * FAN})).value) == FAN

    async def step(self) -> None:
        await self.flow.run(self.steps)


class PydanticAi:
    """An ``Agent``; ``asyncio`` for many."""

    name = f"pydantic-ai {version('pydantic-ai-slim')}"
    begins = "from pydantic_ai import Agent"
    step = None

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        """Build the agents."""
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        client = await stack.enter_async_context(openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0))
        model = OpenAIChatModel(MODEL, provider=OpenAIProvider(openai_client=client))
        self.agent = Agent(model)
        self.with_tools = Agent(model, tools=[add])

    async def call(self) -> None:
        assert (await self.agent.run("go on")).output

    async def tools(self) -> None:
        assert (await self.with_tools.run("add and add again")).output == "done"

    async def chunk(self) -> None:
        seen = 0
        async with self.agent.run_stream("go on") as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                seen += 1
        assert seen == CHUNKS

    async def fan(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(FAN):
                group.create_task(self.call())


class State(TypedDict):
    """The state of the graphs."""

    questions: list[str]
    answers: Annotated[list[str], operator.add]
    count: int


class LangGraph:
    """A graph of one node with LangChain's model; LangChain's agent for tools; ``Send`` for many."""

    name = f"langgraph {version('langgraph')}"
    begins = "from langgraph.graph import StateGraph"

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        """Compile the graphs."""
        from langchain.agents import create_agent
        from langchain_core.messages import HumanMessage
        from langchain_openai import ChatOpenAI
        from langgraph.graph import END, START, StateGraph
        from langgraph.types import Send

        model = ChatOpenAI(model=MODEL, base_url=url, api_key="k", max_retries=0, stream_usage=True)

        async def ask(state: State) -> Any:
            answer = await model.ainvoke([HumanMessage(state["questions"][0])])
            return {"answers": [answer.content]}

        async def step(state: State) -> Any:
            await add(1)
            return {"count": state["count"] + 1}

        one = StateGraph(State)
        one.add_node("ask", ask)
        one.add_edge(START, "ask")
        one.add_edge("ask", END)
        self.graph = one.compile()

        many = StateGraph(State)
        many.add_node("ask", ask)
        many.add_conditional_edges(
            START, lambda state: [Send("ask", {"questions": [q], "answers": []}) for q in state["questions"]], ["ask"]
        )
        many.add_edge("ask", END)
        self.many = many.compile()

        chain = StateGraph(State)
        chain.add_node("step", step)
        chain.add_edge(START, "step")
        chain.add_conditional_edges("step", lambda state: END if state["count"] >= STEPS else "step", ["step", END])
        self.chain = chain.compile()
        self.agent = create_agent(model, [add])

    async def call(self) -> None:
        assert (await self.graph.ainvoke({"questions": ["go on"], "answers": [], "count": 0}))["answers"]

    async def tools(self) -> None:
        asked = {"messages": [{"role": "user", "content": "add and add again"}]}
        assert (await self.agent.ainvoke(asked))["messages"][-1].content == "done"

    async def chunk(self) -> None:
        seen = 0
        state = {"questions": ["go on"], "answers": [], "count": 0}
        async for message, _ in self.graph.astream(state, stream_mode="messages"):
            seen += bool(message.content)
        assert seen == CHUNKS

    async def fan(self) -> None:
        state = {"questions": ["go on"] * FAN, "answers": [], "count": 0}
        assert len((await self.many.ainvoke(state, {"max_concurrency": FAN}))["answers"]) == FAN

    async def step(self) -> None:
        state = {"questions": [], "answers": [], "count": 0}
        assert (await self.chain.ainvoke(state, {"recursion_limit": 2 * STEPS}))["count"] == STEPS


class OpenAiAgents:
    """An ``Agent`` and its ``Runner``; ``asyncio`` for many."""

    name = f"openai-agents {version('openai-agents')}"
    begins = "from agents import Agent, Runner"
    step = None

    async def open(self, url: str, stack: AsyncExitStack) -> None:
        """Build the agents, without tracing."""
        from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled

        set_tracing_disabled(True)
        client = await stack.enter_async_context(openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0))
        model = OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
        self.runner = Runner
        self.agent = Agent(name="one", model=model)
        self.with_tools = Agent(name="tools", model=model, tools=[function_tool(add)])

    async def call(self) -> None:
        assert (await self.runner.run(self.agent, "go on")).final_output

    async def tools(self) -> None:
        assert (await self.runner.run(self.with_tools, "add and add again")).final_output == "done"

    async def chunk(self) -> None:
        seen = 0
        async for event in self.runner.run_streamed(self.agent, "go on").stream_events():
            seen += event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        assert seen == CHUNKS

    async def fan(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(FAN):
                group.create_task(self.call())


CONTENDERS = (Sdk, Agentflow, PydanticAi, LangGraph, OpenAiAgents)


async def measured(what: str, rounds: int, times: int) -> dict[str, float]:
    """CPU seconds of one unit of ``what``, per contender that can do it."""
    replies = REPLIES.get(what, REPLIES["call"])
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(model_server_process(replies, by_turn=what == "tools"))
        works: dict[str, Work] = {}
        for kind in CONTENDERS:
            each: Any = kind()
            if getattr(each, what) is not None:
                await each.open(url, stack)
                works[each.name] = getattr(each, what)
        taken = await medians(works, rounds, times)
    return {name: seconds / UNITS[what] for name, seconds in taken.items()}


def import_seconds(statement: str) -> float:
    """CPU of an interpreter that runs ``statement`` and ends, beyond one that only ends; the best of five."""

    def best(code: str) -> float:
        taken: list[float] = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-c", code], check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(taken)

    return best(statement) - best("")


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="call,tools,chunk,fan,step,import")
    parser.add_argument("--rounds", type=int, default=15)
    only = parser.parse_args().only.split(",")
    rounds = parser.parse_args().rounds
    for what, text in WHAT.items():
        if what in only:
            taken = await measured(what, rounds, 20 if what == "call" else 2)
            base = taken[Sdk.name]
            for name, seconds in taken.items():
                print(f"{text:26} {name:22} {seconds * 1e6:10.1f} us {seconds / base:7.2f} x", flush=True)
    if "import" in only:
        for kind in CONTENDERS:
            print(f"{'import':26} {kind.name:22} {import_seconds(kind.begins) * 1e3:10.0f} ms", flush=True)


if __name__ == "__main__":
    os.environ.update(LANGSMITH_TRACING="false", OPENAI_AGENTS_DISABLE_TRACING="1")
    asyncio.run(main())
