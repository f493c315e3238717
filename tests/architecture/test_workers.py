"""The workers of a test run are forked from a process that has imported the tests, and make the items that they may run."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from tests.support import marks, workers

ROOT = Path(__file__).resolve().parents[2]


def test_a_worker_is_a_fork_of_the_server() -> None:
    """It has the server's command line: a worker that imports the tests itself takes ten seconds more."""
    if "PYTEST_XDIST_WORKER" not in os.environ or not workers.SUPPORTED:
        pytest.skip("this process is not a fork")
    command = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    assert workers.__name__.encode() in command, "started by execnet, without tests.support.workers"


def test_items_are_left_out_by_what_the_settings_say() -> None:
    """Items of long lists are left out before they are made if ``-m`` is what pyproject.toml says."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    assert f"-m '{marks.NEWCOMERS}'" in settings["tool"]["pytest"]["ini_options"]["addopts"]
