"""Kills durable runs at random, as often as asked, and checks what is promised of them.

    python -m tests.durable.harness --kills 300
    python -m tests.durable.harness --failpoints 20
    python -m tests.durable.harness --replays 100
    python -m tests.durable.harness --kills 300 --postgres

For each run: no effect is carried out again after its record was acknowledged; the value is the undisturbed one; replayed
from its records, nothing is carried out and value and usage are the same; of two outcomes of a race with time, only one was ever
acted on.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from agentflow.journal.urls import database_file, is_postgres
from tests.durable.programs import PROGRAMS
from tests.support.postgres import Server
from tests.support.sqlite_runs import change_run

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
    """Processes that fork the processes of the runs, in turn; see :mod:`tests.durable.child`. Each has hashes of its own."""

    def __init__(self, processes: int = 1) -> None:
        self._number = processes

    def __enter__(self) -> Nursery:
        words = [sys.executable, "-m", "tests.durable.child"]
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
        self._processes = [
            subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=kept)
            for _ in range(self._number)
        ]
        self._turns = itertools.cycle(self._processes)
        self._process = self._processes[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._processes:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.close()
            process.wait(TIMEOUT_S)
            process.stdout.close()

    def begin(self, job: dict[str, Any]) -> int:
        """Start a job. Gives the number of its process."""
        self._process = next(self._turns)
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def status(self) -> int:
        """Wait for the job that was started, and give its exit status."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def run(self, job: dict[str, Any], kill_after: float | None) -> int:
        """Run a job to its end, or kill its process after some seconds. Gives its exit status."""
        pid = self.begin(job)
        if kill_after is not None:
            time.sleep(kill_after)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return self.status()


NewDatabase = Callable[[Path], str]
"""Gives the URL of an empty database for a run in a directory."""


def sqlite_in(directory: Path) -> str:
    """An SQLite file in the directory."""
    return f"sqlite:///{directory / 'runs.db'}"


def job_of(directory: Path, program: str, database: NewDatabase = sqlite_in) -> dict[str, Any]:
    """The job that runs a program in a directory."""
    return {
        "db": database(directory),
        "run": "r",
        "program": program,
        "log": str(directory / "log"),
        "replay": False,
    }


def one_run(
    nursery: Nursery,
    directory: Path,
    program: str,
    dice: random.Random,
    kills: int,
    report: Report,
    database: NewDatabase = sqlite_in,
) -> Any:
    """Kill a run ``kills`` times at most, let it end, check it, and give its value and what was said in its session."""
    job = job_of(directory, program, database)
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
    return checked(nursery, directory, job, status, report)


def checked(nursery: Nursery, directory: Path, job: dict[str, Any], status: int, report: Report) -> Any:
    """Check a run that ended with ``status``, and give its value and what was said in its session."""
    report.runs += 1
    end = directory / "log.end"
    if status != 0 or not end.exists():
        report.wrong.append(f"{job['program']}: ended with {status}")
        return None
    first = json.loads(end.read_text())
    check_log(directory / "log", report, job["program"])
    replay(nursery, directory, job, first, report)
    return first["value"], first["said"]


def check_log(path: Path, report: Report, program: str) -> None:
    """Nothing is started again once it is stored; a race with time has one outcome."""
    state: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for line in path.read_text().splitlines():
        what, _, key = line.partition(" ")
        if what in ("at", "sent"):
            continue
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


def check_once(path: Path, report: Report, program: str) -> None:
    """What was not killed carried every effect out once."""
    started = Counter([line for line in path.read_text().splitlines() if line.startswith("started ")])
    report.wrong += [f"{program}: {line}, {count} times" for line, count in started.items() if count > 1]


def replay(nursery: Nursery, directory: Path, job: dict[str, Any], first: Any, report: Report) -> None:
    """The run once more from its records: the same, and nothing is carried out."""
    again = asyncio.run(_unended(job["db"])) if is_postgres(job["db"]) else _unended_copy(job["db"], directory)
    log = directory / "again"
    status = nursery.run({**job, "db": again, "log": str(log), "replay": True}, None)
    report.replays += 1
    if status != 0:
        carried = log.read_text().split("\n")[0] if log.exists() else ""
        report.wrong.append(f"{job['program']}: replayed, it ended with {status} {carried}")
        return
    second = json.loads((directory / "again.end").read_text())
    for name in ("value", "usage"):
        if first[name] != second[name]:
            report.wrong.append(f"{job['program']}: replayed, its {name} is {second[name]}, not {first[name]}")


def _unended_copy(db: str, directory: Path) -> str:
    """A copy of an SQLite database in which the run has not ended."""
    again = directory / "again.db"
    with sqlite3.connect(database_file(db)) as source, sqlite3.connect(again, isolation_level=None) as copy:
        source.backup(copy)
        change_run(copy, "r", time.time(), status="queued", result=None)
    source.close()
    copy.close()
    return f"sqlite:///{again}"


async def _unended(db: str) -> str:
    """A database in PostgreSQL, in which the run has not ended from now on."""
    import asyncpg

    connection = await asyncpg.connect(db)
    await connection.execute("update af_run set status = 'queued', result = null")
    await connection.close()
    return db


