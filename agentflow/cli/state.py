"""Where the command keeps what outlives it: its runs and their database."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from agentflow.lib.private_files import make_private_directory, state_path


def state_directory() -> Path:
    """Where run files go: ``$XDG_STATE_HOME/agentflow``, else ``~/.local/state/agentflow``, else a new temporary one."""
    path = state_path()
    try:
        make_private_directory(path)
        probe = path / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        # a name that can be guessed, in a directory that all can write to, may be somebody else's by now
        return Path(tempfile.mkdtemp(prefix=f"agentflow-{os.getuid()}-"))
    return path


def database(url: str | None) -> str:
    """The URL of the durable runs: the given one, else that of the command's own."""
    return url or f"sqlite:///{state_directory().absolute() / 'runs.db'}"
