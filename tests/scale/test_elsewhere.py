"""Runs of workers, as somebody elsewhere sees and stops them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from agentflow import AgentFlow
from agentflow.core.data.errors import JournalError
from agentflow.core.data.event_log import LogEntry
from agentflow.core.events.journal_rows import ENDED, NewRun
from agentflow.durable.catalogue import RunCatalogue
from agentflow.durable.change_signals import SELDOM_S, RunChanges
from agentflow.journal.postgres import PostgresJournal
from agentflow.journal.postgres.events import PostgresEvents
from agentflow.observe.otel import (
    COMMIT_TIME,
    COMMITS,
    LOST,
    REFUSED,
    RUNS,
    TAKEOVERS,
    FleetCounters,
    QueueGauges,
)
from tests.cli.test_command import agentflow
from tests.scale.child import app
from tests.scale.workers import detached, working
from tests.support.postgres import Server


async def test_a_run_is_watched_from_elsewhere(postgres_url: str) -> None:
    """Its events come while it goes on, those of all its slices, and end when it has ended; a place to go on from may be given."""

    async def look(at: str) -> str:
        """Look at something."""
        return f"<{at}>"

    program = '(list (content (look (at "a"))) (ask-human "go on?") (content (look (at "b"))))'
    seen: list[dict[str, Any]] = []
    async with (
        AgentFlow(model="offline", durable=postgres_url, tools=[look]) as watcher,
        AgentFlow(model="offline", durable=postgres_url, tools=[look], record=True) as worker,
        working(worker),
    ):
        handle = await detached(watcher, "r", program)
        async for event in watcher.watch("r"):
            seen.append(event)
            if event["type"] == "wait_started":
                assert await handle.wait() == "waiting"
                await watcher.send("r", handle.waiting[0].key, "yes")
        assert [event async for event in watcher.watch("r", (1, seen[2]["seq"]))] == seen[3:]
        with pytest.raises(JournalError) as caught:
            await anext(watcher.watch("unknown"))
        assert caught.value.code == "durable/unknown-run"
    tools = [(event["slice"], event["arguments"]["at"]) for event in seen if event["type"] == "tool_started"]
    assert tools == [(1, "a"), (2, "b")]
    assert [event["outcome"] for event in seen if event["type"] == "run_finished"] == ["suspended", "ok"]


async def test_what_is_new_of_a_run_is_said_to_those_who_follow_it(postgres_server: Server, postgres_url: str) -> None:
    """Its end, that it waits, and new events; and a connection that was lost is opened again."""
    store, events = PostgresJournal(postgres_url), PostgresEvents(postgres_url)
    new = NewRun(program="(f)", digest="d", input={}, queue="default")
    changes = RunChanges(store.jobs)
    try:
        await store.jobs.prepare()
        epochs: dict[str, int] = {}
        for run in ("ends", "waits"):
            await store.create(run, new)
            epochs[run] = (await store.own(run)).run.epoch
        listening = asyncio.create_task(changes.listen())
        with changes.of("ends") as ends, changes.of("waits") as waits, changes.of("other") as other:
            async with asyncio.timeout(30):
                for each in (ends, waits, other):
                    await each.wait()
                    each.clear()
                assert changes.pause(0.1) == SELDOM_S
                await store.finish("ends", epochs["ends"], "done")
                await ends.wait()
                await store.park("waits", epochs["waits"], 0, None)
                await waits.wait()
                waits.clear()
                await asyncio.to_thread(events.append, "waits", [LogEntry(slice=1, seq=1, line=b"{}")])
                await waits.wait()
                assert not other.is_set()
                postgres_server.sql(
                    "select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen%'"
                )
                await other.wait()
        listening.cancel()
        await asyncio.wait([listening])
        assert changes.pause(0.1) == 0.1
    finally:
        await store.aclose()
        await asyncio.to_thread(events.close)


async def test_a_worker_says_of_which_build_it_is(postgres_url: str, tmp_path: Path) -> None:
    """One of another build takes runs, too, and the run says so; a tool more is another build, another process is not."""

    async def more() -> str:
        """Do more."""
        return "more"

    flows = [AgentFlow(model="offline", durable=postgres_url, record=True, tools=tools) for tools in ([], [more], [])]
    async with flows[0] as old, flows[1] as new, flows[2] as other:
        assert await old.store.workers() == []
        async with working(old, slots=3), working(other):
            handle = await detached(other, "r", '(ask-human "go on?")')
            assert await handle.wait() == "waiting"
            while len(listed := await new.store.workers()) < 2:
                await asyncio.sleep(0.02)
            assert sorted([(each.slots, each.pid, each.runs) for each in listed]) == [
                (3, os.getpid(), 0),
                (100, os.getpid(), 0),
            ]
            before = {each.build for each in listed}
            assert len(before) == 1
        async with working(new):
            await other.send("r", handle.waiting[0].key, "yes")
            assert (await handle.result()).value == "yes"
            [listed] = await new.store.workers()
            warnings = [event async for event in other.watch("r") if event["type"] == "warning"]
        assert [(each["code"], each["details"]) for each in warnings] == [
            ("durable/build", {"before": before.pop(), "now": listed.build})
        ]
    result = await agentflow("runs", "workers", "--db", postgres_url, tmp_path=tmp_path)
    assert result.out == "no workers; agentflow worker starts one\n"


async def test_who_tails_a_run_without_a_flow_is_told_too(postgres_url: str) -> None:
    """``runs tail --follow`` asks seldom where the database says when there is something new, and ends with the run."""
    store, events = PostgresJournal(postgres_url), PostgresEvents(postgres_url)
    catalogue = RunCatalogue([events], store)
    try:
        await store.jobs.prepare()
        await store.create("r", NewRun(program="(f)", digest="d", input={"name": "f"}, queue="default"))
        epoch = (await store.own("r")).run.epoch
        lines = [b'{"type": "log", "slice": 1, "seq": 1}', b'{"type": "run_finished", "slice": 1, "seq": 2}']
        async with catalogue.listening() as changes, asyncio.timeout(30):
            with changes.of("r") as wake:
                await wake.wait()
            assert changes.pause(0.1) == SELDOM_S
            async with contextlib.aclosing(catalogue.follow("r", changes=changes)) as followed:
                await asyncio.to_thread(events.append, "r", [LogEntry(slice=1, seq=1, line=lines[0])])
                assert (await anext(followed))["seq"] == 1
                await store.finish("r", epoch, "done")
                await asyncio.to_thread(events.append, "r", [LogEntry(slice=1, seq=2, line=lines[1])])
                assert [event["seq"] async for event in followed] == [2]
        assert changes.pause(0.1) == 0.1
    finally:
        await catalogue.aclose()


@pytest.mark.parametrize("state", ["running", "waiting", "queued"])
async def test_a_run_is_cancelled_from_elsewhere(
    postgres_server: Server, postgres_url: str, tmp_path: Path, state: str
) -> None:
    """A worker cancels it, so that it cleans up with the worker's tools; whoever asked waits until it has."""
    log = tmp_path / "log"
    middle = {"running": '(look (at "b"))', "waiting": '(ask-human "go on?")', "queued": "1"}[state]
    program = f'(try (begin (look (at "a")) {middle} (look (at "c"))) (finally (look (at "end"))))'
    async with app(postgres_url, log) as starter, app(postgres_url, log, "b") as worker:
        handle = await detached(starter, "r", program)
        if state == "queued":
            cancelling = asyncio.create_task(starter.cancel("r"))
            while postgres_server.sql("select cancelling from af_run", postgres_url) != "t":
                await asyncio.sleep(0.02)
        async with working(worker):
            if state == "running":
                while not (log.exists() and "b" in log.read_text()):
                    await asyncio.sleep(0.02)
            if state == "waiting":
                assert await handle.wait() == "waiting"
            await (cancelling if state == "queued" else starter.cancel("r"))
        assert (await starter.find_run("r") or pytest.fail()).status == "cancelled"
        with pytest.raises(JournalError) as caught:
            await handle.result()
        assert caught.value.code == "durable/cancelled"
    done = log.read_text().split() if log.exists() else []
    assert done == {"running": ["a", "b", "end"], "waiting": ["a", "end"], "queued": ["end"]}[state]


