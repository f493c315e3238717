"""Many runs begun at once."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.session import Session
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.run.engine import Engine
from agentflow.run.run import Run
from agentflow.run.run_spec import RunSpec


async def test_a_crowd_of_runs_leaves_the_loop_to_others() -> None:
    """Runs opened in one turn of the loop begin in order, a few in each turn, and others have theirs between."""
    engine = Engine(cast(Any, None), ToolRegistry())
    began: list[int | None] = []

    async def one(number: int) -> None:
        await engine.turn()
        async with engine.open(f"run {number}"):
            began.append(number)

    async def other() -> None:
        while len([each for each in began if each is not None]) < 60:
            began.append(None)
            await asyncio.sleep(0)

    await asyncio.gather(*(one(number) for number in range(60)), other())
    assert [each for each in began if each is not None] == list(range(60))
    assert began.count(None) >= 3


async def test_a_cancelled_wait_for_a_turn_gives_the_session_back() -> None:
    """A run cancelled before its turn has come leaves its session free and the others their turns."""
    engine = Engine(cast(Any, None), ToolRegistry())
    session, done = Session(), 0

    async def one(own: Session | None = None) -> None:
        nonlocal done
        await engine.turn()
        async with engine.open("run", RunSpec(session=own)):
            done += 1

    others = [asyncio.create_task(one()) for _ in range(40)]
    last = asyncio.create_task(one(session))
    await asyncio.sleep(0)
    last.cancel()
    await asyncio.wait([*others, last])
    assert last.cancelled() and done == 40
    await one(session)


async def test_a_mark_is_worked_out_once_and_only_when_read() -> None:
    """The chain of enclosing requests costs nothing until somebody reads it."""
    made: list[str] = []

    def make() -> str:
        made.append("made")
        return "task:1"

    engine = Engine(cast(Any, None), ToolRegistry())
    async with engine.open("run") as (_, call):
        inner = call.at("0/0.0")
        nested = inner.at("0/0.1")
        nested.add_mark(make)
        assert not made
        assert nested.subtask_chain == ("task:1",) == nested.subtask_chain
    assert made == ["made"]


class Looked(dict[str, Any]):
    """Bindings that tell when they are looked at."""

    def __init__(self, looked: Callable[[], None]) -> None:
        super().__init__(n=1)
        self._looked = looked

    def items(self) -> Any:
        self._looked()
        return super().items()


async def test_of_many_programs_begun_at_once_few_are_prepared_between_two_turns_of_the_loop() -> None:
    """Compiling is the work: what else is on the loop gets its turn between."""
    turn, prepared = 0, Counter[int]()

    async def turns() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    def looked() -> None:
        prepared[turn] += 1

    async with AgentFlow("offline") as flow:
        beside = asyncio.create_task(turns())
        ended = await asyncio.gather(*[flow.run(f"(+ n {number})", bindings=Looked(looked)) for number in range(200)])
        beside.cancel()
    assert [each.value for each in ended] == list(range(1, 201))
    assert prepared.total() >= 200 and max(prepared.values()) <= 50


@pytest.mark.parametrize("kind", ["workflow", "task", "question", "call"])
async def test_of_many_calls_begun_at_once_few_have_a_run_before_their_turn(kind: str) -> None:
    """Python workflows, tasks, questions and calls of functions: what has to wait for its turn is not made before."""

    def runs() -> int:
        return sum([type(each) is Run for each in gc.get_objects()])

    async with AgentFlow(provider=ScriptedProvider(lambda request: "x")) as flow:

        @flow.workflow
        async def work() -> str:
            await asyncio.sleep(0)
            return "x"

        @flow.task
        async def body(q: str) -> str:
            """{{q}}"""

        async def begun() -> str:
            if kind == "workflow":
                return (await flow.run(work())).value
            if kind == "call":
                return await flow.call(str, "x")
            return await (body("q") if kind == "task" else flow.ask("q"))

        before = runs()
        begin = [asyncio.create_task(begun()) for _ in range(200)]
        await asyncio.sleep(0)
        assert runs() - before <= 50
        assert set(await asyncio.gather(*begin)) == {"x"}
