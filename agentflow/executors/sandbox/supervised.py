"""Starts and ends commands under a supervisor process, for the ``landlock`` and ``none`` back-ends."""

from __future__ import annotations

import asyncio
import json
import marshal
import os
import resource
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.data.errors import SandboxUnavailable
from agentflow.core.data.frozen import frozen
from agentflow.executors.sandbox.backend import CommandEnding, CommandLimits, Spawn
from agentflow.executors.sandbox.pids import PidGroup
from agentflow.executors.sandbox.pipes import Status, attach
from agentflow.lib.own_threads import own_thread

_GRACE_S = 0.9
_REPORTED: Mapping[str, type] = MappingProxyType({"exit": int, "signal": int, "error": str})
"""The reports that a supervisor may send, with their types."""
_CODE = marshal.dumps(
    compile(Path(__file__).with_name("_supervisor.py").read_bytes(), "<agentflow supervisor>", "exec")
)
_START = (
    "import marshal,sys;r=sys.stdin.buffer.read;"
    "c,j=marshal.loads(r(int.from_bytes(r(8),'little')));n={'__name__':'supervisor'};"
    "exec(marshal.loads(c),n);n['main'](j)"
)


@frozen
class Walls:
    """The rules that the supervisor applies: ``landlock`` rules (None: none), ``code`` the system-call filter (empty: none), and the
    calls that the filter hands to the supervisor (None: none)."""

    confine: bool
    landlock: dict[str, Any] | None = None
    code: bytes = b""
    changes: dict[str, Any] | None = None


def rlimits(limits: CommandLimits) -> list[tuple[int, int]]:
    """The resource limits in the form setrlimit(2) takes."""
    return [
        (resource.RLIMIT_CPU, int(limits.cpu_s)),
        (resource.RLIMIT_DATA, int(limits.memory_bytes)),
        (resource.RLIMIT_FSIZE, int(limits.file_bytes)),
        (resource.RLIMIT_NOFILE, int(limits.open_files)),
        (resource.RLIMIT_CORE, 0),
    ]


def process_limit(processes: int) -> tuple[int, int]:
    """RLIMIT_NPROC counts every thread of the user, so the limit is the number running on the machine now plus ``processes``."""
    with open("/proc/loadavg", "rb") as file:
        running = int(file.read().split()[3].partition(b"/")[2])
    return resource.RLIMIT_NPROC, running + int(processes)


def interpreter(workspace: tuple[str, ...] = ()) -> str:
    """The interpreter that runs the supervisor: the base of a virtual environment, which may lie in the workspace.

    Raises SandboxUnavailable if there is none, or if a command could replace it.
    """
    program = getattr(sys, "_base_executable", None) or sys.executable
    if not program:
        raise SandboxUnavailable(
            "the path of this Python interpreter, which supervises commands, is unknown",
            code="sandbox/unavailable",
        )
    real = os.path.realpath(program)
    for root in workspace:
        if os.path.commonpath((root, real)) == root:
            raise SandboxUnavailable(
                "the Python interpreter lies in the workspace, where a command could replace it",
                code="sandbox/interpreter",
                hint="use sandbox='bubblewrap', which needs no interpreter, or a narrower root",
            )
    return program


async def spawn_supervised(spawn: Spawn, walls: Walls) -> Supervised:
    """Start ``spawn`` under a supervisor with ``walls``. Raises SandboxUnavailable if that fails."""
    python, group = await own_thread(
        lambda: (interpreter(spawn.changeable if walls.confine else ()), PidGroup.make(spawn.limits.processes))
    )
    read_end, write_end = os.pipe()
    status = Status()
    try:
        transport = await attach(read_end, status)
    except BaseException:  # close the descriptor, even when cancelled
        os.close(write_end)
        raise
    job = {
        "executable": spawn.executable,
        "argv": list(spawn.argv),
        "env": spawn.env,
        "cwd": spawn.cwd_fd,
        "stdin": spawn.stdin,
        "status": write_end,
        "limits": [*rlimits(spawn.limits), process_limit(spawn.limits.processes)],
        "confine": walls.confine,
        "landlock": walls.landlock,
        "filter": walls.code,
        "changes": walls.changes,
        "group": group.path,
    }
    payload = marshal.dumps((_CODE, job))
    try:
        process = await asyncio.create_subprocess_exec(
            *(python, "-I", "-S", "-c", _START),
            stdin=asyncio.subprocess.PIPE,
            stdout=spawn.stdout,
            stderr=spawn.stderr,
            env=spawn.env,
            cwd="/",
            pass_fds=(write_end, spawn.cwd_fd, *((spawn.stdin,) if spawn.stdin >= 0 else ())),
            start_new_session=True,
        )
    except BaseException:  # close all that was opened, even when cancelled
        transport.close()
        group.remove()
        raise
    finally:
        os.close(write_end)
    running = Supervised(process, status, transport, group)
    try:
        # joining a group takes as long as the start of the interpreter, so they run concurrently
        await own_thread(group.join, process.pid)
    except BaseException:  # no process outlives a start that failed or was cancelled
        await running.end()
        raise
    assert process.stdin is not None
    process.stdin.write(len(payload).to_bytes(8, "little") + payload)
    return running


class Supervised:
    """A command that runs under its supervisor."""

    def __init__(
        self, process: asyncio.subprocess.Process, status: Status, transport: asyncio.ReadTransport, group: PidGroup
    ) -> None:
        self._process = process
        self._status = status
        self._transport = transport
        self._group = group

    async def wait(self) -> CommandEnding:
        await self._process.wait()
        await self._status.done.wait()
        self._release()
        data = bytes(self._status.data)
        # a child that could not become the command reports why before the supervisor reports its exit code
        reports = [report for report in reports_in(data) if report]
        for report in reports:
            if "error" in report:
                return CommandEnding(error=str(report["error"]))
        if not reports:
            return CommandEnding(error="the supervisor ended without a report")
        return CommandEnding(exit_code=reports[-1].get("exit"), signal=reports[-1].get("signal"))

    async def end(self) -> None:
        self._let_go()
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE_S)
        except TimeoutError:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        self._release()

    def _let_go(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _release(self) -> None:
        self._let_go()
        self._transport.close()
        self._group.remove()


def reports_in(data: bytes) -> list[dict[str, Any]]:
    """The reports on the lines of ``data``, up to the first line that is not a report."""
    reports: list[dict[str, Any]] = []
    for line in data.splitlines():
        try:
            report = json.loads(line)
        except (ValueError, RecursionError):
            break
        if not isinstance(report, dict) or any(
            [type(value) is not _REPORTED.get(name) for name, value in cast("dict[str, Any]", report).items()]
        ):
            break
        reports.append(cast("dict[str, Any]", report))
    return reports
