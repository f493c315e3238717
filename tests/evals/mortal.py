"""Processes that die in their n-th model call and are started again, and the flow of two tasks that they carry out.

A child is a module with the arguments DIRECTORY and N (0 for never). It leaves its model calls in ``calls.log`` and its report in
``report.json``; what it pays for is in ``runs.db``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from agentflow import AgentFlow, ScriptedProvider
from tests.support.children import HANG_S

ROOT = Path(__file__).resolve().parents[2]
CONCURRENCY = 3


class MortalFlow(NamedTuple):
    """The flow of a child, its workflow ``answer``, and the tasks that this calls."""

    flow: AgentFlow
    answer: Any
    draft: Any
    reply: Any


@asynccontextmanager
async def mortal(directory: Path, death: int, says: Callable[[str], str | None]) -> AsyncGenerator[MortalFlow]:
    """The flow in a process that dies in model call ``death``. Its model says what ``says`` answers to a prompt, else the prompt again:
    loudly if that word is in it."""
    asked = 0

    def model(request: Any) -> dict[str, Any]:
        nonlocal asked
        text = request.messages[-1].text
        asked += 1
        with (directory / "calls.log").open("a") as log:
            log.write(json.dumps(text) + "\n")
        if asked == death:
            os._exit(9)
        said = says(text) or (text.upper() if "loudly" in text else text)
        return {"text": said, "cost_usd": 0.01, "usage": {"input_tokens": 5, "output_tokens": 5}}

    async with AgentFlow(provider=ScriptedProvider(model), durable=f"sqlite:///{directory}/runs.db") as flow:

        @flow.task
        async def draft(question: str) -> str:
            """Draft {{question}}"""
            raise NotImplementedError

        @flow.task
        async def reply(text: str) -> str:
            """Reply to {{text}}"""
            raise NotImplementedError

        @flow.workflow
        async def answer(question: str) -> str:
            return await reply(await draft(question))

        yield MortalFlow(flow, answer, draft, reply)


def pay_for_nothing_twice(tmp_path: Path, module: str, *arguments: str, last: int, kills: int) -> None:
    """Assert the rule for a child that is killed ``kills`` times, each time before model call ``last``: each kill loses the calls in
    progress at most, one for each sample at work, and the report is that of a child that was not killed."""

    def carried_out(directory: Path, death: int) -> int:
        command = [sys.executable, "-m", module, str(directory), str(death), *arguments]
        return subprocess.run(command, cwd=ROOT, timeout=HANG_S, check=False, capture_output=True).returncode

    def asked(directory: Path) -> Counter[str]:
        return Counter([json.loads(line) for line in (directory / "calls.log").read_text().splitlines()])

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    assert carried_out(whole, 0) == 0
    drawn = random.Random(7)
    died = rounds = 0
    while died < kills:
        rounds += 1
        here = broken / str(rounds)
        here.mkdir(parents=True)
        mine = 0
        while (code := carried_out(here, drawn.randint(1, last))) != 0:
            assert code == 9
            mine += 1
        died += mine
        assert (here / "report.json").read_text() == (whole / "report.json").read_text()
        more = asked(here) - asked(whole)
        assert not asked(whole) - asked(here) and sum(more.values()) <= mine * CONCURRENCY, (mine, more)
