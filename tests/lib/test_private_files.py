"""Files of runs are closed to other users, whatever the umask."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.lib.file_writer import make_private_directory, make_private_file, write_private
from agentflow.memory.index import FileIndex
from agentflow.observe.files import EventFiles
from agentflow.observe.recorder import Recorder
from agentflow.testing import Cassette


@pytest.fixture(autouse=True, params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Nothing, the usual, and everything taken from others."""
    before = os.umask(request.param)
    yield
    os.umask(before)


def _modes(below: Path) -> dict[str, int]:
    return {str(path.relative_to(below)): stat.S_IMODE(path.lstat().st_mode) for path in sorted(below.rglob("*"))}


def _check(below: Path) -> None:
    modes = _modes(below)
    assert modes
    for name, mode in modes.items():
        assert mode == (0o700 if (below / name).is_dir() else 0o600), f"{name} {mode:o}"


def test_files_and_the_directories_above_them(tmp_path: Path) -> None:
    """A file, an empty file and a directory, each with missing parents."""
    write_private(tmp_path / "a" / "b" / "text", "x\n")
    make_private_file(tmp_path / "c" / "d" / "empty")
    make_private_directory(tmp_path / "e" / "f")
    _check(tmp_path)
    assert (tmp_path / "a" / "b" / "text").read_text() == "x\n"


def test_a_directory_that_exists_stays_as_it_is(tmp_path: Path) -> None:
    """The user's own directories are not closed."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine").chmod(0o755)
    make_private_file(tmp_path / "mine" / "file")
    assert _modes(tmp_path) == {"mine": 0o755, "mine/file": 0o600}


async def test_events_index_and_cassette(tmp_path: Path) -> None:
    """What the package itself writes of a run: the events, the index with its log, a recording."""
    recorder = Recorder(EventFiles(tmp_path / "runs"))
    async with AgentFlow(provider=ScriptedProvider(["x"])) as flow:
        flow.subscribe(recorder)
        await flow.run("(+ 1 2)")
    await recorder.aclose()
    source = tmp_path.parent / f"{tmp_path.name}-source"
    source.mkdir()
    (source / "a.txt").write_text("text")
    index = FileIndex(tmp_path / "cache" / "index.db")
    await index.update(source)
    Cassette(tmp_path / "tapes" / "one.json").save()
    _check(tmp_path)
    await index.aclose()
