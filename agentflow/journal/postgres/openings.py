"""The conversations with which durable runs begin, in PostgreSQL: each exchange is stored once for all runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentflow.journal.openings import chained, unchained
from agentflow.journal.postgres.connection import Connection

_CHAIN = """
with recursive chain(hash, before, value, depth) as (
  select e.hash, e.before, e.value, 0 from af_opening o join af_exchange e on e.hash = o.hash where o.run = $1
  union all select e.hash, e.before, e.value, depth + 1 from chain c join af_exchange e on e.hash = c.before)
select hash, before, value from chain order by depth desc
"""
_UNUSED = """
with recursive used(hash) as (
  select hash from af_opening
  union select e.before from used u join af_exchange e on e.hash = u.hash where e.before is not null)
delete from af_exchange where hash not in (select hash from used)
"""


async def keep(db: Connection, run: str, exchanges: Sequence[Any]) -> None:
    """Store the conversation before a run: its exchanges as JSON data, oldest first."""
    rows = chained(exchanges)
    await db.executemany("insert into af_exchange values ($1, $2, $3) on conflict do nothing", rows)
    if rows:
        await db.execute("insert into af_opening values ($1, $2)", run, rows[-1][0])


async def keep_as(db: Connection, run: str, base: str) -> None:
    """Let ``run`` begin with the same conversation as the run ``base``."""
    await db.execute("insert into af_opening select $1, hash from af_opening where run = $2", run, base)


async def read(db: Connection, run: str) -> list[Any]:
    """The conversation before a run. Raises JournalError (``durable/corrupt``)."""
    return unchained(run, await db.fetch(_CHAIN, run))


async def remove(db: Connection, runs: Sequence[str]) -> None:
    """Remove the conversations before ``runs``, and the exchanges that no other run begins with."""
    await db.execute("delete from af_opening where run = any($1)", list(runs))
    await db.execute(_UNUSED)
