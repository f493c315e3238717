"""How runs and effects become rows of PostgreSQL and are read back."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from agentflow.core.data.money import total
from agentflow.core.events.journal import EffectRow, EffectState, NewRun, RunRow
from agentflow.journal.postgres.blobs import Blobs
from agentflow.journal.postgres.connection import Connection, Row
from agentflow.journal.rows import corrupt, parse

RUN = (
    "run, base, program, digest, input, status, epoch, seq, slice, extract(epoch from wake_at)::float8, spent_s,"
    " result, error, extract(epoch from created)::float8, extract(epoch from updated)::float8, deaths, queue, tenant,"
    " cancelling or (fork is not null and exists (select from af_fork f where f.id = fork and f.state > 0)), parent,"
    " build, owner, rid"
)
"""Columns of :func:`run_of`; the last two are the store's own."""
OWNER, RID = -2, -1
EFFECT = "path, leaf, kind, name, content, state, value, turns, usage, cost, t0, t1"
_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in EFFECT.split(", "))
PUT = f"""
with job as materialized (
  select n, r.rid from unnest($1::text[], $2::bigint[]) with ordinality as j(run, epoch, n)
    join af_run r on r.run = j.run and r.epoch = j.epoch order by r.rid for share of r),
put as (
  insert into af_effect(rid, key, {EFFECT})
    select rid, key, path, leaf, kind, name, content, state, value, turns, usage::bigint[], cost, t0, t1
    from unnest($3::bigint[], $4::bytea[], $5::text[], $6::bytea[], $7::text[], $8::text[], $9::bytea[], $10::smallint[],
      $11::text[], $12::text[], $13::text[], $14::float8[], $15::float8[], $16::float8[])
      as e(n, key, {EFFECT}) join job using (n)
  on conflict (rid, key) do update set {_CHANGED} where af_effect.state = 0)
select n from job
"""
"""Stores the records of all jobs whose run has the epoch they were made in, and gives the numbers of these jobs.

The rows of the runs stay locked against another owner until the records are committed.
"""
_EFFECT_COLUMNS = 14
ADD = f"""
insert into af_effect(rid, key, {EFFECT})
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11::text::bigint[], $12, $13, $14) on conflict (rid, key) do nothing returning 1
"""
"""Stores one record, unless there is one of its key."""

_STATES: tuple[EffectState, ...] = tuple(EffectState)
_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode
_UNSAFE = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def escape(text: str) -> str:
    """``text`` with NUL and lone surrogates escaped, which PostgreSQL does not store."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def unescape(text: str) -> str:
    """The inverse of :func:`escape`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "\\" in text else text


def dump(data: Any) -> str | None:
    """JSON data as ASCII text; None stays None."""
    return None if data is None else _ENCODE(data)


def load(text: str | None) -> Any:
    """JSON data that :func:`dump` wrote. Raises JournalError (``durable/corrupt``)."""
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise corrupt(f"a stored value is no JSON: {error}") from None


def beginning(new: NewRun) -> tuple[Any, ...]:
    """The columns ``program, digest, input, queue, tenant, priority`` of a new run."""
    return dump(new.program), new.digest, dump(dict(new.input)), new.queue, escape(new.tenant), new.priority


def effect_values(row: EffectRow) -> tuple[Any, ...]:
    """The values of :data:`PUT` for a record, after the number of its job."""
    return (
        row.key,
        escape(row.path),
        row.leaf,
        row.kind,
        escape(row.name),
        row.content,
        int(row.state),
        dump(row.value),
        dump(row.turns),
        None if row.usage is None else f"{{{','.join(map(str, row.usage))}}}",
        None if row.cost is None else float(row.cost),
        None if row.started is None else float(row.started),
        None if row.ended is None else float(row.ended),
    )


def columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as the columns that ``unnest`` takes, each with the number of its job first."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(_EFFECT_COLUMNS)]


def effect_of(fields: Row) -> EffectRow:
    """The record whose columns are :data:`EFFECT`. Raises JournalError (``durable/corrupt``)."""
    path, leaf, kind, name, content, state, value, turns, usage, cost, started, ended = fields
    return EffectRow(
        path=unescape(path),
        leaf=leaf,
        kind=kind,
        name=unescape(name),
        content=content,
        state=_STATES[int(state)],
        value=load(value),
        turns=load(turns),
        usage=None if usage is None else tuple(usage),
        cost=cost,
        started=started,
        ended=ended,
    )


def run_of(fields: Row) -> RunRow:
    """The run whose columns are :data:`RUN`. Raises JournalError (``durable/corrupt``)."""
    run, base, program, digest, input_, status, epoch, seq, slice, wake_at, spent, result, error = fields[:13]
    created, updated, deaths, queue, tenant, cancelling, parent, build = fields[13:OWNER]
    return RunRow(
        run=run,
        base=base,
        program=load(program),
        digest=digest,
        input=load(input_),
        status=status,
        epoch=epoch,
        seq=seq,
        slice=slice,
        wake_at=wake_at,
        spent_s=spent,
        result=load(result),
        error=load(error),
        created=created,
        updated=updated,
        deaths=deaths,
        queue=queue,
        tenant=unescape(tenant),
        cancelling=cancelling,
        parent=parent,
        build=build,
    )


async def effects(db: Connection, blobs: Blobs, rid: int, where: str = "true") -> list[EffectRow]:
    """The records of a run for which ``where`` holds, in the order in which they started. Raises JournalError, OSError."""
    rows = await db.fetch(f"select {EFFECT} from af_effect e where rid = $1 and {where} order by t0, path", rid)
    return [effect_of(row if _is_whole(row) else await _whole(db, blobs, row)) for row in rows]


_VALUE, _TURNS = 6, 7


def _is_whole(row: Row) -> bool:
    """Whether value and turns of a record are in the database."""
    value, turns = row[_VALUE], row[_TURNS]
    return not ((value and value[0] == "@") or (turns and turns[0] == "@"))


async def _whole(db: Connection, blobs: Blobs, row: Row) -> Row:
    texts = [await blobs.fetch(db, row[at]) for at in (_VALUE, _TURNS)]
    return [*row[:_VALUE], *texts, *row[_TURNS + 1 :]]


ANSWERS = "(leaf is null or not exists (select from af_effect f where f.rid = e.rid and f.key = e.leaf and f.state in (1, 2)))"
"""Which records are not nested in a finished one."""


_SPENT = """
select
  (select array_agg(total order by n) from (select n, sum(count)::bigint as total
    from af_effect, unnest(usage) with ordinality as u(count, n) where rid = $1 group by n) as counts),
  (select array_agg(cost) from af_effect where rid = $1 and usage is not null)
"""


async def spent(db: Connection, rid: int) -> tuple[tuple[int, ...], float | None]:
    """The tokens and USD of all records of a run; None for USD if a price is unknown."""
    row = await db.fetchrow(_SPENT, rid)
    assert row is not None
    counts: list[int] = row[0] or []
    costs: list[float | None] = row[1] or []
    return tuple(counts), total(costs)
