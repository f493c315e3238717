"""Large lists of a run are freed in slices, and only when nobody holds them."""

from __future__ import annotations

import asyncio
from typing import Any

from agentflow import AgentFlow, ScriptedProvider
from agentflow.run.strand.budget import LARGE, LargeLists

MANY = 40_000


class Tally:
    """Counts how many of its elements were freed."""

    def __init__(self) -> None:
        self.freed = 0

    def elements(self, count: int) -> list[Any]:
        tally = self

        class Element:
            __slots__ = ()

            def __del__(self) -> None:
                tally.freed += 1

        return [Element() for _ in range(count)]


async def freed_by_turns(tally: Tally, count: int) -> list[int]:
    """How many elements were freed in each turn of the loop, until all are."""
    turns: list[int] = []
    async with asyncio.timeout(20):
        while tally.freed < count:
            before = tally.freed
            await asyncio.sleep(0)
            turns.append(tally.freed - before)
    return turns


async def test_what_nobody_holds_is_freed_in_slices() -> None:
    """A list that is garbage loses its elements over several turns of the loop, by itself."""
    tally, lists = Tally(), LargeLists()
    lists.add(tally.elements(2 * MANY))
    turns = await freed_by_turns(tally, 2 * MANY)
    assert max(turns) < MANY and sum(turns) == 2 * MANY
    async with asyncio.timeout(20):
        while lists:  # the slice in which a list became empty may have ended with that
            await asyncio.sleep(0)


async def test_the_parts_of_what_is_freed_are_freed_in_slices_too() -> None:
    """Lists held by another list alone are garbage when that is."""
    tally, lists = Tally(), LargeLists()
    outer = [tally.elements(MANY), tally.elements(MANY)]
    lists.add(outer[0])
    lists.add(outer[1])
    outer.clear()
    assert tally.freed == 0
    assert max(await freed_by_turns(tally, 2 * MANY)) < MANY


async def test_what_somebody_holds_stays_as_it_is() -> None:
    """A list that is held, even by one more list, keeps its elements; after its run nothing holds it any longer."""
    tally, lists = Tally(), LargeLists()
    held = tally.elements(1_000)
    lists.add(held)
    lists.add(held)
    assert not lists.free()
    assert (len(held), tally.freed) == (1_000, 0)
    lists.end()
    async with asyncio.timeout(20):
        while lists:
            await asyncio.sleep(0.01)
    assert (len(held), tally.freed) == (1_000, 0)
    del held
    assert tally.freed == 1_000


async def test_values_and_variables_of_runs_are_untouched() -> None:
    """What a program keeps and gives is whole, also long after; what it dropped in between is gone without a trace."""
    text = (
        f"(define xs (range {LARGE})) (for-each (lambda (i) (length (reverse xs))) (range 5)) (list xs (reverse xs) xs)"
    )
    async with AgentFlow(provider=ScriptedProvider(lambda request: "")) as flow:
        first, second, third = (await flow.run(text)).value
        await asyncio.sleep(0.3)
        expected = list(range(LARGE))
        assert (first, third) == (expected, expected) and second == expected[::-1]
