"""Runs over a database that cannot be written to for a while: they wait with what they have paid for, and lose nothing."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import JournalError

PROGRAM = """
(list (content (look (at "a"))) (pmap (lambda (i) (content (look (at i)))) '("p1" "p2" "p3")) (content (look (at "b"))))
"""
VALUE = ["<a>", ["<p1>", "<p2>", "<p3>"], "<b>"]


class Looks:
    """A tool whose answers are large; ``first`` is set when it is called."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.first = asyncio.Event()
        self.go_on = asyncio.Event()

    async def look(self, at: str) -> str:
        """Look at something."""
        self.first.set()
        await self.go_on.wait()
        self.done[at] += 1
        return f"<{at}>"


async def test_a_run_waits_for_a_locked_database(tmp_path: Path) -> None:
    """While another program writes, nothing follows from an effect that is not stored; afterwards the run goes on."""
    looks = Looks()
    path = tmp_path / "runs.db"
    async with AgentFlow(
        provider=ScriptedProvider([]), root=tmp_path, tools=[looks.look], durable=f"sqlite:///{path}"
    ) as flow:
        handle = await flow.start(PROGRAM, run_id="r")
        await looks.first.wait()
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("begin immediate")
        looks.go_on.set()
        await asyncio.sleep(0.3)
        assert handle.status == "running" and looks.done == {"a": 1}
        db.execute("rollback")
        db.close()
        assert (await handle.result()).value == VALUE
    assert set(looks.done.values()) == {1}


async def test_a_run_waits_for_a_database_that_was_taken_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Gone under way: what was paid for is kept until the file is back, and the process says what it waits for."""
    looks = Looks()
    path, away = tmp_path / "runs.db", tmp_path / "away"
    async with AgentFlow(
        provider=ScriptedProvider([]), root=tmp_path, tools=[looks.look], durable=f"sqlite:///{path}"
    ) as flow:
        handle = await flow.start(PROGRAM, run_id="r")
        await looks.first.wait()
        path.rename(away)
        looks.go_on.set()
        await said(caplog, "durable runs wait for it and lose nothing")
        assert handle.status == "running" and looks.done == {"a": 1}
        away.rename(path)
        assert (await handle.result()).value == VALUE
    assert set(looks.done.values()) == {1}


@pytest.mark.slow
async def test_a_flow_is_closed_although_its_database_is_gone(tmp_path: Path) -> None:
    """Closing waits some seconds for a file that was deleted, and then ends; the run says what was wrong."""
    looks = Looks()
    path = tmp_path / "runs.db"
    async with AgentFlow(
        provider=ScriptedProvider([]), root=tmp_path, tools=[looks.look], durable=f"sqlite:///{path}"
    ) as flow:
        handle = await flow.start(PROGRAM, run_id="r")
        await looks.first.wait()
        path.unlink()
        looks.go_on.set()
    with pytest.raises(JournalError) as caught:
        await handle.result()
    assert caught.value.code == "durable/database" and handle.status == "queued"


async def said(log: pytest.LogCaptureFixture, text: str) -> None:
    """Wait until a line of the log contains ``text``."""
    while text not in log.text:
        await asyncio.sleep(0.02)


@contextlib.contextmanager
def small_disk(directory: Path) -> Iterator[Path]:
    """A file system of 1 MB, where this process may mount one."""
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    with contextlib.suppress(OSError):
        if sys.platform == "linux" and subprocess.run(mount, capture_output=True, check=False).returncode == 0:
            try:
                yield directory
            finally:
                subprocess.run(["umount", "-l", str(directory)], check=True)
            return
    pytest.skip("no file system may be mounted here")


async def test_a_run_waits_for_a_full_disk(tmp_path: Path) -> None:
    """On a disk of 1 MB that is full a run waits; with room again it goes on, and repeats nothing."""
    looks = Looks()
    with small_disk(tmp_path / "disk") as disk:
        async with AgentFlow(
            provider=ScriptedProvider([]), root=tmp_path, tools=[looks.look], durable=f"sqlite:///{disk}/runs.db"
        ) as flow:
            handle = await flow.start(PROGRAM, run_id="r")
            await looks.first.wait()
            ballast = disk / "ballast"
            with contextlib.suppress(OSError), open(ballast, "wb", buffering=0) as file:  # noqa: ASYNC230 - it is small
                while True:
                    file.write(b"x" * 512)
            looks.go_on.set()
            await asyncio.sleep(0.3)
            assert handle.status == "running" and looks.done == {"a": 1}
            ballast.unlink()
            assert (await handle.result()).value == VALUE
    assert set(looks.done.values()) == {1}
