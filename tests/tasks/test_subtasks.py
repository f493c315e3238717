"""Subtasks: selection, depth, cycles, context, and the result in the parent's turn, with the real turn loop."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow.core.call.call import CallContext
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Message, TextPart, ToolResultPart, user
from agentflow.core.data.provider_errors import RateLimited
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.data.templates import ContextManagement
from agentflow.core.events.events import SubtaskFinished, SubtaskStarted, TaskStarted, ToolStarted
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.tools import subtask_tool
from agentflow.handler.turn_loop import TurnLoop
from agentflow.spec.task_system import TaskSystem
from tests.support.fake_memory import FakeMemory
from tests.support.fake_tasks import DirectoryFiles, FakePrompts
from tests.support.fakes import FakeProvider, FakeRouter, FakeRun, answer, tool_calls


class NestingRun(FakeRun):
    """A run whose subtasks the task system really runs."""

    def __init__(self, system: TaskSystem, **options: Any) -> None:
        super().__init__(**options)
        self.system = system

    async def run_subtask(self, request: SubtaskRequest, call: CallContext, task: Any = None) -> TaskResult:
        self.subtasks.append((request, call))
        return await self.system.service.run_subtask(request, call, task)


def template(name: str, subtype: str = "subtask", **fields: Any) -> dict[str, Any]:
    return {
        "name": name,
        "subtype": subtype,
        "params": fields.pop("params", ""),
        "instructions": f"I am {name}",
        **fields,
    }


def house(*replies: Any, memory: FakeMemory | None = None, files: Path | None = None) -> tuple[TaskSystem, FakePrompts]:
    prompts = FakePrompts(*replies)
    system = TaskSystem(
        memory_system=memory, prompts=prompts, files=DirectoryFiles(files) if files is not None else None
    )
    return system, prompts


async def test_the_result_returns_into_the_parents_turn() -> None:
    """A subtask tool runs a template with the model's arguments; its answer is the tool's result, its usage the
    parent's, its events lie below the parent's."""
    provider = FakeProvider(tool_calls(("research", {"topic": "cats"})), answer("cats purr"), answer("So: cats purr."))
    tools = ToolRegistry()
    tools.add(subtask_tool("research", "Look something up", template="finder", parameters={"topic": "string"}))
    system = TaskSystem(prompts=TurnLoop(FakeRouter(provider), tools))
    system.register_template(template("finder", params="topic", instructions="Find {{topic}}"))
    system.register_template(template("parent", "standard", tools=["research"]))
    run = NestingRun(system)
    session = Session()
    result = await system.service.run_request(SubtaskRequest(name="parent"), run.call(session))
    assert result.content == "So: cats purr."
    assert result.usage.requests == 3 and result.usage.total_tokens == 45
    assert provider.requests[1].messages[-1].text == "Find cats"
    last = provider.requests[2].messages[-1].parts[0]
    assert isinstance(last, ToolResultPart) and last.text == "cats purr"
    (sub,) = run.of(SubtaskStarted)
    (tool,) = run.of(ToolStarted)
    inner = run.of(TaskStarted)[1]
    assert sub.depth == 1 and inner.name == "finder" and inner.parent == sub.seq
    assert inner.path.startswith(sub.path) and tool.path.startswith(run.of(TaskStarted)[0].path)
    assert run.of(SubtaskFinished)[0].result.content == "cats purr"
    assert run.unbalanced() == []
    # only the parent's own turn is in the conversation
    assert [message.role for message in session.messages] == ["user", "assistant", "user", "assistant"]


@pytest.mark.parametrize(
    ("request_", "chosen"),
    [
        ({"name": "one"}, "one"),
        ({"name": "gone", "template_hints": ["one"]}, None),
        ({"subtype": "two"}, "two"),
        ({"subtype": "gone", "template_hints": ["nope", "three", "one"]}, "three"),
        ({"template_hints": ["two"]}, "two"),
        ({"description": "translate a poem to French"}, "three"),
        ({"subtype": "gone", "description": "count the words of a text"}, "two"),
        ({"description": "bake bread"}, None),
        ({}, None),
        ({"type": "sequential", "subtype": "two", "description": "count the words"}, None),
    ],
)
async def test_template_selection(request_: dict[str, Any], chosen: str | None) -> None:
    """By name alone when one is given; else type and subtype, then hints, then the best description match."""
    system, _ = house()
    system.register_template(template("one", "one", description="review code for errors"))
    system.register_template(template("two", "two", description="count words in a text"))
    system.register_template(template("three", "three", description="translate a poem"))
    result = await system.service.run_subtask(SubtaskRequest.of(request_), FakeRun().call())
    if chosen is None:
        error = result.notes["error"]
        assert error["reason"] == "input_validation_failure" and error["details"]["cause"] == "template_not_found"
        assert request_.get("name", request_.get("subtype", request_.get("description", ""))) in error["message"]
        assert ":?" not in error["message"]
    else:
        assert result.notes["template_used"] == chosen


def recursing(system: TaskSystem, run_of: Any = None) -> Any:
    """A reply that asks for the next subtask, with another input each time, and passes on what comes back."""

    async def reply(prompt: Any, call: CallContext) -> str:
        depth = sum(mark.startswith("sub:") for mark in call.subtask_chain)
        request = SubtaskRequest(name="deeper", inputs={"n": depth + 1})
        result = await call.run.run_subtask(request, call)
        return (
            f"{depth}>{result.content}"
            if not result.failed
            else f"{depth}>!{result.notes['error']['details']['cause']}"
        )

    return reply


@pytest.mark.parametrize(("limit", "expected"), [(5, "0>1>2>3>4>5>!depth"), (2, "0>1>2>!depth"), (0, "0>!depth")])
async def test_depth_is_limited(limit: int, expected: str) -> None:
    """Past the run's subtask_depth (5 by default) a subtask is refused with subtask_failure."""
    system, prompts = house()
    prompts.replies = [recursing(system)]
    system.register_template(template("deeper", params={"n": "any"}))
    run = NestingRun(system, limits=Limits(subtask_depth=limit))
    result = await system.service.run_request(SubtaskRequest(name="deeper", inputs={"n": 0}), run.call())
    assert result.content == expected and run.unbalanced() == []
    assert [event.depth for event in run.of(SubtaskStarted)] == list(range(1, limit + 2))


