"""Processes that die while their calls are in batches: nothing is submitted twice, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.batches.flows import MODELS, about
from tests.support.batch_server import BatchServer
from tests.support.children import HANG_S

ROOT = Path(__file__).resolve().parents[2]
WRONG = ("twice", "lost", "refused", "wrong", "unpaid")
LAST = 40
"""An undisturbed run does fewer operations before its end."""


async def child(job: dict[str, Any]) -> tuple[int, str]:
    """Run the child; returns its exit code and what it printed."""
    command = (sys.executable, "-m", "tests.batches.child", json.dumps(job))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(HANG_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode()


async def campaign(tmp_path: Path, seed: int, kills: int, *, progress: bool = False) -> dict[str, int]:
    """Runs that are killed and resumed until ``kills`` processes have died. Returns the counts."""
    dice = random.Random(seed)
    report = {"kills": 0, "runs": 0, "twice": 0, "lost": 0, "refused": 0, "wrong": 0, "unpaid": 0}
    while report["kills"] < kills:
        model = dice.choice(list(MODELS.values()))
        root = tmp_path / f"run-{report['runs']}"
        root.mkdir()
        breaks = iter([dice.random() < 0.2])  # the vendor has the batch, and its answer is lost
        server = BatchServer(about, lose=lambda step, breaks=breaks: next(breaks, False))
        async with server.serving():
            for _ in range(3):
                job = {
                    "url": server.url,
                    "model": model,
                    "root": str(root),
                    "point": dice.randrange(LAST),
                    "after": dice.random() < 0.5,
                }
                code, out = await child(job)
                if code == 0:
                    break
                assert code == -9, (job, code, out)
                report["kills"] += 1
            else:
                code, out = await child({**job, "point": -1})
                assert code == 0, (job, out)
        report["runs"] += 1
        report["twice"] += sum(times > 1 for times in server.submitted.values())
        report["lost"] += 4 - len(server.submitted) - len(server.ordinary)
        report["refused"] += len(server.refused)
        value, cost, spent = json.loads(out)
        report["wrong"] += value != ["A", "B", "C", "D"]
        report["unpaid"] += spent < cost
        if progress:
            print(report, flush=True)
    return report


@pytest.mark.slow
async def test_killed_processes_submit_nothing_twice(tmp_path: Path) -> None:
    """A process that dies before or after any operation of the store or of the vendor, or whose vendor's answer is lost: the next one
    finds its batch in the list, or sees that there is none, and the run has all of its answers."""
    report = await campaign(tmp_path, 0, kills=4)
    assert report["kills"] >= 4 and not any(report[name] for name in WRONG), report


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(campaign(Path(directory), int(sys.argv[1]), int(sys.argv[2]), progress=True))
