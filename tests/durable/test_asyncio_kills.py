"""Workflows with asyncio's own constructs are killed again and again: no recorded effect is repeated, and the value stays."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.durable.asyncio_child import VALUES

KILLS = 150
_TIMEOUT_S = 60.0


class Killer:
    """Runs workflows in processes that it kills. ``faults`` are what may not be, ``resumes`` the processes that went on with a run."""

    def __init__(self, directory: Path, loop: str = "") -> None:
        self._directory = directory
        self.kills = self.resumes = 0
        self.faults: list[str] = []
        words = [sys.executable, "-m", "tests.durable.asyncio_child", loop]
        self._nursery = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self) -> Killer:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._nursery.stdin is not None and self._nursery.stdout is not None
        self._nursery.stdin.close()
        self._nursery.wait(_TIMEOUT_S)
        self._nursery.stdout.close()

    def run(self, workflow: str, number: int, draw: random.Random) -> None:
        """One run to its end, killed now and then."""
        name = f"{workflow}{number}"
        job = {"db": str(self._directory / f"{name}.db"), "log": str(self._directory / f"{name}.log")}
        Path(job["log"]).touch()
        for attempt in itertools.count():
            self.resumes += attempt > 0
            recorded, lines = _recorded(job["db"]), len(_lines(job["log"]))
            after = draw.uniform(0.0, draw.choice([0.1, 0.3])) if attempt < 30 else _TIMEOUT_S
            status = self._process({**job, "workflow": workflow}, after)
            begun = [each.split(" ", 1)[1] for each in _lines(job["log"])[lines:]]
            self.faults += [f"{name}: {key} again, though recorded" for key in begun if key.upper() in recorded]
            self.faults += [f"{name}: {key} twice in a process" for key in {*begun} if begun.count(key) > 1]
            late = {f"slow{each[4:]}" for each in recorded if each.startswith("LATE")}
            self.faults += [f"{name}: {key} again, though something followed" for key in late & {*begun}]
            if status != -signal.SIGKILL:
                if status or (attempt == 0 and not begun):
                    self.faults.append(f"{name}: ended with {status}")
                return
            self.kills += after < _TIMEOUT_S
            if after == _TIMEOUT_S:
                self.faults.append(f"{name}: stuck")
                return

    def _process(self, job: dict[str, str], kill_after: float) -> int:
        assert self._nursery.stdin is not None and self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps(job) + "\n")
        self._nursery.stdin.flush()
        pid, end = int(self._nursery.stdout.readline()), time.monotonic() + kill_after
        while time.monotonic() < end:
            with contextlib.suppress(OSError):
                if _ended(pid):
                    break
            time.sleep(0.002)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return int(self._nursery.stdout.readline())


def _ended(pid: int) -> bool:
    """Whether a process has ended, whose number may be waited for still."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def _lines(log: str) -> list[str]:
    return Path(log).read_text().splitlines()


def _recorded(database: str) -> set[str]:
    """The results of the effects that are recorded."""
    if not Path(database).exists():
        return set()
    with contextlib.closing(sqlite3.connect(database)) as connection:
        try:
            rows = connection.execute("select value from af_effect where kind = 'tool' and state = 1").fetchall()
        except sqlite3.OperationalError:
            return set()
    return {word for (value,) in rows for word in _texts(json.loads(value))}


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the processes are forked, and watched under /proc")
@pytest.mark.parametrize("loop", ["", "eager", "uvloop"])
def test_no_recorded_effect_of_an_asyncio_task_is_repeated(tmp_path: Path, loop: str) -> None:
    """In many kills over all constructs (fewer with other loops) every run ends with its value, and what is recorded stays."""
    if loop == "eager" and sys.version_info < (3, 12):
        pytest.skip("eager tasks are from Python 3.12 on")
    if loop == "uvloop":
        pytest.importorskip("uvloop")
    draw = random.Random(time.time_ns())
    with Killer(tmp_path, loop) as killer:
        for number, workflow in enumerate(itertools.cycle(VALUES)):
            killer.run(workflow, number, draw)
            if killer.kills >= (KILLS if not loop else KILLS // 5) or killer.faults:
                break
    assert not killer.faults


def main(resumes: int, seed: int, loop: str = "", *workflows: str) -> None:
    """``python -m tests.durable.test_asyncio_kills RESUMES SEED [LOOP [WORKFLOW...]]``: that many resumed processes, and the figures.
    The loop is ``eager``, ``uvloop`` or empty."""
    import tempfile

    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory, Killer(Path(directory), loop) as killer:
        for number, workflow in enumerate(itertools.cycle(workflows or VALUES)):
            killer.run(workflow, number, draw)
            if killer.resumes >= resumes or len(killer.faults) >= 5:
                break
    print(f"{killer.kills} kills, {killer.resumes} resumes of {number + 1} runs: {killer.faults or 'no fault'}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
