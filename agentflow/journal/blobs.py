"""Large values beside a database: files in a directory, which all processes that use the database have to reach."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from agentflow.lib.file_writer import make_private_directory, open_private


class BlobDirectory:
    """The :class:`~agentflow.core.ports.store_ports.BlobStore` in the directory ``path``; each value is a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, name: str, body: bytes) -> None:
        path = self._file(name)
        if path.exists():
            return
        make_private_directory(path.parent)
        beside = path.with_name(f".{name}.{os.getpid()}")
        try:
            with open(beside, "wb", opener=open_private) as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            _sync(path.parent)
        except BaseException:  # nothing half-written stays, even when interrupted
            beside.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes | None:
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self) -> Iterator[str]:
        return (path.name for path in self._path.glob("??/[!.]*"))

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._path / name[:2] / name


def _sync(directory: Path) -> None:
    """Have the names in ``directory`` outlive a crash of the machine."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
