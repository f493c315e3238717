"""Timers of asyncio in durable runs: a resumed run sees them fire in the recorded order among the outcomes of its calls."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextvars import Context
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.core.call.deliveries_port import timer_event
from agentflow.durable.deliveries import RunDeliveries
from tests.durable.test_deliveries import Memory, recorded
from tests.support.children import HANG_S


async def first_of_a_sleep_and_a_call(flow: AgentFlow, look: Any) -> str:
    """The name of what was first, in the argument of the next call."""
    call, sleep = asyncio.create_task(look("slow")), asyncio.create_task(asyncio.sleep(0.01))
    done, _ = await asyncio.wait([call, sleep], return_when=asyncio.FIRST_COMPLETED)
    await look("call first" if call in done else "sleep first")
    await call
    return str(await look("last"))


async def ticks_beside_a_call(flow: AgentFlow, look: Any) -> str:
    """The number of ticks before a call ended, in the argument of the next."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.004)
            ticks += 1

    ticking = asyncio.create_task(tick())
    await asyncio.create_task(look("slow"))
    ticking.cancel()
    await look(f"{ticks} ticks")
    return str(await look("last"))


async def limits_over_several_calls(flow: AgentFlow, look: Any) -> str:
    """How many calls of a task were in time, in the argument of the next."""
    count = 0

    async def several() -> None:
        nonlocal count
        async with asyncio.timeout(0.03):
            while True:
                await look(f"call {count}")
                await asyncio.sleep(0.004)
                count += 1

    await asyncio.gather(several(), look("slow"), return_exceptions=True)
    await look(f"{count} in time")
    return str(await look("last"))


async def limit_over_a_call_that_waits_for_its_permit(flow: AgentFlow, look: Any) -> str:
    """A call that is cancelled before it has begun, and one after it."""

    async def second() -> None:
        try:
            async with asyncio.timeout(0.01):
                await look("never")
        except TimeoutError:
            await look("after")

    await asyncio.gather(look("slow"), second())
    return str(await look("last"))


async def timers_by_name(flow: AgentFlow, look: Any) -> str:
    """Whether timers whose arguments are passed by name fired before a call ended, in the argument of the next."""
    loop, fired = asyncio.get_running_loop(), list[str]()
    call = asyncio.create_task(look("slow"))
    loop.call_later(delay=0.004, callback=partial(fired.append, "later"))
    loop.call_at(when=loop.time() + 0.008, callback=partial(fired.append, "at"))
    await call
    await look(" ".join(fired))
    return str(await look("last"))


FORMS = {
    timers_by_name: 1,
    first_of_a_sleep_and_a_call: 4,
    ticks_beside_a_call: 4,
    limits_over_several_calls: 4,
    limit_over_a_call_that_waits_for_its_permit: 1,
}
"""The workflows, and how many calls are at work at once."""


EAGER = pytest.mark.skipif(sys.version_info < (3, 12), reason="eager tasks are from Python 3.12 on")


@pytest.fixture(params=["ordinary", pytest.param("eager", marks=EAGER)])
async def tasks(request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """How the tasks of a loop begin: at its next turn, or at once."""
    if request.param == "eager":
        asyncio.get_running_loop().set_task_factory(asyncio.eager_task_factory)  # pyright: ignore
    yield
    asyncio.get_running_loop().set_task_factory(None)


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("form", FORMS)
async def test_a_resumed_run_sees_timers_fire_as_they_did(form: Any, tmp_path: Path) -> None:
    """The process ends at the last call. Resumed, where all outcomes come at once, the workflow makes the same calls again, and none
    that is recorded is carried out."""
    carried: list[list[str]] = []
    for life in ("first", "second"):
        done, held = list[str](), asyncio.Event()
        carried.append(done)
        async with AgentFlow(provider=ScriptedProvider("unused"), durable=f"sqlite:///{tmp_path}/runs.db") as flow:
            watched = declared(flow, form, done, held if life == "first" else None)
            async with asyncio.timeout(HANG_S):
                handle = await flow.start(watched(), run_id="r", limits=Limits(concurrency=FORMS[form]))
                if life == "first":
                    await held.wait()
                else:
                    assert (await handle.result()).value == "last"
    assert "slow" in carried[0] and carried[1] == ["last"]


def declared(flow: AgentFlow, form: Any, done: list[str], held: asyncio.Event | None) -> Any:
    """A workflow of the form, whose tool notes what it carries out; the last call never ends where it is ``held``."""

    @flow.tool(name="look")
    async def tool(at: str) -> str:
        done.append(at)
        if at == "last" and held is not None:
            held.set()
            await asyncio.Event().wait()
        await asyncio.sleep(0.03 if at == "slow" else 0.001)
        return at

    async def look(at: str) -> str:
        return str(await flow.call_tool("look", at=at))

    @flow.workflow
    async def watched() -> str:
        return str(await form(flow, look))

    return watched


class Timer:
    """A timer of a workflow's code, whose time the test brings about."""

    may_be_early = True

    def __init__(self, deliveries: RunDeliveries, number: int, log: list[str]) -> None:
        self.event = timer_event("0", number)
        self.context = Context()
        self.cancelled = False
        self._deliveries = deliveries
        self._note = partial(log.append, f"timer {number}")

    def fire(self, _: object = None) -> None:
        self._note()

    def fire_early(self) -> None:
        self._deliveries.fires(self)


async def test_a_timer_that_has_fired_is_stored_before_the_next_call() -> None:
    """A resumed run fires it early, in its place; one that had not fired comes after all that is recorded."""
    records, log = Memory(), list[str]()
    deliveries = RunDeliveries(records, [])
    first = Timer(deliveries, 1, log)
    deliveries.expects(first)
    deliveries.fires(first)
    await deliveries.begins("0#1", "0")
    await deliveries.passes("0#1", alone=False)
    assert recorded(records.rows) == [("0/@timers#1", False), ("0#1", False)] and log == ["timer 1"]
    again = RunDeliveries(Memory(), records.rows)
    timers = [Timer(again, number, log) for number in (1, 2)]
    again.fires(timers[1])
    passing = asyncio.create_task(again.passes("0#1", alone=False))
    passing.add_done_callback(lambda _: log.append("call 1"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert log == ["timer 1"]
    again.expects(timers[0])
    while len(log) < 4:
        await asyncio.sleep(0)
    assert log == ["timer 1", "timer 1", "call 1", "timer 2"]


async def test_a_timer_that_code_without_tasks_saw_is_not_waited_for() -> None:
    """It had fired when its workflow had no tasks, so that it has no record: when all wait for it, it fires."""
    records, log = Memory(), list[str]()
    await RunDeliveries(records, []).passes("0#1", alone=False)
    again = RunDeliveries(Memory(), records.rows, patience=0)
    again.fires(Timer(again, 1, log))
    while not log:
        await asyncio.sleep(0)


async def test_a_recorded_timer_that_the_code_cancels_is_passed_over() -> None:
    """A changed workflow does not need it any more."""
    records, log = Memory(), list[str]()
    deliveries = RunDeliveries(records, [])
    deliveries.fires(Timer(deliveries, 1, log))
    await deliveries.passes("0#1", alone=False)
    again = RunDeliveries(Memory(), records.rows)
    timer = Timer(again, 1, log)
    again.expects(timer)
    timer.cancelled = True
    await again.passes("0#1", alone=False)
    assert log == ["timer 1"]
