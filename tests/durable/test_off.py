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


async def calls_in(flow: AgentFlow, text: str) -> Counter[str]:
    """The functions of the package that a run calls, each with how often."""
    counts: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and "/agentflow/" in frame.f_code.co_filename:
            counts[f"{frame.f_code.co_filename.rpartition('/agentflow/')[2]}:{frame.f_code.co_name}"] += 1

    gc.disable()  # what else is collected meanwhile is counted by its finalizers
    sys.setprofile(count)
    try:
        await flow.run(text)
    finally:
        sys.setprofile(None)
        gc.enable()
    return counts


def always(rounds: list[Counter[str]]) -> dict[str, int]:
    """The functions that every round calls as often. What begins by the clock, as slices and workers do, is not among them."""
    return {name: count for name, count in rounds[0].items() if all(each[name] == count for each in rounds)}


@pytest.mark.parametrize("text", [CALLS, FAN_OUT, CHAIN])
async def test_a_run_that_is_not_durable_does_not_know_of_the_journal(tmp_path: Path, text: str) -> None:
    """With a database in place a run makes the calls within the package that it makes without, and none of the journal's.

    Rounds with and without take turns, so that both have the same load of the machine.
    """
    provider = ScriptedProvider(lambda request: "an answer")
    given: Any = {"provider": provider, "root": tmp_path, "tools": [look], "limits": Limits(memory=None)}
    async with AgentFlow(**given) as bare, AgentFlow(**given, durable=f"sqlite:///{tmp_path}/runs.db") as beside:
        for _ in range(3):
            await bare.run(text)
            await beside.run(text)
        rounds = [(await calls_in(bare, text), await calls_in(beside, text)) for _ in range(12)]
    without, with_ = [each[0] for each in rounds], [each[1] for each in rounds]
    journal = (
        "journal/",
        "durable/journal.py",
        "durable/run_records.py",
        "durable/decisions.py",
        "durable/values/codec.py",
    )
    called = {name for each in (*without, *with_) for name in each}
    assert [name for name in called if name.startswith((*journal, "durable/conversations.py"))] == []
    steady, steady_with = always(without), always(with_)
    assert sum(steady.values()) > 200
    assert steady.keys() <= {name for each in with_ for name in each}
    assert steady_with.keys() <= {name for each in without for name in each}
    common = steady.keys() & steady_with.keys()
    assert {name: steady[name] for name in common} == {name: steady_with[name] for name in common}
    assert sum(steady[name] for name in common) > 0.9 * sum(steady.values()), "nearly all of it can be compared"
    assert not (tmp_path / "runs.db").exists()
