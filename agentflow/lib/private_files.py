"""Creates files that only their owner may read: events, histories, indexes and recordings hold private data."""

from __future__ import annotations

import os
from pathlib import Path

from agentflow.lib.file_writer import write_file

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def state_path() -> Path:
    """Where agentflow keeps what outlives a process, by the XDG base directories; it may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "agentflow"


def make_private_directory(path: Path) -> Path:
    """Create ``path`` and its missing parents, closed to others; leave existing ones unchanged. Raises OSError."""
    missing: list[Path] = []
    at = path
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for directory in reversed(missing):
        try:
            directory.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            if not directory.is_dir():
                raise
    return path


def open_private(path: str, flags: int) -> int:
    """An opener for :func:`open` that creates files closed to others, regardless of the umask. Raises OSError."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def make_private_file(path: Path) -> None:
    """Create the file ``path`` (and its directory) if it is missing, for libraries that open it. Raises OSError."""
    make_private_directory(path.parent)
    os.close(open_private(str(path), os.O_WRONLY | os.O_CREAT))


def write_private(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to the file ``path``, see :func:`write_file`; a new one is closed to others. Raises OSError.

    Blocking.
    """
    make_private_directory(path.parent)
    write_file(path, text.encode("utf-8", "backslashreplace"), mode=FILE_MODE)
