"""Runs ``agentflow`` commands in processes of their own, which are forked from one that has loaded the command."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from tests.support.children import HANG_S

ROOT = Path(__file__).resolve().parents[2]
_AT_START = ("PYTHON", "LC_", "LANG")
"""Beginnings of the variables that Python reads when it starts: a command with others than ours is started afresh."""


class Ended(NamedTuple):
    """What has become of a command."""

    code: int
    out: bytes
    err: bytes


def run_command(
    arguments: Sequence[str], *, cwd: Path, environment: Mapping[str, str], stdin: bytes | None = None
) -> Ended:
    """Run a command to its end. Without ``stdin`` it reads the null device."""
    if not hasattr(socket, "send_fds") or _differs_at_start(environment):
        done = subprocess.run(
            [sys.executable, "-m", "agentflow", *arguments],
            cwd=cwd, env=environment, capture_output=True, check=False, timeout=HANG_S,
            **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
        )  # fmt: skip
        return Ended(done.returncode, done.stdout, done.stderr)
    job = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment)}
    with _input(stdin) as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = _carry_out(job, [given.fileno(), out.fileno(), err.fileno()])
        return Ended(code, _content(out), _content(err))


def said_by(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a command that reads nothing says, as text, with these variables beside those of the tests."""
    done = run_command(arguments, cwd=cwd, environment={**os.environ, **variables})
    return subprocess.CompletedProcess(arguments, done.code, done.out.decode(), done.err.decode())


def _carry_out(job: Mapping[str, object], streams: list[int]) -> int:
    reading, telling = os.pipe()
    with open(reading, "rb") as told:
        try:
            with _server() as jobs:
                socket.send_fds(jobs, [json.dumps(job).encode()], [*streams, telling])
        finally:
            os.close(telling)
        pid = int(told.readline())
        timer = threading.Timer(HANG_S, _kill, [pid])
        timer.start()
        try:
            return int(told.readline())
        finally:
            timer.cancel()


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def _server() -> Generator[socket.socket]:
    jobs, lock = _started(os.getpid())
    with lock:
        yield jobs


@functools.cache
def _started(pid: int) -> tuple[socket.socket, threading.Lock]:
    """The socket of this process's own server."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", "tests.support.preloaded", str(theirs.fileno())]
        process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])

    def close() -> None:
        ours.close()
        process.wait(HANG_S)

    atexit.register(close)
    return ours, threading.Lock()


def _differs_at_start(environment: Mapping[str, str]) -> bool:
    mine = {name: value for name, value in os.environ.items() if name.startswith(_AT_START)}
    theirs = {name: value for name, value in environment.items() if name.startswith(_AT_START)}
    return {**theirs, "PYTHONPATH": ""} != {**mine, "PYTHONPATH": ""}


def _input(content: bytes | None) -> IO[bytes]:
    """A pipe that has the content in it, or the null device."""
    if content is None:
        return open(os.devnull, "rb")
    reading, writing = os.pipe()
    threading.Thread(target=_write, args=(writing, content), daemon=True).start()
    return open(reading, "rb")


def _write(pipe: int, content: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(pipe, "wb") as file:
        file.write(content)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read()
