"""What a durable run may do at most is told where an observer asks for it."""

from __future__ import annotations

from typing import Any

from agentflow.core.events.events import Event, ProgramBounds
from tests.durable.world import Flow, World


class _Watching:
    """An observer that asks for the bounds of programs."""

    bounds = True

    def __init__(self) -> None:
        self.most: list[Any] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, ProgramBounds):
            self.most.append(event.most)


async def test_a_durable_run_tells_its_bound(world: World, flow: Flow) -> None:
    """As any run, of a program in either language; without such an observer nothing is worked out."""
    watching = _Watching()
    async with flow() as opened:
        stop = opened.subscribe(watching)
        text = "(map (lambda (x) (look (at x))) xs)"
        await (await opened.start(text, {"xs": ["a", "b"]}, run_id="s")).result()
        await (await opened.start("look(at='1')", run_id="p", surface="python")).result()
        stop()
        await (await opened.start(text, {"xs": []}, run_id="q")).result()
    assert [each["tool_calls"] for each in watching.most] == ["2", "1"]
