"""Flows over a file of durable runs that cannot be used: the error has a name, and nothing of a program has run."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from agentflow.core.data.errors import JournalError
from tests.durable.world import Flow, World, interrupted

PROGRAM = '(list (content (look (at "a"))) (content (look (at "b"))))'


def damage(path: Path) -> None:
    """Change a byte in 512, but none of the first page, which says what the file is."""
    data = bytearray(path.read_bytes())
    data[4_096::512] = bytes(each ^ 0x55 for each in data[4_096::512])
    path.write_bytes(data)


def truncate(path: Path) -> None:
    """Leave the first half."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def outdate(path: Path) -> None:
    """Say that a later version wrote it."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("update af_meta set value = '99' where key = 'version'")


def protect(path: Path) -> None:
    """Let nobody write to it: for a user who may write to any file, by a mount that may only be read."""
    path.chmod(0o400)
    if os.access(path, os.W_OK) and not (mounted("--bind", path, path) and mounted("-o", "remount,bind,ro", path)):
        pytest.skip("this user may write to any file, and mount none")


def mounted(*words: str | Path) -> bool:
    """Whether something could be mounted."""
    with suppress(OSError):
        return (
            sys.platform == "linux"
            and subprocess.run(["mount", *words], capture_output=True, check=False).returncode == 0
        )
    return False


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Path]:
    """The file of the runs, which no test leaves mounted."""
    path = tmp_path / "runs.db"
    yield path
    with suppress(OSError):
        while subprocess.run(["umount", path], capture_output=True, check=False).returncode == 0:
            pass  # it was mounted


def displace(path: Path) -> None:
    """Put a directory there."""
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (damage, "durable/corrupt"),
        (truncate, "durable/corrupt"),
        (outdate, "durable/version"),
        (protect, "durable/database"),
        (displace, "durable/database"),
    ],
)
async def test_nothing_runs_over_a_file_that_cannot_be_used(
    world: World, flow: Flow, database: Path, spoil: Callable[[Path], None], code: str
) -> None:
    """Starting a run, the same again, and resuming it: each is the error, and no tool is called."""
    await interrupted(world, flow, PROGRAM, "b")
    assert world.done == {"a": 1}
    world.done.clear()
    assert not os.path.exists(f"{database}-wal")  # noqa: ASYNC240 - all of it is in the one file
    spoil(database)
    codes: list[str | None] = []
    for run_id in ("new", "r", None):
        with pytest.raises(JournalError) as caught:
            async with flow() as opened:
                handle = await (opened.resume("r") if run_id is None else opened.start(PROGRAM, run_id=run_id))
                await handle.result()
        codes.append(caught.value.code)
    assert codes == [code] * 3 and world.done == {}
