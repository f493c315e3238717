"""Runs of processes that died go on in others that share the database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentflow import AgentFlow, Durable
from agentflow.core.events.journal_rows import NewRun
from agentflow.errors import JournalError
from agentflow.journal.postgres import PostgresJournal
from tests.scale import poison
from tests.scale.child import PROGRAM, VALUE, app
from tests.scale.workers import detached
from tests.support.postgres import Server


@contextlib.contextmanager
def working(url: str, log: Path, hang: str = "b") -> Iterator[subprocess.Popen[str]]:
    """Another process that works on the run ``r`` and has come to ``hang``, where it stays."""
    command = [sys.executable, "-m", "tests.scale.child", url, "r", str(log), hang]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "hangs\n"
            yield process
        finally:
            process.kill()


async def ended(flow: AgentFlow, run: str = "r") -> str:
    """The status of a run once it has ended."""
    while (found := await flow.find_run(run)) is None or found.status not in ("done", "failed", "cancelled"):
        await asyncio.sleep(0.02)
    return found.status


async def abandoned(url: str) -> None:
    """A run whose owner is gone."""
    store = PostgresJournal(url)
    await store.create("r", NewRun(program="(f)", digest="d", input={"bindings": {}}))
    await store.own("r")
    await store.aclose()


async def test_a_killed_process_is_taken_over(postgres_url: str, tmp_path: Path) -> None:
    """A flow that nobody told goes on with the run; only what was in flight is carried out again."""
    log = tmp_path / "log"
    with working(postgres_url, log) as process:
        async with app(postgres_url, log) as flow:
            assert (await flow.find_run("r") or pytest.fail()).status == "running"
            process.send_signal(signal.SIGKILL)
            assert await ended(flow) == "done"
            assert (await (await flow.start(PROGRAM, run_id="r")).result()).value == VALUE
    assert Counter(log.read_text().split()) == {"a": 1, "p1": 1, "p2": 1, "b": 2}


@pytest.mark.slow
async def test_a_process_that_stood_still_stores_nothing_more(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """Its session is ended once it has said nothing for a while; when it wakes, its run belongs to somebody else."""
    log = tmp_path / "log"
    with working(postgres_url, log) as process:
        process.send_signal(signal.SIGSTOP)
        postgres_server.sql("update af_owner set seen = now() - interval '1 minute'", postgres_url)
        async with app(postgres_url, log) as flow:
            assert await ended(flow) == "done"
        process.send_signal(signal.SIGCONT)
        (tmp_path / "log.go").touch()
        assert process.stdout is not None and process.stdout.readline() == "durable/owned\n"
    assert Counter(log.read_text().split()) == {"a": 1, "p1": 1, "p2": 1, "b": 2}


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store, of each kind whose owners may be processes."""
    return f"sqlite:///{tmp_path / 'runs.db'}" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


async def test_a_run_that_kills_its_processes_is_ended(url: str, tmp_path: Path) -> None:
    """After the second owner that died and left no new record the run has failed, and says how often and where."""
    log = tmp_path / "log"
    for _ in range(2):
        with working(url, log):
            pass
    async with app(url, log) as flow:
        assert await ended(flow) == "failed"
        with pytest.raises(JournalError) as failure:
            await (await flow.start(PROGRAM, run_id="r")).result()
        assert failure.value.code == "durable/poisoned"
        assert "2 processes died" in failure.value.message and "after '" in failure.value.message
        assert (await (await flow.resume("r")).result()).value == VALUE  # once the cause is mended
    assert Counter(log.read_text().split())["b"] == 3


async def test_a_run_that_gets_further_each_time_goes_on(url: str, tmp_path: Path) -> None:
    """However many of its owners die, each of them recorded something before it did."""
    log = tmp_path / "log"
    for hang in ("a", "p1", "b"):
        with working(url, log, hang):
            pass
    async with app(url, log) as flow:
        assert await ended(flow) == "done"


@pytest.mark.slow
async def test_a_run_beside_one_that_kills_is_not_blamed(postgres_url: str, tmp_path: Path) -> None:
    """Runs whose worker died are begun one after the other, so that the second worker dies of the one that killed the first."""
    log = tmp_path / "log"
    command = [sys.executable, "-m", "tests.scale.poison", postgres_url, str(log)]
    async with poison.app(postgres_url, log) as flow:
        beside = [await detached(flow, f"beside-{n}", f'(content (nap (name "{n}")))') for n in range(4)]
        deadly = await detached(flow, "deadly", "(content (die))")
        for number in range(3):
            process = await asyncio.create_subprocess_exec(*command)
            if number < 2:
                assert await process.wait() == 9
        try:
            assert [(await run.result()).value for run in beside] == ["0", "1", "2", "3"]
            with pytest.raises(JournalError) as failure:
                await deadly.result()
        finally:
            process.kill()
            await process.wait()
    assert failure.value.code == "durable/poisoned"
    assert Counter(log.read_text().split())["die"] == 2


async def test_what_cannot_go_on_here_is_left_to_others(
    postgres_server: Server, postgres_url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that this flow cannot go on with stays as it is, and is tried once."""
    async with app(postgres_url, tmp_path / "log") as flow:
        await (await flow.start("(f)", {"f": lambda: 1}, run_id="r")).result()
    postgres_server.sql("update af_run set status = 'running', owner = 1", postgres_url)
    with caplog.at_level(logging.WARNING):
        async with app(postgres_url, tmp_path / "log") as flow:
            while not caplog.records:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.6)
            assert (await flow.find_run("r") or pytest.fail()).status == "queued"
    assert ["cannot continue here" in record.message for record in caplog.records] == [True]


async def test_a_server_that_restarts_is_waited_for(postgres_server: Server, postgres_url: str, tmp_path: Path) -> None:
    """Results that were paid for while the server was away are stored when it is back; nothing is carried out twice."""
    log = tmp_path / "log"
    async with app(postgres_url, log) as flow:
        handle = await flow.start(PROGRAM, run_id="r")
        postgres_server.stop()
        await asyncio.sleep(0.1)
        postgres_server.start()
        assert (await handle.result()).value == VALUE
        assert await ended(flow) == "done"
    assert set(Counter(log.read_text().split()).values()) == {1}


async def test_a_flow_may_leave_runs_alone(postgres_url: str, tmp_path: Path) -> None:
    """With ``take_over=False``, as the command has it, a flow goes on with nothing by itself."""
    await abandoned(postgres_url)
    async with AgentFlow(model="offline", durable=Durable(postgres_url, take_over=False)) as flow:
        await asyncio.sleep(0.4)
        run = await flow.find_run("r")
    assert run is not None and (run.status, run.slices) == ("queued", 1)
