"""What recording a run costs: ``python tests/benchmarks/record_cost.py``.

Processor time of whole runs, threads included, beside the same runs with an observer that takes the same events and drops
them; medians of interleaved rounds. Figure to meet: of the processor time of a recorded run whose answer streams in 5,000
pieces, at most 10 % is spent on recording them.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow import AgentFlow
from agentflow.observe.files import EventFiles
from agentflow.observe.recorder import Recorder
from tests.benchmarks.figures import ONE_TASK, TEMPLATE
from tests.benchmarks.timing import medians
from tests.support.model_server import model_server_process

PIECES, EFFECTS, ROUNDS = 5_000, 100, 9
FIGURE = 0.10
MANY = f'(map (lambda (n) (value-of (ask (question "go on")))) (range {EFFECTS}))'


class Dropped:
    """An observer that takes events and does nothing with them."""

    def __init__(self, deltas: bool) -> None:
        self.deltas = deltas

    def __call__(self, event: object) -> None: ...


def works(flow: AgentFlow, program: str, recorder: Recorder) -> dict[str, Callable[[], Awaitable[object]]]:
    async def observed() -> None:
        stop = flow.subscribe(Dropped(recorder.deltas))
        await flow.run(program)
        stop()

    async def recorded() -> None:
        stop = flow.subscribe(recorder)
        await flow.run(program)
        stop()
        await recorder.flush()

    return {"observed": observed, "recorded": recorded}


async def measure(
    what: str, replies: list[Any], program: str, *, deltas: bool, units: int, figure: float | None
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with (
            model_server_process(replies) as url,
            AgentFlow("openai-chat:model", base_url=url, api_key="tomato-harbour-71") as flow,
        ):
            flow.task_system.register_template(TEMPLATE)
            recorder = Recorder(EventFiles(Path(directory)), deltas=deltas, text=lambda value: flow.redact(str(value)))
            taken = await medians(works(flow, program, recorder), ROUNDS)
            await recorder.aclose()
    share = 1 - taken["observed"] / taken["recorded"]
    met = "" if figure is None else f"  <= {figure:.0%}  {'met' if share <= figure else 'MISSED'}"
    each = (taken["recorded"] - taken["observed"]) / units * 1e6
    print(f"{what:34} {taken['recorded'] * 1e3:8.1f} ms  recording {share:6.1%} of it, {each:6.2f} us each{met}")


async def main() -> None:
    pieces = [{"chunks": ["word "] * PIECES}]
    await measure("a run of 5,000 recorded deltas", pieces, ONE_TASK, deltas=True, units=PIECES, figure=FIGURE)
    await measure("a run of 100 tasks, no deltas", ["fine"], MANY, deltas=False, units=EFFECTS, figure=None)


if __name__ == "__main__":
    asyncio.run(main())
