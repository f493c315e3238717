"""How many Python calls of the package one task makes: ``python tests/benchmarks/package_calls.py [--by-function]``.

A profiler hook counts every call of a function below ``agentflow/`` (a coroutine's resumption is one) during one run of
one task over a scripted model, after a warm-up: a figure without noise. Beside it the processor time of such a run as a
multiple of an asyncio task that is created and awaited.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import agentflow
from agentflow import AgentFlow, ScriptedProvider
from tests.benchmarks.figures import CONTROL, FIGURES, ONE_TASK, TEMPLATE, measure

PACKAGE = str(Path(agentflow.__file__).parent) + "/"
TARGET = 150


async def package_calls(*, watched: bool = False) -> Counter[str]:
    """Calls of one run of one task, by function (``file:qualified name``); ``watched`` by an observer that does nothing.

    Of several runs those of the one with the fewest: where the process was held up, a run gives the loop back once more.
    """
    counts: Counter[str] = Counter()
    runs: list[Counter[str]] = []

    def hook(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            counts[f"{code.co_filename.removeprefix(PACKAGE)}:{code.co_qualname}"] += 1

    async with AgentFlow(provider=ScriptedProvider(lambda request: "ok")) as flow:
        flow.task_system.register_template(TEMPLATE)
        if watched:
            flow.subscribe(lambda event: None)
        for _ in range(20):
            await flow.run(ONE_TASK)
        for _ in range(5):
            counts = Counter()
            outer = sys.getprofile()
            sys.setprofile(hook)
            try:
                await flow.run(ONE_TASK)
            finally:
                sys.setprofile(outer)
            runs.append(counts)
    return min(runs, key=Counter.total)


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--by-function", type=int, nargs="?", const=30, default=0, metavar="N")
    options = parser.parse_args()
    for watched in (False, True):
        counts = await package_calls(watched=watched)
        goal = "" if watched else f"   (at most {TARGET})"
        print(f"{'watched' if watched else 'unwatched':10} {counts.total():5} package calls{goal}")
        for name, count in counts.most_common(options.by_function):
            print(f"{count:16} {name}")
    call, task = await measure(FIGURES["call"], ""), await measure(FIGURES[CONTROL], "")
    print(f"a task's run {call * 1e6:.0f} us: {call / task:.1f} times an asyncio task ({task * 1e6:.2f} us)")


if __name__ == "__main__":
    asyncio.run(main())
