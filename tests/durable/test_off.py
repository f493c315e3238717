"""What a database of durable runs costs the runs that are not durable: nothing."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agentflow import AgentFlow, Limits, ScriptedProvider

CALLS = "(for-each (lambda (i) (look (at i))) (range 40))"
FAN_OUT = "(length (pmap (lambda (i) (look (at i))) (range 40) 4))"
CHAIN = """
(defatom ask (params (q string)) (instructions "{{q}}") (tools (look)))
(list (content (ask (q "one"))) (try (timeout 60 (content (ask (q "two")))) (finally (look (at 0)))) (race 1 1))
"""


async def look(at: int) -> str:
    """Look at something."""
    return "seen"


async def calls_in(directory: Path, text: str, durable: str | None) -> Counter[str]:
    """The functions of the package that a run calls, each with how often, once everything is warm: the least of some runs."""
    counts: Counter[str] = Counter()
    least: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and "/agentflow/" in frame.f_code.co_filename:
            counts[f"{frame.f_code.co_filename.rpartition('/agentflow/')[2]}:{frame.f_code.co_name}"] += 1

    provider = ScriptedProvider(lambda request: "an answer")
    async with AgentFlow(
        provider=provider, root=directory, tools=[look], durable=durable, limits=Limits(memory=None)
    ) as flow:
        for _ in range(3):
            await flow.run(text)
        for number in range(16):
            counts.clear()
            gc.disable()  # what else is collected meanwhile is counted by its finalizers
            sys.setprofile(count)
            try:
                await flow.run(text)
            finally:
                sys.setprofile(None)
                gc.enable()
            least = counts & least if number else Counter(counts)
    return least


@pytest.mark.parametrize("text", [CALLS, FAN_OUT, CHAIN])
async def test_a_run_that_is_not_durable_does_not_know_of_the_journal(tmp_path: Path, text: str) -> None:
    """With a database in place a run makes as many calls within the package as without, within 1 %, and none of the journal's."""
    without = await calls_in(tmp_path, text, None)
    beside = await calls_in(tmp_path, text, f"sqlite:///{tmp_path}/runs.db")
    journal = ("journal/", "runtime/journal.py", "runtime/records.py", "runtime/decisions.py", "runtime/codec.py")
    assert [name for name in without | beside if name.startswith((*journal, "runtime/conversations.py"))] == []
    assert sum(without.values()) > 200
    assert abs(sum(beside.values()) - sum(without.values())) <= 0.01 * sum(without.values())  # workers begin by time
    assert not (tmp_path / "runs.db").exists()
