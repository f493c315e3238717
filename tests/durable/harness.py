"""Kills durable runs at random, as often as asked, and checks what is promised of them.

    python -m tests.durable.harness --kills 300

For each run: no effect is carried out again after its record was acknowledged; the value is the undisturbed one; replayed
from its records, nothing is carried out and value and usage are the same; of two outcomes of a race with time, only one was ever
acted on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from agentflow.journal.rows import change_run
from tests.durable.programs import PROGRAMS

TIMEOUT_S = 60.0
"""Seconds after which a run that was not killed counts as stuck."""


@dataclass
class Report:
    """What was seen. ``repeated`` are effects carried out again although they were acknowledged: there must be none."""

    runs: int = 0
    kills: int = 0
    stored: int = 0
    repeated: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    in_flight: int = 0
    unstored: int = 0
    replays: int = 0

    @property
    def faults(self) -> list[str]:
        """Everything that may not be."""
        return [*self.repeated, *self.wrong]


class Nursery:
    """A process that forks the processes of the runs; see :mod:`tests.durable.child`."""

    def __enter__(self) -> Nursery:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.durable.child"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(TIMEOUT_S)
        self._process.stdout.close()

    def run(self, job: dict[str, Any], kill_after: float | None) -> int:
        """Run a job to its end, or kill its process after some seconds. Gives its exit status."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        if kill_after is not None:
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return int(self._process.stdout.readline())


def one_run(nursery: Nursery, directory: Path, program: str, dice: random.Random, kills: int, report: Report) -> Any:
    """Kill a run ``kills`` times at most, let it end, check it, and give its value."""
    job = {
        "db": str(directory / "runs.db"),
        "run": "r",
        "program": program,
        "log": str(directory / "log"),
        "replay": False,
    }
    took = 1.2
    status = -9
    for _ in range(kills):
        status = nursery.run(job, dice.uniform(0.03, took))
        if status == 0:
            break
        report.kills += 1
        if status != -9:
            report.wrong.append(f"{program}: exit {status}")
    if status != 0:
        status = nursery.run(job, None)
    report.runs += 1
    end = directory / "log.end"
    if status != 0 or not end.exists():
        report.wrong.append(f"{program}: ended with {status}")
        return None
    first = json.loads(end.read_text())
    check_log(directory / "log", report, program)
    replay(nursery, directory, job, first, report)
    return first["value"]


def check_log(path: Path, report: Report, program: str) -> None:
    """Nothing is started again once it is stored; a race with time has one outcome."""
    state: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        what, _, key = line.partition(" ")
        seen[f"{what} {key}"] += 1
        if what == "started":
            before = state.get(key)
            if before == "stored":
                report.repeated.append(f"{program}: {key}")
            elif before == "started":
                report.in_flight += 1
            elif before == "done":
                report.unstored += 1
        elif what == "stored" and state.get(key) != "stored":
            report.stored += 1
        state[key] = what
    if seen["started edge-late"] and seen["started edge-in-time"]:
        report.wrong.append(f"{program}: two outcomes of one time-out were acted on")


def replay(nursery: Nursery, directory: Path, job: dict[str, Any], first: Any, report: Report) -> None:
    """The run once more from its records: the same, and nothing is carried out."""
    again = directory / "again.db"
    with sqlite3.connect(job["db"]) as source, sqlite3.connect(again, isolation_level=None) as copy:
        source.backup(copy)
        change_run(copy, "r", time.time(), status="queued", result=None)
    source.close()
    copy.close()
    log = directory / "again"
    status = nursery.run({**job, "db": str(again), "log": str(log), "replay": True}, None)
    report.replays += 1
    if status != 0:
        carried = log.read_text().split("\n")[0] if log.exists() else ""
        report.wrong.append(f"{job['program']}: replayed, it ended with {status} {carried}")
        return
    second = json.loads((directory / "again.end").read_text())
    for name in ("value", "usage"):
        if first[name] != second[name]:
            report.wrong.append(f"{job['program']}: replayed, its {name} is {second[name]}, not {first[name]}")


def comparable(value: Any) -> Any:
    """A value without what a race with time decides."""
    return [each for each in value if not (isinstance(each, list) and each and each[0] == "edge")] if value else value


def campaign(kills: int, seed: int, *, per_run: int = 4, programs: list[str] | None = None) -> Report:
    """Kill runs of the programs in turn until there were ``kills`` kills."""
    dice = random.Random(seed)
    report = Report()
    undisturbed: dict[str, Any] = {}
    names = programs or list(PROGRAMS)
    with Nursery() as nursery:
        for name in names:
            with tempfile.TemporaryDirectory() as directory:
                undisturbed[name] = comparable(one_run(nursery, Path(directory), name, dice, 0, report))
        while report.kills < kills:
            name = names[report.runs % len(names)]
            with tempfile.TemporaryDirectory() as directory:
                value = comparable(one_run(nursery, Path(directory), name, dice, per_run, report))
                if value != undisturbed[name]:
                    report.wrong.append(f"{name}: {value}, not {undisturbed[name]}")
    return report


def main() -> None:
    """The campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", action="append", choices=list(PROGRAMS))
    options = parser.parse_args()
    report = campaign(options.kills, options.seed, programs=options.program)
    print(
        f"{report.kills} kills, {report.runs} runs, {report.stored} effects stored: {len(report.repeated)} repeated after"
        f" that, {report.in_flight} that were in flight, {report.unstored} done and not yet stored;"
        f" {report.replays} replays; {len(report.wrong)} wrong"
    )
    for fault in report.faults[:20]:
        print(" ", fault[:2_000])
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
