"""A record answers for the tasks that ran within it: what a changed task did for another is done again, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Handoff, ModelRequest, ScriptedProvider
from agentflow.core.data.messages import ToolResultPart
from agentflow.handler.tools import subtask_tool

TEXT = """
(defatom inner (params (q string)) (instructions "{} {{{{q}}}}"))
(defatom outer (params (q string)) (tools inner) (instructions "outer {{{{q}}}}"))
(content (outer (q "a")))"""


class Asked:
    """A model that calls `inner` for each prompt that begins with "outer", and the prompts that it was sent."""

    def __init__(self) -> None:
        self.prompts: list[str] = []
        self.systems: list[str | None] = []
        self.offers: list[list[str]] = []

    def reply(self, request: ModelRequest) -> Any:
        """A call of `inner`, or an answer that names its prompt."""
        results = [part for part in request.messages[-1].parts if isinstance(part, ToolResultPart)]
        prompt = "results" if results else request.messages[-1].text
        self.prompts.append(prompt)
        self.systems.append(request.system)
        self.offers.append([tool.description for tool in request.tools])
        if prompt.startswith("outer"):
            return {"tool_calls": [{"name": request.tools[0].name, "arguments": {"q": "in"}}]}
        return f"got {results[0].text}" if results else f"<{prompt}>"

    def taken(self) -> list[str]:
        """The prompts since the last call of this method."""
        prompts, self.prompts, self.systems = self.prompts, [], []
        return prompts


@asynccontextmanager
async def opened(path: Path, kind: str = "object") -> AsyncIterator[tuple[AgentFlow, Asked, Any]]:
    """A flow with a task `inner` that something else calls, in the way that ``kind`` says, and a program that calls that."""
    model = Asked()
    async with AgentFlow(provider=ScriptedProvider(model.reply), durable=f"sqlite:///{path}/runs.db") as flow:

        @flow.task
        async def inner(q: str) -> str:
            """Look up {{q}}."""
            raise NotImplementedError

        below: dict[str, Any] = {
            "object": inner,
            "name": "inner",
            "subtask tool": subtask_tool("inner", "Look.", template="inner", parameters={"q": "string"}),
        }

        @flow.task(tools=[below[kind]] if kind in below else [])
        async def outer(q: str) -> str:
            """outer {{q}}"""
            raise NotImplementedError

        @flow.task(handoffs=[Handoff(inner)] if kind == "handoff" else ["inner"])
        async def passes(q: str) -> str:
            """outer {{q}}"""
            raise NotImplementedError

        @flow.task
        async def other(q: str) -> str:
            """{{q}}"""
            raise NotImplementedError

        @flow.tool
        async def look(q: str) -> str:
            """Look."""
            return await inner(q)

        async def step(q: str) -> str:
            return await inner(q)

        @flow.workflow
        async def stepped(q: str) -> str:
            return await flow.step(step, q)

        if kind == "step":
            yield flow, model, stepped("in")
        elif kind == "tool":
            yield flow, model, '(look (q "in"))'
        else:
            yield flow, model, f'(content ({"passes" if kind.startswith("handoff") else "outer"} (q "a")))'


async def value(handle: Any) -> Any:
    """The value of a run that ends."""
    return (await handle.result()).value


@pytest.mark.parametrize("kind", ["object", "name", "subtask tool", "handoff", "handoff by name", "tool", "step"])
async def test_an_override_reaches_the_tasks_that_others_call(kind: str, tmp_path: Path) -> None:
    """A task as a tool of another's model, given or named, the receiver of a handoff, and one that a tool or a step of the host
    calls: overriding it carries out what called it again, and so does taking the override back."""
    async with opened(tmp_path, kind) as (flow, model, program):
        await value(await flow.start(program, run_id="r"))
        assert "Shout." not in model.systems and model.taken()
        louder = await flow.resume("r", overrides={"inner": {"system": "Shout."}})
        await value(louder)
        assert "Shout." in model.systems and model.taken()
        await value(await flow.resume(louder.run_id, overrides={"other": {"system": "Whisper."}}))
        assert model.systems and "Shout." not in model.systems, "what was overridden then answers no run without"


async def test_the_callers_own_requests_are_not_paid_again(tmp_path: Path) -> None:
    """Another system prompt of the inner task leaves the outer task's first request as it was: its record answers."""
    async with opened(tmp_path) as (flow, model, program):
        await value(await flow.start(program, run_id="r"))
        assert model.taken() == ["outer a", "Look up in.", "results"]
        await value(await flow.resume("r", overrides={"inner": {"system": "Shout."}}))
        assert model.taken() == ["Look up in.", "results"]


async def test_an_overridden_description_is_what_models_read(tmp_path: Path) -> None:
    """The model that may call the task is sent the description of this run, and is asked again because of it."""
    async with opened(tmp_path) as (flow, model, program):
        await value(await flow.start(program, run_id="r"))
        model.offers.clear()
        await value(await flow.resume("r", overrides={"inner": {"description": "Find anything."}}))
        assert model.offers == [["Find anything."], [], ["Find anything."]]


async def test_an_edited_text_reaches_the_tasks_that_models_run(tmp_path: Path) -> None:
    """A program whose inner task was edited runs the outer one again; one that only moved does not."""
    async with opened(tmp_path) as (flow, model, _):
        await value(await flow.start(TEXT.format("Look"), run_id="r"))
        model.taken()
        edited = await flow.resume("r", program=TEXT.format("See"))
        assert await value(edited) == "got <See in>"
        assert model.taken() == ["outer a", "See in", "results"]
        await value(await flow.resume(edited.run_id, program="\n\n" + TEXT.format("See")))
        assert model.taken() == []


async def test_a_plan_says_the_same(tmp_path: Path) -> None:
    """What a plan foresees as carried out again is what the generation carries out."""
    async with opened(tmp_path) as (flow, _, program):
        await value(await flow.start(program, run_id="r"))
        plan = await flow.plan("r", overrides={"inner": {"system": "Shout."}})
        assert [each.name for each in plan.effects if each.kind == "task" and each.action == "run"] == ["outer"]
