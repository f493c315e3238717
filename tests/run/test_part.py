"""Runs inside of runs: what a tool starts belongs to the tool's run, and cannot leave its budget."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import AgentFlow, LimitExceeded, Limits, ScriptedProvider
from agentflow.core.call.approval import ApprovalRequest
from agentflow.core.call.call import CallContext
from agentflow.core.data.messages import Usage
from agentflow.events import Event, RunStarted, TaskFinished, TaskStarted, TextDelta
from agentflow.handler.tools import subtask_tool, tool

ASK = '(defatom ask (params (q string)) (instructions "Answer {{q}}"))'
LOOP = "(loop 2000 (+ 1 1))"


def flow_of(root: Path, *replies: Any, **options: Any) -> AgentFlow:
    return AgentFlow(provider=ScriptedProvider(list(replies)), root=root, **options)


async def inside(flow: AgentFlow, work: Callable[[], Any], **options: Any) -> Any:
    """What ``work`` gives when a tool of a run of ``flow`` awaits it."""
    given_back: list[Any] = []

    async def outer() -> None:
        """Do the work."""
        given_back.append(await work())

    flow.tools.add(outer, replace=True)
    await flow.run("(outer)", **options)
    return given_back[0]


async def test_limits_only_narrow(tmp_path: Path) -> None:
    """``limits=`` given inside a run bounds the part; the outer limit holds whatever the part is given."""
    async with flow_of(tmp_path) as flow:

        async def narrow() -> LimitExceeded:
            with pytest.raises(LimitExceeded) as caught:
                await flow.run(LOOP, limits=Limits(steps=100))
            return caught.value

        error = await inside(flow, narrow)
        assert (error.limit, error.allowed) == ("steps", 100)
        for wide in (Limits(), Limits(steps=None), None):
            with pytest.raises(LimitExceeded) as caught:
                await inside(flow, lambda limits=wide: flow.run(LOOP, limits=limits), limits=Limits(steps=500))
            assert (caught.value.limit, caught.value.allowed) == ("steps", 500)


async def test_what_a_part_uses_is_used_of_the_run(tmp_path: Path) -> None:
    """Steps, effects, tokens and money of a part count for the run; the part's result has its own share."""
    program = f'{ASK} (loop 10 (+ 1 1)) (value-of (ask (q "x")))'
    totals: list[Usage] = []
    async with flow_of(tmp_path, "one", "two", "three") as flow:
        flow.subscribe(lambda event: totals.append(event.usage) if event.type == "run_finished" else None)
        limits = Limits(model_calls=1)

        async def two_parts() -> list[tuple[int, int]]:
            parts = [await flow.run(program, limits=limits) for _ in range(2)]
            return [(part.usage.requests, part.steps) for part in parts]

        assert await inside(flow, two_parts) == [(1, 10), (1, 10)]
        assert [usage.requests for usage in totals] == [2]
        with pytest.raises(LimitExceeded) as caught:
            await inside(flow, two_parts, limits=Limits(model_calls=1))
        assert caught.value.limit == "model_calls"


async def test_the_parts_own_model_calls_are_bounded(tmp_path: Path) -> None:
    """A part with one model call cannot make two, though the run could."""
    program = f'{ASK} (list (value-of (ask (q "x"))) (value-of (ask (q "y"))))'
    async with flow_of(tmp_path, "one", "two", "three") as flow:
        with pytest.raises(LimitExceeded) as caught:
            await inside(flow, lambda: flow.run(program, limits=Limits(model_calls=1)))
        assert caught.value.limit == "model_calls"


async def test_a_stream_inside_a_run_is_part_of_it(tmp_path: Path) -> None:
    """``flow.stream`` in a tool shows what happens in the part; observers of the run see that too, in one run."""
    everything: list[Event] = []
    async with flow_of(tmp_path, "a few words") as flow:
        flow.subscribe(everything.append)

        async def watch() -> list[Event]:
            seen: list[Event] = []
            async with flow.stream(f'{ASK} (value-of (ask (q "x")))') as run:
                async for event in run:
                    seen.append(event)
                assert await run.value() == "a few words"
            return seen

        seen = await inside(flow, watch)
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "a few words"
    assert any(isinstance(event, TaskStarted) for event in seen) and any(isinstance(e, TaskFinished) for e in seen)
    assert [event.seq for event in seen] == [event.seq for event in everything if event in seen]
    assert sum(isinstance(event, RunStarted) for event in everything) == 1
    assert len({event.run_id for event in everything}) == 1


