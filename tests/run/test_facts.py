"""What a flow knows of its tasks and tools before any is called, and the bounds that programs have by themselves."""

from __future__ import annotations

from typing import Annotated

import pytest
from pydantic import Field

from agentflow import AgentFlow, ConfigurationError
from agentflow.core.data.errors import TaskError
from agentflow.handler.tools import subtask_tool, tool
from agentflow.lang.bounds.polynomial import UNBOUNDED


@tool(idempotent=True)
def fetch(url: str) -> Annotated[list[str], Field(max_length=3)]:
    """Fetch a page."""
    return [url]


def send(to: str, text: str) -> None:
    """Send a message."""


async def test_what_is_declared_once_is_known_and_what_is_not_is_taken_carefully() -> None:
    """Source, sinks and the shape of the value come from the declaration; a tool that says nothing may write."""
    async with AgentFlow("offline", tools=[fetch]) as flow:
        flow.tool(send, sinks={"to": "user"}, source="mail", idempotent=False)
        known = flow.facts.tool("send")
        assert known is not None and (known.source, known.sinks, known.idempotent) == ("mail", {"to": "user"}, False)
        assert known.returns == {"type": "null"} and not known.read_only
        fetched = flow.facts.tool("fetch")
        assert fetched is not None and (fetched.source, fetched.idempotent) == ("tool:fetch", True)
        assert fetched.returns == {"type": "array", "items": {"type": "string"}, "maxItems": 3}
        listing = flow.facts.tool("system:list_directory")
        assert listing is not None and listing.read_only and listing.returns is not None
        assert flow.facts.tool("nothing") is None


async def test_sinks_are_arguments_of_the_tool() -> None:
    """A sink that is not an argument is a mistake, said at registration."""
    async with AgentFlow("offline") as flow:
        with pytest.raises(ConfigurationError, match="'who', which is not one of its arguments"):
            flow.tool(send, sinks={"who": "user"})


async def test_a_task_has_its_model_calls_tools_and_schema() -> None:
    """Turns, tools within the grants, the schema of its value, history and the tasks that its texts call are known."""
    async with AgentFlow("offline", tools=[fetch]) as flow:
        await flow.define('(defatom topic (params (x string)) (instructions "Topic of {{x}}") (tools))')
        await flow.define(
            '(defatom plan (params (x string)) (instructions "Plan {{x}} by {{topic(x)}}") (max-turns 4)'
            ' (output_format (type json) (schema "string[]")))'
        )
        plan = flow.facts.task("plan")
        assert plan is not None and (plan.model_calls, plan.tools, plan.offered_all) == (4, ("fetch",), True)
        assert plan.returns == {"type": "array", "items": {"type": "string"}} and plan.calls == ("topic",)
        alone = flow.facts.task("plan", grants=frozenset())
        assert alone is not None and (alone.model_calls, alone.tools) == (2, ())


async def test_what_runs_tasks_has_no_bound() -> None:
    """A workflow in Python and a tool that is a task call models: a call of either is no single effect."""
    async with AgentFlow("offline") as flow:

        @flow.workflow
        async def audit(path: str) -> str:
            return path

        flow.tools.add(subtask_tool("delegate", "Have something done"))
        for text in ('(audit (path "a"))', '(delegate (description "a"))'):
            bounds = await flow.bounds(text)
            assert bounds.model_calls == UNBOUNDED and "runs tasks" in bounds.unbounded[0].reason


REVIEW = '(defatom review (params (f string)) (instructions "Review {{f}}") (tools))'


async def test_a_program_says_its_own_bounds() -> None:
    """Compiled, it counts effects by name, without prices; as a function of Python it knows what a call of it costs."""
    async with AgentFlow("offline", tools=[fetch]) as flow:
        text = f'{REVIEW} (map (lambda (f) (review (f f))) (append files (list "x")))'
        assert str(flow.compile(text, bindings={"files": []}).bounds().bound("task:review")) == "1 + len(files)"
        assert str(flow.compile(text).bounds({"files": ["a"]}).bound("task:review")) == "2"
        review = flow.program(text, {"files": list[str]})
        assert (await review.bounds()).at({"files": 9})["model_calls"] == 10
        assert (await review.bounds(files=["a", "b"])).model_calls.number == 3
        with pytest.raises(TaskError):
            await review.bounds(files=3)
        with pytest.raises(TypeError):
            await review.bounds(fils=["a"])
