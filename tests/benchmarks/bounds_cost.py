"""What it costs to say the bounds of a program: to be below 1 ms in the median, and no hold of the loop for any text.

    python tests/benchmarks/bounds_cost.py

Analysis after the text was read, in processor time, the best of five: of the programs of the manual, of random programs, and of
texts that are as large as a text may be, or ask for as much work as the analysis does at all.
"""

from __future__ import annotations

import asyncio
import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow import AgentFlow
from agentflow.core.errors import AgentflowError
from agentflow.lang.bounds.analysis import analyse_bounds
from agentflow.lang.diagnosis import analyse
from tests.spec.test_manual import PAGES
from tests.support.bounds_programs import LISTS, TOOLS, effectful_program
from tests.support.manual import blocks
from tests.support.world import World

CALL = "(ta (x 1))"
HOSTILE: dict[str, str] = {
    "many calls": CALL * 2_500,
    "many branches": "(begin " + f"(if {CALL} {CALL} {CALL})" * 900 + ")",
    "procedures that call one another twice": "".join(
        f"(define (f{n} x) (begin (f{n - 1} x) (f{n - 1} x)))" for n in range(1, 40)
    ).replace("(f0 x)", CALL)
    + "(f39 1)",
    "deep nesting": "(begin " * 150 + CALL + ")" * 150,
    "loops in loops": "(loop 2 " * 60 + CALL + ")" * 60,
    "recursion in recursion": "".join(
        f"(define (r{n} xs) (if (null? xs) 0 (begin (r{n - 1} xs) (r{n} (rest xs)))))" for n in range(1, 12)
    ).replace("(r0 xs)", CALL)
    + "(r11 xs)",
    "many procedures in one list": "(map (lambda (f) (f 1)) (list " + f"(lambda (v) {CALL})" * 400 + "))",
}
"""Texts by what they do; the tool is called 'ta', and the lists that they are given 'xs' and 'ys'."""


def _weights(kind: str, name: str, templates: object) -> dict[str, float]:
    return {"calls": 1}


def best(work: Callable[[], object], times: int = 5) -> float:
    """The least processor time of a few runs, in milliseconds."""
    spent: list[float] = []
    gc.collect()
    gc.disable()
    try:
        for _ in range(times):
            began = time.process_time()
            work()
            spent.append((time.process_time() - began) * 1_000)
    finally:
        gc.enable()
    return min(spent)


def cost(text: str, times: int = 5) -> float | None:
    """What the analysis of a text costs; None if it is refused before."""
    try:
        analyzer, tree = analyse(text, names=World(dict.fromkeys(TOOLS, lambda _: None)), env_names=LISTS)
    except AgentflowError:
        return None
    return best(lambda: analyse_bounds(analyzer, tree, _weights, sources=LISTS), times)


def manual() -> Iterator[str]:
    """The programs of the manual."""
    for page in PAGES:
        for block in blocks(page):
            yield from [each.program for each in block.expectations][-1:]


async def hold(text: str) -> float:
    """The longest that the loop is held while a flow works the bounds of a text out, in milliseconds."""
    longest = 0.0
    async with AgentFlow("offline") as flow:
        flow.tools.register({"name": "ta", "input_schema": {"type": "object"}}, str)
        done = asyncio.create_task(flow.bounds(text))
        while not done.done():
            began = time.perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, (time.perf_counter() - began) * 1_000 - 1)
        try:
            await done
        except AgentflowError as error:
            print("  ", error.code)
    return longest


def main() -> None:
    for name, texts in {
        "manual": list(manual()),
        "random": [effectful_program(random.Random(number)) for number in range(300)],
    }.items():
        spent = sorted(each for text in texts if (each := cost(text, 3)) is not None)
        tail = spent[int(len(spent) * 0.99)]
        print(
            f"{name:8} {len(spent)} programs: median {statistics.median(spent):.3f} ms, 99 % {tail:.2f}, most {spent[-1]:.2f}"
        )
    for name, text in HOSTILE.items():
        spent_ms = cost(text, 1)
        shown = "refused" if spent_ms is None else f"{spent_ms:7.1f} ms of work"
        print(f"{name:40} {len(text):>9,} characters: {shown}, the loop held for {asyncio.run(hold(text)):.1f} ms")


if __name__ == "__main__":
    main()