async def test_a_run_is_cancelled_while_its_error_is_written(postgres_url: str) -> None:
    """An error is made data beside the loop. A run that is cancelled just then is given up: another slice ends it."""
    writing, go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class Threads(ThreadPoolExecutor):
        """Threads that take their time to write an error."""

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            if "encode_error" not in str(fn):
                return super().submit(fn, *args, **kwargs)
            loop.call_soon_threadsafe(writing.set)
            return super().submit(lambda: (go_on.wait(10), fn(*args, **kwargs))[1])

    loop.set_default_executor(Threads())
    async with AgentFlow(model="offline", durable=postgres_url) as flow, working(flow):
        handle = await detached(flow, "r", '(raise "no")')
        await writing.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(handle.cancel())
            await asyncio.sleep(0.5)  # the worker looks four times a second for what is to be cancelled
            go_on.set()
        assert await handle.wait() in ENDED


@pytest.mark.slow
async def test_the_command_leaves_runs_to_workers_and_shows_what_they_do(postgres_url: str, tmp_path: Path) -> None:
    """The id is all it prints; the list says what becomes of the run, and its events are followed to its end."""
    (tmp_path / "p.sexp").write_text("(+ 1 2)")
    database = ("--db", postgres_url)

    async def said(*arguments: str) -> str:
        done = await agentflow(*arguments, *database, tmp_path=tmp_path, cwd=tmp_path)
        assert done.code == 0, done.err
        return done.out

    leave = ("run", "p.sexp", "-m", "offline", "--detach", "--queue", "slow", "--tenant", "acme")
    run = (await said(*leave)).strip()
    assert (await said(*leave)).strip() == run, "one that has not ended is not started twice"
    (listed,) = json.loads(await said("runs", "--json"))
    assert (listed["run_id"], listed["state"]) == (run, "queued")
    async with (
        AgentFlow(model="offline", durable=postgres_url, record=True) as worker,
        working(worker, {"slow": 0}),
    ):
        lines = (await said("runs", "tail", run, "--follow")).splitlines()
    assert "run started" in lines[0] and "run finished" in lines[-1]
    assert (await said("run", "p.sexp", "--run-id", run)).strip() == "3"
    refused = await agentflow("run", "p.sexp", "--detach", tmp_path=tmp_path, cwd=tmp_path)
    assert refused.code == 2 and "PostgreSQL" in refused.err