async def test_a_request_may_lower_the_depth_but_not_raise_it() -> None:
    """max_depth of a request counts when it is smaller than the run's."""
    system, prompts = house()
    system.register_template(template("a"))
    call = FakeRun(limits=Limits(subtask_depth=1)).call()
    assert (await system.service.run_subtask(SubtaskRequest(name="a", max_depth=9), call)).status == "COMPLETE"
    result = await system.service.run_subtask(SubtaskRequest(name="a", max_depth=0), call)
    assert result.notes["error"]["details"]["cause"] == "depth" and len(prompts.prompts) == 1


async def test_cycles_are_found() -> None:
    """A request identical to one of its ancestors, the task at the top included, is refused; the parent reads why."""
    system, prompts = house()
    seen: list[TaskResult] = []

    async def reply(prompt: Any, call: CallContext) -> str:
        text = prompt.parts[0].text
        other = "b" if text == "I am a" else "a"
        result = await call.run.run_subtask(SubtaskRequest(name=other, inputs={"x": 1}), call)
        seen.append(result)
        return result.content

    prompts.replies = [reply]
    system.register_template(template("a", params="x"))
    system.register_template(template("b", params="x"))
    run = NestingRun(system)
    await system.service.run_request(SubtaskRequest(name="a", inputs={"x": 1}), run.call())
    error = seen[0].notes["error"]
    assert (error["reason"], error["details"]["cause"]) == ("subtask_failure", "cycle")
    assert len(prompts.prompts) == 2 and run.unbalanced() == []


async def test_the_same_request_may_come_again_beside_itself() -> None:
    """Only ancestors count: two equal subtasks of one parent both run."""
    system, _ = house()
    system.register_template(template("a"))
    call = FakeRun().call()
    results = await asyncio.gather(*(system.service.run_subtask(SubtaskRequest(name="a"), call) for _ in range(2)))
    assert [result.status for result in results] == ["COMPLETE"] * 2


async def test_a_subtask_looks_up_its_own_context_and_files_take_precedence(tmp_path: Path) -> None:
    """Fresh context by default; file_paths of the request come instead of the lookup."""
    (tmp_path / "a.py").write_text("A")
    (tmp_path / "b.py").write_text("B")
    memory = FakeMemory(["b.py"])
    system, prompts = house(memory=memory, files=tmp_path)
    system.register_template(template("a", description="look at things"))
    call = FakeRun().call()
    result = await system.service.run_subtask(SubtaskRequest(name="a", description="the things"), call)
    assert result.notes["context_files"] == ["b.py"] and memory.asked[0].template_description == "the things"
    result = await system.service.run_subtask(SubtaskRequest(name="a", file_paths=["a.py"]), call)
    assert result.notes["context_files"] == ["a.py"] and len(memory.asked) == 1
    assert ">\nA\n<" in prompts.text


