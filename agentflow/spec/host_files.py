"""A host's file manager as a port, which calls document 4's ``read_file``, ``write_file`` and ``list_directory``."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from agentflow.core.data.errors import AgentflowError, FileFailure
from agentflow.core.data.frozen import frozen
from agentflow.core.ports.executor_ports import FilePort, FileText
from agentflow.executors.file_access import FileAccessManager, digest_of, newline_of, not_done
from agentflow.lib.text.safe_text import shown
from agentflow.spec.host import asked, check_part, hosts

_METHODS = ("read_file", "write_file", "list_directory")


@frozen
class HostFiles:
    """A file manager with the methods ``own`` of the host, as a
    :class:`~agentflow.core.ports.executor_ports.FilePort`.

    ``None``, ``False`` and ``{"error": ...}`` become the error that an inherited method noted, else ``files/io``.
    Operations without a method in the specification (bytes of pictures, absolute paths) are the manager's own, if it has
    them.
    """

    files: Any
    own: tuple[str, ...]

    @property
    def roots(self) -> tuple[Path, ...]:
        """The roots, if the manager has any."""
        return tuple(getattr(self.files, "roots", ()))

    def absolute(self, path: str) -> str:
        return self._native("absolute", os.path.abspath)(path)

    def open_directory(self, path: str) -> int:
        return self._native("open_directory", lambda path: os.open(path, os.O_RDONLY | os.O_DIRECTORY))(path)

    def _native(self, name: str, other: Callable[[str], Any]) -> Callable[[str], Any]:
        method = getattr(self.files, name, None)
        return cast("Callable[[str], Any]", method) if callable(method) else other

    async def read(self, path: str, *, max_bytes: int | None = None) -> FileText:
        """The text of a file. Raises PathDenied and FileFailure."""
        if "read_file" not in self.own:
            return await self.files.read(path, max_bytes=max_bytes)
        with not_done() as noted:
            text = await asked(None, self.files.read_file, path, *(() if max_bytes is None else (max_bytes,)))
        if not isinstance(text, str):
            raise _failure(noted, path, "cannot be read")
        data = text.encode("utf-8", "surrogatepass")
        return FileText(path, text, len(data), digest_of(data), newline=newline_of(text))

    async def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes of a file; of a manager that reads only texts, those of its text."""
        if callable(getattr(self.files, "read_bytes", None)):
            return await self.files.read_bytes(path, max_bytes=max_bytes)
        return (await self.read(path, max_bytes=max_bytes)).text.encode()

    async def write(
        self, path: str, content: str | bytes, *, overwrite: bool = False, expected_digest: str | None = None
    ) -> None:
        """Write a file. Raises PathDenied and FileFailure."""
        if "write_file" not in self.own:
            return await self.files.write(path, content, overwrite=overwrite, expected_digest=expected_digest)
        if expected_digest is not None and (held := (await self.read(path)).digest) != expected_digest:
            raise FileFailure(
                f"{shown(path)} has changed",
                code="files/changed",
                hint="read it again before you write",
                details={"digest": held, "expected": expected_digest},
            )
        with not_done() as noted:
            done = await asked(None, self.files.write_file, path, content, overwrite or expected_digest is not None)
        if done is not True:
            raise _failure(noted, path, "cannot be written")

    async def list(self, path: str) -> list[str]:
        """The names in a directory. Raises PathDenied and FileFailure."""
        if "list_directory" not in self.own:
            return await self.files.list(path)
        with not_done() as noted:
            names: object = await asked(None, self.files.list_directory, path)
        if isinstance(names, list | tuple):
            return [str(name) for name in cast("list[object]", names)]
        said = cast("dict[str, object]", names).get("error") if isinstance(names, dict) else None
        raise _failure(noted, path, "cannot be listed", said)

    async def exists(self, path: str) -> bool:
        """Whether there is such a file."""
        if callable(getattr(self.files, "exists", None)):
            return await self.files.exists(path)
        return await asked(None, self.files.read_file, path) is not None


def _failure(noted: Sequence[AgentflowError], path: str, what: str, said: object = None) -> AgentflowError:
    if noted:
        return noted[-1]
    message = str(said) if said else f"{shown(path)} {what}"
    return FileFailure(message, code="files/io")


def files_of(files: Any) -> FilePort:
    """A file manager as a FilePort: itself, or the host's own methods. Raises ConfigurationError."""
    own = hosts(files, FileAccessManager, *_METHODS)
    if not own or (callable(getattr(files, "read", None)) and not callable(getattr(files, "read_file", None))):
        return files  # a FilePort
    check_part(files, "file manager", *_METHODS)
    return HostFiles(files, own)
