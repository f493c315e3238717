"""Workflows that are Python functions: branches, recovery, where they may be called, and the errors of typical slips."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.errors import (
    AgentflowError,
    ConfigurationError,
    LimitExceeded,
    PythonOverlap,
    SexpEvaluationError,
    TaskError,
    WorkflowError,
)
from agentflow.events import BranchStarted, Event, FinishedBase, ProgramLoaded, RunFinished, TaskStarted, ToolStarted


class Note(BaseModel):
    """What a workflow gives."""

    text: str


def flow_of(tmp_path: Path, reply: Callable[[Any], Any] | None = None, **options: Any) -> AgentFlow:
    """A flow whose model repeats what it is asked, and with a tool ``double``."""
    model = ScriptedProvider(reply or (lambda request: request.messages[-1].parts[0].text))
    flow = AgentFlow(provider=model, root=str(tmp_path), **options)

    @flow.tool
    async def double(n: int) -> int:
        """Twice ``n``."""
        return 2 * n

    return flow


def code_of(error: BaseException) -> str:
    assert isinstance(error, AgentflowError)
    return error.code


async def test_branches_are_those_of_programs(tmp_path: Path) -> None:
    """``map``, ``parallel`` and ``race`` give values in order, in branches whose paths depend on nothing that finishes first."""
    flow = flow_of(tmp_path)
    seen: list[Event] = []

    @flow.task
    async def echo(text: str) -> str:
        """{{text}}"""

    async def late(text: str) -> str:
        await flow.sleep(0.01)
        return await echo(text)

    @flow.workflow
    async def work(texts: list[str]) -> str:
        """Work on texts."""
        mapped = await flow.map(echo, texts, limit=2)
        head, tail = await flow.parallel(late("head"), echo("tail"))
        first = await flow.race(late("slow"), echo("quick"))
        return " ".join([*mapped, head, tail, first])

    async with flow:
        flow.subscribe(seen.append)
        assert await work(["a", "b", "c"]) == "a b c head tail quick"
    tasks = [(e.path, e.request.inputs["text"]) for e in seen if isinstance(e, TaskStarted)]
    assert set(tasks) == {
        ("0/0.0/0.0", "a"), ("0/0.1/0.0", "b"), ("0/0.2/0.0", "c"),
        ("0/1.0/1.0", "head"), ("0/1.1/0.0", "tail"), ("0/2.1/0.0", "quick"),
    }  # fmt: skip
    branches = [e for e in seen if isinstance(e, BranchStarted)]
    assert {(e.form, e.count) for e in branches} == {("pmap", 3), ("parallel", 2), ("race", 2)}
    assert branches[0].span is not None and branches[0].span.text == "flow.map(echo, texts, limit=2)"
    assert sorted(e.started for e in seen if isinstance(e, FinishedBase)) == sorted(
        e.seq for e in seen if type(e).__name__.endswith("Started")
    )
    loaded = [e for e in seen if isinstance(e, ProgramLoaded)]
    assert {(e.name, e.language, e.host) for e in loaded} == {(__name__, "python", True)}
    assert "def late(" not in loaded[0].text and "def late(" in loaded[-1].text


async def test_recovery_is_that_of_programs(tmp_path: Path) -> None:
    """``timeout`` and ``retry`` end and repeat what they are given, and may stand in each other."""
    replies = iter([{"error": "out of order"}, "fine"])
    flow = flow_of(tmp_path, lambda request: next(replies))

    @flow.workflow
    async def work() -> list[str]:
        said: list[str] = []
        try:
            await flow.timeout(0.01, flow.sleep(60))
        except TaskError as error:
            said.append(error.code)
        said.append(await flow.timeout(5, flow.race(flow.retry(2, lambda: flow.ask("Answer.")))))
        return said

    async with flow:
        assert await work() == ["timeout/elapsed", "fine"]


async def test_single_effects(tmp_path: Path) -> None:
    """Tools, lookups, clocks and numbers are effects of the run, numbered one after the other."""
    (tmp_path / "cats.md").write_text("All about cats.")
    flow = flow_of(tmp_path)
    seen: list[Event] = []

    @flow.workflow
    async def work() -> list[Any]:
        return [
            await flow.call_tool("double", n=4),
            [Path(path).name for path in await flow.context("cats")],
            await flow.now() > 1e9,
            await flow.random() < 1,
            await flow.random(1),
            len(await flow.uuid()),
        ]

    async with flow:
        flow.subscribe(seen.append)
        assert await work() == [8, ["cats.md"], True, True, 0, 36]
        with pytest.raises(AgentflowError, match="there is no tool 'dubble'"):
            await flow.call_tool("dubble", n=4)
    assert [e.path for e in seen if isinstance(e, ToolStarted)] == ["0/0.0", "0/0.0"]
    assert seen[-1].effects == 1  # type: ignore[attr-defined]
    assert next(e for e in seen if isinstance(e, RunFinished)).effects == 6


async def test_composition_both_ways(tmp_path: Path) -> None:
    """Programs call workflows, workflows call programs and workflows, and a model that is given one calls it as a tool."""
    (tmp_path / "shout.sexp").write_text("(string-append (value-of (echo (text text))) mark)")
    asked = iter([{"tool_calls": [{"name": "outer", "arguments": {"texts": ["x"]}}]}, "done"])
    flow = flow_of(
        tmp_path, lambda request: next(asked) if len(request.tools) == 2 else request.messages[-1].parts[0].text
    )
    shout = flow.program(tmp_path / "shout.sexp", {"text": str, "mark": str}, returns=str)

    @flow.task
    async def echo(text: str) -> str:
        """{{text}}"""

    @flow.workflow
    async def inner(text: str) -> Note:
        """Shout a text."""
        return Note(text=await shout(text=text, mark="!"))

    @flow.workflow
    async def outer(texts: list[str]) -> list[Note]:
        """Shout several texts."""
        return await flow.map(inner, texts)

    async with flow:
        assert await outer(["a", "b"]) == [Note(text="a!"), Note(text="b!")]
        assert (await flow.run('(value-of (outer (texts (list "a"))))')).value == [{"text": "a!"}]
        assert await shout(text="a", mark="?") == "a?"
        with pytest.raises(TypeError, match="mark is missing"):
            await shout(text="a")
        with pytest.raises(TaskError, match="mark"):
            await shout(text="a", mark=1)
        with pytest.raises(AgentflowError, match="texts"):
            await flow.run('(value-of (outer (texts "a")))')
        assert await flow.ask("Shout.", tools=[outer, echo]) == "done"
    assert next(asked, "all asked") == "all asked"


async def test_a_workflow_as_a_tool_has_the_authority_of_the_host(tmp_path: Path) -> None:
    """Granting a workflow grants what it does; ``allow=`` of a run of it narrows it, as whoever wrote that asked for."""
    flow = flow_of(tmp_path)

    @flow.workflow
    async def work() -> int:
        """Double two."""
        return await flow.call_tool("double", n=2)

    async with flow:
        assert (await flow.run("(value-of (work))", allow=["work"])).value == 4
        with pytest.raises(AgentflowError, match="'double' is not granted"):
            await flow.run("(double (n 2))", allow=["work"])
        assert (await flow.run(work(), allow=["double"])).value == 4
        with pytest.raises(AgentflowError, match="double"):
            await flow.run(work(), allow=[])


async def test_inside_a_tool_calls_are_part_of_its_run(tmp_path: Path) -> None:
    """A tool may call tasks and workflows, side by side too: they are told apart by content, in the tool's run."""
    flow = flow_of(tmp_path)
    seen: list[Event] = []

    @flow.task
    async def echo(text: str) -> str:
        """{{text}}"""

    @flow.workflow
    async def twice(text: str) -> str:
        return await echo(text) + await echo(text)

    @flow.tool
    async def several(text: str) -> list[str]:
        """Several."""
        return [*await asyncio.gather(echo(text), echo(text), twice(text)), *await flow.map(echo, [text])]

    async with flow:
        flow.subscribe(seen.append)
        assert await flow.call_tool("several", text="a") == ["a", "a", "aa", "a"]
    assert len({e.run_id for e in seen}) == 1
    paths = [e.path for e in seen if isinstance(e, TaskStarted)]
    assert len(set(paths)) == 5 and all(path.startswith("0/0.0/~") for path in paths)


