"""Large values of records: in files that all processes reach, while the database has references."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import JournalError
from agentflow.journal.postgres import PostgresJournal
from tests.conformance.test_journal_store import NEW, row, turns_of
from tests.scale.workers import detached, working
from tests.support.postgres import Server

LARGE = "\ud800x" * 50_000


def beside(url: str, directory: Path) -> str:
    """The URL of the same tables with large values in a directory."""
    return url.replace("?", f"?blobs={directory}&")


def files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


async def ended(store: PostgresJournal, run: str, *values: str) -> None:
    await store.create(run, NEW)
    epoch = (await store.own(run)).run.epoch
    await store.put(run, epoch, [row(f"0/{at}.0", value, turns=[value]) for at, value in enumerate(values)])
    await store.finish(run, epoch, "done")


async def test_large_values_are_files_and_come_back(postgres_server: Server, postgres_url: str, tmp_path: Path) -> None:
    """One for equal values, closed to other users; small ones stay in the database. They go with the last run that has them."""
    store, other = (PostgresJournal(beside(postgres_url, tmp_path)) for _ in range(2))
    await ended(store, "a", "small", "y" * 100_000)
    await ended(other, "b", "y" * 100_000, "z" * 100_000)
    for run, values in {"a": ["small", "y" * 100_000], "b": ["y" * 100_000, "z" * 100_000]}.items():
        stored = await other.effects(run)
        assert [each.value for each in stored] == values and [turns_of(each) for each in stored] == [
            [v] for v in values
        ]
    assert len(files(tmp_path)) == 4 and {path.stat().st_mode & 0o777 for path in files(tmp_path)} == {0o600}
    assert int(postgres_server.sql("select max(length(value)) from af_effect", postgres_url)) < 100
    await store.create("c", NEW)
    owned = await store.own("c")
    await store.put("c", owned.run.epoch, [row("0/0.0", LARGE)])
    assert [each.value for each in await other.effects("c")] == [LARGE]
    postgres_server.sql("update af_run set updated = now() - interval '1 day' where run = 'b'", postgres_url)
    assert await store.gc(time.time() - 3_600) == 1
    assert len(files(tmp_path)) == 3, "what another run has too stays"
    assert [each.value for each in await store.effects("a")] == ["small", "y" * 100_000]
    await asyncio.gather(*[each.aclose() for each in (store, other)])


async def test_a_value_that_is_not_there_is_named(postgres_url: str, tmp_path: Path) -> None:
    """By a process whose URL does not say where values are, and where the file is gone; the run itself can be listed."""
    store, without = PostgresJournal(beside(postgres_url, tmp_path)), PostgresJournal(postgres_url)
    await ended(store, "a", "y" * 100_000)
    with pytest.raises(JournalError) as caught:
        await without.effects("a")
    assert caught.value.code == "durable/blob" and "?blobs=" in (caught.value.hint or "")
    assert [run.run for run in await without.list()] == ["a"]
    for path in files(tmp_path):
        path.unlink()
    with pytest.raises(JournalError) as caught:
        await store.own("a")
    assert caught.value.code == "durable/blob"
    await asyncio.gather(*[each.aclose() for each in (store, without)])


async def test_what_is_being_written_is_not_removed(postgres_url: str, tmp_path: Path) -> None:
    """Runs that store values while others are collected lose none of them; what nothing refers to goes."""
    url = beside(postgres_url, tmp_path)
    stores = [PostgresJournal(url) for _ in range(3)]
    await stores[0].list()

    async def collect() -> None:
        for _ in range(30):
            await stores[2].gc(time.time() + 60)

    async def write(store: PostgresJournal, name: str) -> None:
        for number in range(15):
            run = f"{name}{number}"
            await store.create(run, NEW)
            epoch = (await store.own(run)).run.epoch
            await store.put(run, epoch, [row("0/0.0", f"{number}" * 100_000)])
            assert (await store.effects(run))[0].value == f"{number}" * 100_000
            await store.finish(run, epoch, "done")

    await asyncio.gather(collect(), write(stores[0], "a"), write(stores[1], "b"))
    assert await stores[0].gc(time.time() + 60) >= 0 and files(tmp_path) == []
    await asyncio.gather(*[each.aclose() for each in stores])


async def test_branches_on_workers_give_large_values(postgres_url: str, tmp_path: Path) -> None:
    """The record of a branch in the run around it refers to the value that the branch has recorded."""
    url = beside(postgres_url, tmp_path)

    async def large(n: int) -> str:
        """Something large."""
        return f"{n}" * 100_000

    async with AgentFlow(model="offline", tools=[large], durable=url) as flow, working(flow):
        run = await detached(
            flow, "r", "(map string-length (pmap :on workers (lambda (n) (value-of (large (n n)))) '(1 2 3)))"
        )
        assert (await run.result()).value == [100_000] * 3
    assert len(files(tmp_path)) >= 3
