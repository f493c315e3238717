"""Outcomes reach the tasks of a workflow in the recorded order; what was cancelled waits for its cancel."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from agentflow.core.data.errors import JournalError
from agentflow.core.events.journal_rows import EffectRow
from agentflow.durable.deliveries import PYTHON, RunDeliveries


class Memory:
    """Records in memory. ``python`` is the version that the run began with, ``cuts`` the lines whose call waits for its cancel."""

    def __init__(self, rows: list[EffectRow] | None = None, python: str = PYTHON) -> None:
        self.rows = rows or []
        self.python = python
        self.cuts: list[str] = []
        self.rested = 0

    def note(self, row: EffectRow) -> asyncio.Future[None]:
        self.rows.append(row)
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stored.set_result(None)
        return stored

    def commit_soon(self, rows: list[EffectRow], drop: Any = ()) -> None:
        self.rows = [row for row in [*self.rows, *rows] if row.key not in drop]

    async def stop(self, error: JournalError) -> Any:
        raise error

    def rests(self) -> None:
        self.rested += 1

    def pin(self, kind: str, name: str, text: str | None) -> str | None:
        return self.python

    def cut(self, line: str) -> None:
        self.cuts.append(line)

    def uncut(self, line: str) -> None:
        self.cuts.remove(line)


async def delivered(deliveries: RunDeliveries, events: list[str]) -> list[str]:
    """The order in which outcomes pass that come in the order of ``events``."""
    passed: list[str] = []

    async def one(event: str) -> None:
        await deliveries.passes(event)
        passed.append(event)

    await asyncio.gather(*[one(each) for each in events])
    return passed


def recorded(rows: list[EffectRow]) -> list[tuple[str, bool]]:
    """The events of the records, in order, and whether each was lost."""
    return [(row.value["event"], row.value["lost"]) for row in sorted(rows, key=lambda row: row.value["at"])]


async def test_outcomes_pass_in_the_recorded_order_and_new_ones_after_them() -> None:
    """A replay delivers as the run did, whatever comes first; what has no record follows, and gets one."""
    first = Memory()
    assert await delivered(RunDeliveries(first, []), ["a", "b", "c"]) == ["a", "b", "c"]
    second = Memory([*first.rows])
    assert await delivered(RunDeliveries(second, first.rows), ["new", "c", "b", "a"]) == ["a", "b", "c", "new"]
    assert recorded(second.rows) == [("a", False), ("b", False), ("c", False), ("new", False)]


async def test_a_lost_call_is_recorded_when_another_begins() -> None:
    """If the code does nothing more, the whole run was stopped, and a resumed one carries the call out."""
    records = Memory()
    deliveries = RunDeliveries(records, [])
    await delivered(deliveries, ["a"])
    deliveries.lost("b", "0")
    assert recorded(records.rows) == [("a", False)] and deliveries.cuts
    await deliveries.begins("c", "0")
    await delivered(deliveries, ["c"])
    assert recorded(records.rows) == [("a", False), ("b", True), ("c", False)]


async def test_a_recorded_cancel_holds_back_what_followed_it() -> None:
    """Outcomes after a cancelled call pass once it was cancelled again."""
    first = Memory()
    deliveries = RunDeliveries(first, [])
    deliveries.lost("b", "0")
    await deliveries.begins("c", "0")
    await delivered(deliveries, ["c"])
    second = Memory([*first.rows])
    again = RunDeliveries(second, first.rows)
    await again.begins("b", "0")
    assert second.cuts == ["0"]
    later = asyncio.create_task(delivered(again, ["c"]))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not later.done()
    again.lost("b", "0")
    assert await later == ["c"] and not second.cuts and second.rested
    assert len(second.rows) == len(first.rows)


async def test_an_outcome_that_was_cancelled_on_its_way_leaves_no_record() -> None:
    """The code never had it."""
    records = Memory()
    deliveries = RunDeliveries(records, [])
    going = asyncio.create_task(deliveries.passes("a"))
    await asyncio.sleep(0)
    going.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await going
    assert await delivered(deliveries, ["b"]) == ["b"]
    assert recorded(records.rows) == [("b", False)]


async def test_another_python_says_why_not() -> None:
    """Which functions of asyncio create tasks depends on Python, so a run with tasks goes on with the version that it began with."""
    deliveries = RunDeliveries(Memory(python="3.9"), [])
    await deliveries.begins("a", "0")  # without tasks of its own a run does not depend on it
    deliveries.watch(lambda: True)
    with pytest.raises(JournalError, match=r"Python 3\.9") as refused:
        await deliveries.begins("a", "0")
    assert refused.value.code == "durable/mismatch" and "3.9" in (refused.value.hint or "")


async def test_outcomes_are_delivered_one_by_one() -> None:
    """The next outcome comes when all code waits again."""
    deliveries = RunDeliveries(Memory(), [])
    log: list[str] = []
    busy = False
    deliveries.watch(lambda: not busy)

    async def one(event: str) -> None:
        nonlocal busy
        await deliveries.passes(event)
        busy = True
        for _ in range(20):
            await asyncio.sleep(0)
        log.append(event)
        busy = False

    await asyncio.gather(one("a"), one("b"))
    assert log == ["a", "b"]