async def test_errors_of_ones_own_stay_what_they_are(tmp_path: Path) -> None:
    """An exception of a workflow's own code comes through branches and recovery as the same object."""
    flow = flow_of(tmp_path)
    mine = KeyError("mine")

    async def fail(text: str) -> str:
        await flow.sleep(0)
        raise mine

    @flow.workflow
    async def work() -> int:
        for make in (
            lambda: flow.map(fail, ["a", "b"]),
            lambda: flow.parallel(fail("a")),
            lambda: flow.timeout(5, fail("a")),
            lambda: flow.retry(3, lambda: fail("a")),
        ):
            with pytest.raises(KeyError) as raised:
                await make()
            assert raised.value is mine
        with pytest.raises(SexpEvaluationError) as lost:
            await flow.race(fail("a"), fail("b"))
        assert lost.value.code == "race/all-failed" and "KeyError" in lost.value.message
        raise mine

    async with flow:
        with pytest.raises(KeyError) as raised:
            await work()
    assert raised.value is mine


async def test_limits_end_a_workflow_whatever_it_catches(tmp_path: Path) -> None:
    """``except Exception`` catches a limit in Python; the next call raises it again, and the run has no value."""
    flow = flow_of(tmp_path)
    caught: list[str] = []

    @flow.workflow
    async def work() -> str:
        for _ in range(5):
            try:
                await flow.call_tool("double", n=1)
            except Exception as error:
                caught.append(code_of(error))
        return "went on"

    async with flow:
        with pytest.raises(LimitExceeded):
            await flow.run(work(), limits=Limits(effects=2))
    assert caught == ["limits/effects"] * 3


