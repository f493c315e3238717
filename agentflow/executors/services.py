"""Programs that run as long as the flow, in its sandbox, and communicate over their standard input and output.

A service may read the workspace, and may write only to its own temporary directory unless it was granted more. Only the
host starts services, so the command policy does not apply; the sandbox is that of every command.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace

from agentflow.core.data.errors import ConfigurationError, FileFailure
from agentflow.core.ports.service_port import ServiceCommand
from agentflow.executors.command_executor import PATH
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.sandbox.backend import CommandEnding, CommandLimits, Running, Sandbox, Spawn
from agentflow.executors.sandbox.installations import certificates, installation, network_variables
from agentflow.executors.sandbox.pipes import Output, attach
from agentflow.executors.sandbox.refused_paths import refused_path
from agentflow.executors.sandbox.selection import SandboxChoice
from agentflow.lib.own_threads import own_thread
from agentflow.lib.shielded import run_or_undo, run_to_completion
from agentflow.lib.text.safe_text import escape

STDERR_KEPT = 65_536
"""Bytes kept of the end of a service's standard error."""
LOCALE = ("LANG", "LANGUAGE", "LC_ALL", "TZ")
"""Variables of this process that a service inherits."""
LIMITS = CommandLimits(cpu_s=31_536_000, open_files=4_096)
"""Limits of a service: those of a command, but with unlimited processor time."""
_READ_AHEAD = 65_536
_DRAIN_S = 0.25


class Services:
    """Starts services; implements :class:`~agentflow.core.ports.service_port.ServicePort`.

    Parameters: ``files`` is the file manager with the workspace as its roots; ``sandbox`` the back-end, tested at first use;
    ``readable`` are absolute paths that every service may read and execute from, in addition to its own.
    """

    def __init__(self, files: FileAccessManager, sandbox: SandboxChoice, *, readable: tuple[str, ...] = ()) -> None:
        self._files = files
        self._sandbox = sandbox
        self._readable = readable

    async def start(self, command: ServiceCommand) -> Service:
        sandbox = await self._sandbox.get()
        executable = await own_thread(self._find, command.argv[0])
        root = str(self._files.roots[0])
        writable = [await own_thread(_directory, root, path) for path in command.writable]
        scratch, cwd_fd = await run_or_undo(own_thread(self._prepare), undo=_clear)
        try:
            env = _environment(executable, scratch, network=command.network) | dict(command.env)
            spawn = Spawn(
                executable=executable,
                argv=(executable, *command.argv[1:]),
                env=env,
                cwd=root,
                cwd_fd=cwd_fd,
                workspace=tuple(map(str, self._files.roots)),
                scratch=scratch,
                readable=(
                    *self._readable,
                    *installation(executable),
                    *(certificates(env) if command.network else ()),
                    *[os.path.join(root, path) for path in command.readable],
                ),
                network=command.network,
                limits=LIMITS,
                stdout=-1,
                stderr=-1,
                read_only=True,
                writable=tuple(writable),
            )
            return await run_or_undo(_connect(spawn, sandbox), undo_async=lambda service: service.stop(0.0))
        except BaseException:  # remove the scratch directory, even when cancelled
            await run_to_completion(own_thread(shutil.rmtree, scratch, True))
            raise
        finally:
            os.close(cwd_fd)

    def _find(self, name: str) -> str:
        """Locate the program ``name``. Raises FileFailure. Blocking."""
        if "/" in name:
            path = os.path.normpath(os.path.join(str(self._files.roots[0]), os.path.expanduser(name)))
            program = path if os.path.isfile(path) and os.access(path, os.X_OK) else None
        elif name in ("python", "python3") and sys.executable:
            program = sys.executable
        else:
            inherited = [entry for entry in os.environ.get("PATH", "").split(os.pathsep) if os.path.isabs(entry)]
            program = shutil.which(name, path=os.pathsep.join([*inherited, *PATH]))
        if program is None:
            raise FileFailure(
                f"there is no program {escape(name)!r}",
                code="commands/not-found",
                hint="name one on the PATH, or its absolute path",
            )
        return program

    def _prepare(self) -> tuple[str, int]:
        """A private directory for temporary files, and the first root held open. Blocking."""
        cwd_fd = self._files.open_directory(str(self._files.roots[0]))
        try:
            return os.path.realpath(tempfile.mkdtemp(prefix="agentflow-service-")), cwd_fd
        except BaseException:  # close the descriptor, then raise again
            os.close(cwd_fd)
            raise


