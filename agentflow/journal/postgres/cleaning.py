"""Removes ended runs, and results kept for reuse, from PostgreSQL, oldest first."""

from __future__ import annotations

from agentflow.core.event_log import LogBounds
from agentflow.core.journal import ENDED
from agentflow.journal.cleaning import ROW_BYTES, excess
from agentflow.journal.postgres import openings
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
_RESULTS = f"select at, content, {ROW_BYTES} + {_bytes('value', 'turns')} from af_result"


async def collect(db: Connection, before: float | None, bounds: LogBounds | None) -> int:
    """Remove rows older than the unix time ``before``, then the oldest until the rest is within ``bounds``.

    Runs that have not ended stay, and so do runs whose records they may need. Returns the number of removed runs.
    """
    ended = [(run, updated) for run, updated in await db.fetch(_REMOVABLE)]
    runs = [run for run, updated in ended if before is not None and updated < before]
    results: list[bytes] = []
    if before is not None:
        results = [key for (key,) in await db.fetch("select content from af_result where at < $1", before)]
    await _remove(db, runs, results)
    if bounds is not None:
        gone = set(runs)
        sizes = {run: size for run, size in await db.fetch(_SIZES)}
        kept = [(at, key, size) for at, key, size in await db.fetch(_RESULTS)]
        more, results = excess(bounds, sizes, [each for each in ended if each[0] not in gone], kept)
        await _remove(db, more, results)
        runs += more
    return len(runs)


async def _remove(db: Connection, runs: list[str], results: list[bytes]) -> None:
    await db.execute("delete from af_result where content = any($1)", results)
    if runs:
        await db.execute("delete from af_effect e using af_run r where r.run = any($1) and e.rid = r.rid", runs)
        await db.execute("delete from af_run where run = any($1)", runs)
        await db.execute("delete from af_fork where run = any($1)", runs)
        await db.execute("delete from af_lease where run = any($1)", runs)
        await db.execute("delete from af_budget where root = any($1)", runs)
        await openings.remove(db, runs)
