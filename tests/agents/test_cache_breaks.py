"""A Warning says when a change between two turns makes the provider read the input anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentflow import AgentFlow, CallContext, Clear, ModelRequest, ScriptedProvider, tool
from agentflow.core.data.messages import Message, TextPart
from agentflow.core.data.provider_errors import Overloaded
from agentflow.events import Event, Warning

LARGE = {"input_tokens": 5_000, "output_tokens": 5}


async def look(at: int) -> str:
    """Look at something."""
    return "x" * 4_000


async def more(at: int) -> str:
    """Look at more."""
    raise NotImplementedError


def turns(count: int, usage: dict[str, int] = LARGE) -> list[Any]:
    """Replies that call a tool ``count`` times, one after the other, and then end."""
    calls = [{"tool_calls": [{"name": "look", "arguments": {"at": n}}], "usage": usage} for n in range(count)]
    return [*calls, "done"]


async def warnings(replies: list[Any], **options: Any) -> list[Warning]:
    """The warnings of a loop about the cache."""
    seen: list[Event] = []
    async with AgentFlow(provider=ScriptedProvider(replies)) as flow:
        flow.subscribe(seen.append)
        assert await flow.ask("Go.", **{"tools": [look], **options}) == "done"
    return [event for event in seen if isinstance(event, Warning) and event.code == "handler/cache-broken"]


def causes(events: list[Warning]) -> list[str]:
    """What the warnings say has changed."""
    return [event.details["cause"] for event in events if event.details]


async def test_an_ordinary_loop_warns_of_nothing() -> None:
    """Each request begins with the one before it."""
    assert await warnings(turns(5)) == []


async def test_another_list_of_tools() -> None:
    """It stands in front of everything; said once, with the names and the advice, however often it changes."""
    count = [0]

    def tools(ctx: CallContext) -> list[Any]:
        count[0] += 1
        return [look] if count[0] % 2 else [look, more]

    (event,) = await warnings(turns(5), tools=tools)
    assert causes([event]) == ["tools"] and event.details and event.details["tokens"] == 5_000
    assert "new: more" in event.message and "5,000 tokens" in event.message and "code(flow.tools)" in event.message


async def test_tools_that_were_searched() -> None:
    """A tool that the model has found with ``search_tools`` is a change too."""

    @tool(defer_loading=True)
    async def hidden(at: int) -> str:
        """Look behind the curtain."""
        raise NotImplementedError

    find = {"tool_calls": [{"name": "search_tools", "arguments": {"query": "curtain"}}], "usage": LARGE}
    assert causes(await warnings([find, *turns(1)], tools=[look, hidden])) == ["tools"]


async def test_a_system_prompt_or_message_that_middleware_changes() -> None:
    """Middleware that writes something else into the beginning of each request."""
    count = [0]

    async def dated(request: ModelRequest, run: Any, ctx: CallContext) -> Any:
        count[0] += 1
        first = Message("user", (TextPart(f"{count[0]} o'clock"),))
        return await run(replace(request, system=f"Turn {count[0]}.", messages=(first, *request.messages[1:])))

    async def same(request: ModelRequest, run: Any, ctx: CallContext) -> Any:
        return await run(replace(request, messages=(Message("user", (TextPart("Go!"),)), *request.messages[1:])))

    events = await warnings(turns(3), around_model=[dated])
    assert causes(events) == ["system", "messages"] and "message 1 of 1" in events[1].message
    assert await warnings(turns(3), around_model=[same]) == []


async def test_another_model() -> None:
    """A fallback that answers after the first model has no cache of the loop."""
    turn = turns(1)[0]
    replies = [turn, Overloaded("busy"), turn, "done"]
    events = await warnings(replies, model="scripted:a", fallbacks=["scripted:b"])
    assert causes(events) == ["model"] and "answered after" in events[0].message


async def test_a_clearing_is_on_purpose() -> None:
    """Old results that are cleared have an event of their own."""
    replies = turns(6)
    assert await warnings(replies, clear_tool_results=Clear(after_tokens=3_000, keep=1)) == []


async def test_a_short_loop_has_nothing_to_lose() -> None:
    """Providers cache no input of a few hundred tokens, and none of a prompt that asks not to cache."""

    count = [0]

    def tools(ctx: CallContext) -> list[Any]:
        count[0] += 1
        return [look] if count[0] % 2 else [look, more]

    assert await warnings(turns(3, {"input_tokens": 500, "output_tokens": 5}), tools=tools) == []
    assert await warnings(turns(3), tools=tools, prompt_cache=False) == []
