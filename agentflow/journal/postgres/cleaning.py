"""Removes ended runs, and results kept for reuse, from PostgreSQL, oldest first; records by whole partitions where that is possible."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import asyncpg

from agentflow.journal.cleaning import ROW_BYTES, Survey, keep_summaries, removable
from agentflow.journal.postgres.connection import Connection
from agentflow.journal.rows import Rows
from agentflow.journal.sessions import remove_openings


def _bytes(*columns: str) -> str:
    return " + ".join([f"coalesce(octet_length({column}), 0)" for column in columns])


_SIZES = f"""
select r.run, ({ROW_BYTES} + {_bytes("r.program", "r.input", "r.result", "r.error", "x.value")} + coalesce(e.size, 0))::bigint
from af_run r left join af_opening o on o.run = r.run left join af_exchange x on x.hash = o.hash
left join (select rid, sum({ROW_BYTES} + {_bytes("path", "name", "value", "turns")}) as size from af_effect group by rid) e
  on e.rid = r.rid
"""
_EMPTIED = """
select p.name from af_part p join af_part after on after.first = p.upto
where after.created < now() - interval '1 hour' and not exists (
  select from af_run r left join unnest($1::text[]) as gone(run) using (run)
  where r.rid >= p.first and r.rid < p.upto and gone.run is null)
"""
"""Partitions without a run beside those that go. A run that is being stored may still get a number of the one before the last."""
_BESIDE = """
select rid from af_run r where run = any($1)
  and not exists (select from af_part p where p.name = any($2) and r.rid >= p.first and r.rid < p.upto)
"""
_LOCK_MS = 500
_RESULTS = f"select at, content, {ROW_BYTES} + {_bytes('value', 'turns')} from af_result"


async def survey(db: Connection) -> Survey:
    """What may be removed, and what it all takes."""
    sizes = {run: size for run, size in await db.fetch(_SIZES)}
    return Survey(sizes, await removable(db), [(at, key, size) for at, key, size in await db.fetch(_RESULTS)])


async def remove(rows: Rows, db: Connection, runs: Sequence[str], results: Sequence[bytes]) -> None:
    """Remove runs with all that they have, but for what is kept of them, and results."""
    await db.execute("delete from af_result where content = any($1)", results)
    emptied = [part for (part,) in await db.fetch(_EMPTIED, runs)]
    if runs:
        await keep_summaries(rows, db, runs)
        rids = [rid for (rid,) in await db.fetch(_BESIDE, runs, emptied)]
        await db.execute("delete from af_effect where rid = any($1)", rids)
        await db.execute("delete from af_blob b using af_run r where r.run = any($1) and b.rid = r.rid", runs)
        for table in ("af_run", "af_fork", "af_lease"):
            await db.execute(f"delete from {table} where run = any($1)", runs)
        await db.execute("delete from af_budget where root = any($1)", runs)
        await remove_openings(db, runs)
    for part in emptied:
        await _drop(db, part)


async def _drop(db: Connection, part: str) -> None:
    """Drop a partition, last of all: nobody can store records from here to the end of the transaction.

    Where it cannot be had at once, as while the database is dumped, or belongs to another role, a later collection drops it.
    """
    with contextlib.suppress(asyncpg.LockNotAvailableError, asyncpg.InsufficientPrivilegeError):
        async with db.transaction():
            await db.execute(f"set local lock_timeout = '{_LOCK_MS}ms'")
            await db.execute(f'drop table "{part}"')
            await db.execute("delete from af_part where name = $1", part)
            await db.execute("set local lock_timeout = 0")
