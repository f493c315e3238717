"""Siblings fail, races are lost, time-outs and limits are met, processes are killed: a success that was shown is not paid for again."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.durable.shown_child import LEAVES, Tree

SHOWN = int(os.environ.get("AGENTFLOW_SHOWN_OUTCOMES", "300"))
"""Outcomes to be shown; the harness of 10,000 takes some ten minutes."""
_TIMEOUT_S = 120.0
_MOST_ATTEMPTS = 12


def structure(dice: random.Random, keys: list[int], depth: int = 0) -> Tree:
    """A random structure, whose calls have keys of their own."""
    if depth >= 3 or (depth and dice.random() < 0.3):
        keys[0] += 1
        return [dice.choice(LEAVES), f"k{keys[0]}"]
    form = dice.choice(["seq", "parallel", "parallel", "pmap", "pmap", "race", "timeout", "try"])
    if form == "timeout":
        return [form, dice.choice([0.005, 0.01, 0.02, 0.05]), structure(dice, keys, depth + 1)]
    if form == "try":
        return [form, structure(dice, keys, depth + 1)]
    return [form, *[structure(dice, keys, depth + 1) for _ in range(dice.randrange(2, 5))]]


class Campaign:
    """Runs of random structures, and the counts of their outcomes; ``again`` are those paid for after they had been shown,
    ``faults`` the resumed runs that did not fit their records, or did not end."""

    def __init__(self, directory: Path, dice: random.Random) -> None:
        self._directory = directory
        self._dice = dice
        self.shown = 0
        self.paid = 0
        self.again: list[str] = []
        self.faults: list[str] = []
        self.resumed = 0
        self.ends: Counter[str] = Counter()
        words = [sys.executable, "-m", "tests.durable.shown_child"]
        self._nursery = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Campaign:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._nursery.stdin is not None and self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait(_TIMEOUT_S)
        self._nursery.stdout.close()

    def run(self, number: int) -> None:
        """One run, resumed until it ends with a value or for the last time."""
        dice = self._dice
        name = str(self._directory / str(number))
        job: dict[str, Any] = {"db": f"{name}.db", "log": f"{name}.log"}
        job["face"], job["tree"] = dice.choice(["sexp", "python", "workflow"]), structure(dice, [0])
        Path(job["log"]).touch()
        for attempt in range(_MOST_ATTEMPTS):
            last = attempt == _MOST_ATTEMPTS - 1
            job["fails"] = 0.0 if last else dice.choice([0.0, 0.1, 0.4])
            job["limits"] = {} if last else self._limits(attempt)
            job["kill_after"] = dice.uniform(0.01, 0.15) if dice.random() < 0.3 and not last else None
            status = self._process(job)
            self.resumed += attempt > 0
            self.ends[{0: "value", 1: "stopped", -9: "killed"}.get(status, f"fault {status}")] += 1
            if status not in (0, 1, -9):
                self.faults.append(f"{name} {job}")
            if status == 0:
                break
        else:
            self.ends["never"] += 1
        self._count(Path(job["log"]), f"{name} {job['face']} {job['tree']}")

    def _limits(self, attempt: int) -> dict[str, Any]:
        """Limits that a run may meet, and higher ones each time."""
        dice, more = self._dice, attempt * 4
        return dice.choice(
            [
                {},
                {"model_calls": dice.randrange(1, 6) + more, "concurrency": dice.choice([2, 5, 256])},
                {"usd": 0.0002 * (dice.randrange(1, 6) + more), "concurrency": dice.choice([2, 5, 256])},
                {"effects": dice.randrange(2, 9) + more},
                {"wall_s": dice.uniform(0.005, 0.05) * (attempt + 1)},
            ]
        )

    def _process(self, job: dict[str, Any]) -> int:
        assert self._nursery.stdin is not None and self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps(job) + "\n")
        self._nursery.stdin.flush()
        return int(self._nursery.stdout.readline())

    def _count(self, log: Path, where: str) -> None:
        shown: set[str] = set()
        for line in log.read_text().splitlines():
            what, key = line.split(" ")
            if what == "shown":
                shown.add(key)
                continue
            self.paid += 1
            if key in shown:
                self.again.append(f"{key} of {where}")
        self.shown += len(shown)


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.skipif(sys.platform != "linux", reason="the processes are forked")
def test_a_success_that_was_shown_is_not_paid_for_again() -> None:
    """Whatever stops the strand of a call, a success that an observer was shown counts when the run is resumed, and the run fits its
    records and ends."""
    seed = random.randrange(10**6)
    with tempfile.TemporaryDirectory() as directory, Campaign(Path(directory), random.Random(seed)) as campaign:
        number = 0
        while campaign.shown < SHOWN and not ((campaign.again or campaign.faults) and SHOWN < 1_000):
            campaign.run(number)
            number += 1
    print(
        f"seed {seed}: {number} runs, {campaign.resumed} resumed, {campaign.ends}, {campaign.paid} paid, {campaign.shown} shown,"
        f" {len(campaign.again)} again"
    )
    assert not campaign.again
    assert not campaign.faults
