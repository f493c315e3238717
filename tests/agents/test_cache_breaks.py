"""A Warning says when a change between two turns makes the provider read the input anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agentflow import AgentFlow, CallContext, Clear, ModelRequest, ScriptedProvider, Session, tool
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


async def conversation(*systems: Any, usage: dict[str, int] = LARGE, **options: Any) -> list[Warning]:
    """The warnings of a conversation with one prompt for each system text."""
    seen, session = list[Event](), Session()
    replies = [{"text": "yes", "usage": usage} for _ in systems]
    async with AgentFlow(provider=ScriptedProvider(replies)) as flow:
        flow.subscribe(seen.append)
        for system in systems:
            await flow.run(flow.ask("Go on.", system=system, **options), session=session)
    return [event for event in seen if isinstance(event, Warning) and event.code == "handler/cache-broken"]


async def test_a_conversation_that_begins_the_same_warns_of_nothing() -> None:
    """The next prompt sends the last request and more, with tools or without; so does one without a conversation, whatever its system text."""
    assert await conversation("Be kind.", "Be kind.", "Be kind.") == []
    assert await conversation("Be kind.", "Be kind.", tools=[look]) == []
    seen = list[Event]()
    async with AgentFlow(provider=ScriptedProvider([{"text": "yes", "usage": LARGE}] * 2)) as flow:
        flow.subscribe(seen.append)
        await flow.ask("Go.", system="one")
        await flow.ask("Go.", system="two")
    assert not [each for each in seen if isinstance(each, Warning)]


async def test_a_system_prompt_that_changes_between_two_prompts_of_a_conversation() -> None:
    """For example one with the time: said once for the conversation, with the tokens of its last request."""
    (event,) = await conversation("It is 9.", "It is 10.", "It is 11.")
    assert event.details == {"cause": "system", "tokens": 5_000}
    assert "between two prompts of a conversation" in event.message
    assert await conversation("It is 9.", "It is 10.", usage={"input_tokens": 500, "output_tokens": 5}) == []
    assert await conversation("It is 9.", "It is 10.", prompt_cache=False) == []


async def test_tools_that_change_between_two_prompts_of_a_conversation() -> None:
    """An application that offers others each time."""
    count = [0]

    def tools(ctx: CallContext) -> list[Any]:
        count[0] += 1
        return [look] if count[0] % 2 else [more, look]

    (event,) = await conversation("Be kind.", "Be kind.", tools=tools)
    assert causes([event]) == ["tools"] and "new: more" in event.message


async def test_two_agents_of_one_conversation_have_a_beginning_each() -> None:
    """They have other system texts, and the provider caches both."""
    seen, session = list[Event](), Session()
    async with AgentFlow(provider=ScriptedProvider([{"text": "yes", "usage": LARGE}] * 4)) as flow:
        flow.subscribe(seen.append)

        @flow.task(system="You sell.", history=True)
        async def sales(question: str) -> str:
            """{{question}}"""
            raise NotImplementedError

        @flow.task(system="You help.", history=True)
        async def support(question: str) -> str:
            """{{question}}"""
            raise NotImplementedError

        for agent in (sales, support, sales, support):
            await flow.run(agent("Hello?"), session=session)
    assert not [each for each in seen if isinstance(each, Warning)]
