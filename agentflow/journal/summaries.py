"""What is kept of runs whose records are removed: ``af_summary`` has a row for each. It is made when the first is removed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, cast

from agentflow.core.events.journal import PastRow
from agentflow.journal.rows import load, parse, spent

_TABLE = """
create table if not exists af_summary(run text not null, name text not null, status text not null, slices integer not null,
  spent_s real not null, usage text not null, cost real, error text, created real not null, updated real not null,
  primary key(run, created)) without rowid
"""
_COLUMNS = "run, name, status, slices, spent_s, usage, cost, error, created, updated"


def keep(db: sqlite3.Connection, runs: Sequence[str]) -> None:
    """Keep what is to be known of ``runs``, before they are removed."""
    db.execute(_TABLE)
    for run in runs:
        row = db.execute(
            "select input, error, status, slice, spent_s, created, updated from af_run where run = ?", (run,)
        ).fetchone()
        stored, error, status, slices, spent_s, created, updated = row
        name = json.dumps(str(load(stored, db).get("name", "")))
        code = code_of(load(error, db))
        usage, cost = spent(db, run)
        values = (run, name, status, slices, spent_s, json.dumps(usage), cost, code, created, updated)
        db.execute(f"insert or replace into af_summary({_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


def forget(db: sqlite3.Connection, before: float) -> None:
    """Forget runs that ended before the unix time ``before``."""
    db.execute(_TABLE)
    db.execute("delete from af_summary where updated < ?", (before,))


def read(db: sqlite3.Connection, limit: int) -> list[PastRow]:
    """What is kept, the last updated first."""
    db.execute(_TABLE)
    rows = db.execute(f"select {_COLUMNS} from af_summary order by updated desc, run limit ?", (limit,)).fetchall()
    return [
        PastRow(
            run=run,
            name=parse(name),
            status=status,
            slices=slices,
            spent_s=spent_s,
            usage=tuple(parse(usage)),
            cost=cost,
            error=error,
            created=created,
            updated=updated,
        )
        for run, name, status, slices, spent_s, usage, cost, error, created, updated in rows
    ]


def code_of(error: Any) -> str | None:
    """The code of a stored error, as the runtime writes it: a list with its class and its fields."""
    fields: Any = cast("list[Any]", error)[1] if isinstance(error, list) else None
    return None if fields is None else str(fields.get("code"))


__all__ = ["code_of", "forget", "keep", "read"]
