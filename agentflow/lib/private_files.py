"""Files that only their owner may read: events, histories, indexes and recordings hold what runs were told and answered."""

from __future__ import annotations

import os
from pathlib import Path

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def make_private_directory(path: Path) -> Path:
    """Make ``path`` and its missing parents, closed to others; directories that exist stay as they are. Raises OSError."""
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
    """An opener for :func:`open`: a file that it creates is closed to others, whatever the umask. Raises OSError."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def make_private_file(path: Path) -> None:
    """Make the file ``path`` (and its directory) if it is missing, for libraries that open files themselves. Raises OSError."""
    make_private_directory(path.parent)
    os.close(open_private(str(path), os.O_WRONLY | os.O_CREAT))


def write_private(path: Path, text: str) -> None:
    """Replace the file ``path`` by one that holds ``text`` as UTF-8: whole old or whole new at any moment. Raises OSError."""
    make_private_directory(path.parent)
    beside = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(beside, "w", encoding="utf-8", errors="backslashreplace", opener=open_private) as file:
            file.write(text)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
