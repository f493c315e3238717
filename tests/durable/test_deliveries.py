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
        self.errors: list[Exception] = []

    def commit_soon(self, rows: list[EffectRow], drop: Any = ()) -> None:
        self.rows = [row for row in [*self.rows, *rows] if row.key not in drop]

    def note(self, row: EffectRow) -> asyncio.Future[None]:
        self.rows = [*self.rows, *([] if row.key in {each.key for each in self.rows} else [row])]
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stored.set_result(None)
        return stored

    def abandon(self, error: Exception) -> None:
        self.errors.append(error)

    async def stop(self, error: JournalError) -> Any:
        raise error

    def rests(self) -> None:
        self.rested += 1

    def pin(self, kind: str, name: str, text: str | None) -> str | None:
        return self.python

    async def reach(self, path: str, permits: Any) -> None:
        await asyncio.get_running_loop().create_future()

    def counting(self) -> bool:
        return False

    def cut(self, line: str) -> None:
        self.cuts.append(line)

    def uncut(self, line: str) -> None:
        self.cuts.remove(line)


async def delivered(deliveries: RunDeliveries, events: list[str]) -> list[str]:
    """The order in which outcomes pass that come in the order of ``events``."""
    passed: list[str] = []

    async def one(event: str) -> None:
        await deliveries.passes(event, alone=False)
        passed.append(event)

    await asyncio.gather(*[one(each) for each in events])
    return passed


def recorded(rows: list[EffectRow]) -> list[tuple[str, bool]]:
    """The events of the records, in order, and whether each was lost."""
    events: list[tuple[str, bool]] = []
    for row in sorted(rows, key=lambda row: row.value["at"]):
        for path, first, last in row.value.get("forced", ()):
            events += [(f"{path}#{number}", False) for number in range(first, last + 1)]
        events.append((row.value["event"], row.value["lost"]))
    return events


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
    going = asyncio.create_task(deliveries.passes("a", alone=False))
    await asyncio.sleep(0)
    going.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await going
    assert await delivered(deliveries, ["b"]) == ["b"]
    assert recorded(records.rows) == [("b", False)]


async def test_an_outcome_that_was_cancelled_after_it_was_delivered_has_its_place_as_lost() -> None:
    """The code did not have it yet: when the run is resumed the call waits for its cancel, and what came before stays recorded."""
    records = Memory()
    deliveries = RunDeliveries(records, [])
    deliveries.watch(lambda: True)
    await deliveries.begins("0#1", "0")
    await deliveries.passes("0#1", alone=True)
    going = asyncio.create_task(deliveries.passes("a", alone=False))
    while not records.rows:
        await asyncio.sleep(0)
    going.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await going
    deliveries.lost("a", "0")
    await deliveries.begins("b", "0")
    assert recorded(records.rows) == [("0#1", False), ("a", True)]


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
        await deliveries.passes(event, alone=False)
        busy = True
        for _ in range(20):
            await asyncio.sleep(0)
        log.append(event)
        busy = False

    await asyncio.gather(one("a"), one("b"))
    assert log == ["a", "b"]


async def test_an_outcome_that_does_not_come_is_an_error_that_names_it() -> None:
    """A changed workflow does not make the call that is recorded next: those that wait for it are told, instead of waiting on."""
    first = Memory()
    await delivered(RunDeliveries(first, []), ["0/@one.0#1", "0/@two.0#2"])
    second = Memory([*first.rows])
    waiting = asyncio.create_task(
        delivered(RunDeliveries(second, first.rows, patience=0), ["0/@two.0#2", "0/@new.0#1"])
    )
    while not second.errors:
        await asyncio.sleep(0)
    assert not waiting.done()
    (error,) = second.errors
    assert isinstance(error, JournalError)
    assert error.code == "durable/mismatch" and "at 0/@one.0, call 1" in error.message
    waiting.cancel()


async def test_a_cancel_that_does_not_come_is_one_too() -> None:
    """The call that the records have as cancelled is made, and the code does not cancel it any more."""
    first = Memory()
    deliveries = RunDeliveries(first, [])
    deliveries.lost("0#1", "0")
    await deliveries.begins("0#2", "0")
    await delivered(deliveries, ["0#2"])
    second = Memory([*first.rows])
    again = RunDeliveries(second, first.rows, patience=0)
    await again.begins("0#1", "0")
    waiting = asyncio.create_task(delivered(again, ["0#2"]))
    while not second.errors:
        await asyncio.sleep(0)
    assert "at 0, call 1 was cancelled next" in str(second.errors[0])
    waiting.cancel()


async def test_nobody_is_told_while_only_the_code_waits() -> None:
    """Where no other outcome is held back, the code may wait for something of its own for as long as it likes."""
    first = Memory()
    await delivered(RunDeliveries(first, []), ["a", "b"])
    second = Memory([*first.rows])
    again = RunDeliveries(second, first.rows, patience=0)
    assert await delivered(again, ["a"]) == ["a"]
    for _ in range(50):
        await asyncio.sleep(0)
    assert not second.errors
    assert await delivered(again, ["b"]) == ["b"]


async def test_code_without_other_tasks_gets_its_outcome_at_once() -> None:
    """No record is stored for it, until one is stored after which its place would be missing."""
    records = Memory()
    deliveries = RunDeliveries(records, [])
    deliveries.watch(lambda: True)
    for event in ("0#1", "0#2", "0#4"):
        await deliveries.begins(event, "0")
        await deliveries.passes(event, alone=True)
    assert records.rows == []
    assert await delivered(deliveries, ["c"]) == ["c"]
    assert len(records.rows) == 1
    assert recorded(records.rows) == [("0#1", False), ("0#2", False), ("0#4", False), ("c", False)]
    again = RunDeliveries(Memory([*records.rows]), records.rows)
    again.watch(lambda: True)
    assert await delivered(again, ["c", "0#4", "0#2", "0#1"]) == ["0#1", "0#2", "0#4", "c"]


async def test_a_call_waits_until_the_order_that_led_to_it_is_stored() -> None:
    """Otherwise the process could die in it, and another order be taken afterwards, with another call."""
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    class Slow(Memory):
        def note(self, row: EffectRow) -> asyncio.Future[None]:
            super().note(row)
            return stored

    deliveries = RunDeliveries(Slow(), [])
    assert await delivered(deliveries, ["a"]) == ["a"]
    begun = asyncio.create_task(deliveries.begins("b", "0"))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not begun.done() and not deliveries.resting()
    stored.set_result(None)
    await begun
