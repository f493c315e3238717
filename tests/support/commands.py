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
    arguments: Sequence[str],
    *,
    cwd: Path,
    environment: Mapping[str, str],
    stdin: bytes | None = None,
    script: Path | None = None,
) -> Ended:
    """Run a command to its end, or a Python ``script`` in its place. Without ``stdin`` it reads the null device."""
    with _input(stdin) as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        streams = given.fileno(), out.fileno(), err.fileno()
        code = Command(arguments, streams, cwd=cwd, environment=environment, script=script).wait()
        return Ended(code, _content(out), _content(err))


def said_by(*arguments: str, cwd: Path = ROOT, **variables: str) -> subprocess.CompletedProcess[str]:
    """What a command that reads nothing says, as text, with these variables beside those of the tests: long lines
    are not wrapped."""
    done = run_command(arguments, cwd=cwd, environment={**os.environ, "COLUMNS": "400", **variables})
    return subprocess.CompletedProcess(arguments, done.code, done.out.decode(), done.err.decode())


class Command:
    """A command, or ``script``, at work: three descriptors are its streams; with ``session`` it leads one, as in a terminal."""

    def __init__(
        self,
        arguments: Sequence[str],
        streams: tuple[int, int, int],
        *,
        cwd: Path,
        environment: Mapping[str, str],
        session: bool = False,
        script: Path | None = None,
    ) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._told: IO[bytes] | None = None
        if not hasattr(socket, "send_fds") or _differs_at_start(environment):
            stdin, stdout, stderr = streams
            self._process = subprocess.Popen(
                [sys.executable, *(["-m", "agentflow"] if script is None else [str(script)]), *arguments],
                cwd=cwd, env=environment, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=session,
            )  # fmt: skip
            self.pid = self._process.pid
            return
        job = {"arguments": list(arguments), "cwd": str(cwd), "environment": dict(environment), "session": session}
        if script is not None:
            job["script"] = str(script)
        reading, telling = os.pipe()
        self._told = open(reading, "rb")  # noqa: SIM115 - `wait` closes it
        try:
            with _server() as jobs:
                socket.send_fds(jobs, [json.dumps(job).encode()], [*streams, telling])
        finally:
            os.close(telling)
        self.pid = int(self._told.readline())

    def wait(self) -> int:
        """Wait for its end, not longer than a test may take; returns its exit status."""
        timer = threading.Timer(HANG_S, self.kill)
        timer.start()
        try:
            if self._process is not None:
                return self._process.wait()
            assert self._told is not None
            with self._told:
                return int(self._told.readline())
        finally:
            timer.cancel()

    def kill(self) -> None:
        """Kill it, if it has not ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


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
    if theirs.get("PYTHONIOENCODING") == "utf-8":  # the streams of a command that is forked are of it
        del theirs["PYTHONIOENCODING"]
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
