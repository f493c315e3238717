"""Cancelling a program leaves nothing running, wherever it is, and is never swallowed."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from tests.support.fake_run import FakeFlow

PLACES = {
    "tool": "(wait)",
    "deep": "(define (f n) (if (= n 0) (wait) (+ 1 (f (- n 1))))) (f 20000)",
    "parallel": "(parallel (wait) (wait) (parallel (wait) (wait)))",
    "pmap": "(pmap (lambda (x) (wait)) (range 50) 10)",
    "race": "(race (wait) (wait))",
    "timeout": "(timeout 100 (wait))",
    "retry": "(retry 5 (wait))",
    "try": "(try (wait) (catch (e) 1))",
    "finally": '(try (wait) (finally (log-message "bye")))',
    "map": "(map (lambda (x) (wait)) (list 1 2))",
    "eval": "(eval-program '(wait) (allow wait))",
    "deep branches": "(define (f n) (if (= n 0) (wait) (car (parallel (f (- n 1)))))) (f 300)",
    "spinning": "(define (spin) (spin)) (parallel (wait) (spin))",
    "director": """(director-evaluator-loop (max-iterations 3) (initial-director-input 0) (director (lambda (x i) (wait)))
      (executor (lambda (p i) p)) (evaluator (lambda (r p i) r)) (controller (lambda (f p r i) (list 'stop r))))""",
}


def waiting(**limits: Any) -> tuple[FakeFlow, list[str]]:
    """A flow whose tool ``wait`` never ends by itself, and what became of its calls."""
    ends: list[str] = []

    async def wait() -> None:
        ends.append("began")
        try:
            await asyncio.sleep(1_000)
        finally:
            ends.append("ended")

    return FakeFlow(tools={"wait": wait}, limits=Limits(depth=100_000, steps=None, **limits)), ends


@pytest.mark.parametrize("place", sorted(PLACES))
async def test_cancelling_leaves_nothing(place: str) -> None:
    """The cancellation comes out, every tool call has ended, no task is left and every Started has its Finished."""
    flow, ends = waiting()
    task = asyncio.create_task(flow(PLACES[place]))
    while not ends:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ends.count("began") == ends.count("ended")
    assert asyncio.all_tasks() == {asyncio.current_task()}
    started = [event.seq for event in flow.run.events if event.type.endswith("_started")]
    finished = [event.started for event in flow.run.events if event.type.endswith("_finished")]
    assert sorted(started) == sorted(finished)


@pytest.mark.parametrize("place", ["deep", "parallel", "race", "finally"])
async def test_a_hosts_cancel_scope_is_no_busy_loop(place: str) -> None:
    """anyio delivers cancellation again and again until the task has ended; waiting for children does not spin."""
    flow, ends = waiting()
    with anyio.move_on_after(0.3) as scope:
        await flow(PLACES[place])
    assert scope.cancelled_caught
    assert ends.count("began") == ends.count("ended") > 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("place", ["tool", "deep", "parallel", "pmap", "timeout"])
async def test_the_wall_clock_ends_what_waits(place: str) -> None:
    """A run past its wall time ends with the limit's error, while it waits for a tool too."""
    flow, ends = waiting(wall_s=0.4)
    with pytest.raises(LimitExceeded) as caught:
        await flow(PLACES[place])
    assert caught.value.code == "limits/wall"
    assert ends.count("began") == ends.count("ended")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_cancelling_at_every_await() -> None:
    """Wherever a program is when it is cancelled, the cancellation comes out and nothing is left."""
    text = """(define (work i) (value-of (step (n i))))
      (parallel (map work (range 3)) (pmap work (range 4) 2) (race (work 1) (work 2))
                (try (timeout 5 (work 3)) (catch (e) 0) (finally (log-message "done"))))"""

    async def step(n: int) -> int:
        for _ in range(3):
            await asyncio.sleep(0)
        return n

    for awaits in range(40):
        flow = FakeFlow(tools={"step": step})
        task = asyncio.create_task(flow(text))
        for _ in range(awaits):
            await asyncio.sleep(0)
        if task.done():
            assert task.result()[0] == [0, 1, 2]
            break
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        kinds = [event.type for event in flow.run.events]
        assert kinds.count("branch_started") == kinds.count("branch_finished")


async def test_a_finally_after_cancellation_has_little_room() -> None:
    """It may call tools but no model, has 1,000 steps and a second; its own error becomes a note, and what went on goes on."""
    done: list[str] = []

    async def wait() -> None:
        done.append("waiting")
        await asyncio.sleep(1_000)

    async def clean(what: str) -> None:
        done.append(what)

    tasks = {"model": lambda: done.append("model")}
    flow = FakeFlow(tools={"wait": wait, "clean": clean}, tasks=tasks)
    task = asyncio.create_task(flow('(try (try (wait) (finally (clean (what "up")) (model))) (finally (loop 5000 1)))'))
    while not done:
        await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["waiting", "up"]