class Service:
    """A started service; implements :class:`~agentflow.core.ports.service_port.ServiceProcess`."""

    def __init__(
        self,
        running: Running,
        spawn: Spawn,
        walls: bool,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        errors: Output,
        transports: list[asyncio.ReadTransport],
    ) -> None:
        self._running = running
        self._spawn = spawn
        self._walls = walls
        self._reader = reader
        self._writer = writer
        self._errors = errors
        self._transports = transports

    async def read(self) -> bytes:
        return await self._reader.read(65_536)

    async def write(self, data: bytes) -> None:
        """Write to its standard input, waiting while the pipe is full. Raises OSError once the service has closed it."""
        self._writer.write(data)
        await self._writer.drain()

    def said(self) -> str:
        return self._errors.text()

    def refused(self) -> str | None:
        return refused_path(self.said(), self._spawn) if self._walls else None

    async def stop(self, grace_s: float) -> str:
        """Close its input, wait up to ``grace_s`` seconds, then kill it and all it started. Returns how it ended, as a sentence."""
        self._writer.close()
        ending: CommandEnding | None = None
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    ending = await self._running.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(_DRAIN_S):
                    await self._errors.done.wait()
        finally:
            await run_to_completion(self._end())
        return _words(ending)

    async def _end(self) -> None:
        await self._running.end()
        for transport in self._transports:
            transport.close()
        await own_thread(shutil.rmtree, self._spawn.scratch, True)


async def _connect(spawn: Spawn, sandbox: Sandbox) -> Service:
    """Start ``spawn`` with pipes to its three standard descriptors."""
    loop = asyncio.get_running_loop()
    reader, errors = asyncio.StreamReader(limit=_READ_AHEAD), Output(STDERR_KEPT, head=0)
    inner: list[int] = []
    with contextlib.ExitStack() as undo:
        try:
            outputs: list[asyncio.ReadTransport] = []
            for protocol in (asyncio.StreamReaderProtocol(reader), errors):
                read_end, write_end = os.pipe()
                inner.append(write_end)
                outputs.append(await attach(read_end, protocol))
                undo.callback(outputs[-1].close)
            read_end, write_end = os.pipe()
            inner.append(read_end)
            # the write end: only the flow control of this protocol is used
            transport, control = await loop.connect_write_pipe(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(write_end, "wb", buffering=0)
            )
            undo.callback(transport.close)
            running = await sandbox.spawn(replace(spawn, stdout=inner[0], stderr=inner[1], stdin=inner[2]))
        finally:
            for descriptor in inner:
                os.close(descriptor)
        undo.pop_all()
    writer = asyncio.StreamWriter(transport, control, None, loop)
    return Service(running, spawn, sandbox.confines, reader, writer, errors, outputs)


def _environment(executable: str, scratch: str, *, network: bool) -> dict[str, str]:
    """The variables of every service: the search path, its own directories, the locale, how a granted network is reached."""
    variables = {name: os.environ[name] for name in LOCALE if name in os.environ}
    variables |= network_variables() if network else {}
    path = ":".join(dict.fromkeys((os.path.dirname(executable), *PATH)))
    return variables | {"PATH": path, "HOME": scratch, "TMPDIR": scratch, "TERM": "dumb"}


def _directory(root: str, path: str) -> str:
    """An existing directory, relative to ``root`` or absolute, without links. Raises ConfigurationError. Blocking."""
    real = os.path.realpath(os.path.join(root, os.path.expanduser(path)))
    if not os.path.isdir(real):
        raise ConfigurationError(
            f"the writable directory {escape(path)!r} does not exist",
            code="config/directory",
            hint="create it first",
        )
    return real


def _words(ending: CommandEnding | None) -> str:
    if ending is None:
        return "it was killed because it did not exit by itself"
    if ending.error is not None:
        return f"it could not be started: {ending.error}"
    if ending.signal is not None:
        return f"it was killed by signal {ending.signal}"
    return f"it exited with code {ending.exit_code}"


def _clear(prepared: tuple[str, int]) -> None:
    scratch, cwd_fd = prepared
    os.close(cwd_fd)
    shutil.rmtree(scratch, ignore_errors=True)
