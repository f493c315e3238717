"""Ports of the executors: files within the roots, and commands under policy and sandbox."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from agentflow.core.call.call import CallContext
from agentflow.core.data.frozen import frozen
from agentflow.core.data.reasons import Reason


@frozen
class FileText:
    """The contents of a file: ``path`` as requested, decoded ``text`` (empty if ``binary``), ``digest`` blake2b-16."""

    path: str
    text: str
    size: int
    digest: str
    binary: bool = False
    newline: str = "\n"


class FilePort(Protocol):
    """Files within the roots. Every method raises PathDenied or FileFailure."""

    @property
    def roots(self) -> tuple[Path, ...]: ...
    def absolute(self, path: str) -> str:
        """The absolute form of ``path``; a relative path starts at the first root. Does not touch the disk."""
        ...

    def open_directory(self, path: str) -> int:
        """Open a directory below the roots; the caller, on a worker thread, closes the descriptor."""
        ...

    async def read(self, path: str, *, max_bytes: int | None = None) -> FileText: ...
    async def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes: ...
    async def write(
        self, path: str, content: str | bytes, *, overwrite: bool = False, expected_digest: str | None = None
    ) -> None: ...
    async def list(self, path: str) -> list[str]: ...
    async def exists(self, path: str) -> bool: ...


@frozen
class CommandResult:
    """How a command ended. ``exit_code`` is None if it was not started or was killed; ``error`` says why it failed.

    ``stdout`` and ``stderr`` are head and tail of the output; ``stdout_bytes`` and ``stderr_bytes`` count all of it.
    ``reason`` is the task-failure reason and ``code`` the stable ``family/name`` of a failure. ``error`` suggests an
    alternative to the author of the command, ``hint`` the option to change to the developer.
    """

    success: bool
    exit_code: int | None
    stdout: str
    stderr: str
    error: str | None = None
    reason: Reason | None = None
    timed_out: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    duration_s: float = 0.0
    code: str | None = None
    hint: str | None = None


class HostCommandPort(Protocol):
    """Commands as in the specification. Any object with these methods can be a face's command executor."""

    async def execute_command_safely(
        self, command: str | Sequence[str], cwd: str | None = None, timeout: float | None = None
    ) -> CommandResult:
        """Run a command. Refusals, failures and time-outs are results, not exceptions."""
        ...

    def parse_file_paths_from_output(self, output: str, cwd: str | None = None) -> list[str]:
        """Absolute paths of the existing files the output names, one a line."""
        ...


@frozen
class FoundFiles:
    """The output of a command that finds files: absolute ``paths`` of existing files, or none and the ``error``."""

    paths: tuple[str, ...] = ()
    error: str | None = None


class CommandPort(Protocol):
    """Commands, under policy and sandbox."""

    async def execute_command_safely(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> CommandResult:
        """Run a command with the authority of ``call`` (None: the host's).

        Refusals, failures and time-outs are results, not exceptions.
        """
        ...

    async def prepare(
        self,
        command: str | Sequence[str],
        cwd: str | None = None,
        timeout: float | None = None,
        call: CallContext | None = None,
    ) -> Callable[[], Awaitable[CommandResult]]:
        """Decide on a command and ask for the approval it needs; the returned function runs it, or gives the refusal."""
        ...

    def parse_file_paths_from_output(self, output: str, cwd: str | None = None) -> list[str]:
        """Absolute paths of the existing files the output names, one a line."""
        ...

    async def find_files(self, command: str | Sequence[str], call: CallContext | None = None) -> FoundFiles:
        """Run a command that names files, which may not write, with the authority of ``call`` (None: the host's)."""
        ...
