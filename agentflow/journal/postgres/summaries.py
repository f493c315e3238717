"""What is kept of runs whose records are removed, in PostgreSQL: ``af_summary`` has a row for each."""

from __future__ import annotations

from collections.abc import Sequence

from agentflow.core.events.journal import PastRow
from agentflow.journal.postgres.connection import Connection
from agentflow.journal.postgres.rows import escape, load, unescape
from agentflow.journal.summaries import code_of

_AT_ONCE = 200
"""Number of runs whose inputs are read together."""
_COLUMNS = "run, name, status, queue, tenant, slices, spent_s, usage, cost, error, created, updated"
_KEEP = f"""
insert into af_summary({_COLUMNS})
select run, named.name, status, queue, tenant, slice, spent_s,
  coalesce((select array_agg(total order by n) from (select n, sum(count)::bigint as total
    from af_effect e, unnest(e.usage) with ordinality as u(count, n) where e.rid = r.rid group by n) as counts), '{{}}'),
  (select case when bool_or(cost is null) then null else coalesce(sum(round(cost::numeric * 1e9)), 0) / 1e9 end
    from af_effect e where e.rid = r.rid and e.usage is not null),
  named.error, created, updated
from af_run r join unnest($1::text[], $2::text[], $3::text[]) as named(run, name, error) using (run)
"""


async def keep(db: Connection, runs: Sequence[str]) -> None:
    """Keep what is to be known of ``runs``, before they are removed; nothing of those that are branches, whose costs their runs have."""
    for start in range(0, len(runs), _AT_ONCE):
        rows = await db.fetch(
            "select run, input, error from af_run where run = any($1) and parent is null",
            runs[start : start + _AT_ONCE],
        )
        named = [(run, escape(str(load(stored).get("name", ""))), code_of(load(error))) for run, stored, error in rows]
        if named:
            await db.execute(_KEEP, *[list(column) for column in zip(*named, strict=True)])


async def forget(db: Connection, before: float) -> None:
    """Forget runs that ended before the unix time ``before``."""
    await db.execute("delete from af_summary where updated < to_timestamp($1)", before)


async def read(db: Connection, limit: int) -> list[PastRow]:
    """What is kept, the last updated first."""
    columns = _COLUMNS.replace(
        "created, updated", "extract(epoch from created)::float8, extract(epoch from updated)::float8"
    )
    rows = await db.fetch(f"select {columns} from af_summary s order by s.updated desc, run limit $1", limit)
    return [
        PastRow(
            run=run,
            name=unescape(name),
            status=status,
            queue=queue,
            tenant=unescape(tenant),
            slices=slices,
            spent_s=spent_s,
            usage=tuple(usage),
            cost=cost,
            error=error,
            created=created,
            updated=updated,
        )
        for run, name, status, queue, tenant, slices, spent_s, usage, cost, error, created, updated in rows
    ]


__all__ = ["forget", "keep", "read"]
