"""Files that a user names are written to as what they are: replaced only where they are regular files."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.cli.check.language import format_files
from agentflow.lib.file_writer import write_file, write_private
from agentflow.observe.report.observer import Report
from agentflow.tasks.workflows import Workflow


def test_a_file_keeps_its_mode_and_a_link_leads_where_it_did(tmp_path: Path) -> None:
    """Links of links too, relative ones, and one that leads to nothing yet."""
    (tmp_path / "a").mkdir()
    target = tmp_path / "a" / "target"
    target.write_text("old")
    target.chmod(0o640)
    (tmp_path / "a" / "one").symlink_to("target")
    (tmp_path / "two").symlink_to(Path("a") / "one")
    (tmp_path / "three").symlink_to(tmp_path / "a" / "new")
    before = target.stat()
    write_private(tmp_path / "two", "new")
    write_private(tmp_path / "three", "first")
    assert target.read_text() == "new" and (tmp_path / "a" / "new").read_text() == "first"
    assert (
        (tmp_path / "two").is_symlink() and (tmp_path / "a" / "one").is_symlink() and (tmp_path / "three").is_symlink()
    )
    after = target.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert stat.S_IMODE((tmp_path / "a" / "new").stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.rglob(".*")) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")
def test_a_file_keeps_its_owner(tmp_path: Path) -> None:
    """What the superuser writes stays its owner's; what another may write in but not give away is written in place."""
    mine = tmp_path / "mine"
    mine.write_text("old")
    os.chown(mine, 1_234, 1_234)
    mine.chmod(0o666)
    write_file(mine, b"new")
    assert (mine.stat().st_uid, mine.read_text()) == (1_234, "new")
    tmp_path.chmod(0o777)
    for directory in tmp_path.parents:
        if directory.stat().st_uid == os.geteuid() and len(directory.parts) > 2:
            directory.chmod(directory.stat().st_mode | 0o055)
    inode = mine.stat().st_ino
    child = os.fork()
    if child == 0:
        os.setuid(4_321)
        try:
            write_file(mine, b"newer")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (mine.stat().st_uid, mine.stat().st_ino, mine.read_text()) == (1_234, inode, "newer")


def test_a_pipe_is_written_to(tmp_path: Path) -> None:
    """Whole, however little it holds, and it stays a pipe."""
    os.mkfifo(tmp_path / "pipe")
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    write_file(tmp_path / "pipe", b"x" * 300_000)
    reader.join()
    assert len(read[0]) == 300_000 and stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_device_is_written_to() -> None:
    """Also by the superuser, who could replace it."""
    before = os.stat("/dev/null"), os.stat("/dev/full")
    write_private(Path("/dev/null"), "x")
    with pytest.raises(OSError) as caught:
        write_private(Path("/dev/full"), "x")
    assert caught.value.errno == errno.ENOSPC
    assert (os.stat("/dev/null").st_ino, os.stat("/dev/full").st_ino) == (before[0].st_ino, before[1].st_ino)


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
@pytest.mark.parametrize("kind", ["pipe", "file"])
def test_a_descriptor_is_written_to(name: str, kind: str, tmp_path: Path) -> None:
    """Where it stands: what was written before and after by other means stays."""
    code = (
        "import sys; from pathlib import Path; from agentflow.lib.file_writer import write_private\n"
        f"print('before', flush=True); write_private(Path({name!r}), 'the report\\n'); print('after')"
    )
    if kind == "pipe":
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    else:
        with open(tmp_path / "out", "w") as file:
            subprocess.run([sys.executable, "-c", code], stdout=file, check=True)
        out = (tmp_path / "out").read_text()
    assert out == "before\nthe report\nafter\n"


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    """A directory, links in a ring, a directory that is not there."""
    (tmp_path / "ring").symlink_to("ring")
    for name in (".", "ring", "missing/x"):
        with pytest.raises(OSError):
            write_file(tmp_path / name, b"x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ring"]


async def test_reports_workflows_and_formatted_programs_are_written_so(tmp_path: Path) -> None:
    """Each of them to a link, which stays one, and to a file, which keeps its mode."""
    for name in ("report", "program.sexp"):
        (tmp_path / f"real-{name}").write_text("(+   1 2)")
        (tmp_path / f"real-{name}").chmod(0o664)
        (tmp_path / name).symlink_to(f"real-{name}")
    report = Report()
    async with AgentFlow(provider=ScriptedProvider([]), workflows=tmp_path / "flows") as flow:
        await flow.workflows.save(Workflow(name="one", program="(+ 1 2)", description="first"))
        saved = tmp_path / "flows" / "one.sexp"
        saved.rename(tmp_path / "flows" / "elsewhere")
        saved.symlink_to("elsewhere")
        flow.subscribe(report)
        await flow.run("(+ 1 2)")
        await flow.workflows.save(Workflow(name="one", program="(+ 2 3)", description="second"))
    await report.write(tmp_path / "report")
    assert format_files([str(tmp_path / "program.sexp")]) == 0
    assert (tmp_path / "report").read_text().startswith("<!doctype html>")
    assert (tmp_path / "program.sexp").read_text() == "(+ 1 2)\n"
    assert saved.is_symlink() and "second" in (tmp_path / "flows" / "elsewhere").read_text()
    for name in ("report", "program.sexp"):
        assert (tmp_path / name).is_symlink() and stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o664
