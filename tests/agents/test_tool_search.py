"""Tools whose loading is deferred are not sent to the model until it has found them with ``search_tools``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentflow import (
    AgentFlow,
    CallContext,
    ConfigurationError,
    ScriptedProvider,
    Session,
    TaskResult,
    ToolCall,
    tool,
)
from agentflow.core.data.messages import ToolResultPart


def deferred(name: str, about: str) -> Any:
    """A tool that is found by searching for it."""

    @tool(name=name, description=about, defer_loading=True)
    async def run() -> str:
        return f"{name} ran"

    return run


TOOLS = [
    deferred("send_invoice", "Send an invoice to a customer by mail."),
    deferred("read_calendar", "Read the appointments of a day."),
    deferred("weather", "The weather forecast of a city."),
]


async def plain() -> str:
    """A tool that is always offered."""
    return "plain ran"


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


def names(request: Any) -> list[str]:
    """The names of the tools that a request offers, in order."""
    return [each.name for each in request.tools]


def results(request: Any) -> list[str]:
    """The texts of the tool results in the last message of a request."""
    return [part.text for part in request.messages[-1].parts if isinstance(part, ToolResultPart)]


async def test_a_model_finds_a_tool_and_calls_it() -> None:
    """Only the search and the ordinary tools are sent first; what the search finds is offered from the next turn on, last."""
    model = ScriptedProvider(
        [calling("search_tools", query="mail an invoice"), calling("send_invoice"), lambda request: results(request)[0]]
    )
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("Bill Ada.", tools=[*TOOLS, plain]) == "send_invoice ran"
    assert [names(request) for request in model.requests] == [
        ["plain", "search_tools"],
        ["plain", "search_tools", "send_invoice"],
        ["plain", "search_tools", "send_invoice"],
    ]
    assert [each["name"] for each in json.loads(results(model.requests[1])[0])] == ["send_invoice"]


async def test_a_deferred_tool_cannot_be_called_before_it_is_found() -> None:
    """A guess of its name does not run it, and the model reads that it has to search; of a tool that is not there it reads that."""
    model = ScriptedProvider([calling("weather"), calling("whether"), lambda request: results(request)[0]])
    async with AgentFlow(provider=model) as flow:
        assert "there is no tool 'whether'" in await flow.ask("x", tools=TOOLS)
    assert "'weather' is not loaded yet: find it with search_tools first" in results(model.requests[1])[0]


async def test_a_conversation_keeps_the_tools_that_were_found_in_it() -> None:
    """The next prompt of the conversation offers them at once: the set follows from the messages."""
    session = Session()
    model = ScriptedProvider([calling("search_tools", query="weather of a city"), "found", "again"])
    async with AgentFlow(provider=model) as flow:

        @flow.task(tools=TOOLS, history=True)
        async def helper(question: str) -> str:
            """{{question}}"""

        await flow.run(helper("one"), session=session)
        await flow.run(helper("two"), session=session)
    assert names(model.requests[2]) == ["search_tools", "weather"]


async def test_a_search_without_a_hit_finds_nothing() -> None:
    """Words that no tool has: an empty list, and no tool more."""
    model = ScriptedProvider([calling("search_tools", query="xyzzy"), "none"])
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("x", tools=TOOLS) == "none"
    assert results(model.requests[1]) == ["[]"] and names(model.requests[1]) == ["search_tools"]


async def test_the_flows_own_tools_may_be_deferred_too() -> None:
    """``tools=flow.tools`` leaves deferred tools of the flow out as well; programs call them by name as ever."""
    model = ScriptedProvider(["x"])
    async with AgentFlow(provider=model, tools=[*TOOLS, plain]) as flow:
        await flow.ask("x", tools=flow.tools)
        assert (await flow.run("(content (weather))")).value == "weather ran"
    assert names(model.requests[0]) == ["plain", "search_tools"]


async def test_a_tool_of_ones_own_may_have_the_name_of_the_search() -> None:
    """``search_tools`` is an ordinary name where nothing is deferred, whatever it returns; beside deferred tools it is an error."""

    async def search_tools(query: str) -> str:
        """Search for hammers."""
        return f"no {query}"

    model = ScriptedProvider([calling("search_tools", query="hammer"), lambda request: results(request)[0]])
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("x", tools=[search_tools]) == "no hammer"
        with pytest.raises(ConfigurationError) as error:
            await flow.ask("x", tools=[search_tools, *TOOLS])
        assert error.value.code == "tool/duplicate"


async def test_a_result_of_the_search_that_was_replaced_finds_nothing() -> None:
    """Middleware that answers in place of the search: the model reads that text, and no tool is loaded by it."""

    async def closed(call: ToolCall, run: Any, ctx: CallContext) -> TaskResult:
        return TaskResult.complete("the shop is closed")

    model = ScriptedProvider([calling("search_tools", query="invoice"), lambda request: results(request)[0]])
    async with AgentFlow(provider=model, around_tool=[closed]) as flow:
        assert await flow.ask("x", tools=TOOLS) == "the shop is closed"
    assert names(model.requests[1]) == ["search_tools"]
