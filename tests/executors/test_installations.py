"""What programs need beside the system's directories: version managers, virtual environments, scripts of installers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentflow.core.ports.service_port import ServiceCommand
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.sandbox.installations import installation
from agentflow.executors.sandbox.selection import SandboxChoice
from agentflow.executors.services import Services
from tests.hostile.backends import CONFINING, needed

STARTED = {
    "node": ["-e", "process.stdout.write('started')"],
    "npm": ["--version"],
    "npx": ["--version"],
    "uv": ["--version"],
    "uvx": ["--version"],
    "git": ["--version"],
    "python3": ["-c", "import ssl, sqlite3, zoneinfo; ssl.create_default_context(); print(1)"],
    "perl": ["-MEncode", "-e", "print 1"],
    "bash": ["-c", "echo started"],
}
"""The programs that people start servers with."""


def program(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_a_prefix_is_read_and_a_home_is_not(home: Path) -> None:
    """``bin`` of a prefix gives the prefix; in a home, and where more than programs lies, ``bin`` alone; any other file itself."""
    assert installation(str(program(home.parent / "opt" / "bin" / "x"))) == (str(home.parent / "opt"),)
    assert installation(str(program(home / ".pyenv" / "shims" / "x"))) == (str(home / ".pyenv"),)
    assert installation(str(program(home / "bin" / "x"))) == (str(home / "bin"),)
    assert installation(str(program(home / ".local" / "bin" / "x"))) == (str(home / ".local" / "bin"),)
    assert installation(str(program(home / ".cargo" / "bin" / "x"))) == (
        str(home / ".cargo" / "bin"),
        str(home / ".rustup"),
    )
    assert installation(str(program(home / "run"))) == (str(home / "run"),)
    assert installation("/usr/bin/env") == () and installation(str(home / "bin" / "missing")) == ()


def test_what_runs_a_script_is_read_too(home: Path) -> None:
    """By its first line, by ``env``, by the second line of installers, through links, and from a virtual environment."""
    python = program(home / ".pyenv" / "versions" / "3.11" / "bin" / "python3")
    tool = home / "tools" / "t"
    (tool / "bin").mkdir(parents=True)
    (tool / "bin" / "python").symlink_to(python)
    pyenv, around = str(python.parents[1]), str(tool)
    for number, head in enumerate(
        (f"#!{tool}/bin/python\n", f'#!/bin/sh\n\'\'\'exec\' "{tool}/bin/python" "$0" "$@"\n')
    ):
        script = program(home / ".local" / "bin" / f"s{number}", head)
        assert set(installation(str(script))) == {str(home / ".local" / "bin"), around, pyenv}
    linked = home / ".local" / "bin" / "linked"
    program(tool / "bin" / "real", "#!/usr/bin/env python\n")
    linked.symlink_to(tool / "bin" / "real")
    assert set(installation(str(linked))) == {str(home / ".local" / "bin"), around, pyenv}
    (home / "venv").mkdir()
    (home / "venv" / "pyvenv.cfg").write_text(f"home = {python.parent}\nversion = 3.11\n")
    assert set(installation(str(program(home / "venv" / "bin" / "x")))) == {str(home / "venv"), pyenv}


def test_a_script_that_names_no_program_opens_nothing(home: Path) -> None:
    """A file of the workspace cannot have a directory read by naming it: only what can be started is followed."""
    (home / "secrets" / "bin").mkdir(parents=True)
    (home / "secrets" / "bin" / "key").write_text("key")
    script = program(home / "project" / "run", f"#!{home}/secrets/bin/key\n")
    (home / "project" / "pyvenv.cfg").write_text(f"home = {home}/secrets/bin\n")
    assert installation(str(script)) == (str(script),)
    loop = program(home / "project" / "loop", f"#!{home}/project/loop\n")
    assert installation(str(loop)) == (str(loop),)


@pytest.mark.parametrize("backend", CONFINING)
@pytest.mark.parametrize("name", STARTED)
async def test_what_people_use_starts(name: str, backend: str, tmp_path: Path) -> None:
    """Behind the walls of each back-end, without network, with nothing on its standard error."""
    needed(backend)
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    files = FileAccessManager([tmp_path])
    try:
        service = await Services(files, SandboxChoice(backend)).start(
            ServiceCommand(argv=(name, *STARTED[name]), env={})
        )
        out = b""
        while piece := await service.read():
            out += piece
        ending = await service.stop(20)
    finally:
        await files.aclose()
    assert (ending, service.said()) == ("it exited with code 0", ""), name
    assert out.strip()


@pytest.mark.parametrize("backend", CONFINING)
async def test_secrets_of_etc_are_not_public(backend: str, tmp_path: Path) -> None:
    """What is read in /etc was chosen by name; passwords, keys and machine identities are not among it."""
    needed(backend)
    files = FileAccessManager([tmp_path])
    names = (
        "shadow",
        "machine-id",
        "fstab",
        "environment",
        "ssl/private",
        "ssh",
        "sudoers",
        "cron.d",
        "apt/auth.conf.d",
    )
    wanted = [f"/etc/{name}" for name in names]
    show = 'for path; do cat "$path" "$path"/* 2>/dev/null; done'
    command = ServiceCommand(argv=("sh", "-c", show, "-", *wanted), env={})
    try:
        service = await Services(files, SandboxChoice(backend)).start(command)
        assert await service.read() == b""
        await service.stop(10)
    finally:
        await files.aclose()
