"""The ``bubblewrap`` back-end: private namespaces for files, processes, network and users (bwrap(1)).

The command sees a file system that contains only the paths it was granted, its own /proc and /dev, and a private /tmp.
The kernel kills every process of its namespace when the namespace's first process is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
from contextlib import suppress
from typing import Any

from agentflow.core.data.errors import SandboxUnavailable
from agentflow.executors.sandbox import seccomp
from agentflow.executors.sandbox.backend import SYSTEM_PATHS, CommandEnding, Running, Spawn, public_in_etc
from agentflow.executors.sandbox.pids import PidGroup
from agentflow.executors.sandbox.pipes import Status, attach
from agentflow.executors.sandbox.supervised import rlimits
from agentflow.lib.own_threads import own_thread
from agentflow.lib.protected_names import CONFIDENTIAL, EXECUTED, PROTECTED, Protection
from agentflow.lib.shielded import run_to_completion

_GRACE_S = 0.9
_GATE = "/tmp/.agentflow-limited"  # in the sandbox's private /tmp, not a path of this machine
_PATH = "/usr/local/bin:/usr/bin:/bin"


class Bubblewrap:
    """Confines with bubblewrap. ``program`` is the path of bwrap; by default the one in the system's directories."""

    name = "bubblewrap"
    confines = True

    def __init__(self, program: str | None = None) -> None:
        self._program = program or shutil.which("bwrap", path=_PATH)

    def missing(self) -> str | None:
        if self._program is None:
            return "the program bwrap is not installed (package bubblewrap)"
        if not seccomp.supported():
            return "there is no system-call filter for this architecture"
        return None

    async def spawn(self, spawn: Spawn) -> Running:
        if self._program is None:
            raise SandboxUnavailable(str(self.missing()), code="sandbox/unavailable")
        group = await own_thread(PidGroup.make, spawn.limits.processes + 1)
        opened: list[int] = []
        gate = transport = None
        try:
            status = Status()
            read_end, write_end = os.pipe()
            opened.append(write_end)
            transport = await attach(read_end, status)
            gate = StartGate()
            opened.append(gate.inner)
            arguments = await own_thread(_walls, spawn, opened)
            absent = await own_thread(_redirections, spawn.changeable)
            process = await asyncio.create_subprocess_exec(
                self._program,
                *arguments,
                *("--seccomp", str(_filter(spawn, opened))),
                # bwrap reads this file last, before it starts the command; its content ends when the limits are set
                *("--json-status-fd", str(write_end), "--file", str(gate.inner), _GATE),
                *("--chdir", spawn.cwd, "--", spawn.executable, *spawn.argv[1:]),
                stdin=spawn.stdin if spawn.stdin >= 0 else asyncio.subprocess.DEVNULL,
                stdout=spawn.stdout,
                stderr=spawn.stderr,
                env=spawn.env,
                cwd="/",
                pass_fds=opened,
                start_new_session=True,
            )
        except BaseException:  # close all that was opened, even when cancelled
            if transport is not None:
                transport.close()
            if gate is not None:
                gate.open()
            group.remove()
            raise
        finally:
            for fd in opened:
                os.close(fd)
        running = Wrapped(process, status, transport, group, absent)
        try:
            await running.admit(spawn)
        except BaseException:  # no process outlives a start that failed or was cancelled
            await run_to_completion(running.end())
            raise
        finally:
            gate.open()
        return running


class StartGate:
    """A pipe with a reader that waits for its end: ``inner`` is the reader's descriptor, :meth:`open` ends it."""

    def __init__(self) -> None:
        self.inner, self._outer = os.pipe()

    def open(self) -> None:
        """Let the reader continue."""
        os.close(self._outer)


def _filter(spawn: Spawn, opened: list[int]) -> int:
    """A descriptor to read the system-call filter from; it is added to ``opened``."""
    read_end, write_end = os.pipe()
    opened.append(read_end)
    try:
        os.write(write_end, seccomp.build(sockets=True, network=spawn.network, metadata=True))
    finally:
        os.close(write_end)
    return read_end


def _walls(spawn: Spawn, opened: list[int]) -> list[str]:
    """The options of bwrap that set up the file system and the namespaces of ``spawn``.

    Small files are copied through descriptors, which are added to ``opened``: a mount costs ten times as much.
    """
    options = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--disable-userns", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if not spawn.network:
        options.append("--unshare-net")
    for path in SYSTEM_PATHS:
        if os.path.islink(path):
            options += ["--symlink", os.readlink(path), path]
        else:
            options += ["--ro-bind-try", path, path]
    for path in public_in_etc(network=spawn.network):
        if os.path.isdir(path):
            options += ["--ro-bind", path, path]
        elif os.path.isfile(path) and os.access(path, os.R_OK):
            opened.append(os.open(path, os.O_RDONLY))
            options += ["--perms", "0444", "--file", str(opened[-1]), path]
    # data in these file systems is memory, so the memory limit bounds it
    size = ["--size", str(int(spawn.limits.memory_bytes)), "--tmpfs"]
    options += ["--proc", "/proc", "--dev", "/dev", *size, "/dev/shm", "--remount-ro", "/dev", *size, "/tmp"]
    for path in spawn.readable:
        options += ["--ro-bind-try", path, path]
    if spawn.scratch.startswith("/tmp/"):
        options += ["--dir", spawn.scratch]
    else:
        options += ["--bind", spawn.scratch, spawn.scratch]
    for path in spawn.workspace:
        options += _bound(path, spawn.read_only)
    for path in spawn.writable:
        options += _bound(path, False)
    for file in spawn.executed:
        if file.content is not None:
            opened.append(_memory_file(file.content))
            options += ["--perms", f"{file.mode & 0o555:04o}", "--ro-bind-data", str(opened[-1]), file.path]
    return [*options, "--remount-ro", "/"]


