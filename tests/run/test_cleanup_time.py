"""The ``finally`` forms of what is being stopped share some seconds, of which those of others cannot take the host's."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.program import compile_program
from agentflow.run.engine import run_program
from agentflow.run.strand.budget import Budget, CleanupTime
from tests.support.fakes import FakeRun
from tests.support.world import World

HANG = "(try (wait) (finally (begin (note (what 'theirs)) (wait))))"


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_form_has_a_second_and_all_of_them_have_some_together() -> None:
    """Ten forms one after the other get no more than the whole, and each no more than its own."""
    clock = Clock()
    cleanup = CleanupTime(1.0, granted=2.0, host=3.5, now=clock)
    given: list[float] = []
    for _ in range(10):
        with cleanup.form(trusted=True) as seconds:
            given.append(seconds)
            clock.now += seconds
    assert given == [1.0, 1.0, 1.0, 0.5, *[0.0] * 6]


def test_forms_beside_each_other_count_once() -> None:
    """Branches clean up at the same time: a second of fifty of them is one second."""
    clock = Clock()
    cleanup = CleanupTime(1.0, granted=2.0, host=3.0, now=clock)
    with contextlib.ExitStack() as stack:
        assert [stack.enter_context(cleanup.form(trusted=True)) for _ in range(50)] == [1.0] * 50
        clock.now += 1.0
    with cleanup.form(trusted=True) as seconds:
        clock.now += 1.5
        assert seconds == 1.0
    with cleanup.form(trusted=True) as seconds:
        assert seconds == 0.5


def test_forms_with_grants_take_nothing_of_the_hosts() -> None:
    """However long untrusted forms take, trusted ones have their time."""
    clock = Clock()
    cleanup = CleanupTime(1.0, granted=2.0, host=3.0, now=clock)
    for _ in range(5):
        with cleanup.form(trusted=False) as seconds:
            clock.now += seconds
    with cleanup.form(trusted=False) as left, cleanup.form(trusted=True) as seconds:
        assert (left, seconds) == (0.0, 1.0)


def test_a_run_that_goes_on_has_its_time_again() -> None:
    """Many time-outs with a little to clean up each are not long stop."""
    clock = Clock()
    cleanup = CleanupTime(1.0, granted=2.0, host=3.0, now=clock)
    for _ in range(100):
        with cleanup.form(trusted=True) as seconds:
            assert seconds == 1.0
            clock.now += 0.9
        clock.now += 0.9


def test_thousands_of_forms_that_are_due_have_no_more_than_the_whole() -> None:
    """What is restored in the moment between two of them is not a time: a stop with many pending forms ends in the seconds it has."""
    clock = Clock()
    cleanup = CleanupTime(1.0, granted=2.0, host=3.0, now=clock)
    used = 0.0
    for _ in range(10_000):
        with cleanup.form(trusted=True) as seconds:
            spent = seconds + 0.05 if seconds else 0.0001  # the unwinding of what it had begun
            clock.now += spent
            used += spent
        clock.now += 0.00001
    assert used <= 3.0 + 4 * 0.05 + 1.0


async def stopped(text: str, **time: float) -> list[str]:
    """What the clean-up of a program noted that was cancelled while it waited, with so much time for it."""
    waiting = asyncio.Event()
    notes: list[str] = []

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    class Stuck(World):
        async def perform(self, effect: Any, call: Any) -> Any:
            if effect.name == "wait":
                await wait()
            notes.append(str(effect.arguments["what"]))
            await asyncio.sleep(0)

    world, env, limits = Stuck({"wait": str, "note": str}), SexpEnvironment(), Limits()
    program = compile_program(Source("x", text), names=NamesInForce(world, env, env), limits=limits)
    budget = Budget(limits, cleanup=CleanupTime(**time))
    call = FakeRun(limits=limits, watched=False).call(grants=None)
    task = asyncio.create_task(run_program(program, env, performer=world, call=call, budget=budget))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    return notes


async def test_many_forms_one_around_the_other_end_together() -> None:
    """Fifty forms that wait for ever are given up as a whole; some have begun, and the last ones get nowhere."""
    text = HANG
    for _ in range(50):
        text = f"(try {text} (finally (begin (note (what 'theirs)) (wait))))"
    notes = await stopped(text, each=0.2, host=0.6)
    assert 3 <= len(notes) < 10


async def test_forms_within_forms_share_the_time_too() -> None:
    """A form that is given up has a form of its own, which has one: they are no way to more time."""
    text = "(note (what 'last))"
    for _ in range(50):
        text = f"(try (wait) (finally (begin (note (what 'next)) {text})))"
    assert 1 <= len(await stopped(text, each=0.05, host=0.15)) < 10


async def test_a_hostile_program_does_not_starve_the_one_around_it() -> None:
    """Its forms use up their own time; that of the host's program cleans up in full."""
    hostile = HANG
    for _ in range(20):
        hostile = f"(try {hostile} (finally (begin (note (what 'theirs)) (wait))))"
    evaluated = f"(eval-program '{hostile} (allow wait note))"
    notes = await stopped(
        f"(try {evaluated} (finally (begin (note (what 'ours)) (note (what 'whole)))))", each=0.05, granted=0.1, host=9
    )
    assert notes[-2:] == ["ours", "whole"]
    assert 1 <= notes.count("theirs") < 10
