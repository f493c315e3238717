"""Rates, gates and priorities: what waits, in which order, and that waiting costs no time limit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import AgentFlow, Rate, ScriptedProvider
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.data.provider_errors import RateLimited
from agentflow.events import WaitFinished, WaitStarted
from agentflow.lib.event_loop import Gate
from agentflow.providers import RetryPolicy
from agentflow.providers.openai import OpenAIChatProvider
from agentflow.providers.rates import BURST_S, Bucket, ProcessRates, RateTable, read_rates
from tests.support.model_server import ModelServer
from tests.support.model_server_wire import Reply

ASK = '(defatom ask (params (q string)) (instructions "{{q}}")) (value-of (ask (q text)))'
KEY = "openai-chat:m"


@given(
    st.lists(st.tuples(st.floats(0, 3), st.integers(0, 2_000)), min_size=1, max_size=60),
    st.integers(6, 600),
    st.integers(600, 60_000),
)
def test_no_window_has_more_than_the_rate_and_a_burst(
    calls: list[tuple[float, int]], requests: int, tokens: int
) -> None:
    """However calls come: in any stretch of time there go at most its share of the rate, a burst, and one call more."""
    bucket = Bucket(Rate(requests_per_min=requests, tokens_per_min=tokens))
    now = 0.0
    gone: list[tuple[float, int]] = []
    for pause, size in calls:
        now += pause
        now += bucket.delay(now)
        assert bucket.delay(now) < 1e-6
        bucket.take(now, size)
        gone.append((now, size))
    for first in range(len(gone)):
        for last in range(first, len(gone)):
            span = gone[last][0] - gone[first][0] + BURST_S
            part = gone[first : last + 1]
            assert len(part) <= span * requests / 60 + 1 + 1e-6
            assert sum(size for _, size in part[:-1]) <= span * tokens / 60 + 1e-6


async def test_the_most_specific_rate_counts_and_each_model_by_itself() -> None:
    """A name goes before a pattern; a model without a rate never waits."""
    rates = ProcessRates({"a:*": Rate(requests_per_min=1), "a:fast": Rate(requests_per_min=60)}, clock=lambda: 0.0)
    assert [rates.ready("a:x", 0) for _ in range(2)] == [True, False]
    assert [rates.ready("a:y", 0) for _ in range(2)] == [True, False]
    assert [rates.ready("a:fast", 0) for _ in range(7)] == [True] * 6 + [False]
    assert all(rates.ready("b:x", 10**9) for _ in range(100))


async def test_settings_only_lower_rates() -> None:
    """A more specific pattern of a directory's file does not take the place of the host's rate; a lower one counts."""
    host, settings = (
        {"a:*": Rate(requests_per_min=60)},
        {"a:x": Rate(requests_per_min=6_000), "a:y": Rate(requests_per_min=6, tokens_per_min=100)},
    )
    table = RateTable(host, settings)
    assert table.of("a:x") == Rate(requests_per_min=60) and table.of("a:y") == Rate(
        requests_per_min=6, tokens_per_min=100
    )
    assert table.of("b:x") is None and table and not RateTable({}, {})
    limiter = ProcessRates(table, clock=lambda: 0.0)
    assert [limiter.ready("a:x", 0) for _ in range(7)] == [True] * 6 + [False]


async def test_a_server_lowers_a_rate_and_never_raises_it() -> None:
    """Headers that allow less count, those that allow more do not; after a 429 nothing goes for as long as it asks."""
    now = [0.0]
    rates = ProcessRates({"a:*": Rate(requests_per_min=60)}, clock=lambda: now[0])
    rates.learn("a:x", {b"x-ratelimit-limit-requests": b"6000"})
    assert [rates.ready("a:x", 0) for _ in range(7)] == [True] * 6 + [False]
    rates.learn("a:y", {b"anthropic-ratelimit-requests-limit": b"10", b"x-ratelimit-limit-tokens": b"nonsense"})
    assert [rates.ready("a:y", 0) for _ in range(2)] == [True, False]
    rates.hold("a:z", 5)
    assert not rates.ready("a:z", 0)
    now[0] = 5.1
    assert rates.ready("a:z", 0)


async def test_what_a_call_used_is_made_good_for() -> None:
    """A call that used more than it was estimated at puts off those after it."""
    rates = ProcessRates({"a:*": Rate(tokens_per_min=600)}, clock=lambda: 0.0)
    assert rates.ready("a:x", 10) and rates.ready("a:x", 10)
    rates.correct("a:x", 100)
    assert not rates.ready("a:x", 10)
    rates.correct("a:x", -100)
    assert rates.ready("a:x", 10)


async def test_the_highest_priority_goes_first_then_the_first_come() -> None:
    """At a gate and at a rate; whoever is cancelled leaves the queue and takes nothing with it."""
    order: list[str] = []
    now = 0.0
    rates = ProcessRates({"a:*": Rate(requests_per_min=6_000)}, clock=lambda: now)
    gate = Gate(1)
    assert gate.take_free() and not gate.take_free()

    async def enter(name: str, priority: int) -> None:
        await gate.take(priority)
        order.append(name)
        gate.release()

    async def send(name: str, priority: int) -> None:
        await rates.take("a:x", 0, priority)
        order.append(name)

    for work in (enter, send):
        order.clear()
        while rates.ready("a:x", 0):
            pass
        tasks = [
            asyncio.create_task(work(name, priority)) for name, priority in (("a", 0), ("b", 5), ("c", 0), ("d", 9))
        ]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert order == []
        now += 1.0  # by the clock of the rates: however long this machine takes, nobody goes before all have come
        gate.release()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert order == ["d", "a", "c"]
        assert gate.take_free()


async def test_waiting_for_a_rate_is_seen_and_takes_no_time_limit() -> None:
    """A call that waits publishes a pair of events, and its own time begins afterwards."""
    rates = ProcessRates({KEY: Rate(requests_per_min=150)})
    async with ModelServer(["good"], repeat=True) as server:
        adapter = OpenAIChatProvider(base_url=f"{server.url}/v1", api_key="k", rates=rates)
        async with AgentFlow(provider=adapter) as flow:
            seen: list[Any] = []
            flow.subscribe(lambda event: seen.append(event) if isinstance(event, WaitStarted | WaitFinished) else None)
            flow.task_system.register_template(
                {"name": "ask", "params": "q", "instructions": "{{q}}", "model": "m", "timeout_s": 0.3}
            )
            await flow.run(
                ASK.replace("instructions", 'model "m") (instructions'), bindings={"text": "the SDK is imported"}
            )
            assert not seen
            while rates.ready(KEY, 0):
                pass
            rates.hold(KEY, 0.45)
            assert (await flow.run('(value-of (ask (q "second")))')).value == "good"
        await adapter.aclose()
    assert [(type(event), event.reason) for event in seen] == [(WaitStarted, "rate"), (WaitFinished, "rate")]


async def test_runs_of_a_higher_priority_pass_the_gate_first() -> None:
    """With one call at a time, the run of the highest priority goes next; the wait at the gate is seen."""

    def reply(request: Any) -> Reply:
        return Reply(text=request.body["messages"][-1]["content"], delay_s=0.02)

    async with ModelServer(reply) as server:
        adapter = OpenAIChatProvider(base_url=f"{server.url}/v1", api_key="k", gate=1)
        async with AgentFlow(provider=adapter) as flow:
            seen: list[str] = []
            flow.subscribe(lambda event: seen.append(event.reason) if isinstance(event, WaitStarted) else None)
            await flow.run(ASK, bindings={"text": "warm"})
            runs = [flow.run(ASK, bindings={"text": name}, priority=at) for name, at in (("a", 0), ("b", -5), ("c", 5))]
            await asyncio.gather(*runs)
            with pytest.raises(ConfigurationError, match="-1000 to 1000"):
                await flow.run("1", priority=1_001)
        order = [request.body["messages"][-1]["content"] for request in server.requests]
        await adapter.aclose()
    assert order == ["warm", "a", "c", "b"] and seen == ["gate", "gate"]


async def test_a_refusal_holds_the_next_calls_back() -> None:
    """After a 429 the rate is held for as long as the server asks, for other calls of the model too."""
    rates = ProcessRates({KEY: Rate(requests_per_min=6_000)})
    async with ModelServer([Reply(status=429, headers={"retry-after": "30"}), "good"], repeat=True) as server:
        retry = RetryPolicy(attempts=1, base_s=0.01)
        adapter = OpenAIChatProvider(base_url=f"{server.url}/v1", api_key="k", rates=rates, retry=retry)
        with pytest.raises(RateLimited) as caught:
            async for _ in adapter.stream(ModelRequest((user("hi"),), model="m")):
                pass
        await adapter.aclose()
    assert caught.value.retry_after == 30 and not rates.ready(KEY, 0)


async def test_a_ready_adapter_keeps_to_the_flows_rates() -> None:
    """``rates=`` holds for ``provider=`` too, call by call, and counts what the calls used."""
    model = ScriptedProvider([{"text": "ok", "usage": {"input_tokens": 20, "output_tokens": 1_960}}, "ok"])
    async with AgentFlow(provider=model, rates={"scripted:*": Rate(tokens_per_min=18_000)}) as flow:
        seen: list[str] = []
        flow.subscribe(lambda event: seen.append(event.reason) if isinstance(event, WaitStarted) else None)
        await flow.run(ASK, bindings={"text": "hi"})
        assert not seen
        await flow.run(ASK, bindings={"text": "hi"})
    assert seen == ["rate"], "the first used more than a burst of 1,800 tokens"


def test_a_rate_is_a_positive_number() -> None:
    """What is not a rate is refused where it is written, with what to write."""
    for wrong in ({"requests_per_min": 0}, {"tokens_per_min": "many"}, {"requests_per_min": True}):
        with pytest.raises(ConfigurationError, match="a rate is a positive number"):
            Rate(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="not a table of") as caught:
        read_rates({"a:*": {"per_hour": 3}})
    assert caught.value.code == "config/rate"
