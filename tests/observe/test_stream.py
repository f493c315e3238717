"""Events to readers: who loses what, who waits, and what a bad observer can do (nothing)."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import AgentflowError
from agentflow.core.events.events import Event, Log, TextDelta
from agentflow.observe.stream import DELTA_ALLOWANCE, MAX_UNREAD, Fanout, Subscriber


def log(seq: int) -> Log:
    return Log("r", 1, seq, "0", None, None, time.time(), message=str(seq))


def delta(seq: int) -> TextDelta:
    return TextDelta("r", 1, seq, "0", None, None, time.time(), text="x")


async def read_all(subscriber: Subscriber) -> list[Event]:
    return [event async for event in subscriber]


async def test_events_arrive_in_order_and_end_with_close() -> None:
    """A reader gets what was put, in order, also what is queued when the stream closes."""
    subscriber = Subscriber(lossy=False)
    for seq in range(5):
        subscriber.put(log(seq))
    subscriber.close()
    assert [event.seq for event in await read_all(subscriber)] == [0, 1, 2, 3, 4]


async def test_a_lossy_reader_loses_deltas_only() -> None:
    """An observer that falls behind loses deltas past its allowance, never lifecycle events."""
    subscriber = Subscriber(lossy=True)
    for seq in range(1000):
        subscriber.put(delta(seq))
        subscriber.put(log(seq))
    subscriber.close()
    got = await read_all(subscriber)
    assert sum(isinstance(event, Log) for event in got) == 1000
    assert sum(isinstance(event, TextDelta) for event in got) == DELTA_ALLOWANCE
    assert subscriber.dropped == 1000 - DELTA_ALLOWANCE


async def test_the_callers_own_stream_makes_delta_producers_wait() -> None:
    """A producer is held while the caller has the allowance of deltas unread, and goes on as they are read."""
    subscriber = Subscriber(lossy=False)
    sent = 0

    async def produce() -> None:
        nonlocal sent
        for seq in range(500):
            subscriber.put(delta(seq))
            sent += 1
            if subscriber.congested:
                await subscriber.room()
        subscriber.close()

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        for _ in range(5):
            await asyncio.sleep(0)
        assert sent == DELTA_ALLOWANCE
        got = await read_all(subscriber)
    assert [event.seq for event in got] == list(range(500))


async def test_leaving_lifts_the_wait() -> None:
    """A producer that waits for a reader goes on when the reader leaves."""
    subscriber = Subscriber(lossy=False)
    for seq in range(DELTA_ALLOWANCE):
        subscriber.put(delta(seq))
    assert subscriber.congested
    async with asyncio.timeout(1), asyncio.TaskGroup() as group:
        group.create_task(subscriber.room())
        await asyncio.sleep(0)
        subscriber.discard()


async def test_a_reader_too_far_behind_is_disconnected_and_told() -> None:
    """Past the bound of unread lifecycle events a reader is cut off; it reads what was kept, then an error."""
    subscriber = Subscriber(lossy=False)
    for seq in range(MAX_UNREAD + 10):
        subscriber.put(log(seq))
    seen = 0
    with pytest.raises(AgentflowError, match="fell behind") as caught:
        async for _ in subscriber:
            seen += 1
    assert seen == MAX_UNREAD
    assert caught.value.code == "stream/overrun"


async def test_a_failing_observer_is_disabled_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    """An observer that raises is dropped with a log line; the event reaches everybody else."""
    good: list[int] = []
    dropped: list[object] = []

    def bad(event: Event) -> None:
        raise RuntimeError("observer bug")

    fanout = Fanout((bad, lambda event: good.append(event.seq)), None, dropped.append)
    with caplog.at_level(logging.WARNING):
        fanout.publish(log(1))
        fanout.publish(log(2))
    assert good == [1, 2]
    assert dropped == [bad]
    assert "observer" in caplog.text


async def test_an_async_observer_gets_every_event_before_the_end() -> None:
    """Async observers read beside the run; closing waits for what is queued."""
    got: list[int] = []

    class Slow:
        async def __call__(self, event: Event) -> None:
            await asyncio.sleep(0)
            got.append(event.seq)

    fanout = Fanout((Slow(),))
    async with asyncio.TaskGroup() as group:
        group.create_task(fanout.pump())
        for seq in range(50):
            fanout.publish(log(seq))
        fanout.close()
    assert got == list(range(50))


async def test_a_failing_async_observer_ends_alone() -> None:
    """An async observer that raises is disabled; the run's other tasks are untouched."""
    calls: list[Any] = []

    async def bad(event: Event) -> None:
        calls.append(event.seq)
        raise RuntimeError("observer bug")

    fanout = Fanout((bad,))
    async with asyncio.TaskGroup() as group:
        group.create_task(fanout.pump())
        fanout.publish(log(1))
        await asyncio.sleep(0.01)
        fanout.publish(log(2))
        fanout.close()
    assert calls == [1]


@pytest.mark.slow
async def test_an_async_observer_that_hangs_is_dropped_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A run waits its grace for it and ends; later runs do without it, and the other observers miss nothing."""
    hung: list[str] = []
    seen: list[str] = []

    async def hangs(event: Event) -> None:
        hung.append(event.type)
        await asyncio.Event().wait()

    async def reads(event: Event) -> None:
        seen.append(event.type)

    async with AgentFlow(root=tmp_path) as flow:
        flow.subscribe(hangs)
        flow.subscribe(reads)
        for _ in range(3):
            assert (await flow.run("(+ 1 2)")).value == 3
    assert len(hung) == 1 and seen.count("run_finished") == 3
    assert caplog.text.count("is dropped") == 1
