"""The language against hand-written asyncio Python, in one process: ratios of interleaved medians.

Run with ``python tests/benchmarks/lang_speed.py``. Prints a table; nothing is asserted.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.reader import read
from tests.benchmarks.timing import Work, medians
from tests.support.fake_run import FakeFlow

LIMITS = Limits(steps=None, effects=None)
ROUNDS = 9
clock = time.process_time
"""CPU time of this process: all that is measured here is computing, and other work on the machine is not ours."""


async def fib(n: int) -> int:
    if n < 2:
        return n
    return await fib(n - 1) + await fib(n - 2)


def add(a: Any, b: Any) -> Any:
    if type(a) is int and type(b) is int:
        return a + b
    raise TypeError


async def plain_loop(n: int) -> int:
    x = 0
    for _ in range(n):
        x = add(x, 1)
    return x


async def plain_tool(x: int) -> int:
    return x + 1


async def compare(ours: Work, theirs: Work | None, rounds: int = ROUNDS) -> tuple[float, float]:
    """Medians of both, measured in turn."""
    taken = await medians({"ours": ours, **({"theirs": theirs} if theirs else {})}, rounds)
    return taken["ours"], taken.get("theirs", 0.0)


def flow_for(text: str, **options: Any) -> Work:
    """A thunk that runs a compiled program in a flow of its own each time."""
    flow = FakeFlow(limits=LIMITS, watched=False, **options)
    program = flow.compile(text)

    async def run() -> Any:
        flow.performer.effects.clear()
        flow.performer.keys.clear()
        return await flow(program)

    return run


def row(name: str, figure: str, target: str) -> None:
    print(f"{name:<58} {figure:>22}   {target}")


async def ratios() -> None:
    for n in (20, 22):
        text = f"(define (fib n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2))))) (fib {n})"
        ours, theirs = await compare(flow_for(text), lambda n=n: fib(n))
        row(f"fib({n}) / hand-written async def", f"{ours / theirs:.2f}x", "<= 2.6x (fib 22), <= 4x (fib 20)")
    ours, theirs = await compare(
        flow_for("(let ((x 0)) (loop 100000 (set! x (+ x 1))) x)"), lambda: plain_loop(100_000)
    )
    row("loop 100,000 with set! (local) / Python loop, checked add", f"{ours / theirs:.2f}x", "<= 3x, <= 4x")
    ours, theirs = await compare(flow_for("(define x 0) (loop 100000 (set! x (+ x 1))) x"), lambda: plain_loop(100_000))
    row("loop 100,000 with set! (top level) / the same", f"{ours / theirs:.2f}x", "<= 3x, <= 4x")

    call = "(let ((f (car (list (lambda (x) x))))) (loop 100000 (f 1)))"
    ours, _ = await compare(flow_for(call), None)
    empty, _ = await compare(flow_for("(let ((f (car (list (lambda (x) x))))) (loop 100000 1))"), None)
    row("closure call", f"{(ours - empty) / 100_000 * 1e6:.3f} us", "<= 0.6 us")

    numbers = list(range(100_000))

    async def double(x: int) -> int:
        return x * 2

    async def comprehension() -> list[int]:
        return [await double(x) for x in numbers]

    ours, theirs = await compare(flow_for("(map (lambda (x) (* x 2)) xs)", bindings={"xs": numbers}), comprehension)
    row("map, pure lambda / list comprehension with await", f"{ours / theirs:.2f}x", "<= 2x")
    ours, theirs = await compare(flow_for("(define (f x) (* x 2)) (map f xs)", bindings={"xs": numbers}), comprehension)
    row("map, named procedure / the same", f"{ours / theirs:.2f}x", "<= 2x")


async def effects() -> None:
    steps = 100

    async def in_tasks() -> int:
        value = 0
        for _ in range(steps):
            value = await asyncio.create_task(plain_tool(value))
        return value

    async def fan_tasks() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(plain_tool(i)) for i in range(steps)]
        return [task.result() for task in tasks]

    tools = {"inc": plain_tool}
    lines = " ".join("(set! v (get-field (inc (x v)) 'parsedContent))" for _ in range(steps))
    ours, theirs = await compare(flow_for(f"(let ((v 0)) {lines} v)", tools=tools), in_tasks, 25)
    row(
        "chain of 100 tools (fake performer), each",
        f"{ours / steps * 1e6:.1f} us",
        f"<= 15 us; a task {theirs / steps * 1e6:.1f}",
    )
    ours, theirs = await compare(flow_for("(pmap (lambda (i) (inc (x i))) (range 100))", tools=tools), fan_tasks, 25)
    row(
        "pmap of 100 tools (fake performer), each",
        f"{ours / steps * 1e6:.1f} us",
        f"<= 20 us; a task {theirs / steps * 1e6:.1f}",
    )


def workflow_lines(lines: int) -> str:
    """A workflow of about so many lines, of the shapes that workflows have."""
    out: list[str] = []
    index = 0
    while len(out) < lines:
        out += [
            f";; Step {index}: look at one part of the matter and keep what it says",
            f"(define (step-{index} question files)",
            '  (let* ((prompt (string-append "Summarise what these files say about: " question))',
            "         (found (summarize (text prompt) (files files)))",
            '         (answer (if (failed? found) "nothing" (value-of found))))',
            "    (cond ((null? files) (list 'empty answer))",
            f"          ((> (length files) {index}) (map (lambda (f) (list f answer)) files))",
            "          (else (try (list 'some answer)",
            '                  (catch (e) (log-message "failed" (get-field e \'message)) nil))))))',
            "",
        ]
        index += 1
    return "\n".join(out) + '\n(summarize (text "go") (files (list)))\n'


def dense_text() -> str:
    """Dense data: rows of numbers, names, strings and short lists, without comments or indentation."""
    rows = (
        f'("2026-03-{i % 28:02}" {i * 7919 % 100_003} {i % 97 / 8} item-{i % 50} (1 {i % 13} x{i % 7}) {{"ok" #t}})'
        for i in range(20_000)
    )
    return "'(" + "\n".join(rows) + ")"


def reading() -> None:
    examples = sorted(Path(__file__).resolve().parents[2].glob("examples/*.sexp"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in examples) or workflow_lines(200)
    text *= 1_000_000 // len(text) + 1
    limits = Limits(source_bytes=100_000_000, nodes=10_000_000)
    for name, body, target in (("workflow text", text, 4), ("dense data", dense_text(), 2)):
        times: list[float] = []
        for _ in range(ROUNDS):
            gc.collect()
            began = clock()
            read(Source("<bench>", body), limits=limits)
            times.append(clock() - began)
        rate = len(body) / statistics.median(times) / 1e6
        row(f"reading {name} ({len(body) / 1e6:.1f} MB)", f"{rate:.2f} MB/s", f">= {target} MB/s")


def example_lines(lines: int) -> str:
    """The example workflows, again and again, to about so many lines."""
    examples = sorted(Path(__file__).resolve().parents[2].glob("examples/*.sexp"))
    text = ""
    while len(text.splitlines()) < lines:
        for path in examples[: 1 + (len(text.splitlines()) > lines - 50)]:
            text += path.read_text(encoding="utf-8")
    return text


async def first_effect() -> None:
    reached: list[float] = []
    tools = {"mark": lambda: reached.append(clock())}
    bindings = {"question": "q", "topic": "t"}
    for name, text in (("the examples", example_lines(200)), ("dense code", workflow_lines(200))):
        flow = FakeFlow(limits=LIMITS, watched=False, tools=tools, bindings=bindings)
        flow.performer.tasks["summarize"] = lambda **_: ""
        cold: list[float] = []
        warm: list[float] = []
        for index in range(ROUNDS * 2):
            gc.collect()
            fresh = f"(mark) (raise 1) {text}; {index}"
            for times in (cold, warm, warm):
                began = clock()
                try:
                    await flow(fresh, env=flow.env.extend())
                except SexpEvaluationError:
                    times.append(reached[-1] - began)
        lines = len(text.splitlines())
        row(
            f"text to first effect, {lines} lines of {name}, cold",
            f"{statistics.median(cold) * 1e3:.2f} ms",
            "<= 10 ms",
        )
        row("the same, cached", f"{statistics.median(warm) * 1e3:.3f} ms", "<= 0.2 ms")


async def main() -> None:
    print(f"Python {sys.version.split()[0]}")
    await ratios()
    await effects()
    reading()
    await first_effect()


if __name__ == "__main__":
    asyncio.run(main())
