"""Everybody who asks what a task's list of tools offers gets the answer that its model gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, BaseHandler, MemorySystem, ScriptedProvider, SexpEvaluator, TaskSystem, tool
from agentflow.testing import explore

LISTS: dict[str, tuple[str, list[str]]] = {
    "none": ("(tools)", []),
    "a name": ("(tools look)", ["look"]),
    "a server": ("(tools docs:*)", ["docs:read", "docs:search"]),
    "a task": ("(tools billing)", ["billing"]),
    "all of these": ("(tools docs:* look billing)", ["billing", "docs:read", "docs:search", "look"]),
    "all of the flow": ("", ["docs:read", "docs:search", "look"]),
}


def listed(tools: str) -> dict[str, Any]:
    """The field of a template for the list of a ``defatom``."""
    return {"tools": tools.removeprefix("(tools").removesuffix(")").split()} if tools else {}


def named(name: str) -> Any:
    """A tool of that name."""

    async def act(at: str) -> str:
        """Act."""
        return at

    return tool(name=name)(act)


def flow_of(model: ScriptedProvider) -> AgentFlow:
    """A flow with three tools, two of them as those of a server, and a task."""
    flow = AgentFlow(provider=model, tools=[named("look"), named("docs:search"), named("docs:read")])

    @flow.task
    async def billing(question: str, limit: int = 3) -> str:
        """Answer {{question}} in {{limit}} words."""

    return flow


@pytest.mark.parametrize("case", LISTS)
async def test_every_reader_sees_what_the_model_is_offered(case: str) -> None:
    """The forecast and the exploration know of the same tools that the request to the model has."""
    tools, expected = LISTS[case]
    text = f"""(defatom desk (params) (instructions "Help.") {tools})
    (try (value-of (desk)) (catch (e) (if (equal? (get-field e 'code) "task/exhausted") (first '()) "fine")))"""
    model = ScriptedProvider(["done"])
    async with flow_of(model) as flow:
        await flow.run(text)
        explored = await explore(text, flow=flow, runs=60)
        facts = flow.facts.own_task({"name": "desk", "params": {}, "instructions": "Help.", **listed(tools)})
    assert sorted(each.name for each in model.requests[0].tools) == expected
    assert sorted(facts.tools) == expected
    assert ("list/empty" in [each.code for each in explored.errors]) == bool(expected)


async def test_a_task_among_the_tools_has_no_forecast() -> None:
    """A model that may call a task calls models as often as it likes, whether the task is named or given as an object."""
    async with flow_of(ScriptedProvider([])) as flow:
        facts = flow.facts.own_task({"name": "desk", "params": {}, "instructions": "Help.", "tools": ["billing"]})
        bounds = await flow.bounds('(defatom desk (params) (instructions "Help.") (tools billing)) (value-of (desk))')
    assert facts.model_calls is None and "billing" in facts.reason
    assert bounds.model_calls.terms is None and set(bounds.authority.tasks) == {"billing", "desk"}


async def test_a_named_task_tells_the_model_its_arguments() -> None:
    """The schema of a task that stands in a list as a name has descriptions, defaults and what is required, as everywhere."""
    model = ScriptedProvider(["done"])
    async with flow_of(model) as flow:
        await flow.run('(defatom desk (params) (instructions "Help.") (tools billing)) (value-of (desk))')
    (spec,) = model.requests[0].tools
    assert spec.input_schema["required"] == ["question"]
    assert set(spec.input_schema["properties"]) == {"question", "limit"}
    assert spec.input_schema["additionalProperties"] is False


async def test_a_house_wired_by_hand_names_tasks_as_tools(tmp_path: Path) -> None:
    """Components that a host wired find a task by name as those of a flow do."""
    replies: list[Any] = [{"tool_calls": [{"name": "billing", "arguments": {"q": "why?"}}]}, "because", "done"]
    model = ScriptedProvider(lambda request: replies.pop(0))
    async with MemorySystem(roots=[tmp_path]) as memory:
        tasks = TaskSystem(None, memory)
        handler = BaseHandler(tasks, memory, model)
        value = await SexpEvaluator(tasks, handler, memory).evaluate_string("""
            (defatom billing (params (q string)) (instructions "Answer {{q}}"))
            (defatom desk (params) (instructions "Help.") (tools billing))
            (value-of (desk))""")
        await handler.aclose()
    assert value == "done"
    assert [each.name for each in model.requests[0].tools] == ["billing"]


@pytest.mark.parametrize("given_as", ["an object", "a copy", "a name", "a handoff"])
async def test_what_a_task_is_for_is_read_wherever_it_is_offered(given_as: str) -> None:
    """A model reads the ``description`` of a task that it may call or hand over to; without one it reads the task's prompt."""
    model = ScriptedProvider(["done", "done"])
    async with AgentFlow(provider=model) as flow:

        @flow.task
        async def plain(question: str) -> str:
            """Answer {{question}}."""

        @flow.task(description="Knows bills.")
        async def billing(question: str) -> str:
            """Answer {{question}}."""

        copy = plain.with_options(name="copy", description="Knows bills.")
        offers: dict[str, Any] = {
            "an object": {"tools": [billing, plain]},
            "a copy": {"tools": [copy, plain]},
            "a name": {"tools": ["billing", "plain"]},
            "a handoff": {"handoffs": [billing, plain]},
        }
        await flow.ask("?", **offers[given_as])
    told, own = [each.description for each in model.requests[0].tools]
    assert told.endswith("Knows bills.") and own.endswith("Answer {{question}}.")
