"""The state of AG-UI, both ways: what a page shares is ``ctx.state`` of tools, and what they assign reaches the page as it happens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import CallContext, tool
from tests.serve.test_agui import thread
from tests.serve.test_client_tools import BACKGROUND, body_of, calling, helper
from tests.support.node import NodeClients
from tests.support.serve_clients import frames_of, talk
from tests.support.served import served


@tool
async def cook(dish: str, ctx: CallContext) -> str:
    """Change the recipe."""
    before = ctx.state["recipe"]["title"]
    ctx.state["recipe"]["title"] = dish
    ctx.state["recipe"]["steps"].append(f"make {dish}")
    return f"{before} is {dish} now"


RECIPE = {"recipe": {"title": "Soup", "steps": []}}


@pytest.mark.slow
async def test_a_page_and_its_agent_share_a_state(node_clients: NodeClients) -> None:
    """What the page has is there, and what a tool assigns is a delta that the client's own patches take; the next run begins with it."""
    flow, model = helper(
        calling("cook", dish="Stew"), "Done.", calling("cook", dish="Pie"), lambda request: "Done again.", tools=[cook]
    )
    async with flow, served(flow, ["helper"]) as server:
        [seen] = await talk(node_clients, "agui.mjs", [thread(server, "helper", "stew", "pie", state=RECIPE)])
    first, second = seen["turns"]
    assert [first["error"], second["error"]] == [None, None], seen
    assert seen["state"]["recipe"] == {"title": "Pie", "steps": ["make Stew", "make Pie"]}
    assert [each["status"] for each in seen["state"]["agentflow"]["tasks"].values()] == ["ok"]
    deltas = [change for each in first["events"] if each["type"] == "STATE_DELTA" for change in each["delta"]]
    own = [each for each in deltas if not each["path"].startswith("/agentflow/")]
    assert own == [
        {"op": "replace", "path": "/recipe/title", "value": "Stew"},
        {"op": "add", "path": "/recipe/steps/-", "value": "make Stew"},
    ]
    assert "Stew is Pie now" in str(model.requests[-1].messages)


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True])
async def test_what_the_user_changes_while_the_run_waits(
    node_clients: NodeClients, tmp_path: Path, durable: bool
) -> None:
    """The state of the next request takes the place of the run's, in memory and in a run that was parked."""
    flow, _ = helper(
        calling("cook", dish="Stew"),
        calling("change_background", colour="red"),
        calling("cook", dish="Pie"),
        "Done.",
        tools=[cook],
        durable=tmp_path if durable else None,
    )
    edited = {"recipe": {"title": "Cake", "steps": ["bake"]}}
    async with flow, served(flow, ["helper"]) as server:
        case = thread(server, "helper", "go", {"change_background": "red"}, state=RECIPE, tools=[BACKGROUND])
        case["turns"][1]["state"] = edited
        [seen] = await talk(node_clients, "agui.mjs", [case])
    assert [each["error"] for each in seen["turns"]] == [None, None], seen
    assert seen["state"]["recipe"] == {"title": "Pie", "steps": ["bake", "make Pie"]}
    results = [each["content"] for each in seen["messages"] if each["role"] == "tool"]
    assert results == ["Soup is Stew now", "red", "Cake is Pie now"]


async def test_another_state_is_sent_whole() -> None:
    """``ctx.state = {...}`` is a snapshot, in which the server's own part stays."""

    @tool
    async def anew(ctx: CallContext) -> str:
        """Begin anew."""
        ctx.state = {"recipe": None}
        return "done"

    flow, _ = helper(calling("anew"), "Done.", tools=[anew])
    async with flow, served(flow, ["helper"]) as server:
        events = frames_of((await server.post("/agui/helper", await body_of(server, state=RECIPE))).text)
    first, second = [each["snapshot"] for each in events if each["type"] == "STATE_SNAPSHOT"]
    assert first["recipe"] == RECIPE["recipe"] and second["recipe"] is None
    assert {"run_id", "export", "tasks"} == second["agentflow"].keys()


# -- the wrong ones that a user tries first -------------------------------------------------------------------------


@pytest.mark.parametrize("state", [["a list"], "text", 3])
async def test_a_state_that_is_no_object_is_refused(state: Any) -> None:
    """A list, a text, a number: 400, and what to write."""
    flow, model = helper("x")
    async with flow, served(flow, ["helper"]) as server:
        answer = await server.post("/agui/helper", await body_of(server, state=state))
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "state" and not model.requests


async def test_what_a_page_calls_agentflow_is_the_servers() -> None:
    """The server's part comes back with each request, and is not part of what tools read."""
    seen: list[Any] = []

    @tool
    async def look(ctx: CallContext) -> str:
        """Look."""
        seen.append(ctx.state.plain())
        return "seen"

    flow, _ = helper(calling("look"), "Done.", tools=[look])
    async with flow, served(flow, ["helper"]) as server:
        await server.post("/agui/helper", await body_of(server, state={"agentflow": {"tasks": {}}, "page": 1}))
    assert seen == [{"page": 1}]


async def test_without_a_state_it_begins_empty() -> None:
    """A page that shares nothing: a tool may begin a state, and a lookup of what is not there is a KeyError that its model reads."""
    flow, model = helper(calling("cook", dish="Stew"), "Done.", tools=[cook])
    async with flow, served(flow, ["helper"]) as server:
        await server.post("/agui/helper", await body_of(server))
    assert "recipe" in str(model.requests[1].messages[-1])
