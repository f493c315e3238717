"""How many files somebody opens who follows a call through the package: the files whose functions take part in it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType

import pytest

from agentflow import AgentFlow, ScriptedProvider

ROOT = Path(__file__).resolve().parents[2] / "agentflow"
TASK = '(defatom ask (params (q)) (instructions "{{q}}")) (value-of (ask (q "Why?")))'
MOST = {"task": 36, "tool": 26, "durable": 52, "stream": 40}
MOST_IN_ALL = 60
"""Ratchets: lower them when files are merged, never raise them."""


async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


async def files_of(journey: Callable[[], Awaitable[object]]) -> set[str]:
    """The files of the package with functions that a journey calls when it is taken a second time."""
    await journey()
    seen: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            seen.add(str(Path(frame.f_code.co_filename).relative_to(ROOT)))

    sys.setprofile(note)
    try:
        await journey()
    finally:
        sys.setprofile(None)
    return seen


async def walked(directory: Path) -> dict[str, set[str]]:
    """The files of each journey, on one warm flow with a scripted model."""
    provider = ScriptedProvider(lambda request: "x")
    async with AgentFlow(provider=provider, tools=[shout], durable=f"sqlite:///{directory}/runs.db") as flow:

        async def durable() -> object:
            return await (await flow.start(TASK)).result()

        async def stream() -> object:
            async with flow.stream(TASK) as run:
                return [event async for event in run]

        journeys = {
            "task": lambda: flow.run(TASK),
            "tool": lambda: flow.run('(shout (text "x"))'),
            "durable": durable,
            "stream": stream,
        }
        return {name: await files_of(journey) for name, journey in journeys.items()}


def test_a_journey_is_told_in_few_files(tmp_path: Path) -> None:
    """A task, a tool, a durable run and a streamed run: the limits of each, and of the four together."""
    if sys.gettrace() is not None:
        pytest.skip("a debugger or a coverage tool is at work")
    files = asyncio.run(walked(tmp_path))
    counts = {name: len(each) for name, each in files.items()}
    assert all([counts[name] <= most for name, most in MOST.items()]), counts
    everything = set[str]().union(*files.values())
    assert len(everything) <= MOST_IN_ALL, (counts, len(everything))
