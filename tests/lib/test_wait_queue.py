"""One order for everything that waits: priority, then depth in the run, then arrival."""

from __future__ import annotations

import asyncio

import pytest

from agentflow.lib.event_loop import Gate, WaitQueue


async def test_the_highest_priority_goes_first_then_the_deepest_then_the_first_come() -> None:
    """Who has left is passed over; an error belongs to the turn it is about."""
    turns: WaitQueue[str] = WaitQueue()
    waits = [("a", 0, 0), ("b", 0, 0), ("c", 5, 0), ("d", 0, 3), ("e", -1, 9), ("f", 5, 0), ("gone", 9, 0)]
    joined = {name: turns.join(name, priority, depth) for name, priority, depth in waits}
    joined["gone"].cancel()
    asked: list[str] = []

    def goes(name: str) -> bool:
        asked.append(name)
        if name == "d":
            raise ValueError(name)
        return name != "f"

    turns.serve(goes)
    assert asked == ["c", "f", "d", "a", "b", "e"] and joined["c"].result() is True
    with pytest.raises(ValueError, match="d"):
        joined["d"].result()
    assert turns.first() is joined["f"], "who may not go yet keeps the place it had"
    again = turns.join("g", 5)
    turns.send_back()
    assert turns.first() is again
    turns.serve(lambda name: None)
    assert turns.first() is again and not again.done()
    joined["f"].cancel()
    again.cancel()
    assert turns.first() is None and not turns.entries


async def test_a_gate_lets_the_most_urgent_through() -> None:
    """Whoever is cancelled while it has just been let through makes room for the next."""
    gate = Gate(1)
    await gate.take()
    passed: list[int] = []

    async def through(priority: int) -> None:
        await gate.take(priority)
        passed.append(priority)
        gate.release()

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(through(priority)) for priority in (0, 5, -3, 5, 7)]
        await asyncio.sleep(0)
        gate.release()
        tasks[-1].cancel()
    assert passed == [5, 5, 0, -3] and gate.take_free()


async def test_a_gate_lets_another_number_through_when_it_is_told() -> None:
    """A wider gate lets those in who wait; a narrower one lets nobody in until enough have left."""
    gate = Gate(1)
    await gate.take()
    waiting = [asyncio.ensure_future(gate.take()) for _ in range(3)]
    await asyncio.sleep(0)
    gate.resize(3)
    await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [True, True, False] and not gate.take_free()
    gate.resize(1)
    gate.release()
    gate.release()
    await asyncio.sleep(0)
    assert not waiting[2].done()
    gate.release()
    await waiting[2]
    gate.release()
    assert gate.take_free() and not gate.take_free()
