"""The tools of a task may be chosen by the host before each turn: ``tools=`` as a function of ``ctx``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from agentflow import AgentFlow, CallContext, ConfigurationError, ScriptedProvider
from agentflow.core.data.messages import ToolResultPart


class Door:
    """Dependencies of these tests: a door that must be unlocked before it opens."""

    def __init__(self) -> None:
        self.unlocked = False

    async def unlock(self) -> str:
        """Unlock the door."""
        self.unlocked = True
        return "unlocked"

    async def open(self) -> str:
        """Open the door."""
        return "open"


async def look() -> str:
    """Look at the door."""
    return "a door"


def tools_of(ctx: CallContext[Door]) -> Sequence[Any]:
    """Looking and unlocking first; opening once the door is unlocked."""
    door = ctx.deps
    return [look, door.open] if door.unlocked else [look, door.unlock]


def calling(name: str) -> dict[str, Any]:
    """A reply that calls one tool."""
    return {"tool_calls": [{"name": name, "arguments": {}}]}


def names(request: Any) -> list[str]:
    """The names of the tools that a request offers, in order."""
    return [each.name for each in request.tools]


async def test_each_turn_has_the_tools_that_the_function_chooses_then() -> None:
    """The function is asked before each turn; tools that stay keep their place, so that the provider's cache holds."""
    model = ScriptedProvider([calling("unlock"), calling("open"), "done"])
    async with AgentFlow(provider=model) as flow:

        @flow.task(tools=tools_of)
        async def enter(place: str) -> str:
            """Enter {{place}}."""

        assert (await flow.run(enter("the house"), deps=Door())).value == "done"
        assert str((await flow.bounds('(enter (place "x"))')).model_calls) == "no bound"
    assert [names(request) for request in model.requests] == [["look", "unlock"], ["look", "open"], ["look", "open"]]


async def test_a_tool_that_is_no_longer_offered_is_refused() -> None:
    """A call of a tool of an earlier turn does not run: the model reads that there is no such tool."""
    model = ScriptedProvider([calling("unlock"), calling("unlock"), lambda request: request.messages[-1].parts[0].text])
    async with AgentFlow(provider=model) as flow:
        said = await flow.ask("x", tools=tools_of, deps=Door())
    assert "there is no tool 'unlock'" in said


async def test_the_function_may_be_async_and_give_all_of_the_flows_tools() -> None:
    """Names, ``flow.tools`` and an empty list are lists as in ``tools=[...]``."""
    model = ScriptedProvider([calling("look"), "done"])

    async def chosen(ctx: CallContext) -> Any:
        return flow.tools if not model.requests else []

    async with AgentFlow(provider=model, tools=[look]) as flow:
        assert await flow.ask("x", tools=chosen) == "done"
    assert [names(request) for request in model.requests] == [["look"], []]
    parts = model.requests[1].messages[-1].parts
    assert [part.text for part in parts if isinstance(part, ToolResultPart)] == ["a door"]


async def test_a_tool_without_its_list_is_still_an_error() -> None:
    """``tools=search`` in place of ``tools=[search]`` is told, although functions of ``ctx`` may stand there."""

    async def search(query: str) -> str:
        """Search."""
        return query

    async with AgentFlow() as flow:
        with pytest.raises(ConfigurationError, match="is not a list of tools"):
            flow.ask("x", tools=cast(Any, search))