async def test_leaving_a_stream_inside_a_run_ends_the_part(tmp_path: Path) -> None:
    """The part ends when its block is left; the run goes on."""

    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    async with flow_of(tmp_path, tools=[wait]) as flow:

        async def leave() -> str:
            async with flow.stream("(wait)") as run:
                async for _ in run:
                    break
            return "left"

        assert await inside(flow, leave) == "left"


async def test_wall_time_of_a_part(tmp_path: Path) -> None:
    """A part's wall time ends the part, with its own limit in the error."""

    async def wait() -> None:
        """Wait for ever."""
        await asyncio.Event().wait()

    async with flow_of(tmp_path, tools=[wait]) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await inside(flow, lambda: flow.run("(wait)", limits=Limits(wall_s=0.05)))
        assert (caught.value.limit, caught.value.allowed) == ("wall_s", 0.05)


async def test_approvals_of_a_part(tmp_path: Path) -> None:
    """A part's approver is asked in its place; without one the run's is."""
    asked: list[str] = []

    def approver(name: str) -> Callable[[ApprovalRequest], bool]:
        def approve(request: ApprovalRequest) -> bool:
            asked.append(name)
            return True

        return approve

    @tool(approval=True)
    async def guarded() -> str:
        """Ask first."""
        return "done"

    async with flow_of(tmp_path, tools=[guarded], approve=approver("flow")) as flow:
        program = "(value-of (guarded))"
        for options in ({}, {"approve": approver("part")}):
            result = await inside(flow, lambda options=options: flow.run(program, allow=["guarded"], **options))
            assert result.value == "done"
    assert asked == ["flow", "part"]


async def test_another_flow_inside_a_run(tmp_path: Path) -> None:
    """A flow used by another's tool answers with its own tasks and tools, and is charged to the run it is used in."""
    calls = {"tool_calls": [{"name": "dig", "arguments": {"q": "x"}}]}
    async with flow_of(tmp_path) as flow, flow_of(tmp_path, calls, "dug", "done", "again") as other:
        runs: set[str] = set()
        flow.subscribe(lambda event: runs.add(event.run_id))
        other.subscribe(lambda event: pytest.fail("the other flow has no run of its own"))
        other.task_system.register_template({"name": "dig", "subtype": "dig", "params": "q", "instructions": "{{q}}"})
        other.tools.add(subtask_tool("dig", "Digs.", template="dig", parameters={"q": "string"}))

        async def use() -> list[Any]:
            first = await other.handler.execute_prompt("go")
            second = await other.run('(value-of (dig (q "y")))')
            return [first.content, second.value]

        assert await inside(flow, use, limits=Limits(model_calls=4)) == ["done", "again"]
        assert len(runs) == 1


async def test_a_part_cannot_widen_authority(tmp_path: Path) -> None:
    """A text that a granted tool runs has at most what that tool's caller holds, unless the host's ``allow=`` says more."""

    async def secret() -> str:
        """Not for everyone."""
        return "secret"

    async with flow_of(tmp_path, tools=[secret]) as flow:

        async def through(ctx: CallContext) -> str:
            """Run what was not granted, and what the host grants."""
            with pytest.raises(Exception, match="not granted"):
                await flow.run("(secret)")
            return str((await flow.run("(value-of (secret))", allow=["secret"])).value)

        flow.tool(through)
        assert ((await flow.run("(value-of (through))", allow=["through"])).value) == "secret"


@given(st.builds(dict, steps=st.none() | st.integers(0, 9), usd=st.none() | st.floats(0, 9), depth=st.integers(1, 9)),
       st.builds(dict, steps=st.none() | st.integers(0, 9), usd=st.none() | st.floats(0, 9), depth=st.integers(1, 9)))  # fmt: skip
def test_within_is_the_lower_of_both(own: dict[str, Any], outer: dict[str, Any]) -> None:
    """Field by field the smaller; None is not a limit."""
    narrowed = Limits(**own).within(Limits(**outer))
    for name in own:
        both = [value for value in (own[name], outer[name]) if value is not None]
        assert getattr(narrowed, name) == (min(both) if both else None)
