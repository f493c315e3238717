"""The process of a local model: llama.cpp's server, started by the flow that uses it and ended with it.

It runs as a script and imports nothing of agentflow. Its standard input is first one line of JSON, the job; the end of its
standard input, because the flow closed it or its process died, ends this process. It writes to standard output one line of
JSON: the ``address`` where it listens, or the ``error`` why it does not. The log of llama.cpp is standard error.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import threading
from importlib import import_module
from typing import Any


def _serve(job: dict[str, Any]) -> Any:
    """A server of the job's model that listens on loopback, at a port of the system's choice."""
    xllamacpp: Any = import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = job["model"]
    params.model_alias = {job["alias"]}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [job["key"]]
    params.n_parallel = job["slots"]
    params.n_ctx = job["slots"] * job["context"]
    # Its threads wait for each other in busy loops: with one for each core a busy machine is slower by a factor of ten
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = max(1, (os.cpu_count() or 1) // 2)
    if job["temperature"] is not None:
        params.sampling.temp = job["temperature"]
        params.sampling.penalty_repeat = 1.1  # such a model repeats itself without end
    params.verbosity = 1  # errors
    params.ui = False
    params.cache_ram_mib = 0  # prompts are kept in the slots alone
    params.sse_ping_interval = job["ping_s"]
    return xllamacpp.Server(params)


def _end_with_input() -> None:
    while sys.stdin.buffer.read(65_536):
        pass
    os._exit(0)


def main() -> None:
    """Read the job, serve it, and end with standard input."""
    report = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of a library is not a report
    job = json.loads(sys.stdin.buffer.readline())
    # Loading holds Python's lock, so the time it may take is watched from outside of Python
    faulthandler.dump_traceback_later(job["start_s"], exit=True)
    try:
        server = _serve(job)
        told = {"address": server.listening_address}
    except Exception as error:  # noqa: BLE001 - the flow reports any error
        server, told = None, {"error": f"{type(error).__name__}: {error}"}
    faulthandler.cancel_dump_traceback_later()
    print(json.dumps(told), file=report, flush=True)
    if server is not None:
        watcher = threading.Thread(target=_end_with_input)
        watcher.start()
        watcher.join()


if __name__ == "__main__":
    main()
