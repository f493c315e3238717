"""What type checkers know of a user's project: pyright and mypy, both strict, on the files of ``user_project``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parent / "user_project"


def mypy(directory: Path, name: str) -> list[int]:
    """The lines with errors."""
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(directory / "cache"), name],
        cwd=directory, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert " 1 source file" in done.stdout, done.stdout + done.stderr
    return [int(line) for line in re.findall(rf"^{name}:(\d+): error", done.stdout, re.M)]


def pyright(directory: Path, name: str) -> list[int]:
    """The lines with errors."""
    (directory / "pyrightconfig.json").write_text(json.dumps({"include": [name], "typeCheckingMode": "strict"}))
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson"],
        cwd=directory, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert report["summary"]["filesAnalyzed"] == 1, done.stdout
    return [each["range"]["start"]["line"] + 1 for each in report["generalDiagnostics"] if each["severity"] == "error"]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("checker", [mypy, pyright])
@pytest.mark.parametrize("name", ["uses.py", "slips.py"])
def test_checkers_find_slips_and_nothing_else(tmp_path: Path, checker: object, name: str) -> None:
    """In uses.py no line is an error, and every type is the one asserted; in slips.py the lines marked so are, alone."""
    shutil.copy(PROJECT / name, tmp_path)
    lines = (PROJECT / name).read_text("utf-8").splitlines()
    marked = [number for number, line in enumerate(lines, 1) if line.endswith("# slip")]
    assert bool(marked) == (name == "slips.py")
    assert sorted(set(checker(tmp_path, name))) == marked  # type: ignore[operator]
