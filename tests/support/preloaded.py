"""A process that has loaded the command and forks for each one to run: processes as real as any, less the time of loading.

``python -m tests.support.preloaded FD``: jobs come over a socket, each with the files that are its standard streams and
one to which its number and exit status are written; see :mod:`tests.support.commands`.
"""

from __future__ import annotations

import gc
import io
import json
import os
import runpy
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import anthropic as _anthropic
import openai as _openai

import agentflow.app as _app
import agentflow.cli.run.execute as _execute
import agentflow.cli.runs.runs as _runs
import agentflow.cli.shared.progress as _progress
from agentflow.cli.main import app
from tests.support.children import leave

LOADED = (_anthropic, _openai, _app, _execute, _progress, _runs)
MOST = 1 << 18
"""Bytes of a job."""


def next_job(jobs: socket.socket) -> dict[str, Any]:
    """Wait for jobs; returns one, in the process that is to do it. Ends the process when there are no more."""
    while True:
        data, files, _, _ = socket.recv_fds(jobs, MOST, 4)
        if not data:
            os._exit(0)
        if os.fork() == 0:
            break
        for file in files:
            os.close(file)
    jobs.close()
    *streams, told = files
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if child := os.fork():
        os.write(told, b"%d\n" % child)
        os.write(told, b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        os._exit(0)
    os.close(told)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    return json.loads(data)


def become(job: dict[str, Any]) -> None:
    """Give this process what a fresh one would have: session, directory, environment, arguments, streams."""
    if job["session"]:
        os.setsid()
    os.chdir(job["cwd"])
    os.environ.clear()
    os.environ.update(job["environment"])
    program = job.get("script", "agentflow")
    sys.path[0] = str(Path(program).parent) if "script" in job else job["cwd"]
    sys.argv = [program, *job["arguments"]]
    sys.stdin = io.TextIOWrapper(open(0, "rb"), "utf-8")  # noqa: SIM115 - it stays open
    sys.stdout = io.TextIOWrapper(open(1, "wb"), "utf-8", line_buffering=os.isatty(1))  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb"), "utf-8", "backslashreplace", line_buffering=True)  # noqa: SIM115


def carry_out(job: dict[str, Any]) -> None:
    """Run the command or script of a job, and end this process."""
    try:
        if "script" in job:
            runpy.run_path(job["script"], run_name="__main__")
        else:
            app(prog_name="agentflow")
        code: object = None
    except SystemExit as ended:
        code = ended.code
    if not isinstance(code, int | None):
        sys.exit(code)
    leave(code)


if __name__ == "__main__":
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    job = next_job(socket.socket(fileno=int(sys.argv[1])))
    become(job)
    carry_out(job)
