"""The command's state directory: recorded runs and their database."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from agentflow.lib.file_writer import make_private_directory, state_path

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.journal.urls import Durable


def state_directory() -> Path:
    """The directory for run files: ``$XDG_STATE_HOME/agentflow``, else ``~/.local/state/agentflow``, else a new temporary one."""
    # not a fixed name: in a directory that all can write to, another user could have created it
    return state_path() if can_record() else Path(tempfile.mkdtemp(prefix=f"agentflow-{os.getuid()}-"))


def can_record() -> bool:
    """Whether the state directory can be written to."""
    path = state_path()
    try:
        make_private_directory(path)
        probe = path / f".probe-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def database(url: str | None) -> str:
    """The URL of the durable runs: ``url`` if set, else that of the command's own database."""
    return url or f"sqlite:///{state_directory().absolute() / 'runs.db'}"


def stored_at(url: str | None) -> Durable:
    """The database of :func:`database`. A command takes over no runs of it: they need their own tools, and outlive it."""
    from agentflow.journal.urls import Durable

    return Durable(database(url), take_over=False)


def stored_runs(url: str | None) -> AgentFlow:
    """A flow for managing the durable runs of a database; it resumes none by itself."""
    from agentflow.app import AgentFlow

    return AgentFlow(durable=stored_at(url))
