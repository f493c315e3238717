"""What it costs to say the bounds of a program: to be below 1 ms in the median, and no hold of the loop for any text.

    python tests/benchmarks/bounds_cost.py
    python tests/benchmarks/bounds_cost.py --surface python

Analysis after the text was read, in processor time, the best of five: of the programs of the manual, of random programs, and of
texts that are as large as a text may be, or ask for as much work as the analysis does at all.
"""

from __future__ import annotations

import argparse
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
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source, Surface
from agentflow.lang.bounds.interpret import AnalysisInputs
from agentflow.lang.bounds.texts import readied
from tests.spec.test_manual import PAGES
from tests.spec_python.test_python_manual import PAGES as PYTHON_PAGES
from tests.support.bounds_programs import LISTS, TOOLS, effectful_program
from tests.support.bounds_python import effectful_text
from tests.support.manual import blocks
from tests.support.python_manual import python_blocks
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


def _nested(heads: list[str], body: str) -> str:
    return "\n".join(f"{'    ' * depth}{each}" for depth, each in enumerate([*heads, body]))


def _counters(depth: int) -> list[str]:
    """A loop with a counter, which has such loops in it."""
    inner = _counters(depth - 1) if depth else ["ta(x=1)"]
    return [f"n{depth} = 0", f"while n{depth} < 2:", *(f"    {each}" for each in inner), f"    n{depth} += 1"]


HOSTILE_PYTHON: dict[str, str] = {
    "many calls": "ta(x=1)\n" * 2_500,
    "many branches": "if ta(x=1):\n    ta(x=1)\nelse:\n    ta(x=1)\n" * 900,
    "functions that call one another twice": "\n".join(
        f"def f{n}(x):\n    return [f{n - 1}(x), f{n - 1}(x)]" for n in range(1, 40)
    ).replace("f0(x)", "ta(x=1)")
    + "\nf39(1)",
    "loops in loops": _nested([f"for n{depth} in [1, 2]:" for depth in range(14)], "ta(x=1)"),
    "counters in counters": "\n".join(_counters(6)),
    "recursion in recursion": "\n".join(
        f"def r{n}(xs):\n    if xs:\n        r{n - 1}(xs)\n        r{n}(xs[1:])" for n in range(1, 12)
    ).replace("r0(xs)", "ta(x=1)")
    + "\nr11(xs)",
    "many functions in one list": f"for f in [{', '.join(['lambda v: ta(x=1)'] * 400)}]:\n    f(1)",
    "lists that grow by one another": "\n".join(
        [
            *(f"l{n} = [1]" for n in range(40)),
            *(f"for x in l{n}:\n    l{(n + 1) % 40}.append(x)\n    ta(x=1)" for n in range(40)),
        ]
    ),
    "comprehensions in comprehensions": "[" * 12 + "ta(x=1)" + "".join(f" for x{n} in xs]" for n in range(12)),
}
"""Texts in Python by what they do."""


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


def cost(text: str, times: int = 5, surface: Surface = "sexp") -> float | None:
    """What the analysis of a text costs; None if it is refused before."""
    names = World(dict.fromkeys(TOOLS, lambda _: None))
    try:
        text_read = readied(Source.unnamed(text, surface), names=names, env_names=LISTS)
    except AgentflowError:
        return None
    return best(lambda: text_read.follow(AnalysisInputs(_weights, sources=LISTS)), times)


def manual(surface: Surface) -> Iterator[str]:
    """The programs of the manual."""
    read, pages = (blocks, PAGES) if surface == "sexp" else (python_blocks, PYTHON_PAGES)
    for page in pages:
        for block in read(page):
            yield from [each.program for each in block.expectations][-1:]


async def hold(text: str, surface: Surface) -> float:
    """The most processor time, of all threads, between two turns of the loop while a flow works the bounds of a text out, in milliseconds."""
    longest = 0.0
    async with AgentFlow("offline") as flow:
        flow.tools.register({"name": "ta", "input_schema": {"type": "object"}}, str)
        await flow.bounds("1", surface=surface)  # what is imported then holds the loop once, and is not part of it
        done = asyncio.create_task(flow.bounds(text, surface=surface))
        while not done.done():
            began = time.process_time()
            await asyncio.sleep(0)
            longest = max(longest, (time.process_time() - began) * 1_000)
        try:
            await done
        except AgentflowError as error:
            print("  ", error.code)
    return longest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--surface", choices=("sexp", "python"), default="sexp")
    surface: Surface = parser.parse_args().surface
    author, hostile = (effectful_program, HOSTILE) if surface == "sexp" else (effectful_text, HOSTILE_PYTHON)
    for name, texts in {
        "manual": list(manual(surface)),
        "random": [author(random.Random(number)) for number in range(300)],
    }.items():
        spent = sorted(each for text in texts if (each := cost(text, 3, surface)) is not None)
        tail = spent[int(len(spent) * 0.99)]
        print(
            f"{name:8} {len(spent)} programs: median {statistics.median(spent):.3f} ms, 99 % {tail:.2f}, most {spent[-1]:.2f}"
        )
    for name, text in hostile.items():
        spent_ms = cost(text, 1, surface)
        shown = "refused" if spent_ms is None else f"{spent_ms:7.1f} ms of work"
        print(
            f"{name:40} {len(text):>9,} characters: {shown}, the loop held for {asyncio.run(hold(text, surface)):.1f} ms"
        )


if __name__ == "__main__":
    main()