async def test_overlap_on_one_branch_is_named(tmp_path: Path) -> None:
    """A call from a thread with a loop of its own is PythonOverlap, and a task that is left has ended with the workflow."""
    flow = flow_of(tmp_path)
    ended: list[str] = []

    async def asleep() -> None:
        try:
            await flow.sleep(60)
        finally:
            ended.append("asleep")

    @flow.workflow
    async def left() -> str:
        leaving = asyncio.create_task(asleep())
        await asyncio.sleep(0)
        return leaving.get_name()

    @flow.workflow
    async def threaded() -> Any:
        async def elsewhere() -> Any:
            return await flow.call_tool("double", n=1)

        return await asyncio.to_thread(lambda: asyncio.run(elsewhere()))

    async with flow:
        with pytest.raises(PythonOverlap) as overlap:
            await threaded()
        assert overlap.value.code == "python/overlap" and "event loop" in overlap.value.message
        await left()
    assert ended == ["asleep"]
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert threading.active_count() < 20


async def test_programs_and_methods_of_the_components_take_their_turn(tmp_path: Path) -> None:
    """What joins the run of a workflow by another entry than its calls is in flight on the branch as these are, and may be in a task."""
    flow, other = flow_of(tmp_path), flow_of(tmp_path)
    add = (await flow.run("(lambda (n) (begin (sleep 0) (+ n 1)))")).value

    @other.task
    async def echo(text: str) -> str:
        """{{text}}"""

    async def streamed() -> Any:
        async with flow.stream("(begin (sleep 0) 1)") as run:
            return await run.value()

    entries: dict[str, Callable[[], Awaitable[Any]]] = {
        "flow.run": lambda: flow.run("(begin (sleep 0) 1)"),
        "flow.stream": streamed,
        "flow.run of a call": lambda: flow.run(flow.sleep(0)),
        "flow.define": lambda: flow.define("(begin (sleep 0) 1)"),
        "flow.call": lambda: flow.call(add, 1),
        "the evaluator": lambda: flow.evaluator.evaluate_string("(begin (sleep 0) 1)"),
        "the handler": lambda: flow.handler.execute_prompt("Well?"),
        "another flow": lambda: echo("x"),
    }

    @flow.workflow
    async def one_by_one(name: str) -> int:
        """Twice the same, and a call of ours between."""
        await entries[name]()
        await flow.call_tool("double", n=1)
        await entries[name]()
        return 1

    @flow.workflow
    async def at_once(name: str) -> Any:
        """Twice at the same time."""
        return await asyncio.gather(entries[name](), entries[name]())

    @flow.workflow
    async def beside(name: str) -> Any:
        """A call of ours beside it."""
        return await asyncio.gather(entries[name](), flow.call_tool("double", n=1))

    async with flow, other:
        for name in entries:
            assert await one_by_one(name) == 1, name
            for workflow in (at_once, beside):
                assert len(await workflow(name)) == 2, name
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_stream_in_a_workflow_is_in_flight_while_its_run_goes_on(tmp_path: Path) -> None:
    """A call within the block overlaps with the streamed run until that has ended, or the block is left before; then the branch is free."""
    flow = flow_of(tmp_path)

    @flow.workflow
    async def beside() -> Any:
        async with flow.stream("(begin (sleep 60) 1)"):
            return await flow.call_tool("double", n=1)

    @flow.workflow
    async def after() -> Any:
        async with flow.stream("(begin (sleep 0) 1)") as run:
            events = [event.type async for event in run]
            value = await run.value() + await flow.call_tool("double", n=1)
        async with flow.stream(flow.sleep(60)):
            pass
        gc.collect()  # the call never began, and is not one whose await was forgotten
        return value + await flow.call_tool("double", n=len(events) // len(events))

    async with flow:
        with pytest.raises(PythonOverlap, match=r"flow\.stream is in flight"):
            await beside()
        assert await after() == 5
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_tool_in_a_thread_is_told_so(tmp_path: Path) -> None:
    """A plain tool that awaits a call on a loop of its own gets an error that says so."""
    flow = flow_of(tmp_path)

    @flow.tool
    def threaded() -> int:
        """Double in a thread."""

        async def elsewhere() -> int:
            return await flow.call_tool("double", n=1)

        return asyncio.run(elsewhere())

    async with flow:
        with pytest.raises(AgentflowError, match="another thread"):
            await flow.call_tool("threaded")


async def test_forgotten_awaits_are_named(tmp_path: Path) -> None:
    """A call that is dropped unawaited is an error at the next call, or at the end of its branch."""
    flow = flow_of(tmp_path)

    @flow.workflow
    async def at_the_end() -> str:
        flow.call_tool("double", n=1)
        return "done"

    @flow.workflow
    async def at_the_next_call() -> int:
        flow.call_tool("double", n=1)
        return await flow.call_tool("double", n=2)

    async def branch(n: int) -> int:
        flow.call_tool("double", n=n)
        return n

    @flow.workflow
    async def in_a_branch() -> list[int]:
        return await flow.map(branch, [1, 2])

    @flow.workflow
    async def given_up() -> str:
        flow.call_tool("double", n=1).close()
        return "done"

    async with flow:
        for workflow in (at_the_end, at_the_next_call, in_a_branch):
            with pytest.raises(WorkflowError) as forgotten:
                await workflow()
            assert forgotten.value.code == "python/not-awaited"
            assert f"double(...) at {__name__}" in forgotten.value.message
        assert await given_up() == "done"


async def test_what_never_began_is_closed(tmp_path: Path) -> None:
    """Parts of a form that never began leave no warning, whatever ended the form."""
    flow = flow_of(tmp_path)

    async def part() -> int:
        return await flow.call_tool("double", n=1)

    async def at_once() -> int:
        return 1

    async def fail() -> int:
        raise KeyError("x")

    @flow.workflow
    async def won() -> int:
        return await flow.race(at_once(), *[part() for _ in range(5)])

    @flow.workflow
    async def failed() -> Any:
        return await flow.parallel(fail(), *[part() for _ in range(5)], flow.sleep(9))

    @flow.workflow
    async def refused() -> Any:
        return await flow.timeout(-1, flow.parallel(part(), flow.race(part())))

    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # "was never awaited"
        async with flow:
            assert (await flow.run(won(), limits=Limits(concurrency=1))).value == 1
            with pytest.raises(KeyError):
                await flow.run(failed(), limits=Limits(concurrency=1))
            with pytest.raises(LimitExceeded):
                await flow.run(failed(), limits=Limits(branches=2))
            with pytest.raises(SexpEvaluationError):
                await refused()
        gc.collect()


async def test_what_cannot_be_a_workflow_is_refused(tmp_path: Path) -> None:
    """A workflow that is not annotated, or whose parts cannot be awaited, says so."""
    flow = flow_of(tmp_path)

    async def unannotated(topic) -> str:  # type: ignore[no-untyped-def]
        return topic

    def plain(topic: str) -> str:
        return topic

    @flow.workflow
    async def work() -> Any:
        return await flow.map(plain, ["a"])  # type: ignore[arg-type]

    async with flow:
        for function, code in ((unannotated, "python/annotation"), (plain, "python/not-async")):
            with pytest.raises(ConfigurationError) as refused:
                flow.workflow(function)  # type: ignore[arg-type]
            assert refused.value.code == code
        with pytest.raises(WorkflowError) as misused:
            await work()
        assert misused.value.code == "python/not-async"


async def test_two_flows_in_one_run(tmp_path: Path) -> None:
    """A workflow of one flow that calls a task of another is one run: the other flow's model, the first one's budget."""
    one, other = flow_of(tmp_path), flow_of(tmp_path, lambda request: "other")

    @one.workflow
    async def work() -> str:
        return await one.ask("one") + await other.ask("two")

    async with one, other:
        result = await one.run(work())
    assert result.value == "oneother" and result.usage.requests == 2
