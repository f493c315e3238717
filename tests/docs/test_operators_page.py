"""The unit and the compose file of docs/scale-out.md are what they are said to be."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_command import environment
from tests.support.children import HANG_S

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scale-out.md").read_text("utf-8")


def block(language: str) -> str:
    """The one block of a language on the page."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def field(name: str) -> str:
    """The value of a field of the unit."""
    (found,) = re.findall(rf"^{name}=(.*)$", block("ini"), re.MULTILINE)
    return found


def test_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    """Said by ``systemd-analyze verify``, with paths that are there; a field that it does not know is found."""
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("there is no systemd-analyze here")

    def verify(text: str) -> str:
        unit = tmp_path / "worker.service"
        unit.write_text(
            text.replace("/srv/invoices/.venv/bin/agentflow", sys.executable).replace("/srv/invoices", str(tmp_path))
        )
        done = subprocess.run(
            [analyze, "verify", str(unit)], capture_output=True, text=True, check=False, timeout=HANG_S
        )
        return done.stderr if "worker.service" in done.stderr or done.returncode else ""

    assert verify(block("ini")) == ""
    assert "KillMod" in verify(block("ini").replace("KillMode", "KillMod"))


def test_the_compose_file_is_one_that_compose_takes(tmp_path: Path) -> None:
    """Said by ``docker-compose config``; a field that it does not know is found."""
    if (compose := shutil.which("docker-compose")) is None:
        pytest.skip("there is no docker-compose here")
    for name in ("invoices.env", "database-password"):
        (tmp_path / name).write_text("")

    def check(text: str) -> str:
        (tmp_path / "compose.yaml").write_text(text)
        command = [compose, "-f", "compose.yaml", "config", "-q"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=HANG_S)
        return done.stderr if done.returncode else ""

    assert check(block("yaml")) == ""
    assert "restrt" in check(block("yaml").replace("restart", "restrt"))


def test_both_run_the_command_with_options_it_has() -> None:
    """And leave it longer to stop than it takes for that itself."""
    _, *unit = shlex.split(field("ExecStart"))
    (composed,) = re.findall(r"^ *command: agentflow (.*)$", block("yaml"), re.MULTILINE)
    assert unit == shlex.split(composed)
    command, app, *options = unit
    said = subprocess.run(
        [sys.executable, "-m", "agentflow", command, "--help"],
        capture_output=True, text=True, check=True, env=environment(Path("/nowhere")),
    ).stdout  # fmt: skip
    assert all(each in said for each in options if each.startswith("--")) and ":" in app
    drain = int(options[options.index("--drain") + 1])
    assert int(field("TimeoutStopSec")) > drain
    (grace,) = re.findall(r"stop_grace_period: (\d+)s", block("yaml"))
    assert int(grace) > drain
