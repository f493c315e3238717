"""Removes ended runs, and results kept for reuse, from the database of durable runs, oldest first.

A row of ``af_summary`` is kept of each removed run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal_rows import ENDED, PastRow
from agentflow.journal.connection import DatabaseConnection, Row
from agentflow.journal.rows import Rows, escape, parse, sum_of, unescape

ROW_BYTES = 160
"""Size of a row without its texts, in bytes."""
_ENDED = ", ".join(f"'{status}'" for status in sorted(ENDED))
_REMOVABLE = f"""
select run, extract(epoch from updated)::float8 from af_run r where status in ({_ENDED})
  and not exists (select 1 from af_run d where d.base = r.run and d.status not in ({_ENDED})) order by updated
"""


class StorageSurvey(NamedTuple):
    """The inventory of a store: bytes of all runs; removable runs, each with its time; time, key and bytes of results."""

    sizes: dict[str, int]
    ended: list[tuple[str, float]]
    results: list[tuple[float, bytes, int]]


_AT_ONCE = 200
"""Number of runs read together."""
_COLUMNS = "run, name, status, queue, tenant, slices, spent_s, usage, cost, error, created, updated"
_KEEP = f"""
insert into af_summary({_COLUMNS})
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, to_timestamp($11::float8), to_timestamp($12::float8))
"""
C = TypeVar("C", bound=DatabaseConnection, contravariant=True)


class Removes(Protocol[C]):
    """A store that lists its contents, and removes them."""

    async def survey_in(self, db: C) -> StorageSurvey: ...
    async def remove_in(self, db: C, runs: Sequence[str], results: Sequence[bytes]) -> None: ...


async def collect(store: Removes[C], db: C, before: float | None, bounds: LogBounds | None) -> int:
    """Remove rows older than the unix time ``before``, then the oldest until the rest is within ``bounds``.

    Unfinished runs stay, and so do runs with records they may need. Returns the number of removed runs.
    """
    runs: list[str] = []
    results: list[bytes] = []
    if before is not None:
        runs = [run for run, updated in await removable(db) if updated < before]
        results = [key for (key,) in await db.fetch("select content from af_result where at < $1", before)]
    await store.remove_in(db, runs, results)  # also without any: partitions may be empty
    if bounds is not None:
        more, results = excess(bounds, *await store.survey_in(db))
        await store.remove_in(db, more, results)
        runs += more
    return len(runs)


async def removable(db: DatabaseConnection) -> list[tuple[str, float]]:
    """The runs that may be removed, each with the time of its last change."""
    return [(run, updated) for run, updated in await db.fetch(_REMOVABLE)]


def excess(
    bounds: LogBounds,
    sizes: Mapping[str, int],
    ended: Sequence[tuple[str, float]],
    results: Sequence[tuple[float, bytes, int]],
) -> tuple[list[str], list[bytes]]:
    """The oldest of the ``ended`` runs and of the results: those to remove so that the others are within bounds.

    ``sizes`` are the bytes of all runs; ``ended`` has the runs that may go, each with its time, ``results`` the time, key
    and bytes of each.
    """
    total, count = sum(sizes.values()) + sum(size for _, _, size in results), len(sizes)
    runs_gone: list[str] = []
    results_gone: list[bytes] = []
    oldest: list[tuple[float, bool, Any, int]] = sorted(
        [
            *[(updated, True, run, sizes[run]) for run, updated in ended],
            *[(at, False, key, n) for at, key, n in results],
        ],
        key=itemgetter(0),
    )
    for _, is_run, key, size in oldest:
        if total <= bounds.bytes and count <= bounds.runs:
            break
        if is_run:
            runs_gone.append(key)
            count -= 1
        elif total <= bounds.bytes:
            continue
        else:
            results_gone.append(key)
        total -= size
    return runs_gone, results_gone


async def keep_summaries(rows: Rows, db: DatabaseConnection, runs: Sequence[str]) -> None:
    """Store the summaries of ``runs`` before they are removed; none of branches, since their costs are counted in their runs."""
    metered = f"""
        select r.run, {rows.usage}, cost from af_effect e join af_run r on r.{rows.ref} = e.{rows.ref}
        where r.run = any($1) and e.usage is not null"""
    for start in range(0, len(runs), _AT_ONCE):
        some = list(runs[start : start + _AT_ONCE])
        spent: defaultdict[str, list[Row]] = defaultdict(list)
        for run, usage, cost in await db.fetch(metered, some):
            spent[run].append((usage, cost))
        kept: list[Row] = []
        for fields in await db.fetch(f"select {rows.run} from af_run where run = any($1)", some):
            row = await rows.run_of(db, fields)
            if row.parent is None:
                name, code = escape(str(row.input.get("name", ""))), _code_of(row.error)
                usage, cost = sum_of(spent[row.run])
                first = (row.run, name, row.status, row.queue, escape(row.tenant), row.slice, row.spent_s)
                kept.append((*first, rows.counts(usage), cost, code, row.created, row.updated))
        await db.executemany(_KEEP, kept)


async def forget_summaries(db: DatabaseConnection, before: float) -> None:
    """Forget runs that ended before the unix time ``before``."""
    await db.execute("delete from af_summary where updated < to_timestamp($1)", before)


async def read_summaries(rows: Rows, db: DatabaseConnection, limit: int) -> list[PastRow]:
    """The summaries, the last updated first."""
    columns = _COLUMNS.replace("usage", rows.usage).replace(
        "created, updated", "extract(epoch from created)::float8, extract(epoch from updated)::float8"
    )
    kept = await db.fetch(f"select {columns} from af_summary s order by s.updated desc, run limit $1", limit)
    return [
        PastRow(
            run=run,
            name=unescape(name),
            status=status,
            queue=queue,
            tenant=unescape(tenant),
            slices=slices,
            spent_s=spent_s,
            usage=tuple(parse(usage)),
            cost=cost,
            error=error,
            created=created,
            updated=updated,
        )
        for run, name, status, queue, tenant, slices, spent_s, usage, cost, error, created, updated in kept
    ]


def _code_of(error: Any) -> str | None:
    """The code of a stored error, as the runtime writes it: a list with its class and its fields."""
    fields: Any = cast("list[Any]", error)[1] if isinstance(error, list) else None
    return None if fields is None else str(fields.get("code"))
