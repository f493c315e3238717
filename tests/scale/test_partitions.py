"""Records of many runs: partitions by the time of their run, which go as a whole."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import asyncpg
import pytest

from agentflow.core.events.journal_rows import NewRun
from agentflow.journal.postgres import PostgresJournal
from agentflow.journal.postgres.schema import MIGRATIONS
from tests.conformance.test_journal_store import row
from tests.support.postgres import Server

NEW = NewRun(program="(f)", digest="d", input={})
PARTS = "select string_agg(inhrelid::regclass::text, ' ' order by inhrelid) from pg_inherits where inhparent = 'af_effect'::regclass"


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresJournal]:
    opened = PostgresJournal(postgres_url)
    await opened.list()
    yield opened
    await opened.aclose()


async def done(store: PostgresJournal, *runs: str) -> None:
    """Runs that have ended, each with a record."""
    for run in runs:
        await store.create(run, NEW)
        epoch = (await store.own(run)).run.epoch
        await store.put(run, epoch, [row("0/0.0", run)])
        await store.finish(run, epoch, "done")


async def test_a_partition_is_made_when_there_is_no_room(
    postgres_server: Server, postgres_url: str, store: PostgresJournal
) -> None:
    """By whoever stores the first run that belongs there, though several do at once; its size follows from how long the one before lasted."""
    postgres_server.sql("alter table af_run alter rid restart with 9990", postgres_url)
    others = [PostgresJournal(postgres_url) for _ in range(3)]
    runs = [f"r{number}" for number in range(30)]
    await asyncio.gather(*[done(each, *runs[at::4]) for at, each in enumerate([store, *others])])
    assert postgres_server.sql(PARTS, postgres_url) == "af_effect_1 af_effect_10000"
    assert [[each.value for each in await store.effects(run)] for run in runs] == [[run] for run in runs]
    size = "select upto - first from af_part order by first desc limit 1"
    assert postgres_server.sql(size, postgres_url) == "10000000", "ten thousand runs came within seconds"
    top = "select upto from af_part order by first desc limit 1"
    end = postgres_server.sql(top, postgres_url)
    postgres_server.sql(
        f"update af_part set created = now() - interval '30 days'; alter table af_run alter rid restart with {end}",
        postgres_url,
    )
    await done(others[0], "late")
    assert postgres_server.sql(size, postgres_url) == str(10_000_000 // 30)
    for each in others:
        await each.aclose()


async def test_records_of_old_runs_go_with_their_partition(
    postgres_server: Server, postgres_url: str, store: PostgresJournal
) -> None:
    """Once all runs of it go; one run that stays keeps it, and loses nothing. Who reads the table meanwhile is not waited for."""
    await done(store, "a", "b")
    postgres_server.sql("alter table af_run alter rid restart with 10000", postgres_url)
    await done(store, "c")
    postgres_server.sql("update af_part set created = now() - interval '2 hours'", postgres_url)
    postgres_server.sql("update af_run set updated = now() - interval '1 day' where run = 'a'", postgres_url)
    assert await store.gc(time.time() - 3_600) == 1
    assert postgres_server.sql(PARTS, postgres_url) == "af_effect_1 af_effect_10000"
    assert [each.value for each in await store.effects("b")] == ["b"]
    postgres_server.sql("update af_run set updated = now() - interval '1 day' where run = 'b'", postgres_url)
    reader = await asyncpg.connect(postgres_url)
    async with reader.transaction():
        await reader.fetch("select 1 from af_effect")
        assert await store.gc(time.time() - 3_600) == 1
        assert postgres_server.sql(PARTS, postgres_url) == "af_effect_1 af_effect_10000"
        assert await store.find("b") is None
        await done(store, "d")
    await reader.close()
    assert await store.gc(time.time() - 3_600) == 0
    assert postgres_server.sql(PARTS, postgres_url) == "af_effect_10000"
    assert [[each.value for each in await store.effects(run)] for run in ("c", "d")] == [["c"], ["d"]]


async def test_a_role_that_made_no_tables_may_use_them(
    postgres_server: Server, postgres_url: str, store: PostgresJournal
) -> None:
    """Partitions are made for it, too; those that it may not drop stay until somebody collects who may."""
    schema = postgres_url.rpartition("=")[2]
    postgres_server.sql(
        f"create role user_{schema} login; grant usage on schema {schema} to user_{schema};"
        f" grant select, insert, update, delete on all tables in schema {schema} to user_{schema}; alter table af_run alter rid restart with 9999",
        postgres_url,
    )
    user = PostgresJournal(postgres_url.replace("agentflow@", f"user_{schema}@"))
    await done(user, "a", "b", "c")
    assert postgres_server.sql(PARTS, postgres_url) == "af_effect_1 af_effect_10000"
    postgres_server.sql("update af_part set created = now() - interval '2 hours'", postgres_url)
    assert await user.gc(time.time() + 60) == 3
    assert postgres_server.sql(PARTS, postgres_url) == "af_effect_1 af_effect_10000"
    await done(user, "d")
    assert await store.gc(None) == 0
    assert postgres_server.sql(PARTS, postgres_url) == "af_effect_10000"
    assert [each.value for each in await user.effects("d")] == ["d"]
    await user.aclose()


async def test_records_of_older_tables_are_kept(postgres_server: Server, postgres_url: str) -> None:
    """The table that a database of an earlier version has becomes the first partition."""
    for statements in MIGRATIONS[:7]:
        postgres_server.sql(statements, postgres_url)
    postgres_server.sql(
        """create table af_meta(key text primary key, value text not null); insert into af_meta values ('version', '7');
        insert into af_run(run, program, digest, input) values ('r', '"(f)"', 'd', '{}');
        insert into af_effect(rid, key, path, kind, name, content, state, value)
          select rid, 'k', '0/0.0', 'tool', 'look', 'c', 1, '"kept"' from af_run""",
        postgres_url,
    )
    store = PostgresJournal(postgres_url)
    assert [each.value for each in await store.effects("r")] == ["kept"]
    await done(store, "new")
    assert postgres_server.sql(PARTS, postgres_url) == "af_effect_1"
    await store.aclose()
