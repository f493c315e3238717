"""The work that compare.py measures in each of two trees. It names nothing but public names of agentflow.

    PYTHONPATH=TREE python -P tests/benchmarks/figures.py --url URL chain fib

prints the processor seconds of one unit of each figure as a JSON object, or with ``--by calls`` the calls of Python functions in
it, which no load of the machine changes; ``--url`` is a loopback model server's. This file belongs to the harness: both trees run
the same one, whatever theirs looks like.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import itertools
import json
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import agentflow
from agentflow import AgentFlow, RunResult, ScriptedProvider

CHUNKS = 2_000
STREAM = {"chunks": ["word "] * CHUNKS}
"""The reply that the loopback server of the figure ``chunk`` repeats."""
CONTROL = "control"
"""The figure that no tree has a part in: when it differs, the machine was not steady."""

TEMPLATE = {"name": "ask", "params": {"question": "string"}, "instructions": "Say {{question}}"}
ONE_TASK = '(value-of (ask (question "go on")))'

Work = Callable[[], Awaitable[object]]


@dataclass(frozen=True)
class Figure:
    """One figure: ``open(url)`` gives the work and its value; one run of it is ``units`` of ``unit``."""

    open: Callable[[str], contextlib.AbstractAsyncContextManager[tuple[Work, object]]]
    unit: str
    units: int = 1
    repeats: int = 20


async def step(n: int) -> int:
    """Give n back."""
    return n


async def nap(n: int) -> int:
    """Give n back, a turn of the loop later."""
    await asyncio.sleep(0)
    return n


async def add(a: int) -> int:
    """Add one."""
    return a + 1


async def value_of(run: Awaitable[RunResult[Any]]) -> object:
    """The value of a run."""
    return (await run).value


@contextlib.asynccontextmanager
async def program(text: str, expected: object) -> AsyncGenerator[tuple[Work, object]]:
    """A program without a model, compiled once."""
    async with AgentFlow(tools=[step, nap]) as flow:
        compiled = flow.compile(text)
        yield lambda: value_of(flow.run(compiled)), expected


@contextlib.asynccontextmanager
async def task(*replies: object, runs: int = 1) -> AsyncGenerator[tuple[Work, object]]:
    """A program of one task, ``runs`` of them at once, over a scripted model that gives ``replies`` over and over."""
    script = itertools.cycle(replies)
    async with AgentFlow(provider=ScriptedProvider(lambda request: next(script)), tools=[add]) as flow:
        flow.task_system.register_template(TEMPLATE)

        async def crowd() -> object:
            return (await asyncio.gather(*(value_of(flow.run(ONE_TASK)) for _ in range(runs))))[-1]

        yield (crowd if runs > 1 else lambda: value_of(flow.run(ONE_TASK))), replies[-1]


@contextlib.asynccontextmanager
async def stream(url: str) -> AsyncGenerator[tuple[Work, object]]:
    """A task whose answer streams from a server, through the OpenAI SDK, to somebody who reads every event."""
    async with AgentFlow("openai-chat:model", base_url=url, api_key="k") as flow:
        flow.task_system.register_template(TEMPLATE)

        async def work() -> int:
            deltas = 0
            async with flow.stream(ONE_TASK) as run:
                async for event in run:
                    deltas += event.type == "text_delta"
                await run.value()
            return deltas

        yield work, CHUNKS


@contextlib.asynccontextmanager
async def bare_tasks() -> AsyncGenerator[tuple[Work, object]]:
    """Asyncio tasks, created and awaited a hundred at a time."""

    async def work() -> int:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(step(n)) for n in range(100)]
        return tasks[-1].result()

    yield work, 99


TOOL_CALL = {"tool_calls": [{"name": "add", "arguments": {"a": 1}}]}
FIB = "(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (fib 22)"
WAITING = "(length (pmap (lambda (x) (value-of (nap (n x)))) (range 100)))"
LISTS = """
  (reduce + 0 (filter (lambda (x) (> x 10)) (map (lambda (x) (* x 2)) (append (range 5000) (range 5000)))))"""

FIGURES: dict[str, Figure] = {
    "chain": Figure(lambda _: program("(loop 100 (value-of (step (n 1))))", 1), "tool effect", 100),
    "fan-out": Figure(lambda _: program("(length (pmap (lambda (x) x) (range 100)))", 100), "branch", 100),
    "waiting": Figure(lambda _: program(WAITING, 100), "branch that waits", 100),
    "call": Figure(lambda _: task("ok"), "task", repeats=400),
    "tool turns": Figure(lambda _: task(*[TOOL_CALL] * 5, "ok"), "loop of five turns", repeats=60),
    "chunk": Figure(stream, "chunk", CHUNKS, 10),
    "fib": Figure(lambda _: program(FIB, 17_711), "run", repeats=10),
    "lists": Figure(lambda _: program(LISTS, 49_989_940), "run"),
    "crowd": Figure(lambda _: task("ok", runs=200), "run among 200", 200, 8),
    CONTROL: Figure(lambda _: bare_tasks(), "asyncio task", 100, 100),
}


@contextlib.contextmanager
def called() -> Generator[Callable[[], float]]:
    """A clock that moves with each call of a Python function in this thread: no load of the machine changes what it shows."""
    calls = 0

    def entered(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(entered)
    try:
        yield lambda: calls
    finally:
        sys.setprofile(None)


CLOCKS: dict[str, Callable[[], contextlib.AbstractContextManager[Callable[[], float]]]] = {
    "seconds": lambda: contextlib.nullcontext(time.process_time),
    "calls": called,
}


async def measure(figure: Figure, url: str, effort: float = 1.0, by: str = "seconds") -> float:
    """Median processor seconds, or calls, of one unit. Raises AssertionError when the work gives another value than it ought to."""
    async with figure.open(url) as (work, expected):
        for _ in range(3):
            value = await work()
            assert value == expected, f"the work gave {value!r} instead of {expected!r}"
        gc.collect()
        gc.freeze()
        taken: list[float] = []
        with CLOCKS[by]() as clock:
            for _ in range(max(1, round(figure.repeats * effort))):
                began = clock()
                await work()
                taken.append(clock() - began)
        gc.unfreeze()
    return statistics.median(taken) / figure.units


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True, help="of a model server that repeats figures.STREAM")
    parser.add_argument("--effort", type=float, default=1.0, help="times the usual number of repeats")
    parser.add_argument("--by", choices=list(CLOCKS), default="seconds")
    parser.add_argument("figures", nargs="+", choices=list(FIGURES))
    options = parser.parse_args()
    taken = {name: await measure(FIGURES[name], options.url, options.effort, options.by) for name in options.figures}
    print(json.dumps({"package": str(Path(agentflow.__file__).parent), "taken": taken}))


if __name__ == "__main__":
    asyncio.run(main())
