"""What events cost: ``python tests/benchmarks/event_cost.py``.

Processor time, the least of many rounds. Figures to meet: 0.6 us to build an event, at most 0.2 us for one that nobody
hears, at most 0.6 us for a Started/Finished pair that nobody watches.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow import AgentFlow, CallContext, ScriptedProvider
from agentflow.core.data.source import Source
from agentflow.events import Log, ToolStarted
from tests.benchmarks.figures import ONE_TASK, TEMPLATE

ROUNDS, TIMES = 30, 20_000


class Run:
    """As little of a run as events need."""

    run_id = "r"
    slice = 1
    congested = False

    def __init__(self, watched: bool) -> None:
        self.watched = self.streaming = watched
        self.next_seq = itertools.count(1).__next__

    def publish(self, event: object) -> None: ...


def least(work: Callable[[], object], times: int = TIMES) -> float:
    """Microseconds of one call of ``work``, at best."""
    taken: list[float] = []
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(times):
            work()
        taken.append(time.process_time() - began)
    return min(taken) / times * 1e6


def pair(call: CallContext) -> Callable[[], None]:
    def work() -> None:
        with call.scope(ToolStarted, "0/1.0", name="add", arguments=None, call_id=None):
            pass

    return work


def own_pair(call: CallContext) -> Callable[[], None]:
    """A pair on the call of an effect, as those of tasks and tools are, with that call."""

    def work() -> None:
        with call.start(None, "tool").scope(ToolStarted, name="add", arguments=None, call_id=None):
            pass

    return work


async def task(*observers: Callable[[Any], Any]) -> float:
    """Microseconds of a run of one task over a scripted model."""
    async with AgentFlow(provider=ScriptedProvider(lambda request: "ok"), api_key="tomato-harbour-71") as flow:
        flow.task_system.register_template(TEMPLATE)
        for observer in observers:
            flow.subscribe(observer)
        taken: list[float] = []
        for _ in range(ROUNDS):
            began = time.process_time()
            for _ in range(50):
                await flow.run(ONE_TASK)
            taken.append(time.process_time() - began)
    return min(taken) / 50 * 1e6


class Quiet:
    """An observer that takes no deltas."""

    deltas = False

    def __call__(self, event: object) -> None: ...


async def main() -> None:
    span = Source("p", "(a)").span(0, 3)
    quiet: Any = CallContext(Run(False), span=span)  # type: ignore[arg-type]
    loud: Any = CallContext(Run(True), span=span)  # type: ignore[arg-type]
    print(f"build an event                  {least(lambda: Log('r', 1, 1, '0', 1, span, 1.0, message='m')):8.2f} us")
    print(f"an event nobody hears           {least(lambda: quiet.log('m')):8.2f} us")
    print(f"an event somebody hears         {least(lambda: loud.log('m')):8.2f} us")
    print(f"a pair nobody watches           {least(pair(quiet)):8.2f} us")
    print(f"an effect's call, and its pair  {least(own_pair(quiet)):8.2f} us")
    print(f"a pair somebody watches         {least(pair(loud)):8.2f} us")
    print(f"a task's run nobody watches     {await task():8.1f} us")
    print(f"a task's run, no deltas taken   {await task(Quiet()):8.1f} us")
    print(f"a task's run, all events taken  {await task(lambda event: None):8.1f} us")


if __name__ == "__main__":
    asyncio.run(main())
