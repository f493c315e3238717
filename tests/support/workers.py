"""Workers of a test run that are forked from one process which has imported the tests: by themselves, each imports them anew.

The controller of pytest-xdist starts a worker as a Python process that reads its first line from a pipe. Here that process
(:func:`wait_for_worker`) hands its streams to a server and waits. The server (:func:`serve`) has imported every test file
of the run; it forks, and the child reads the line. A file that cannot be imported is imported again by the workers, which
report it. Where there is no ``pidfd_open`` (not on Linux), workers are started as usual.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUPPORTED = hasattr(os, "pidfd_open")
_WORKER = "--worker"


class Spec(Protocol):
    """How execnet starts a process: the command of its Python."""

    python: str | None


class ImportsOnly:
    """A plugin for a collection that imports the files and makes no items but those of Hypothesis.

    If there is one of these, the plugin of Hypothesis reads the constants of all modules, which takes a second.
    """

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makeitem(self, obj: object) -> list[pytest.Item] | None:
        """Make no item."""
        return None if getattr(obj, "is_hypothesis_test", False) else []


def fork_workers(specs: Sequence[Spec], arguments: Sequence[str], directory: Path) -> subprocess.Popen[bytes]:
    """Let the workers with these ``specs`` be forked.

    Args:
        specs: How pytest-xdist starts the workers.
        arguments: The arguments of the controller, from which the server knows the files.
        directory: Where the socket is made.

    Returns:
        The server, which ends when its input does.
    """
    address = str(directory / "workers")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen()
    server = subprocess.Popen(
        [sys.executable, "-m", __name__, str(listening.fileno()), json.dumps([*arguments])],
        cwd=ROOT, stdin=subprocess.PIPE, pass_fds=[listening.fileno()],
    )  # fmt: skip
    listening.close()
    for spec in specs:
        spec.python = f"{sys.executable} {__file__} {_WORKER} {address}"
    return server


def wait_for_worker(address: str) -> None:
    """Have a worker forked that takes the streams of this process, and wait until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.connect(address)
    socket.send_fds(server, [b"."], [0, 1, 2])
    with contextlib.suppress(ProcessLookupError, ValueError):
        select.select([os.pidfd_open(int(server.recv(32)))], [], [])


def serve(listening: socket.socket) -> bytes:
    """Fork a worker for each process that asks; one whose process was killed is killed.

    Returns:
        The line that begins a worker, in that worker. In the server it returns when the controller has ended: an empty one.
    """
    workers: dict[socket.socket, int] = {}
    controller = sys.stdin.buffer
    while True:
        ready, _, _ = select.select([controller, listening, *workers], [], [])
        if controller in ready:
            return b""
        for asking in [each for each in ready if isinstance(each, socket.socket)]:
            if asking is listening:
                connection = listening.accept()[0]
                _, streams, _, _ = socket.recv_fds(connection, 1, 3)
                if not (pid := os.fork()):
                    for each in [listening, connection, *workers]:
                        each.close()
                    return begin(streams)
                for stream in streams:
                    os.close(stream)
                connection.send(b"%d" % pid)
                workers[connection] = pid
            else:
                pid = workers.pop(asking)
                asking.close()
                if os.waitpid(pid, os.WNOHANG) == (0, 0):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


def begin(streams: Sequence[int]) -> bytes:
    """Take the streams of a worker; returns its first line, which is Python."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    sys.stdin = io.TextIOWrapper(open(0, "rb", closefd=False), "utf-8")  # noqa: SIM115 - it stays open
    return sys.stdin.readline().encode()


def main(listening: socket.socket, arguments: Sequence[str]) -> None:
    """Import the tests, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        pytest.main([*arguments, "--collect-only", "-n0"], plugins=[ImportsOnly()])
    assert threading.active_count() == 1, "a fork has one thread"
    from tests.support.children import (
        leave,
    )  # not where a worker waits: that is a script, without the tests on its path

    if line := serve(listening):
        worker: dict[str, Any] = {"__name__": "__main__", "sys": sys}
        exec(eval(line), worker)  # as the command line of execnet does
        leave(0)


if __name__ == "__main__":
    if sys.argv[1] == _WORKER:
        wait_for_worker(sys.argv[2])
    else:
        main(socket.socket(fileno=int(sys.argv[1])), json.loads(sys.argv[2]))
