"""Programs that run alongside a flow and communicate over standard input and output: a port."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from agentflow.core.data.frozen import frozen


@frozen(kw_only=True)
class ServiceCommand:
    """A program to start: its argument vector and its permissions.

    ``env`` are variables in addition to PATH, HOME, TMPDIR and the locale; ``network``: it may use the network;
    ``writable`` are the directories it may write in, ``readable`` the files it may read and execute in addition to the
    workspace and the system: absolute, or relative to the first root.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    network: bool = False
    writable: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()


class Pipes(Protocol):
    """The input and the output of a program."""

    async def read(self) -> bytes:
        """The next bytes of its output, empty at the end. Unread output blocks it."""
        ...

    async def write(self, data: bytes) -> None:
        """Give it input. Raises OSError when it takes no more."""
        ...


class ServiceProcess(Pipes, Protocol):
    """A started program."""

    def said(self) -> str:
        """The last 64 KiB of its standard error."""
        ...

    def refused(self) -> str | None:
        """The path that it said it was refused, and that the sandbox keeps from it; None for none."""
        ...

    async def stop(self, grace_s: float) -> str:
        """End its input, wait up to ``grace_s`` seconds for it, then kill it and all it started. The value describes its end in words."""
        ...


class ServicePort(Protocol):
    """Starts programs in the sandbox of a flow."""

    async def start(self, command: ServiceCommand) -> ServiceProcess:
        """Start a program. Raises SandboxUnavailable, ConfigurationError, FileFailure, PathDenied and OSError."""
        ...
