"""Who is timed by provider_cost.py: the bare SDK, an adapter alone, and a whole AgentFlow, each doing the same work."""

from __future__ import annotations

import json
import time
from contextlib import AsyncExitStack, aclosing
from functools import cache
from typing import Any

import anthropic
import openai

from agentflow.core.data.messages import Message, ModelRequest, TextPart, ToolResultPart, ToolSpec, user
from agentflow.core.data.session import Session
from agentflow.providers import Clocks, Prices, open_provider

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
PREFIX = {"anthropic": "anthropic", "chat": "openai-chat", "responses": "openai"}
MODEL = "bench-model"


@cache
def conversation(count: int) -> list[tuple[str, str]]:
    """``count`` messages, user first, of ordinary length."""
    return [
        ("user" if n % 2 == 0 else "assistant", f"message {n}: " + "some words of a conversation " * 6)
        for n in range(count)
    ]


@cache
def messages_of(count: int) -> tuple[Message, ...]:
    """The same as agentflow's messages."""
    return tuple(
        Message("user" if role == "user" else "assistant", (TextPart(text),)) for role, text in conversation(count)
    )


class Bare:
    """The vendor's SDK as its documentation shows it."""

    name = "sdk"

    def __init__(self, dialect: str, url: str, *, connections: int | None = None) -> None:
        self.dialect = dialect
        self.client: Any = (
            anthropic.AsyncAnthropic(api_key="k", base_url=url, max_retries=0)
            if dialect == "anthropic"
            else openai.AsyncOpenAI(api_key="k", base_url=url, max_retries=0)
        )

    async def __aenter__(self) -> Bare:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.close()

    def _start(self, messages: list[dict[str, Any]], tools: bool = False, stream: bool = False) -> Any:
        more: dict[str, Any] = {"stream": True} if stream else {}
        if self.dialect == "anthropic":
            if tools:
                more["tools"] = [{"name": "add", "description": "adds", "input_schema": PARAMETERS}]
            return self.client.messages.create(model=MODEL, max_tokens=1000, messages=messages, **more)
        if self.dialect == "chat":
            if tools:
                function = {"name": "add", "description": "adds", "parameters": PARAMETERS}
                more["tools"] = [{"type": "function", "function": function}]
            if stream:
                more["stream_options"] = {"include_usage": True}
            return self.client.chat.completions.create(model=MODEL, messages=messages, **more)
        if tools:
            more["tools"] = [
                {"type": "function", "name": "add", "description": "adds", "parameters": PARAMETERS, "strict": False}
            ]
        return self.client.responses.create(model=MODEL, input=messages, **more)

    def _text(self, answer: Any) -> str:
        if self.dialect == "anthropic":
            return answer.content[0].text
        return answer.choices[0].message.content if self.dialect == "chat" else answer.output_text

    async def call(self, count: int = 1) -> str:
        messages = [{"role": role, "content": text} for role, text in conversation(count)]
        return self._text(await self._start(messages))

    async def tool_turns(self) -> str:
        messages: list[Any] = [{"role": "user", "content": "add and add again"}]
        while True:
            answer = await self._start(messages, tools=True)
            if self.dialect == "anthropic":
                calls = [block for block in answer.content if block.type == "tool_use"]
                if not calls:
                    return self._text(answer)
                messages.append({"role": "assistant", "content": answer.content})
                results = [
                    {"type": "tool_result", "tool_use_id": call.id, "content": str(call.input["a"] + 1)}
                    for call in calls
                ]
                messages.append({"role": "user", "content": results})
            elif self.dialect == "chat":
                message = answer.choices[0].message
                if not message.tool_calls:
                    return message.content
                messages.append(message)
                for call in message.tool_calls:
                    value = json.loads(call.function.arguments)["a"] + 1
                    messages.append({"role": "tool", "tool_call_id": call.id, "content": str(value)})
            else:
                calls = [item for item in answer.output if item.type == "function_call"]
                if not calls:
                    return answer.output_text
                messages += answer.output
                for call in calls:
                    value = json.loads(call.arguments)["a"] + 1
                    messages.append({"type": "function_call_output", "call_id": call.call_id, "output": str(value)})

    async def stream(self) -> tuple[int, float]:
        """Text chunks seen, and seconds to the first."""
        began, first, seen = time.perf_counter(), 0.0, 0
        async for event in await self._start([{"role": "user", "content": "go on"}], stream=True):
            if self.dialect == "anthropic":
                text = event.type == "content_block_delta" and event.delta.type == "text_delta" and event.delta.text
            elif self.dialect == "chat":
                text = event.choices and event.choices[0].delta.content
            else:
                text = event.type == "response.output_text.delta" and event.delta
            if text:
                seen += 1
                first = first or time.perf_counter() - began
        return seen, first


