"""The port of sandbox back-ends and the types it uses.

A back-end starts one command in confinement and can end everything that the command started. It promises: the workspace
is writable, the system's programs and libraries are readable, nothing else is; no network unless granted; no
environment variables but those passed; no descriptors but 0 to 2. A back-end that cannot keep these promises fails its
self-test.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine
from dataclasses import fields
from fnmatch import fnmatchcase
from typing import Any, Protocol

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.executors.executed_files import ProgramFile

SYSTEM_PATHS: tuple[str, ...] = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
)
"""Where programs and libraries live: readable and executable in every sandbox."""

PATH: tuple[str, ...] = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
"""Where programs are searched by default."""

_ETC = (
    "ImageMagick-*",
    "*-release",
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "dpkg/dpkg.cfg",
    "fonts",
    "gai.conf",
    "gemrc",
    "gitattributes",
    "gitconfig",
    "group",
    "host.conf",
    "hosts",
    "inputrc",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "magic",
    "magic.mime",
    "mailcap",
    "mime.types",
    "networks",
    "nsswitch.conf",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "python3*",
    "rpc",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xml",
)
"""Names in /etc, or patterns of them, that programs read and that hold no secrets."""
_ETC_NETWORK = ("resolv.conf",)
"""Further files needed with a granted network."""


def public_in_etc(*, network: bool) -> list[str]:
    """The files and directories of /etc that every command may read. Blocking."""
    names = (*_ETC, *(_ETC_NETWORK if network else ()))
    fixed = [f"/etc/{name}" for name in names if "*" not in name and os.path.lexists(f"/etc/{name}")]
    patterns = [name for name in names if "*" in name]
    with os.scandir("/etc") as entries:
        matching = [entry.path for entry in entries if any([fnmatchcase(entry.name, pattern) for pattern in patterns])]
    return sorted([*fixed, *matching])


@frozen(kw_only=True)
class CommandLimits:
    """The resource limits of one command.

    ``timeout_s`` seconds of wall time by default, ``max_timeout_s`` the most that a call may ask for;
    ``cpu_s`` seconds of CPU per process; ``memory_bytes`` writable memory per process (RLIMIT_DATA);
    ``processes`` at once; ``file_bytes`` size of one file; ``open_files`` descriptors per process;
    ``output_bytes`` kept of the head and of the tail of each output; ``concurrency`` commands at once.

    Raises ConfigurationError (``commands/limits``) for anything but a positive number.
    """

    timeout_s: float = 60.0
    max_timeout_s: float = 3_600.0
    cpu_s: int = 600
    memory_bytes: int = 4_294_967_296
    processes: int = 512
    file_bytes: int = 1_073_741_824
    open_files: int = 1_024
    output_bytes: int = 65_536
    concurrency: int = 16

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ConfigurationError(
                    f"CommandLimits({field.name}={value!r}): a limit is a number above 0",
                    code="commands/limits",
                    hint=f"for example CommandLimits({field.name}={field.default!r})",
                )


@frozen(kw_only=True)
class Spawn:
    """One command, ready to start: no path in it is resolved again where the command could change the result.

    ``executable`` is an absolute path; ``argv`` and ``env`` are complete; ``cwd`` is an absolute path and ``cwd_fd`` the
    same directory held open; ``workspace`` are writable directories; ``scratch`` is a private directory for temporary files;
    ``readable`` are further paths to read and execute from; ``stdout`` and ``stderr`` are descriptors to write to;
    ``executed`` are the files of the workspace that were approved, with their contents, which a capable back-end presents to
    the command unchanged; ``read_only`` makes the workspace read-only, except for the directories in ``writable``; ``stdin``
    is a descriptor to read from, -1 for empty input.
    """

    executable: str
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    cwd_fd: int
    workspace: tuple[str, ...]
    scratch: str
    readable: tuple[str, ...]
    network: bool
    limits: CommandLimits
    stdout: int
    stderr: int
    executed: tuple[ProgramFile, ...] = ()
    read_only: bool = False
    writable: tuple[str, ...] = ()
    stdin: int = -1

    @property
    def changeable(self) -> tuple[str, ...]:
        """The directories that the command may write in, in addition to ``scratch``."""
        return self.writable if self.read_only else (*self.workspace, *self.writable)


@frozen
class CommandEnding:
    """The end of a command: ``exit_code``, number of the ``signal`` that killed it, or ``error``, why it never ran."""

    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None


class Running(Protocol):
    """A started command."""

    async def wait(self) -> CommandEnding:
        """Wait for the end of the command; by then everything it left behind has been killed."""
        ...

    def end(self) -> Coroutine[Any, Any, None]:
        """Kill the command and everything it started, and wait for their end, at most a second. Idempotent."""
        ...


# An own sandbox: no daemon, no image, and files of the workspace where they are (decision 8)
class Sandbox(Protocol):
    """A back-end. ``name`` is its name in settings; ``confines`` says whether it makes the promises of this module."""

    @property
    def name(self) -> str: ...
    @property
    def confines(self) -> bool: ...
    def missing(self) -> str | None:
        """The reason why the back-end cannot work on this machine, judging by binary and kernel; None if it may. Blocking."""
        ...

    def spawn(self, spawn: Spawn) -> Coroutine[Any, Any, Running]:
        """Start a command. The caller closes the descriptors in ``spawn``. Raises SandboxUnavailable and OSError."""
        ...


def existing(paths: tuple[str, ...]) -> list[str]:
    """The ``paths`` that exist."""
    return [path for path in paths if os.path.lexists(path)]