def _memory_file(content: bytes) -> int:
    """A descriptor from which ``content`` can be read."""
    descriptor = os.memfd_create("approved")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:  # close the descriptor, then raise again
        os.close(descriptor)
        raise
    return descriptor


def _bound(root: str, read_only: bool) -> list[str]:
    """The options that mount a workspace, hide secrets at its top and protect files that configure other programs.

    A directory that contains a read-only path becomes a mount of its own: otherwise the command could rename it and put a
    writable copy in its place.
    """
    protected, confidential = Protection(PROTECTED), Protection(CONFIDENTIAL)
    masked: dict[str, bool] = {}
    with os.scandir(root) as entries:
        for entry in entries:
            if entry.is_symlink() or not protected.covers(entry.name):
                continue
            if entry.name == ".git" and entry.is_dir():
                masked |= dict.fromkeys(() if read_only else _git_parts(entry.path), False)
            else:
                masked[entry.path] = confidential.covers(entry.name)
    for pattern in (*PROTECTED, *EXECUTED):
        path = os.path.join(root, pattern)
        if ("/" in pattern or pattern in EXECUTED) and os.path.lexists(path) and os.path.realpath(path) == path:
            masked[path] = confidential.find(pattern.split("/")) is not None
    if os.path.commonpath((root, sys.prefix)) == root:
        # this process's own virtual environment: code changed there would later run outside the sandbox
        masked[sys.prefix] = False
    bind = "--ro-bind" if read_only else "--bind"
    options = [bind, root, root]
    for directory in sorted({above for path in masked for above in _between(root, path)}):
        options += [bind, directory, directory]
    for path, hidden in masked.items():
        if not hidden:
            options += ["--ro-bind", path, path]
        elif os.path.isdir(path):
            options += ["--tmpfs", path, "--remount-ro", path]
        else:
            options += ["--ro-bind", "/dev/null", path]
    return options


def _between(root: str, path: str) -> list[str]:
    """The directories below ``root`` that contain ``path``."""
    directories: list[str] = []
    while (path := os.path.dirname(path)) != root:
        directories.append(path)
    return directories


def _git_parts(path: str) -> list[str]:
    """The parts of a repository that make git run programs; git itself writes the rest.

    Hooks and the second configuration file are created where absent, because a mount needs an existing target.
    """
    with suppress(OSError):
        os.mkdir(f"{path}/hooks", 0o755)
    with suppress(OSError):
        os.close(os.open(f"{path}/config.worktree", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    parts = [f"{path}/{part}" for part in ("hooks", "config", "config.worktree", "commondir", "modules")]
    return [part for part in parts if os.path.lexists(part) and not os.path.islink(part)]


def _redirections(workspace: tuple[str, ...]) -> list[str]:
    """Absent files of the repositories that, if created, would redirect git to another configuration."""
    paths = [f"{root}/.git/commondir" for root in workspace if os.path.isdir(f"{root}/.git")]
    return [path for path in paths if not os.path.lexists(path)]


def _removed(absent: list[str]) -> list[str]:
    """Remove those of the files that exist now, and return them. They cannot be masked by mounts: git reads even empty ones."""
    planted = [path for path in absent if os.path.lexists(path)]
    for path in planted:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
    return planted


class Wrapped:
    """A command that runs in bubblewrap."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        status: Status,
        transport: asyncio.ReadTransport,
        group: PidGroup,
        absent: list[str],
    ) -> None:
        self._process = process
        self._status = status
        self._transport = transport
        self._group = group
        self._absent = absent
        self._first = -1

    async def admit(self, spawn: Spawn) -> None:
        """Set the limits of the namespace's first process while it still sets up the sandbox."""
        await self._status.line.wait()
        pid = self._field("child-pid")
        if pid is None:
            return  # bwrap failed; wait() reports it
        try:
            # a handle stays valid when the number is reused. Killing the monitor alone is not enough: until the first
            # process has asked to die with it, that process would wait forever
            self._first = os.pidfd_open(pid)
            for number, value in (*rlimits(spawn.limits), (resource.RLIMIT_NPROC, int(spawn.limits.processes) + 1)):
                _, hard = resource.prlimit(pid, number)
                allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
                resource.prlimit(pid, number, (allowed, allowed))
            await own_thread(self._group.join, pid)
        except ProcessLookupError:
            return  # it died meanwhile; wait() reports how

    def _field(self, name: str) -> Any:
        value = None
        for line in bytes(self._status.data).splitlines():
            with suppress(ValueError):
                value = json.loads(line).get(name, value)
        return value

    async def wait(self) -> CommandEnding:
        code = await self._process.wait()
        await self._end_namespace()
        if planted := await own_thread(_removed, self._absent):
            return CommandEnding(error=f"the command created {planted[0]}, which redirects git; it was removed")
        reported = self._field("exit-code")
        if reported is None:
            return CommandEnding(error=f"bubblewrap could not start the command (exit code {code})")
        # bwrap reports a death by signal the way a shell does
        return CommandEnding(signal=reported - 128) if 128 < reported <= 192 else CommandEnding(exit_code=reported)

    async def end(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._end_namespace()
        await own_thread(_removed, self._absent)

    async def _end_namespace(self) -> None:
        """Kill the namespace's first process and so all others; it ends after the last of them."""
        if self._first >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)
            loop, gone = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self._first, gone.set)
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(gone.wait(), _GRACE_S)
            finally:
                loop.remove_reader(self._first)
                os.close(self._first)
                self._first = -1
        self._transport.close()
        self._group.remove()
