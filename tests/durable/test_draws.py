"""Draws: several independent results of the same call, each paid for once."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, ScriptedProvider
from agentflow.errors import JournalError


async def value(run: Any) -> Any:
    """The value of a durable run."""
    return (await run.result()).value


class Counting:
    """A model that numbers its answers, and a tool that numbers its calls."""

    def __init__(self) -> None:
        self.asked = 0
        self.rolled = 0

    def reply(self, request: Any) -> str:
        self.asked += 1
        return f"answer {self.asked}"

    @asynccontextmanager
    async def flow(self, tmp_path: Path) -> AsyncGenerator[tuple[AgentFlow, Any]]:
        """A flow with a task that reuses results, in a workflow with a tool that reuses them too."""
        provider, database = ScriptedProvider(self.reply), f"sqlite:///{tmp_path}/runs.db"
        async with AgentFlow(provider=provider, durable=database) as flow:

            @flow.tool(reuse="1d", reuse_key="this test's count")
            async def roll() -> int:
                """Roll."""
                self.rolled += 1
                return self.rolled

            @flow.task(reuse="1d")
            async def say(question: str) -> str:
                """Say: {{question}}"""
                raise NotImplementedError

            @flow.workflow
            async def said(question: str) -> str:
                return f"{await say(question)}, rolled {await flow.call_tool('roll')}"

            yield flow, said


async def test_each_draw_is_asked_for_once_and_tools_answer_for_all(tmp_path: Path) -> None:
    """Draw 0 is the one without a block; a block in a workflow draws for the calls in it."""
    world = Counting()
    async with world.flow(tmp_path) as (flow, said):
        assert (await flow.run(said("q"))).value == "answer 1, rolled 1"
        for draw, value in ((1, "answer 2, rolled 1"), (1, "answer 2, rolled 1"), (0, "answer 1, rolled 1")):
            with flow.draw(draw):
                assert (await flow.run(said("q"))).value == value
        assert (await flow.run(said("q"))).value == "answer 1, rolled 1", "after the block"
        with flow.draw(2):
            assert await flow.ask("q", reuse="1d") == await flow.ask("q", reuse="1d") == "answer 3"

        @flow.workflow
        async def voted(question: str) -> list[str]:
            votes: list[str] = []
            for number in range(3):
                with flow.draw(number):
                    votes.append((await said(question)).partition(",")[0])
            return votes

        assert (await flow.run(voted("q"))).value == ["answer 1", "answer 2", "answer 4"]


async def test_a_durable_run_keeps_its_draw_and_is_another_run_with_another(tmp_path: Path) -> None:
    """It is part of what the run is: starting it again without says so; resuming it needs no block."""
    world = Counting()
    async with world.flow(tmp_path) as (flow, said):
        with flow.draw(1):
            assert await value(await flow.start(said("q"), run_id="r")) == "answer 1, rolled 1"
            assert await value(await flow.start(said("q"), run_id="r")) == "answer 1, rolled 1"
        with pytest.raises(JournalError, match="the draw differs"):
            await flow.start(said("q"), run_id="r")
        assert await value(await flow.resume("r")) == "answer 1, rolled 1"
        assert (await flow.run(said("q"))).value == "answer 2, rolled 1"


async def test_a_generation_of_another_draw_carries_tasks_out_anew(tmp_path: Path) -> None:
    """Under an id of its own, once; the tool answers from the record. Without a block it has the draw of its base."""
    world = Counting()
    async with world.flow(tmp_path) as (flow, said):
        await (await flow.start(said("q"), run_id="r")).result()
        louder = {"say": {"system": "Shout."}}
        with flow.draw(1):
            first = await flow.resume("r")
            assert await value(first) == "answer 2, rolled 1"
            assert (await flow.resume("r")).run_id == first.run_id
        with flow.draw(2):
            second = await flow.resume("r")
            assert (await value(second), world.rolled) == ("answer 3, rolled 1", 1)
        assert len({"r", first.run_id, second.run_id}) == 3
        assert await value(await flow.resume(first.run_id, overrides=louder)) == "answer 4, rolled 1"
        with flow.draw(1):
            assert (await flow.run(said("q"))).value == "answer 2, rolled 1"


async def test_a_fork_draws_from_its_place_on(tmp_path: Path) -> None:
    """What is before it answers from records, whatever the draw."""
    world = Counting()
    async with world.flow(tmp_path) as (flow, said):

        @flow.workflow
        async def twice(question: str) -> list[str]:
            return [await said(question), await said(f"{question} again")]

        await (await flow.start(twice("q"), run_id="r")).result()
        plan = await flow.plan("r", overrides={"say": {"system": "x"}})
        with flow.draw(1):
            fork = await flow.fork("r", [each for each in plan.effects if each.kind == "task"][1].path)
            assert await value(fork) == ["answer 1, rolled 1", "answer 3, rolled 1"]


@pytest.mark.parametrize("draw", [-1, 1.0, True, "2"])
async def test_what_is_no_draw_is_refused(draw: Any, tmp_path: Path) -> None:
    """A draw is a whole number from 0 on."""
    async with Counting().flow(tmp_path) as (flow, _):
        with pytest.raises(ConfigurationError, match="a draw is a whole number") as wrong, flow.draw(draw):
            pass
        assert wrong.value.code == "config/draw"