async def test_what_there_is_to_do_is_counted(postgres_url: str, tmp_path: Path) -> None:
    """By queue and tenant, without runs that have ended; a gauge goes back to nothing when there is nothing left."""
    provider, reader = metered()
    gauges = QueueGauges(provider)
    async with app(postgres_url, tmp_path / "log") as flow:
        handle = await detached(flow, "r", '(ask-human "go on?")', tenant="acme")
        await detached(flow, "s", "1", queue="slow")
        async with working(flow):
            assert await handle.wait() == "waiting"
        loads = await flow.store.load()
        assert [(each.queue, each.tenant, each.queued, each.running, each.waiting) for each in loads] == [
            ("default", "acme", 0, 0, 1),
            ("slow", "", 1, 0, 0),
        ]
        assert loads[0].oldest_s == 0 < loads[1].oldest_s
        gauges.record(loads)
        assert runs_of(reader) == {("default", "waiting"): 1, ("slow", "queued"): 1}
        gauges.record(loads[:1])
        assert runs_of(reader) == {("default", "waiting"): 1}


async def test_what_has_happened_to_a_worker_is_counted(
    postgres_server: Server, postgres_url: str, tmp_path: Path
) -> None:
    """Runs of the dead that it takes over, records that come too late, sessions that it loses; a counter adds what is new."""
    provider, reader = metered()
    counters = FleetCounters(provider)

    def sql(text: str) -> str:
        return postgres_server.sql(text, postgres_url)

    async def until(**counts: int) -> None:
        expected = {"takeovers": 0, "sessions_lost": 0, "refused": 0, **counts}
        while {name: asdict(flow.store.counts())[name] for name in expected} != expected:
            await asyncio.sleep(0.02)

    log = tmp_path / "log"
    async with app(postgres_url, log, "b") as flow:
        await detached(flow, "dead")
        sql("update af_run set status = 'running', owner = 7 where run = 'dead'")  # as if a worker had died with it
        await until(takeovers=1)
        async with working(flow, drain_s=0.1):
            while not log.exists() or "b" not in log.read_text().split():
                await asyncio.sleep(0.02)
            sql("update af_run set epoch = epoch + 1 where run = 'dead'")  # as if another had taken it over
            log.with_name("log.go").touch()
            await until(takeovers=1, refused=1)
        sql("select pg_terminate_backend(pid) from pg_locks where locktype = 'advisory' and mode = 'ExclusiveLock'")
        await until(takeovers=1, refused=1, sessions_lost=1)
        counters.record(flow.store.counts())
        counters.record(counts := flow.store.counts())
        assert counts.commits > 5 and counts.commit_s > 0
        commits = {COMMITS: counts.commits, COMMIT_TIME: pytest.approx(counts.commit_s)}
        assert sums_of(reader) == {TAKEOVERS: 1, REFUSED: 1, LOST: 1, **commits}


def sums_of(reader: InMemoryMetricReader) -> dict[str, Any]:
    """The counters by name."""
    data: Any = reader.get_metrics_data()
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    return {each.name: sum([point.value for point in each.data.data_points]) for each in metrics}


def metered() -> tuple[MeterProvider, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    return MeterProvider([reader]), reader


def runs_of(reader: InMemoryMetricReader) -> dict[tuple[str, str], int]:
    """The runs that a gauge says there are, by queue and status."""
    data: Any = reader.get_metrics_data()
    (metric,) = [each for each in data.resource_metrics[0].scope_metrics[0].metrics if each.name == RUNS]
    points = [(point.attributes, point.value) for point in metric.data.data_points if point.value]
    return {(each["agentflow.queue"], each["agentflow.status"]): value for each, value in points}
