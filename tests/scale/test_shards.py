"""Runs in several databases: each tree of runs in one, workers for all."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from agentflow.core.data.allowances import Allowance, Spending
from agentflow.core.data.errors import ConfigurationError
from agentflow.journal.postgres import PostgresJournal
from agentflow.journal.postgres.shards import best_of, root_of
from agentflow.journal.urls import open_store
from tests.scale.child import PROGRAM, VALUE, app
from tests.scale.test_branches import PMAP
from tests.scale.workers import detached, working
from tests.support.postgres import Server


def counted(server: Server, query: str, urls: list[str]) -> list[int]:
    return [int(server.sql(query, url)) for url in urls]


async def test_runs_are_spread_and_workers_do_those_of_all(postgres_server: Server, tmp_path: Path) -> None:
    """In whatever order the databases are named; with one number of slots; each run is done once, its branches where it is."""
    urls = [postgres_server.schema() for _ in range(3)]
    ids = await _ids(urls)
    names = [
        name for at in range(3) for name in islice((f"r{n}" for n in range(1_000) if best_of(f"r{n}", ids) == at), 4)
    ]
    log = tmp_path / "log"
    async with app(" ".join(urls), log) as starter, app(" ".join(urls[::-1]), log) as worker:
        runs = [await detached(starter, name, tenant="acme") for name in names]
        assert [(each.queued, each.tenant) for each in await worker.store.load()] == [(12, "acme")]
        wide = await detached(starter, "wide", PMAP)
        async with working(worker, slots=4):
            assert [(await run.result()).value for run in runs] == [VALUE] * 12
            assert (await wide.result()).value[1] == ["<p0>", "<p1>", "<p2>"]
        assert sorted(run.run_id for run in await starter.runs()) == sorted([*names, "wide"])
        assert [load.queued for load in await starter.store.load()] == []
    whole = counted(postgres_server, "select count(*) from af_run where parent is null", urls)
    assert sum(whole) == 13 and min(whole) >= 4, "each database has the four that its id was drawn for"
    branches = "select count(*) from af_run b left join af_run p on p.run = b.parent where b.parent is not null and p.run is null"
    assert counted(postgres_server, branches, urls) == [0, 0, 0], "branches without the run around them"
    assert Counter(log.read_text().split())["a"] == 13


async def test_a_database_that_is_added_loses_nothing(postgres_server: Server, tmp_path: Path) -> None:
    """Runs, conversations and schedules that were stored before are found where they are, and asked for again are the same."""
    urls = [postgres_server.schema() for _ in range(4)]
    log = tmp_path / "log"
    async with app(urls[0], log) as flow:
        for number in range(6):
            await (await flow.start(PROGRAM, run_id=f"r{number}")).result()
        async with flow.session("talk") as session:
            await (await flow.start("(+ 1 2)", run_id="said", session=session)).result()
    async with app(" ".join(urls), log) as flow:
        for number in range(6):
            handle = await flow.start(PROGRAM, run_id=f"r{number}")
            assert (await handle.result()).value == VALUE and handle.replayed == 0
        forked = await flow.fork("r1", "0/2.0", as_run="again")
        assert (await forked.result()).value == VALUE
        assert (await flow.find_run("again")) is not None
        async with flow.session("talk") as session:
            assert (await (await flow.start("(+ 2 2)", run_id="said-2", session=session)).result()).value == 4
        assert [each.name for each in await flow.store.sessions()] == ["talk"]
    assert counted(postgres_server, "select count(*) from af_session", urls) == [1, 0, 0, 0]
    assert counted(postgres_server, "select count(*) from af_run where run in ('again', 'said-2')", urls) == [
        2,
        0,
        0,
        0,
    ]
    assert Counter(log.read_text().split()) == {"a": 6, "p1": 6, "p2": 6, "b": 7}


@pytest.mark.slow
async def test_a_database_that_is_away_holds_up_no_other(postgres_server: Server, tmp_path: Path) -> None:
    """What is at work in the others ends, and runs of a process that died there are taken over."""
    away = Server()
    try:
        away.start()
        urls = [postgres_server.schema(), away.schema()]
        ids = await _ids(urls)
        here = next(f"r{n}" for n in range(100) if best_of(f"r{n}", ids) == 0)
        log = tmp_path / "log"
        async with app(" ".join(urls), log, "p1") as flow:
            async with working(flow):
                run = await detached(flow, here)
                while not log.exists() or "p1" not in log.read_text():
                    await asyncio.sleep(0.02)
                away.stop()
                log.with_name("log.go").touch()
                assert (await run.result()).value == VALUE
                postgres_server.sql(
                    f"update af_run set status = 'running', owner = 1, queue = null where run = '{here}'", urls[0]
                )
                while postgres_server.sql(f"select status from af_run where run = '{here}'", urls[0]) != "done":
                    await asyncio.sleep(0.05)
                away.start()
    finally:
        away.stop(signal.SIGINT)
        away.remove()


async def _ids(urls: list[str]) -> list[str]:
    """The ids of databases, by which runs are spread."""
    stores = [PostgresJournal(url) for url in urls]
    try:
        return [await store.database_id() for store in stores]
    finally:
        for store in stores:
            await store.aclose()


def test_a_key_moves_only_to_the_database_that_is_added() -> None:
    """About its share of them do, and the order of names does not matter; branches and scheduled runs are where their run is."""
    names = ["one", "two", "three"]
    keys = [f"run-{number}" for number in range(1_000)]
    before = [names[best_of(key, names)] for key in keys]
    more = ["four", *names[::-1]]
    after = [more[best_of(key, more)] for key in keys]
    moved = [new for old, new in zip(before, after, strict=True) if new != old]
    assert set(moved) == {"four"} and 200 < len(moved) < 300
    assert {root_of(run) for run in ("r", "r:0-1.2", "r:0-1.2:5.0", "r@20261124T0700Z")} == {"r"}


def test_what_names_no_several_databases_is_refused() -> None:
    """Two of a kind, a file among them."""
    for url in ("postgresql://a/x postgresql://a/x", "postgresql://a/x sqlite:///runs.db"):
        with pytest.raises(ConfigurationError) as caught:
            open_store(url)
        assert caught.value.code == "config/durable"


async def test_a_purse_is_one_in_all_databases(postgres_server: Server) -> None:
    """Each period of a purse is in one of them, in whatever order they are named, and stays there when one is added."""
    urls = [postgres_server.schema() for _ in range(3)]
    allowance, call = Allowance(model_calls=3), Spending(model_calls=1)
    names = [f"user-{number}" for number in range(6)]
    for order in (urls[:2], urls[1::-1], urls):
        store = open_store(" ".join(order))
        try:
            for name in names:
                assert (await store.purses.lease(name, 0.0, None, allowance, call)).granted == call
                await store.purses.settle(name, 0.0, None, call, 1)
        finally:
            await store.aclose()
    store = open_store(" ".join(urls))
    try:
        assert [(each.name, each.spent.model_calls) for each in await store.purses.list(1.0)] == [(n, 3) for n in names]
        assert (await store.purses.lease(names[0], 0.0, None, allowance, call)).granted == Spending()
        assert (await store.purses.look(names[0], 0.0)).spent.model_calls == 3
    finally:
        await store.aclose()
    spread = counted(postgres_server, "select count(*) from af_purse", urls)
    assert sum(spread) == 6 and spread[2] == 0
