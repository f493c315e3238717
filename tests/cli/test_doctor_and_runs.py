"""The small commands: what a machine offers, and what earlier runs did."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.cli.test_command import agentflow


async def test_doctor_says_what_is_there(tmp_path: Path) -> None:
    """doctor names Python, packages, keys, FTS5 and each sandbox back-end with its state; --json gives the same as data."""
    done = await agentflow("doctor", tmp_path=tmp_path)
    assert done.code == 0, done.err
    for word in ("python", "anthropic", "ANTHROPIC_API_KEY", "fts5", "bubblewrap", "landlock"):
        assert word in done.out
    found = json.loads((await agentflow("doctor", "--json", tmp_path=tmp_path)).out)
    assert found["problems"] == []
    assert set(found["sandbox"]) == {"bubblewrap", "landlock"}
    assert found["keys"] == {"ANTHROPIC_API_KEY": False, "OPENAI_API_KEY": False}


async def test_runs_lists_what_event_files_tell(tmp_path: Path) -> None:
    """runs lists each run of the event files with its outcome; one that was cut off is unfinished."""
    directory = tmp_path / "events"
    for name, program in (("good", "(+ 1 2)"), ("bad", "(first 5)")):
        await agentflow("eval", program, "--events-file", str(directory / f"{name}.jsonl"), tmp_path=tmp_path)
    whole = (directory / "good.jsonl").read_text().splitlines()
    (directory / "cut.jsonl").write_text(whole[0] + "\n")
    (directory / "other.jsonl").write_text("no json at all\n")
    done = await agentflow("runs", "--dir", str(directory), "--json", tmp_path=tmp_path)
    assert done.code == 0, done.err
    outcomes = {Path(run["file"]).stem: run["outcome"] for run in json.loads(done.out)}
    assert outcomes == {"good": "ok", "bad": "error", "cut": "unfinished"}
    assert "unfinished" in (await agentflow("runs", "--dir", str(directory), tmp_path=tmp_path)).out


def test_the_version_is_the_packages() -> None:
    """--version prints the installed version."""
    done = subprocess.run([sys.executable, "-m", "agentflow", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("agentflow 0.")
