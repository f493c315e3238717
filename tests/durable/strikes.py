"""Kills durable runs while they wait: asked, parked, being answered, being gone on with.

    python -m tests.durable.strikes --kills 150

Most of a run that waits is not work, so kills at random hardly meet it. Here the process is killed a moment after it has come
to a certain point of waiting, whether it answers itself, another process does, or both are there.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.durable.harness import Nursery, Report, checked, comparable, job_of, show

STATES = ("asked", "parking", "parked", "resting", "delivering", "delivered", "sent", "owning", "owned")
"""What a process is at that waits: a question is stored, the run is stored as waiting, has left the memory, is answered, is
taken up."""
SENDING = ("delivering", "delivered", "sent")
MOMENT_MS = 6.0
"""How long after it came to such a point a process is killed, at most."""
PAUSE_MS = 15.0
STUCK_S = 60.0


class Process:
    """A job of a nursery, to be killed when it is at ``state`` the ``nth`` time, and the lines that it adds to its run's log."""

    def __init__(self, nursery: Nursery, job: dict[str, Any], state: str, nth: int) -> None:
        self.state = state
        self.nth = nth
        self._nursery = nursery
        self._log = Path(job["log"])
        self._from = self._log.stat().st_size if self._log.exists() else 0
        self.pid = nursery.begin(job)

    def lines(self) -> list[str]:
        """What was logged since it began."""
        if not self._log.exists():
            return []
        with self._log.open() as file:
            file.seek(self._from)
            return file.read().splitlines()

    def comes_to(self, state: str, nth: int) -> bool:
        """Wait until it is at a state the ``nth`` time; false if it ends first."""
        limit = time.monotonic() + STUCK_S
        while time.monotonic() < limit:
            if self.lines().count(f"at {state}") >= nth:
                return True
            try:
                os.kill(self.pid, 0)
            except ProcessLookupError:
                return False
            time.sleep(0.001)
        return False

    def kill(self) -> str:
        """Kill it, and say what it was at."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        status = self.status()
        last = (self.lines() or [""])[-1]
        return "" if status != -signal.SIGKILL else last[3:] if last.startswith("at ") else "work"

    def status(self) -> int:
        """Wait for its end, and give its exit status."""
        return self._nursery.status()


class Strikes:
    """Kills one run while it waits; ``struck`` counts what the processes were at that were killed."""

    def __init__(self, main: Nursery, other: Nursery, dice: random.Random, report: Report) -> None:
        self.struck: Counter[str] = Counter()
        self._main = main
        self._other = other
        self._dice = dice
        self._report = report

    def run(self, directory: Path, kills: int) -> Any:
        """Kill the run ``kills`` times at most, let it end, check it, and give its value without the marks of the answers."""
        job = {**job_of(directory, "waits"), "pause_ms": PAUSE_MS}
        for _ in range(kills):
            self._dice.choice([self._alone, self._alone, self._answerer, self._together])(job)
            if (directory / "log.end").exists():
                break
        end = checked(self._main, directory, job, self._main.run(job, None), self._report)
        check_answers(directory, end, self._report)
        return _unmarked(comparable(end))

    def _alone(self, job: dict[str, Any]) -> None:
        """The process that runs it answers too, while it works or when it rests."""
        job = {**job, "eager": self._dice.random() < 0.5}
        self._strike(self._aim(self._main, job, STATES, 3))

    def _answerer(self, job: dict[str, Any]) -> None:
        """Nobody has the run, and who answers is killed."""
        log = Path(job["log"])
        if log.exists() and "at owned" in log.read_text():
            self._strike(self._aim(self._other, {**job, "sender": True}, SENDING, 2))

    def _together(self, job: dict[str, Any]) -> None:
        """One process has the run, another answers, and first one is killed, then the other."""
        waiting = self._aim(self._main, {**job, "pause_ms": 100 * PAUSE_MS}, ("resting", "owned"), 1)
        waiting.comes_to("resting", 1)
        both = [waiting, self._aim(self._other, {**job, "sender": True}, SENDING, 1)]
        self._dice.shuffle(both)
        for each in both:
            self._strike(each)

    def _aim(self, nursery: Nursery, job: dict[str, Any], states: Sequence[str], most: int) -> Process:
        """A process that is to be killed at one of ``states``, at the point itself or a moment after it."""
        state, nth = self._dice.choice(states), self._dice.randrange(1, most + 1)
        exactly = {"failpoint": state, "nth": nth} if self._dice.random() < 0.5 else {}
        return Process(nursery, {**job, **exactly}, state, nth)

    def _strike(self, process: Process) -> None:
        """Kill a process where it was aimed at."""
        if process.comes_to(process.state, process.nth):
            time.sleep(self._dice.uniform(0, MOMENT_MS) / 1_000)
        at = process.kill()
        if at:
            self.struck[at] += 1
            self._report.kills += 1


def check_answers(directory: Path, end: Any, report: Report) -> None:
    """The answer to a question that was acknowledged is the one that counts, and none was after it."""
    answers: dict[str, str] = {}
    for line in (directory / "log").read_text().splitlines():
        what, *rest = line.split(" ")
        if what == "sent" and rest[0] != "never":  # which may be answered and lose its race all the same
            if rest[0] in answers:
                report.wrong.append(f"{rest[0]} was answered twice")
            answers[rest[0]] = rest[1]
    lost = [question for question, mark in answers.items() if mark not in str(end)]
    if lost:
        report.wrong.append(f"acknowledged answers were lost: {lost} in {end}")


def _unmarked(end: Any) -> str:
    return re.sub("#[0-9a-f]+", "", str(end))


def campaign(kills: int, seed: int, *, per_run: int = 6) -> tuple[Report, Counter[str]]:
    """Kill runs that wait until there were ``kills`` kills. Gives what was seen, and what was killed how often."""
    dice = random.Random(seed)
    report = Report()
    with Nursery() as main, Nursery() as other:
        strikes = Strikes(main, other, dice, report)
        undisturbed: str | None = None
        while report.kills < kills or undisturbed is None:
            with tempfile.TemporaryDirectory() as directory:
                value = strikes.run(Path(directory), 0 if undisturbed is None else min(per_run, kills - report.kills))
            undisturbed = undisturbed or value
            if value != undisturbed:
                report.wrong.append(f"{value}, not {undisturbed}")
    return report, strikes.struck


def main() -> None:
    """The campaign from the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report, struck = campaign(options.kills, options.seed)
    show(report)
    print("killed at", ", ".join([f"{state} {count}" for state, count in struck.most_common()]))
    sys.exit(bool(report.faults))


if __name__ == "__main__":
    main()