@pytest.mark.parametrize(
    ("inherit", "turns", "files"), [("full", 1, ["a.py"]), ("none", 0, []), ("subset", 0, ["a.py"])]
)
async def test_what_a_subtask_inherits(tmp_path: Path, inherit: Any, turns: int, files: list[str]) -> None:
    """full: the parent's conversation, text and files; subset: the files it is about; none: nothing. Never more is
    added to the parent's conversation."""
    (tmp_path / "a.py").write_text("A")
    system, prompts = house(files=tmp_path)
    system.register_template(template("sub", params={"x": "any"}))
    system.register_template(template("top", "standard"))
    session = Session()
    session.commit((user("earlier"), Message("assistant", (TextPart("yes"),))))
    got: list[TaskResult] = []

    async def parent(prompt: Any, call: CallContext) -> str:
        request = SubtaskRequest(
            name="sub", inputs={"x": "about a.py"}, context_management=ContextManagement(inherit_context=inherit)
        )
        got.append(await call.run.run_subtask(request, call))
        return "done"

    prompts.replies = [parent, "sub answer"]
    run = NestingRun(system)
    await system.service.run_request(SubtaskRequest(name="top", file_paths=["a.py"]), run.call(session))
    inner = prompts.calls[1].session
    assert inner is not session and len(inner.turns()) == turns
    assert got[0].notes.get("context_files", []) == files
    assert len(session.turns()) == 1


@pytest.mark.parametrize("inherit", ["full", "none", "subset"])
async def test_a_request_may_carry_its_own_history(inherit: Any) -> None:
    """``history_context`` reaches the model and the lookup whatever the task inherits, beside what it inherits."""
    memory = FakeMemory([])
    system, prompts = house("one", "two", memory=memory)
    system.register_template(template("a", description="look at things"))
    asked = SubtaskRequest(
        name="a", history_context="We spoke of bees.", context_management=ContextManagement(inherit_context=inherit)
    )
    await system.service.run_request(asked, FakeRun().call())
    assert prompts.text.count("We spoke of bees.") == 1
    looked_up = SubtaskRequest(name="a", description="things", history_context="We spoke of ants.")
    await system.service.run_request(looked_up, FakeRun().call())
    assert "We spoke of ants." in prompts.text and memory.asked[-1].inherited_context == "We spoke of ants."


async def test_a_failed_subtask_is_a_result_for_the_parent() -> None:
    """A subtask whose model call fails gives FAILED with the reason; the parent goes on."""
    error = RateLimited("busy", status=429)
    system, _ = house(error)
    system.register_template(template("a"))
    run = FakeRun()
    result = await system.service.run_subtask(SubtaskRequest(name="a"), run.call())
    assert result.failed and result.error is error
    assert run.of(SubtaskFinished)[0].outcome == "failed"


async def test_a_subtask_holds_no_more_tools_than_its_parent() -> None:
    """A subtask's tools are attenuated by the grants of the call it is asked for in."""
    system, prompts = house()
    system.register_template(template("a", tools=["read", "write"]))
    await system.service.run_subtask(SubtaskRequest(name="a"), FakeRun().call(grants=frozenset({"read", "delegate"})))
    assert prompts.prompts[0].tools == ("read",)


async def test_cancelling_a_subtask_ends_everything() -> None:
    """Cancellation goes through all levels once; every Started has its Finished."""
    system, prompts = house()
    reached = asyncio.Event()

    async def wait(prompt: Any, call: CallContext) -> str:
        if len(call.subtask_chain) > 2:
            reached.set()
            await asyncio.sleep(60)
        return (await call.run.run_subtask(SubtaskRequest(name="a", inputs={"n": 1}), call)).content

    prompts.replies = [wait]
    system.register_template(template("a", params={"n": "any"}))
    run = NestingRun(system)
    task = asyncio.create_task(system.service.run_request(SubtaskRequest(name="a", inputs={"n": 0}), run.call()))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert run.unbalanced() == []
    assert {event.outcome for event in run.of(SubtaskFinished)} == {"cancelled"}
