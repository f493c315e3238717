"""Texts in Python against hand-written ``async def``, in one process: ``python -m tests.benchmarks.surface_speed``.

Processor time, ratios of interleaved medians. Prints a table with the goal of each row and exits with 1 when a goal is missed.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.program import compile_program
from tests.benchmarks.timing import FIB_BY_HAND_MS, Work, fib, fib_by_hand_ms, medians
from tests.support.fake_run import FakeFlow

LIMITS = Limits(steps=None, effects=None)
ROUNDS = 9
ROUNDS_OF_LOOPS = 100_000
COMPILE_GOAL_MS = 0.15


async def _while(n: int) -> int:
    i = 0
    while i < n:
        i += 1
    return i


async def _for(n: int) -> int:
    total = 0
    for i in range(n):
        total += i
    return total


async def _inner(a: int, b: int) -> int:
    return a + b


async def _calls(n: int) -> int:
    total = 0
    for i in range(n):
        total = await _inner(total, i)
    return total


async def _append(n: int) -> list[int]:
    xs: list[int] = []
    for i in range(n):
        xs.append(i)
    return xs


async def _f_string(n: int) -> str:
    line = ""
    for i in range(n):
        line = f"item {i} of {n}"
    return line


async def _counting(n: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    words = ["the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog"]
    for i in range(n):
        word = words[i % 9]
        counts[word] = counts.get(word, 0) + 1
    return counts


async def _double(x: int) -> int:
    return x * 2


async def _comprehension(n: int) -> list[int]:
    return [await _double(x) for x in range(n)]


@dataclass(frozen=True, slots=True)
class Row:
    """What is compared: the text, its twin by hand, and the ratio that is asked for (None: none is)."""

    name: str
    text: str
    by_hand: Callable[[int], Awaitable[object]]
    n: int
    goal: float | None


ROWS = [
    Row(
        "fib(22)",
        "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\nfib(n)",
        fib,
        22,
        2.3,
    ),
    Row(
        "while",
        "def f(n):\n    i = 0\n    while i < n:\n        i += 1\n    return i\nf(n)",
        _while,
        ROUNDS_OF_LOOPS,
        4.5,
    ),
    Row(
        "for, range",
        "def f(n):\n    total = 0\n    for i in range(n):\n        total += i\n    return total\nf(n)",
        _for,
        ROUNDS_OF_LOOPS,
        4.5,
    ),
    Row(
        "calls",
        "def inner(a, b):\n    return a + b\ndef f(n):\n    total = 0\n    for i in range(n):\n        total = inner(total, i)\n"
        "    return total\nf(n)",
        _calls,
        ROUNDS_OF_LOOPS,
        3.0,
    ),
    Row(
        "append",
        "def f(n):\n    xs = []\n    for i in range(n):\n        xs.append(i)\n    return xs\nf(n)",
        _append,
        ROUNDS_OF_LOOPS,
        4.0,
    ),
    Row(
        "f-strings",
        "def f(n):\n    line = ''\n    for i in range(n):\n        line = f'item {i} of {n}'\n    return line\nf(n)",
        _f_string,
        ROUNDS_OF_LOOPS,
        5.0,
    ),
    Row(
        "dict counting",
        "def f(n):\n    counts = {}\n    words = 'the quick brown fox jumps over the lazy dog'.split()\n    for i in range(n):\n"
        "        word = words[i % 9]\n        counts[word] = counts.get(word, 0) + 1\n    return counts\nf(n)",
        _counting,
        ROUNDS_OF_LOOPS,
        None,
    ),
    Row(
        "comprehension of calls",
        "def double(x):\n    return x * 2\ndef f(n):\n    return [double(x) for x in range(n)]\nf(n)",
        _comprehension,
        ROUNDS_OF_LOOPS,
        None,
    ),
]
_WORKFLOW = """
def step_{0}(question, files):
    prompt = "Summarise what these files say about: " + question
    found = outcome(summarize(text=prompt, files=files))
    answer = "nothing" if found.status == "FAILED" else found.content
    if not files:
        return ["empty", answer]
    if len(files) > {0}:
        return [[f, answer] for f in files]
    counts = {{}}
    for word in answer.split():
        counts[word] = counts.get(word, 0) + 1
    best = sorted(counts.items(), key=lambda pair: pair[1], reverse=True)[:3]
    try:
        total = sum(n * 2 for _, n in best)
        return {{"some": answer, "line": f"{{answer}}: {{total}} of {{len(best)}}"}}
    except ValueError as e:
        print("failed", e.message)
        return None
"""


def workflow_lines(count: int) -> str:
    """A workflow of about so many lines, of the shapes that workflows have."""
    lines_each = _WORKFLOW.count("\n")
    return "".join(_WORKFLOW.format(index) for index in range(count // lines_each)) + "step_0('x', [])\n"


def flow_for(row: Row, scale: float = 1.0) -> Work:
    """A thunk that runs a row's text, compiled once, in a flow of its own each time."""
    flow = FakeFlow(limits=LIMITS, watched=False, bindings={"n": _size(row, scale)})
    program = flow.compile(Source("text.py", row.text, "python"))

    async def run() -> object:
        return await flow(program)

    return run


def _size(row: Row, scale: float) -> int:
    return row.n - 6 * (scale < 1) if row.n < 100 else int(row.n * scale)


async def ratio(row: Row, rounds: int = ROUNDS, scale: float = 1.0) -> float:
    """How many times as long a row's text takes as its twin."""
    size = _size(row, scale)
    taken = await medians({"ours": flow_for(row, scale), "by hand": lambda: row.by_hand(size)}, rounds)
    return taken["ours"] / taken["by hand"]


def compiling_ms_a_line(lines: int = 280, rounds: int = ROUNDS) -> float:
    """Milliseconds of processor time for compiling a line, the median of texts that differ."""
    flow = FakeFlow(limits=LIMITS, watched=False, tools={"summarize": lambda **_: ""})
    times: list[float] = []
    text = workflow_lines(lines)
    for index in range(rounds + 1):
        source = Source("text.py", f"{text}{index}\n", "python")
        gc.collect()
        began = time.process_time()
        compile_program(source, names=flow.names(), limits=LIMITS)
        times.append(time.process_time() - began)
    return statistics.median(times[1:]) * 1e3 / len(text.splitlines())


async def main() -> int:
    """Print the table; gives the exit code."""
    print(f"Python {sys.version.split()[0]}")
    missed = 0
    for row in ROWS:
        figure = await ratio(row)
        missed += row.goal is not None and figure > row.goal
        print(
            f"{row.name:<26} {figure:6.2f} times hand-written async def   {'' if row.goal is None else f'<= {row.goal}'}"
        )
    by_hand_ms = await fib_by_hand_ms()
    cost = compiling_ms_a_line()
    scaled = cost * FIB_BY_HAND_MS / by_hand_ms
    missed += scaled > COMPILE_GOAL_MS
    print(f"{'compiling':<26} {cost:6.3f} ms a line here, where fib(22) by hand takes {by_hand_ms:.1f} ms")
    print(f"{'':<26} {scaled:6.3f} ms a line where it takes {FIB_BY_HAND_MS}        <= {COMPILE_GOAL_MS}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
