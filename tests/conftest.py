"""What holds for every test: no test, and no command that a test starts, writes into the user's own state."""

from __future__ import annotations

import gc
import os
import subprocess
import tempfile
from collections.abc import Generator, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support import marks, workers
from tests.support.node import node_clients as node_clients
from tests.support.postgres import postgres_server as postgres_server
from tests.support.postgres import postgres_url as postgres_url

_SERVER = pytest.StashKey[subprocess.Popen[bytes]]()
_STATE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Runs are recorded in a directory of this session; tests that look at records name one of their own."""
    # That inputs are made slowly says how busy the machine is.
    settings.register_profile("agentflow", suppress_health_check=[HealthCheck.too_slow], deadline=None)
    settings.load_profile("agentflow")
    for subject in marks.SUBJECTS:
        config.addinivalue_line("markers", f"{subject}: tests in tests/{subject}")
    state = config.stash[_STATE] = tempfile.TemporaryDirectory(prefix="agentflow-state-", ignore_cleanup_errors=True)
    os.environ["XDG_STATE_HOME"] = state.name
    # Many tests start processes: each would compile the package anew where Python is told to keep nothing compiled.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark tests by subject, and those of the inner loop, before ``-m`` selects."""
    marks.mark(items, config.rootpath)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Generator[None, object, object]:
    """Make no items of long lists that ``-m`` would deselect."""
    result = yield
    marks.leave_out_rest(metafunc)
    return result


def pytest_xdist_auto_num_workers() -> int:
    """Two workers for each core: more than half of the time tests wait for processes and servers that they started."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 2 * cores


def pytest_xdist_setupnodes(config: pytest.Config, specs: Sequence[workers.Spec]) -> None:
    """Have the workers forked from one process that has imported the tests."""
    if workers.SUPPORTED:
        arguments = [str(each) for each in config.invocation_params.args]
        config.stash[_SERVER] = workers.fork_workers(specs, arguments, Path(config.stash[_STATE].name))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the server of workers, and remove the directory."""
    if server := config.stash.get(_SERVER, None):
        server.communicate()
    config.stash[_STATE].cleanup()


def pytest_collection_finish() -> None:
    """Take what has been imported and collected out of the cyclic collector's way: going over it is a test's time."""
    gc.collect()
    gc.freeze()
