"""Runs that are said things, sent signals and allowed more while they, and the senders, are killed: nothing is lost, and nothing is
read twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.durable.message_child import LAST

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed by signal")
_TIMEOUT_S = 60.0


class Nursery:
    """Forks processes of one role, and kills them."""

    def __init__(self) -> None:
        words = [sys.executable, "-m", "tests.durable.message_child"]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def begin(self, job: dict[str, Any]) -> int:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def status(self) -> int:
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(_TIMEOUT_S)
        self._process.stdout.close()


def ended(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    return True


def kill_after(pid: int, seconds: float) -> None:
    """Kill a process after that time, unless it has ended by then."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not ended(pid):
        time.sleep(0.002)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    while not ended(pid):
        time.sleep(0.002)


class Campaign:
    """``faults`` are what may not be; ``messages`` the acknowledged messages, ``raised`` the raised limits, ``kills`` the killed
    processes."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.kills = self.messages = self.raised = self.runs = 0

    def run(self, directory: Path, kills: int, draw: random.Random) -> None:
        """One run to its end: it and its senders are killed ``kills`` times."""
        job = {"db": str(directory / "runs.db"), "log": str(directory / "log")}
        Path(job["log"]).touch()
        worker, sender = Nursery(), Nursery()
        try:
            work, left, sent = worker.begin({**job, "role": "work"}), kills, 0
            while "at work" not in self._log(job):
                time.sleep(0.005)
            sending = None
            while left > 0:
                if sending is None:
                    sending, sent = sender.begin(self._letters(job, sent, 0)), sent + 100
                kill_after(
                    *((work, draw.uniform(0.0, 0.25)) if draw.random() < 0.6 else (sending, draw.uniform(0.0, 0.1)))
                )
                left -= 1
                if ended(work):
                    self._ended(worker.status(), "the worker", job)
                    work = worker.begin({**job, "role": "work"})
                if ended(sending):
                    self._ended(sender.status(), "a sender", job)
                    sending = None
            if sending is not None:
                kill_after(sending, _TIMEOUT_S)
                self._ended(sender.status(), "a sender", job)
            kill_after(sender.begin(self._letters(job, sent, 3)), _TIMEOUT_S)
            self._ended(sender.status(), "the last sender", job)
            kill_after(work, _TIMEOUT_S)
            self._ended(worker.status(), "the last worker", job)
            self._check(job)
        finally:
            worker.close()
            sender.close()

    @staticmethod
    def _letters(job: dict[str, Any], first: int, values: int) -> dict[str, Any]:
        return {**job, "role": "send", "first": first, "texts": 2, "values": values}

    def _ended(self, status: int, who: str, job: dict[str, Any]) -> None:
        if status == -signal.SIGKILL:
            self.kills += 1
        elif status and not Path(job["log"] + ".end").exists():
            self.faults.append(f"{who} ended with {status}")

    @staticmethod
    def _log(job: dict[str, Any]) -> list[str]:
        return Path(job["log"]).read_text().splitlines()

    def _check(self, job: dict[str, Any]) -> None:
        end = Path(job["log"] + ".end")
        if not end.exists():
            self.faults.append("the run did not end")
            return
        texts, values, state = json.loads(end.read_text())
        lines = [each.split() for each in self._log(job)]
        tried, sent = [[key for word, key in lines if word == which] for which in ("try", "sent")]
        self.runs, self.messages = self.runs + 1, self.messages + len(sent)
        read = Counter([*texts, *[f"v{each}" for each in values]])
        self.faults += [f"{key} was acknowledged and read {read[key]} times" for key in sent if read[key] != 1]
        self.faults += [f"{key} was read {count} times" for key, count in read.items() if count > 1 or key not in tried]
        numbers = [int(key[1:]) for key in tried if key[0] == "v" and read[key]]
        if values != numbers or values[-1] != LAST:
            self.faults.append(f"the signals {numbers} came as {values}")
        if state != {"values": len(values)}:
            self.faults.append(f"the state is {state}")
        allowed = 0
        for word, number in lines:
            if word == "raised":
                self.raised, allowed = self.raised + 1, int(number)
            elif word == "asked" and int(number) < allowed:
                self.faults.append(f"the limit was {number} again, though raised to {allowed}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_message_is_lost_or_read_twice(tmp_path: Path, seed: int) -> None:
    """SIGKILL of the run and of its senders at random moments: each acknowledged text is in the conversation of exactly one loop, once,
    and each signal comes once, in order; what was not acknowledged came once or not at all. A limit that was raised stays so."""
    draw, campaign = random.Random(seed), Campaign()
    for number in range(3):
        directory = tmp_path / str(number)
        directory.mkdir()
        campaign.run(directory, 8, draw)
    assert campaign.faults == []
    assert campaign.kills >= 10 and campaign.messages >= 30 and campaign.raised >= 3 and campaign.runs == 3


def main(kills: int, seed: int) -> None:
    """``python -m tests.durable.test_message_kills KILLS SEED``: that many kills, and the figures."""
    import tempfile

    draw, campaign = random.Random(seed), Campaign()
    while campaign.kills < kills and not campaign.faults:
        with tempfile.TemporaryDirectory() as directory:
            campaign.run(Path(directory), 10, draw)
    print(
        f"{campaign.kills} kills in {campaign.runs} runs, {campaign.messages} messages acknowledged, {campaign.raised} limits"
        f" raised: {campaign.faults or 'no fault'}"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
