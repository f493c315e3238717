"""Runs that wait at a limit until it is raised, in place of ending; nothing is lost, and nothing paid twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, LimitExceeded, Limits, ModelRequest, Price, ScriptedProvider
from agentflow.core.events.questions import Question
from agentflow.errors import ConfigurationError, DataError, JournalError
from agentflow.events import Event, LimitNear
from tests.support.children import HANG_S


class Shop:
    """A flow whose answers cost a tenth of a cent each, and what it paid for."""

    def __init__(self, **options: Any) -> None:
        self.paid: Counter[str] = Counter()
        self.events: list[Event] = []
        self.flow = AgentFlow(
            provider=ScriptedProvider(self.model), prices={"scripted:*": Price(input=0, output=10)}, **options
        )
        self.flow.subscribe(self.events.append)

        @self.flow.task(max_output_tokens=100)
        async def item(n: int) -> str:
            """Item {{n}}"""
            raise NotImplementedError

        @self.flow.workflow
        async def every(count: int) -> list[str]:
            return await self.flow.map(item, range(count), limit=3)

        self.every = every

    async def model(self, request: ModelRequest) -> Any:
        self.paid[request.messages[-1].text] += 1
        await asyncio.sleep(0.005)
        return {"text": "x", "usage": {"input_tokens": 0, "output_tokens": 100}}


LIMITS = {
    "usd": (Limits(usd=0.002), 0.02),
    "tokens": (Limits(tokens=300), 10_000),
    "model_calls": (Limits(model_calls=2), 20),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_a_plain_run_waits_and_goes_on_when_its_limit_is_raised(limit: str) -> None:
    """Calls that a limit stops share one typed question; its answer is the new limit, and each call is paid for once."""
    limits, more = LIMITS[limit]
    shop = Shop(approval_ttl=HANG_S)
    async with shop.flow as flow:
        work = asyncio.create_task(flow.run(shop.every(6), run_id="r", limits=limits, on_limit="wait"))
        while not (asked := await flow.questions("r")):
            await asyncio.sleep(0.005)
        [question] = asked
        assert question.reason == "limit" and question.limit is not None
        assert question.limit.name == limit and question.limit.allowed == getattr(limits, limit)
        with pytest.raises(DataError, match="does not fit"):
            await flow.send("r", question.key, question.limit.allowed)
        await flow.send("r", question.key, more)
        assert len((await work).value) == 6
        assert set(shop.paid.values()) == {1} and len(shop.paid) == 6


async def test_a_no_ends_the_run_at_its_limit() -> None:
    """The answer None ends the run with the error of the limit, as it would have ended without waiting."""

    def no(question: Question) -> None:
        """The limit stays."""

    shop = Shop(answer=no)
    async with shop.flow as flow:
        with pytest.raises(LimitExceeded) as raised:
            await flow.run(shop.every(6), limits=Limits(usd=0.002), on_limit="wait")
    assert raised.value.limit == "usd" and shop.paid.total() == 2


async def test_the_answerer_of_the_host_may_raise_a_limit_again_and_again() -> None:
    """The flow's answerer is host code: it is asked, and the limit is asked about again when it is met again."""
    asked: list[float] = []

    def answer(question: Any) -> float:
        asked.append(question.limit.allowed)
        return question.limit.allowed + 0.002

    shop = Shop(answer=answer, on_limit="wait", limits=Limits(usd=0.002))
    async with shop.flow as flow:
        result = await flow.run(shop.every(6))
    assert len(result.value) == 6 and set(shop.paid.values()) == {1}
    assert asked == [0.002, 0.004]


async def test_without_anyone_to_ask_the_run_ends() -> None:
    """A plain run whose questions nothing answers ends at the limit."""
    shop = Shop()
    async with shop.flow as flow:
        with pytest.raises(LimitExceeded):
            await flow.run(shop.every(6), limits=Limits(model_calls=2), on_limit="wait")


@pytest.mark.parametrize("way", ["send", "resume", "start", "live resume"])
async def test_a_durable_run_parks_at_its_limit(way: str, tmp_path: Path) -> None:
    """The question outlives the process; an answer or a higher limit of the host resumes the run, which repeats nothing."""
    paid: Counter[str] = Counter()
    for attempt in range(2):
        shop = Shop(durable=f"sqlite:///{tmp_path}/runs.db")
        shop.paid = paid
        async with shop.flow as flow:
            if attempt == 0:
                handle = await flow.start(shop.every(6), run_id="r", limits=Limits(usd=0.002), on_limit="wait")
                assert await handle.wait() == "waiting"
                assert paid.total() == 2
                if way != "live resume":
                    continue
            [question] = await flow.questions("r")
            assert question.reason == "limit"
            if way == "send":
                await flow.send("r", question.key, 0.1)
                handle = await flow.resume("r")
            elif way == "start":
                handle = await flow.start(shop.every(6), run_id="r", limits=Limits(usd=0.1), on_limit="wait")
            else:
                handle = await flow.resume("r", limits=Limits(usd=0.1))
            assert len((await handle.result()).value) == 6
            assert await flow.questions("r") == []
            break
    assert set(paid.values()) == {1} and len(paid) == 6


@pytest.mark.parametrize("stays_s", [0, 0.2], ids=["stops at once", "goes on to the raised limit"])
async def test_a_raised_limit_holds_after_a_restart(tmp_path: Path, stays_s: float) -> None:
    """The answer to a limit is part of the run: the process that resumes it next has the raised limit, and asks above that."""
    url = f"sqlite:///{tmp_path}/runs.db"
    asked: list[float] = []
    for _ in range(2):
        shop = Shop(durable=url)
        async with shop.flow as flow:
            handle = await flow.start(shop.every(6), run_id="r", limits=Limits(usd=0.002), on_limit="wait")
            assert await handle.wait() == "waiting"
            [question] = await flow.questions("r")
            assert question.limit is not None
            asked.append(question.limit.allowed)
            await flow.send("r", question.key, question.limit.allowed + 0.002)
            await asyncio.sleep(stays_s)
    async with Shop(durable=url).flow as flow:
        assert (await (await flow.resume("r", limits=Limits(usd=1))).result()).value == ["x"] * 6
    assert asked == [0.002, 0.004]


async def test_limits_come_near_once() -> None:
    """``warn_at`` announces each limit once, when that share of it is used."""
    shop = Shop(warn_at=0.5)
    async with shop.flow as flow:
        await flow.run(shop.every(6), limits=Limits(usd=0.01, model_calls=100, tokens=700))
    near = [(each.limit, each.share) for each in shop.events if isinstance(each, LimitNear)]
    assert sorted(near) == [("tokens", 0.5), ("usd", 0.5)]


async def test_wrong_options_say_what_to_write(tmp_path: Path) -> None:
    """Values that say nothing are errors; so are options for a part of a run, and others than the run was started with."""
    shop = Shop(durable=f"sqlite:///{tmp_path}/runs.db")
    for wrong in ({"on_limit": "ask"}, {"warn_at": 80}, {"wrap_up": "yes"}):
        with pytest.raises(ConfigurationError, match="limits"):
            AgentFlow(**wrong)  # type: ignore[arg-type]
    async with shop.flow as flow:
        with pytest.raises(ConfigurationError, match="on_limit='ask'"):
            await flow.run(shop.every(1), on_limit="ask")  # type: ignore[arg-type]
        await (await flow.start(shop.every(1), run_id="r")).result()
        with pytest.raises(JournalError, match="without on_limit"):
            await flow.start(shop.every(1), run_id="r", on_limit="wait")
