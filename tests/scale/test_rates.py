"""Rates that all processes of a database keep together."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from agentflow import AgentFlow, Rate, ScriptedProvider
from agentflow.core.ports.store_ports import RateShare
from agentflow.journal.postgres.shared_rates import PostgresRates
from agentflow.providers.fleet_rates import FleetRates
from agentflow.providers.rates import BURST_S
from tests.support.postgres import Server

KEY = "a:m"


@contextlib.asynccontextmanager
async def fleet(url: str, rate: Rate, processes: int = 3) -> AsyncIterator[list[FleetRates]]:
    """Limiters as those of several processes."""
    stores = [PostgresRates(url) for _ in range(processes)]
    try:
        yield [FleetRates({KEY: rate}, store) for store in stores]
    finally:
        for store in stores:
            await store.aclose()


async def held_up(limiter: FleetRates) -> None:
    """Call until a call has to wait."""
    with contextlib.suppress(TimeoutError):
        while True:
            async with asyncio.timeout(0.1):
                await limiter.take(KEY, 1)


async def test_together_they_send_no_more_than_the_rate_and_a_burst(postgres_url: str) -> None:
    """Whoever asks: in any stretch of time there go at most its share of the rate and the burst, and not much less."""
    per_s = 60
    gone: list[float] = []
    async with fleet(postgres_url, Rate(requests_per_min=per_s * 60)) as limiters:

        async def call(limiter: FleetRates) -> None:
            await limiter.take(KEY, 10)
            gone.append(time.monotonic())

        count = int(per_s * BURST_S) + per_s // 2
        began = time.monotonic()  # the first call may be told late that it may go
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(call(limiters[number % 3]))
    assert len(gone) == count
    assert max(gone) - began >= (count - per_s * BURST_S - 20) / per_s  # the last ones waited for the rate


async def test_tokens_count_by_estimate_and_then_by_usage_for_all(postgres_url: str) -> None:
    """What one process used more than it had estimated keeps the others waiting; so does a refusal of the server."""
    async with fleet(postgres_url, Rate(tokens_per_min=60_000)) as (one, other, third):
        await one.take(KEY, 100)
        one.correct(KEY, 100_000)
        await held_up(other)
        one.correct(KEY, -100_000)
        await other.take(KEY, 100)
        third.hold(KEY, 30)
        await held_up(one)


class SlowStore:
    """A store that answers when it is told to; ``asked`` are the answers that are waited for."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[RateShare]] = []

    def share(
        self,
        key: str,
        seconds: tuple[float, float],
        burst: float,
        calls: Sequence[int],
        more: int = 0,
        hold: float = 0.0,
    ) -> asyncio.Future[RateShare]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    async def aclose(self) -> None:
        """There is nothing to close."""


async def test_priority_goes_first_and_who_leaves_holds_up_nobody() -> None:
    """Of those that wait in a process the highest priority goes first; a cancelled call does not count."""
    order: list[str] = []
    store = SlowStore()
    limiter = FleetRates({KEY: Rate(requests_per_min=1_200)}, store)

    async def call(name: str, priority: int) -> None:
        await limiter.take(KEY, 1, priority)
        order.append(name)

    tasks = [asyncio.create_task(call(name, priority)) for name, priority in (("low", 0), ("gone", 9), ("high", 5))]
    await asyncio.sleep(0)
    tasks[1].cancel()
    await asyncio.wait([tasks[1]])
    for gone in (["high"], ["high", "low"]):
        store.asked.pop().set_result(RateShare(calls=1, delay=0.0, processes=1))
        while len(order) < len(gone):
            await asyncio.sleep(0)
        assert order == gone
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_database_that_is_away_keeps_no_call_waiting(
    postgres_server: Server, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A process goes on at its share, says so once, and asks again when the database is back."""
    async with fleet(postgres_url, Rate(requests_per_min=600), 1) as (limiter,):
        await limiter.take(KEY, 1)
        postgres_server.stop()
        try:
            for _ in range(5):
                await limiter.take(KEY, 1)
            with pytest.raises(TimeoutError):  # the share has a rate, too
                async with asyncio.timeout(0.3):
                    for _ in range(200):
                        await limiter.take(KEY, 1)
        finally:
            postgres_server.start()
    assert ["continues at its share" in record.message for record in caplog.records] == [True]


async def test_the_rates_of_a_flow_are_those_of_all_flows_of_its_database(postgres_url: str) -> None:
    """Two flows with one database share what one of them may send."""
    program = '(defatom ask (params (q string)) (instructions "{{q}}")) (value-of (ask (q "a")))'
    rates = {"scripted:*": Rate(requests_per_min=1)}
    async with (
        AgentFlow(provider=ScriptedProvider(["ok"]), durable=postgres_url, rates=rates) as one,
        AgentFlow(provider=ScriptedProvider(["ok"]), durable=postgres_url, rates=rates) as other,
    ):
        await one.run(program)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await other.run(program)
