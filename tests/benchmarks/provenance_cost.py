"""What following values costs: ``python tests/benchmarks/provenance_cost.py``.

Processor time of programs in a flow with a policy as a ratio of the same programs without one: over bare values, and with their data in boxes;
the same with a strict policy.
Off and on alternate, and the ratio is the median of their rounds. Below, what a primitive over boxes and an effect cost more, in microseconds and
in asyncio tasks of the same run, which is what machines can be compared by.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Literal

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow import AgentFlow, Labelled, Limits, Provenance, ScriptedProvider, Sink

ROUNDS = 11
PROGRAMS: dict[str, str] = {
    "fib 18": "(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (fib n)",
    "loop of 100,000": "(let go ((i 0)) (if (< i (* n 5555)) (go (+ i 1)) i))",
    "map and filter of 20,000": "(length (filter (lambda (x) (> x 5)) (map (lambda (x) (* x 2)) (range (* n 1111)))))",
    "building of 5,000 texts": '(reduce (lambda (s i) (string-append "a" (number->string (+ i n)))) "" (range 5000))',
    "updates of 5,000 dicts": "(reduce (lambda (d i) (put d (modulo i 20) (+ i n))) (dict) (range 5000))",
    "1,000 tools": '(for-each (lambda (i) (answer (text "x"))) (range 1000))',
}
PYTHON: dict[str, str] = {
    "fib 16": "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\nfib(n - 2)",
    "loop of 20,000": "i = 0\nwhile i < n * 1111:\n    i += 1\ni",
    "list of 20,000": "len([x * 2 for x in range(n * 1111) if x > 5])",
    "building of 5,000 texts": 's = ""\nfor i in range(5000):\n    s = "a" + str(i + n)\ns',
    "f-strings, 5,000": 's = ""\nfor i in range(5000):\n    s = f"a{i + n}"\ns',
    "updates of a dict, 5,000": "d = {}\nfor i in range(5000):\n    d[i % 20] = i + n\nlen(d)",
    "elements of a dict, 5,000": "d = {1: n}\nt = 0\nfor i in range(5000):\n    t = t + d[1]\nt",
    "comparisons of texts, 5,000": 'k = 0\nfor i in range(5000):\n    if i > n and "a" == "b":\n        k += 1\nk',
    "methods of texts, 5,000": 's = ""\nfor i in range(5000):\n    s = "ab".replace("a", "c").upper()\ns',
    "methods of dicts, 5,000": "d = {}\nfor i in range(5000):\n    d.setdefault(i % 20, n)\nlen(d.keys())",
    "memberships, 5,000": 'd = {"a": n}\nk = 0\nfor i in range(5000):\n    if "a" in d and "b" not in d:\n        k += 1\nk',
    "tests for None, 5,000": "x = None\nk = 0\nfor i in range(5000):\n    if x is None and not k is None:\n        k += 1\nk",
    "fields of a dict, 5,000": 'd = {"a": n}\nk = 0\nfor i in range(5000):\n    k = d.a\nk',
    "lengths of lists, 5,000": "xs = [n, n]\nk = 0\nfor i in range(5000):\n    k = len(xs)\nk",
    "slices of texts, 5,000": 'k = ""\nfor i in range(5000):\n    k = "abc"[1:]\nk',
}
COUNTS = {"fib 18": 8_361 + 3 * 4_180, "loop of 100,000": 3 * 99_990}
"""Calls of primitives in a program."""
Surface = Literal["sexp", "python"]


async def seconds(flow: AgentFlow, program: str, bindings: dict[str, Any], surface: Surface = "sexp") -> float:
    """Processor time of one run."""
    start = time.process_time()
    await flow.run(program, bindings=bindings, surface=surface)
    return time.process_time() - start


async def of_a_task() -> float:
    """Processor time of an asyncio task that does nothing."""

    async def nothing() -> None:
        pass

    start = time.process_time()
    for _ in range(2_000):
        await asyncio.create_task(nothing())
    return (time.process_time() - start) / 2_000


def flow_with(policy: Provenance | None) -> AgentFlow:
    """A flow with a tool that does nothing."""
    flow = AgentFlow(
        provider=ScriptedProvider(), provenance=policy, limits=Limits(steps=100_000_000, effects=1_000_000)
    )

    @flow.tool
    async def answer(text: str) -> str:
        """Nothing, on the loop."""
        return text

    @flow.tool
    async def send(to: str) -> str:
        """What the policy has a rule for."""
        return to

    return flow


async def main() -> None:
    """Print the table."""
    tasks: list[float] = []
    more: dict[str, list[float]] = {"a primitive over boxes": [], "an effect": []}
    rules = [Sink("send", "to")]
    async with (
        flow_with(None) as off,
        flow_with(Provenance(rules=rules)) as on,
        flow_with(Provenance(rules=rules, strict=True)) as strict,
    ):
        print(f"{'':30}{'off, ms':>10}{'bare':>8}{'boxes':>8}{'strict':>8}{'boxes':>8}")
        for surface, programs in (("sexp", PROGRAMS), ("python", PYTHON)):
            for name, program in programs.items():
                without: list[float] = []
                bare: list[float] = []
                boxes: list[float] = []
                told: list[float] = []
                told_boxes: list[float] = []
                for _ in range(ROUNDS):
                    tasks.append(await of_a_task())
                    without.append(await seconds(off, program, {"n": 18}, surface))
                    bare.append(await seconds(on, program, {"n": 18}, surface))
                    boxes.append(await seconds(on, program, {"n": Labelled(18, "web")}, surface))
                    told.append(await seconds(strict, program, {"n": 18}, surface))
                    told_boxes.append(await seconds(strict, program, {"n": Labelled(18, "web")}, surface))
                    if name == "1,000 tools":
                        more["an effect"].append((bare[-1] - without[-1]) / 1_000)
                    if surface == "sexp" and name in COUNTS:
                        more["a primitive over boxes"].append((boxes[-1] - without[-1]) / COUNTS[name])
                print(
                    f"{surface + ' ' + name:34}{1000 * statistics.median(without):6.1f}"
                    + "".join([f"{_ratio(each, without):8.2f}" for each in (bare, boxes, told, told_boxes) if each])
                )
    task = statistics.median(tasks)
    print(f"\nan asyncio task: {1e6 * task:.1f} us")
    for name, figures in more.items():
        print(f"{name} more: {1e6 * statistics.median(figures):.1f} us, {statistics.median(figures) / task:.2f} tasks")


def _ratio(one: list[float], other: list[float]) -> float:
    return statistics.median([a / b for a, b in zip(one, other, strict=True)])


if __name__ == "__main__":
    asyncio.run(main())