class Adapter:
    """agentflow's adapter without anything above it."""

    name = "adapter"

    def __init__(self, dialect: str, url: str, *, aiohttp: bool = False, gate: int = 256) -> None:
        self.aiohttp = aiohttp
        self.adapter = open_provider(
            PREFIX[dialect],
            base_url=url,
            api_key="k",
            aiohttp=aiohttp,
            gate=gate,
            clocks=Clocks(plain_first_byte_s=120),
            prices=Prices(lookup=False),
        )

    async def __aenter__(self) -> Adapter:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.adapter.aclose()

    async def _answer(self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...] = ()) -> Any:
        request = ModelRequest(messages, model=MODEL, tools=tools, stream=False, max_output_tokens=1000)
        response = None
        async with aclosing(self.adapter.stream(request)) as deltas:
            async for delta in deltas:
                response = delta.response or response
        return response

    async def call(self, count: int = 1) -> str:
        return (await self._answer(messages_of(count))).text

    async def tool_turns(self) -> str:
        messages = (user("add and add again"),)
        tools = (ToolSpec("add", "adds", PARAMETERS),)
        while True:
            response = await self._answer(messages, tools)
            if not response.tool_calls:
                return response.text
            results = tuple(
                ToolResultPart(call.id, call.name, str(call.arguments["a"] + 1)) for call in response.tool_calls
            )
            messages = (*messages, response.message(), Message("user", results))

    async def stream(self) -> tuple[int, float]:
        began, first, seen = time.perf_counter(), 0.0, 0
        async with aclosing(self.adapter.stream(ModelRequest((user("go on"),), model=MODEL))) as deltas:
            async for delta in deltas:
                if delta.text:
                    seen += 1
                    first = first or time.perf_counter() - began
        return seen, first


class Flow:
    """The whole of agentflow: a program with one task, through ``flow.run`` or ``flow.stream``."""

    name = "flow"
    ONE = '(ask (question "go on"))'

    def __init__(self, dialect: str, url: str, *, aiohttp: bool = False, gate: int = 256, tools: bool = False) -> None:
        self.dialect = dialect
        self.url = url
        self.aiohttp = aiohttp
        self.gate = gate
        self.tools = tools
        self._stack = AsyncExitStack()
        self._sessions: dict[int, Session] = {}

    async def __aenter__(self) -> Flow:
        from agentflow import AgentFlow

        async def add(a: int) -> str:
            """Adds."""
            return str(a + 1)

        adapter = open_provider(
            PREFIX[self.dialect],
            base_url=self.url,
            api_key="k",
            aiohttp=self.aiohttp,
            gate=self.gate,
            prices=Prices(lookup=False),
        )
        self.flow: Any = await self._stack.enter_async_context(
            AgentFlow(model=MODEL, provider=adapter, tools=[add] if self.tools else [])
        )
        self._stack.push_async_callback(adapter.aclose)
        self.flow.task_system.register_template(
            {"name": "ask", "type": "atomic", "params": ["question"], "instructions": "{{question}}"}
        )
        self.program = self.flow.compile(self.ONE)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _history(self, count: int) -> Session:
        """A session that holds all of the conversation but the last question."""
        if count not in self._sessions:
            session = self._sessions[count] = Session()
            messages = messages_of(count)
            for index in range(0, count - 1, 2):
                session.commit(messages[index : index + 2])
        return self._sessions[count]

    async def call(self, count: int = 1) -> str:
        session = None
        if count > 1:
            session = self._history(count).fork()
        result = await (self.flow.run(self.program, session=session) if session else self.flow.run(self.program))
        return result.value.content

    async def tool_turns(self) -> str:
        return (await self.flow.run(self.program)).value.content

    async def stream(self) -> tuple[int, float]:
        from agentflow.events import TextDelta

        began, first, seen = time.perf_counter(), 0.0, 0
        async with self.flow.stream(self.program) as run:
            async for event in run:
                if isinstance(event, TextDelta):
                    seen += 1
                    first = first or time.perf_counter() - began
            await run.value()
        return seen, first
