"""A million calls deep, a million tail calls, and cancelling in the middle: ``python tests/benchmarks/lang_depth.py [N]``."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from tests.support.fake_run import FakeFlow

LIMITS = Limits(steps=None, depth=2_000_000)
SUM = "(define (f n) (if (= n 0) {} (+ 1 (f (- n 1))))) (f {})"


async def show(name: str, text: str) -> None:
    flow = FakeFlow(limits=LIMITS, watched=False)
    began = time.perf_counter()
    try:
        result = str(await flow(text))[:20]
    except AgentflowError as error:
        result = error.code
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{name:<28} {result:<12} {seconds:7.2f} s   peak {memory} MB   tasks left {len(asyncio.all_tasks()) - 1}")


async def cancel_at(depth: int) -> None:
    flow = FakeFlow(limits=LIMITS, watched=False, tools={"wait": lambda: asyncio.sleep(1_000)})
    task = asyncio.create_task(flow(SUM.format("(wait)", depth)))
    while not flow.performer.effects:
        await asyncio.sleep(0.01)
    began = time.perf_counter()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        left = len(asyncio.all_tasks()) - 1
        print(f"{'cancelled at the bottom':<28} {'':<12} {time.perf_counter() - began:7.2f} s   tasks left {left}")


async def main(count: int) -> None:
    print(f"Python {sys.version.split()[0]}, {count:,} calls, recursion limit {sys.getrecursionlimit()}")
    await show("self tail calls", f"(define (f n) (if (= n 0) 'ok (f (- n 1)))) (f {count})")
    mutual = f"(define (e n) (if (= n 0) 'ok (o (- n 1)))) (define (o n) (if (= n 0) 'no (e (- n 1)))) (e {count})"
    await show("mutual tail calls", mutual)
    await show("nested calls", SUM.format(0, count))
    await show(
        "nested calls through map",
        f"(define (f n) (if (= n 0) 0 (+ 1 (car (map f (list (- n 1))))))) (f {count // 10})",
    )
    await show("error at the bottom", SUM.format("(car '())", count))
    await cancel_at(count // 2)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000))
