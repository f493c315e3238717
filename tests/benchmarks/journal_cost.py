"""What a record costs: processor time and wall time an effect of a durable run adds, and what replaying one takes.

python -m tests.benchmarks.journal_cost

The goals are in units of time, and mean the machine on which they were set: on it ``fib(22)`` by hand takes 7.4 ms. It is timed before
and after, and the last column says what each figure is there; ``<=`` is the goal.

What a record costs that comes alone depends on where the system puts the two threads it passes through: on one core the other
one is at hand, on two each has to be woken. Which it will be changes from run to run, so both are measured where they can be.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentflow import AgentFlow, Durable, Limits, ScriptedProvider
from tests.benchmarks.timing import FIB_BY_HAND_MS, fib_by_hand_ms

ALONE = "(for-each (lambda (i) (look (at i))) (range 300))"
AT_ONCE = "(length (pmap (lambda (i) (look (at i))) (range 100)))"
MANY = "(length (pmap (lambda (i) (look (at i))) (range 10000)))"
TASK = '(defatom ask (params (q int)) (instructions "{{q}}") (history_config {"use_session_history" #f}))'
LIMITS = Limits(effects=None, steps=None)
ROUNDS = 5


async def look(at: int) -> str:
    """Look at something."""
    return "seen"


def flow(directory: str, sync: str) -> AgentFlow:
    return AgentFlow(
        provider=ScriptedProvider(lambda request: "an answer"),
        root=directory,
        tools=[look],
        limits=LIMITS,
        durable=Durable(f"sqlite:///{directory}/runs.db", sync=sync),  # type: ignore[arg-type]
    )


async def timed(work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Wall and processor time in seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    await work()
    return time.perf_counter() - wall, time.process_time() - cpu


def place(loop: set[int], writer: set[int]) -> None:
    """Put this thread on the cores ``loop``, and the one that writes records on the cores ``writer``, where that is possible."""
    if not hasattr(os, "sched_setaffinity"):
        return
    for thread in threading.enumerate():
        if thread.native_id is not None:
            os.sched_setaffinity(thread.native_id, writer if thread.name.startswith("durable runs") else loop)


async def added(text: str, effects: int, sync: str, apart: bool | None = None) -> tuple[float, float]:
    """Wall and processor milliseconds that recording adds to an effect: the best of some rounds.

    With ``apart`` loop and writer are on two cores, with False on one, with None wherever the system puts them.
    """
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set[int]()
    rounds: list[tuple[float, float, float, float]] = []
    for number in range(ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            async with flow(directory, sync) as opened:
                await opened.run(text)

                async def durable(opened: AgentFlow = opened, number: int = number) -> None:
                    await (await opened.start(text, run_id=f"r{number}")).result()

                await (await opened.start("1")).result()
                if apart is not None and cores:
                    place({min(cores)}, {max(cores) if apart else min(cores)})
                rounds.append((*await timed(lambda opened=opened: opened.run(text)), *await timed(durable)))
                if apart is not None and cores:
                    place(cores, cores)
    wall = min(each[2] for each in rounds) - min(each[0] for each in rounds)
    cpu = min(each[3] for each in rounds) - min(each[1] for each in rounds)
    return wall / effects * 1_000, cpu / effects * 1_000


async def replayed(text: str) -> tuple[float, float]:
    """Seconds of wall and processor time to go on with a run of which all is recorded, loading included: the best of some rounds."""
    figures: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as directory:
            hang = f"(begin {text} (hang))"

            async def wait(reached: asyncio.Event) -> None:
                reached.set()
                await asyncio.Event().wait()

            reached = asyncio.Event()
            async with flow(directory, "normal") as opened:
                await opened.start(hang, {"hang": lambda reached=reached: wait(reached)}, run_id="r")
                await reached.wait()
            async with flow(directory, "normal") as opened:

                async def again(opened: AgentFlow = opened, hang: str = hang) -> None:
                    await (await opened.start(hang, {"hang": lambda: None}, run_id="r")).result()

                figures.append(await timed(again))
    return min(each[0] for each in figures), min(each[1] for each in figures)


def size_of(directory: str) -> int:
    return Path(directory, "runs.db").stat().st_size


async def main() -> None:
    task = f"{TASK} (for-each (lambda (i) (ask (q i))) (range 100))"
    began_ms = await fib_by_hand_ms()
    rows: list[tuple[str, float, float, str, float | None]] = []
    for name, text, effects, sync, apart, goal in (
        ("one alone, normal", ALONE, 300, "normal", None, 0.2),
        ("one alone, on one core", ALONE, 300, "normal", False, None),
        ("one alone, on two cores", ALONE, 300, "normal", True, None),
        ("one alone, full", ALONE, 300, "full", None, None),
        ("100 at once, normal", AT_ONCE, 100, "normal", None, 0.1),
        ("100 at once, full", AT_ONCE, 100, "full", None, None),
        ("a task alone, normal", task, 100, "normal", None, None),
        ("a task alone, on one core", task, 100, "normal", False, None),
        ("a task alone, on two cores", task, 100, "normal", True, None),
    ):
        wall, cpu = await added(text, effects, sync, apart)
        rows.append((name, wall * 1e3, cpu * 1e3, "us an effect", None if goal is None else goal * 1e3))
    bare = await replayed("1")
    rows.append(("gone on with, without an effect", bare[0] * 1e6, bare[1] * 1e6, "us a run", None))
    for name, text, effects, goal in (
        ("replayed, a tool", "(for-each (lambda (i) (look (at i))) (range 3000))", 3_000, 30),
        ("replayed, a task", f"{TASK} (for-each (lambda (i) (ask (q i))) (range 3000))", 3_000, 60),
        ("10,000 effects replayed", MANY, 10_000, 100),
    ):
        wall, cpu = [(all_ - one) / effects * 1e6 for all_, one in zip(await replayed(text), bare, strict=True)]
        rows.append((name, wall, cpu, "us an effect", goal))
    slower = (began_ms + await fib_by_hand_ms()) / 2 / FIB_BY_HAND_MS
    print(f"this machine takes {slower:.2f} times as long as the one of the goals")
    print(f"{'':34}{'wall':>9}{'processor':>11}{'':16}{'wall':>9}{'processor':>11}  there")
    for name, wall, cpu, unit, goal in rows:
        there = f"{wall / slower:>9.0f}{cpu / slower:>11.0f}"
        print(f"{name:34}{wall:>9.0f}{cpu:>11.0f} {unit:15}{there}  {'' if goal is None else f'<= {goal:.0f}'}")
    with tempfile.TemporaryDirectory() as directory:
        async with flow(directory, "normal") as opened:
            await (await opened.start(MANY, run_id="r")).result()
        size = size_of(directory)
    print(f"{'a record':34}{size / 10_000:>7.0f} bytes")


if __name__ == "__main__":
    asyncio.run(main())
