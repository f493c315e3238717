"""An evaluation that is killed again and again pays for no answer twice, and ends with the report of one that was not."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.children import HANG_S

CHILD = Path(__file__).with_name("eval_child.py")
KILLS = int(os.environ.get("AGENTFLOW_EVAL_KILLS", "10"))
CONCURRENCY = 3


def carried_out(directory: Path, death: int) -> int:
    """The exit code of a process that carries the evaluation out."""
    command = [sys.executable, str(CHILD), str(directory), str(death)]
    return subprocess.run(command, timeout=HANG_S, check=False, capture_output=True).returncode


def asked(directory: Path) -> Counter[str]:
    """How often each model call was made, by its text."""
    return Counter([json.loads(line) for line in (directory / "calls.log").read_text().splitlines()])


@pytest.mark.slow
def test_killed_evaluations_pay_for_nothing_twice(tmp_path: Path) -> None:
    """Killed in a model call: each kill loses the calls in progress at most, at most one for each case at work."""
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    assert carried_out(whole, 0) == 0
    drawn = random.Random(7)
    kills = rounds = 0
    while kills < KILLS:
        rounds += 1
        here = broken / str(rounds)
        here.mkdir(parents=True)
        mine = 0
        while (code := carried_out(here, drawn.randint(1, 12))) != 0:
            assert code == 9
            mine += 1
        kills += mine
        assert (here / "report.json").read_text() == (whole / "report.json").read_text()
        more = asked(here) - asked(whole)
        assert not asked(whole) - asked(here) and sum(more.values()) <= mine * CONCURRENCY, (mine, more)
