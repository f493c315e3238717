"""Durable runs that are cancelled while nobody works on them: they clean up as a run that works does."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentFlow, DurableRun
from agentflow.core.data.errors import JournalError
from tests.durable.world import Flow, World, interrupted

NESTED = """
(try
  (parallel
    (try (begin (look (at "a")) (ask-human "first?")) (finally (look (at "clean a"))))
    (race
      (try (begin (look (at "b")) (sleep 90)) (finally (look (at "clean b"))))
      (timeout 500 (try (ask-human "second?") (finally (look (at "clean c"))))))
    (pmap (lambda (i) (try (ask-human (format "{}?" i)) (finally (look (at (format "clean {}" i)))))) (list 1 2 3)))
  (finally (look (at "clean all"))))
"""
CLEAN = {"clean a": 1, "clean b": 1, "clean c": 1, "clean 1": 1, "clean 2": 1, "clean 3": 1, "clean all": 1}


async def waiting(flow: AgentFlow, text: str, **options: Any) -> DurableRun:
    handle = await flow.start(text, run_id="r", **options)
    assert await handle.wait() == "waiting"
    return handle


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_waiting_run_cleans_up(world: World, flow: Flow, elsewhere: bool) -> None:
    """Cancelled where it waits or from another process, every form around a wait cleans up, once; nothing else is done again."""
    async with flow() as first:
        handle = await waiting(first, NESTED)
        assert world.done == {"a": 1, "b": 1}
        if not elsewhere:
            await first.cancel("r")
            assert handle.status == "cancelled"
    if elsewhere:
        async with flow() as second:
            await second.cancel("r")
    assert world.done == {"a": 1, "b": 1, **CLEAN}
    async with flow() as third:
        assert [run.status for run in await third.runs()] == ["cancelled"]
        assert await third.questions("r") == []
        await third.cancel("r")
        with pytest.raises(JournalError, match="was cancelled"):
            await (await third.resume("r")).result()
    assert world.done == {"a": 1, "b": 1, **CLEAN}


async def test_the_handle_of_a_waiting_run_cancels_it(world: World, flow: Flow) -> None:
    """``handle.cancel`` is ``flow.cancel``: it returns when the run has cleaned up."""
    async with flow() as opened:
        handle = await waiting(opened, '(try (ask-human "yes?") (finally (look (at "clean"))))')
        await handle.cancel()
        assert handle.status == "cancelled" and handle.waiting == [] and world.done == {"clean": 1}


async def test_an_interrupted_run_cleans_up(world: World, flow: Flow) -> None:
    """A run that was interrupted is replayed, and cleans up where its records end; what was at work is not begun again."""
    text = '(try (list (look (at "a")) (look (at "b")) (look (at "c"))) (finally (look (at "clean"))))'
    await interrupted(world, flow, text, "b")
    async with flow() as second:
        await second.cancel("r")
        assert [run.status for run in await second.runs()] == ["cancelled"]
    assert world.done == {"a": 1, "clean": 1}


async def test_what_cannot_be_replayed_is_cancelled_as_it_is(world: World, flow: Flow) -> None:
    """A run that needs bindings which are not stored, or whose tools have changed, can be given up all the same."""
    text = '(try (begin (look (at "a")) (call-it) (ask-human "yes?")) (finally (look (at "clean"))))'

    async def another(at: str, other: int = 0) -> str:
        """Look at something else."""
        raise AssertionError("nothing is carried out")

    another.__name__ = "look"
    for tools in (None, [another]):
        async with flow() as first:
            handle = await first.start(text, {"call-it": lambda: 1}, run_id=f"r-{tools is None}")
            assert await handle.wait() == "waiting"
        async with flow(**({} if tools is None else {"tools": tools})) as second:
            await second.cancel(handle.run_id)
            assert (await second.runs())[0].status == "cancelled"
    assert world.done == {"a": 2}


async def test_a_run_that_has_ended_well_stays_so(world: World, flow: Flow) -> None:
    """Cancelling a run that is done does not take its result away."""
    async with flow() as opened:
        assert (await (await opened.start('(content (look (at "a")))', run_id="r")).result()).value == "<a>"
        await opened.cancel("r")
        assert (await (await opened.resume("r")).result()).value == "<a>"
