"""Removes ended runs, and results kept for reuse, from PostgreSQL, oldest first; records by whole partitions where that is possible."""

from __future__ import annotations

import contextlib
from typing import NamedTuple

import asyncpg

from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal import ENDED
from agentflow.journal.cleaning import ROW_BYTES, excess
from agentflow.journal.postgres import openings, summaries
from agentflow.journal.postgres.connection import Connection

_ENDED = ", ".join(f"'{status}'" for status in sorted(ENDED))
_REMOVABLE = f"""
select run, extract(epoch from updated)::float8 from af_run r where status in ({_ENDED})
  and not exists (select from af_run d where d.base = r.run and d.status not in ({_ENDED})) order by updated
"""


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


async def collect(db: Connection, before: float | None, bounds: LogBounds | None) -> int:
    """Remove rows older than the unix time ``before``, then the oldest until the rest is within ``bounds``.

    Runs that have not ended stay, and so do runs whose records they may need. Returns the number of removed runs.
    """
    runs: list[str] = []
    results: list[bytes] = []
    if before is not None:
        runs = [run for run, updated in await db.fetch(_REMOVABLE) if updated < before]
        results = [key for (key,) in await db.fetch("select content from af_result where at < $1", before)]
    await remove(db, runs, results)
    if bounds is not None:
        kept = await survey(db)
        more, results = excess(bounds, kept.sizes, kept.ended, kept.results)
        await remove(db, more, results)
        runs += more
    return len(runs)


class Survey(NamedTuple):
    """What there is: bytes of all runs; those that may go, each with its time; time, key and bytes of results."""

    sizes: dict[str, int]
    ended: list[tuple[str, float]]
    results: list[tuple[float, bytes, int]]


async def survey(db: Connection) -> Survey:
    """What may be removed, and what it all takes."""
    return Survey(
        {run: size for run, size in await db.fetch(_SIZES)},
        [(run, updated) for run, updated in await db.fetch(_REMOVABLE)],
        [(at, key, size) for at, key, size in await db.fetch(_RESULTS)],
    )


async def remove(db: Connection, runs: list[str], results: list[bytes]) -> None:
    """Remove runs with all that they have, but for what is kept of them, and results."""
    await db.execute("delete from af_result where content = any($1)", results)
    emptied = [part for (part,) in await db.fetch(_EMPTIED, runs)]
    if runs:
        await summaries.keep(db, runs)
        rids = [rid for (rid,) in await db.fetch(_BESIDE, runs, emptied)]
        await db.execute("delete from af_effect where rid = any($1)", rids)
        await db.execute("delete from af_blob b using af_run r where r.run = any($1) and b.rid = r.rid", runs)
        await db.execute("delete from af_run where run = any($1)", runs)
        await db.execute("delete from af_fork where run = any($1)", runs)
        await db.execute("delete from af_lease where run = any($1)", runs)
        await db.execute("delete from af_budget where root = any($1)", runs)
        await openings.remove(db, runs)
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
