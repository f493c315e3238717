"""MCP servers for tests: real processes, in the sandbox that works here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

SERVER = Path(__file__).with_name("server.py")


@pytest.fixture(params=["new", pytest.param("old", marks=pytest.mark.slow)])
def revision(request: pytest.FixtureRequest) -> str:
    """Both revisions of the protocol."""
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace with the server in it: nothing else is readable to a server."""
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    shutil.copy(SERVER, workspace / "server.py")
    return workspace


def command(*options: str) -> list[str]:
    """How the server is started."""
    return [getattr(sys, "_base_executable", sys.executable), "server.py", *options]