def comparable(end: Any) -> Any:
    """A value, and what was said in the session, without what a race with time, chance or host code decides."""
    if end is None:
        return None
    value, said = end
    return [each for each in value if not (isinstance(each, list) and each and each[0] == "edge")], sorted(said)


def campaign(
    kills: int,
    seed: int,
    *,
    per_run: int = 4,
    programs: list[str] | None = None,
    database: NewDatabase = sqlite_in,
    processes: int = 1,
) -> Report:
    """Kill runs of the programs in turn until there were ``kills`` kills."""
    dice = random.Random(seed)
    report = Report()
    undisturbed: dict[str, Any] = {}
    names = programs or list(PROGRAMS)
    with Nursery(processes) as nursery:
        for name in names:
            with tempfile.TemporaryDirectory() as directory:
                undisturbed[name] = comparable(one_run(nursery, Path(directory), name, dice, 0, report, database))
                check_once(Path(directory) / "log", report, name)
        while report.kills < kills:
            name = names[report.runs % len(names)]
            with tempfile.TemporaryDirectory() as directory:
                value = comparable(one_run(nursery, Path(directory), name, dice, per_run, report, database))
                if value != undisturbed[name]:
                    report.wrong.append(f"{name}: {value}, not {undisturbed[name]}")
    return report


FAILPOINTS = ("before", "unwritten", "undelivered", "park", "finish")
"""Where a process kills itself: when an effect has started, when it has ended and nothing is written, when its record is
written and nobody knows, before or after a run is stored as waiting, and at the end of the run."""


def failpoint_campaign(
    times: int,
    seed: int,
    *,
    programs: list[str] | None = None,
    database: NewDatabase = sqlite_in,
    points: Sequence[str] = FAILPOINTS,
) -> Report:
    """Let runs kill themselves at each of ``points``, as often as asked, at effects drawn at random."""
    dice = random.Random(seed)
    report = Report()
    with Nursery() as nursery:
        for number in range(times):
            for point in points:
                name = "mixed" if point == "park" else dice.choice(programs or list(PROGRAMS))
                with tempfile.TemporaryDirectory() as directory:
                    job = job_of(Path(directory), name, database)
                    nth = {"finish": 1, "park": dice.randrange(1, 3)}.get(point, dice.randrange(1, 30))
                    status = nursery.run({**job, "failpoint": point, "nth": nth}, None)
                    report.kills += status == -signal.SIGKILL
                    if status != -signal.SIGKILL:
                        report.wrong.append(f"{name}: {point} {nth} of round {number} ended with {status}")
                    checked(nursery, Path(directory), job, nursery.run(job, None), report)
    return report


def replay_campaign(times: int, program: str, seed: int, *, processes: int = 1) -> Report:
    """One run, replayed as often as asked under other timings: with other concurrency, and a loop that is held at random."""
    dice = random.Random(seed)
    report = Report()
    with Nursery(processes) as nursery, tempfile.TemporaryDirectory() as directory:
        job = job_of(Path(directory), program)
        checked(nursery, Path(directory), job, nursery.run(job, None), report)
        first = json.loads((Path(directory) / "log.end").read_text())
        for _ in range(times):
            other = {"concurrency": dice.choice([1, 2, 3, 8, 256]), "unrest": dice.choice([0.0, 0.3, 2.0])}
            replay(nursery, Path(directory), {**job, **other}, first, report)
    return report


def main() -> None:
    """The campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", action="append", choices=list(PROGRAMS))
    parser.add_argument("--failpoints", type=int, default=0, help="instead: each of them so often")
    parser.add_argument("--replays", type=int, default=0, help="instead: one run of each program, so often")
    parser.add_argument("--postgres", action="store_true", help="over a PostgreSQL server, for kills and failpoints")
    options = parser.parse_args()
    with postgres() if options.postgres else contextlib.nullcontext(sqlite_in) as database:
        reports = _reports(options, database)
    for report in reports:
        show(report)
    sys.exit(any([report.faults for report in reports]))


@contextlib.contextmanager
def postgres() -> Iterator[NewDatabase]:
    """A PostgreSQL server, with a schema for each run."""
    server = Server()
    try:
        server.start()
        yield lambda _: server.schema()
    finally:
        server.remove()


def _reports(options: argparse.Namespace, database: NewDatabase) -> list[Report]:
    if options.failpoints:
        return [failpoint_campaign(options.failpoints, options.seed, programs=options.program, database=database)]
    if options.replays:
        names = options.program or list(PROGRAMS)
        return [replay_campaign(options.replays, name, options.seed, processes=2) for name in names]
    return [campaign(options.kills, options.seed, programs=options.program, database=database, processes=2)]


def show(report: Report) -> None:
    """Print what was seen."""
    print(
        f"{report.kills} kills, {report.runs} runs, {report.stored} effects stored: {len(report.repeated)} repeated after"
        f" that, {report.in_flight} that were in flight, {report.unstored} done and not yet stored;"
        f" {report.replays} replays; {len(report.wrong)} wrong"
    )
    for fault in report.faults[:20]:
        print(" ", fault[:2_000])


if __name__ == "__main__":
    main()
