"""Priorities: which of those that wait goes first, in every queue of a run."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentflow import AgentFlow, CallContext, Limits
from agentflow.core.data.errors import AgentflowError, ConfigurationError
from tests.support.metered_model import MeteredModel

TASKS = """
(defatom low (params (n integer)) (instructions "Write {{n}}") (priority -5))
(defatom plain (params (n integer)) (instructions "Write {{n}}"))
(defatom urgent (params (n integer)) (instructions "Write {{n}}") (priority 10))
"""


def order(model: MeteredModel) -> list[int]:
    """The priorities of the calls, in the order in which they were made."""
    return [request.priority for request in model.requests]


async def test_a_tasks_priority_orders_the_budget() -> None:
    """Of calls that wait for the run's tokens the most urgent goes first, then the first come; nothing else has to be said."""
    model = MeteredModel()
    async with AgentFlow(provider=model, limits=Limits(tokens=2_000)) as flow:
        await flow.run(f"{TASKS} (parallel (plain (n 40)) (low (n 40)) (plain (n 40)) (urgent (n 40)) (urgent (n 40)))")
        assert order(model) == [0, 10, 10, 0, -5]
        model.requests.clear()
        await flow.run(f"{TASKS} (parallel (plain (n 4)) (low (n 4)) (urgent (n 4)))", priority=20)
        assert order(model) == [20, 10, -5]


async def test_permits_go_by_priority() -> None:
    """Under one permit, programs that host code has run at once begin by their priority."""
    done: list[str] = []
    async with AgentFlow(provider=MeteredModel(), limits=Limits(concurrency=1)) as flow:

        @flow.tool
        async def all_of(ctx: CallContext) -> None:
            """Run four programs at once."""
            await asyncio.gather(*(flow.run(f'(note (n "{n}"))', priority=n) for n in (0, 3, 1, 2)))

        @flow.tool
        async def note(n: str) -> None:
            """Keep a name, after a while."""
            await asyncio.sleep(0.001)
            done.append(n)

        await flow.run("(all_of)")
    assert done == ["0", "3", "2", "1"]


async def test_subtasks_have_the_priority_of_what_asked_for_them() -> None:
    """A priority reaches everything below: tools, programs that they run, and their tasks without one of their own."""
    seen: list[int] = []
    async with AgentFlow(provider=MeteredModel()) as flow:

        @flow.tool
        async def look(ctx: CallContext) -> int:
            """Look at one's own priority."""
            seen.append(ctx.priority)
            return 0

        @flow.tool
        async def program(ctx: CallContext) -> int:
            """Run a program within the run."""
            await flow.run("(look) (parallel (look))")
            return 0

        await flow.run("(look) (program)", priority=7)
        await flow.run("(look)")
        stream = flow.stream("(look)", priority=-1_000)
        async with stream as run:
            await run.value()
    assert seen == [7, 7, 7, 0, -1_000]


async def test_a_durable_run_keeps_its_priority(tmp_path: Path) -> None:
    """It is stored with the run, for whoever goes on with it."""
    model = MeteredModel()
    program = '(defatom ask (params) (instructions "Write 4")) (value-of (ask)) (raise "stop")'
    async with AgentFlow(provider=model, durable=f"sqlite:///{tmp_path / 'r.db'}") as flow:
        handle = await flow.start(program.replace('(raise "stop")', "(value-of (ask))"), run_id="r", priority=4)
        await handle.result()
        assert order(model) == [4, 4]
        with pytest.raises(ConfigurationError, match="priority=1001"):
            await flow.start(program, priority=1_001)


@pytest.mark.parametrize("wrong", ['"high"', "(+ 1 2)", "1.5", "5000"])
async def test_a_priority_is_a_whole_number(wrong: str) -> None:
    """Anything else is refused before the program runs, and a program that is not trusted has none to give."""
    async with AgentFlow(provider=MeteredModel()) as flow:
        with pytest.raises(AgentflowError, match="priority"):
            flow.compile(f'(defatom a (params) (instructions "x") (priority {wrong}))')
        with pytest.raises(AgentflowError, match="priority") as caught:
            flow.compile('(defatom a (params) (instructions "x") (priority 5))', allow=["defatom"])
        assert caught.value.code == "name/not-granted"
