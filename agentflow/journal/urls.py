"""The store that a ``durable=`` setting names."""

from __future__ import annotations

from pathlib import Path

from agentflow.core.errors import ConfigurationError
from agentflow.core.store_ports import JournalStore
from agentflow.journal.sqlite import SqliteJournal, Sync

_SQLITE = "sqlite:///"


def open_store(url: str, sync: Sync = "normal") -> JournalStore:
    """The store at ``url``: ``sqlite:///runs.db``, or ``sqlite:////absolute/runs.db``. Touches no file yet.

    Raises ConfigurationError (``config/durable``).
    """
    path = database_file(url)
    if sync not in ("normal", "full"):
        raise ConfigurationError(
            f"sync={sync!r} is no way to store",
            code="config/durable",
            hint="'normal' survives a killed process, 'full' a power cut too, at the cost of waiting for the disk",
        )
    return SqliteJournal(path, sync=sync)


def database_file(url: str) -> Path:
    """The SQLite file that ``url`` names. Raises ConfigurationError (``config/durable``)."""
    path = url.removeprefix(_SQLITE)
    if path == url or not path:
        raise ConfigurationError(
            f"durable={url[:120]!r} names no database of durable runs",
            code="config/durable",
            hint="write durable='sqlite:///runs.db', with four slashes for an absolute path",
        )
    return Path(path).absolute()
