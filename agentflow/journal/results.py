"""Results of tasks and tools that other runs may reuse, in the database of durable runs."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from agentflow.core.events.journal import StoredResult
from agentflow.journal.rows import Blobs, checksum, dump, keep_blobs, load
from agentflow.journal.writer import Writer

_SCHEMA = (
    "create table if not exists af_result(content blob primary key, kind text not null, name text not null, value text not"
    " null, turns text, usage text, cost real, at real not null, sum integer not null) without rowid",
    "create index if not exists af_result_at on af_result(at)",
)
_COLUMNS = "kind, name, value, turns, usage, cost, at, sum"


class SqliteResults:
    """The :class:`~agentflow.core.ports.store_ports.ResultStore` beside the runs that ``writer`` stores."""

    def __init__(self, writer: Writer[sqlite3.Connection]) -> None:
        self._writer = writer

    async def find(self, content: bytes, since: float) -> StoredResult | None:
        return await self._writer.do(lambda db: _read(db, content, since))

    async def keep(self, content: bytes, result: StoredResult) -> None:
        def work(db: sqlite3.Connection) -> None:
            blobs: Blobs = {}
            usage = None if result.usage is None else json.dumps(result.usage)
            cost = None if result.cost is None else float(result.cost)
            fields = (
                result.kind,
                result.name,
                dump(result.value, blobs),
                dump(result.turns, blobs),
                usage,
                cost,
                result.at,
            )
            keep_blobs(db, blobs)
            row = (content, *fields, checksum(fields))
            db.execute(f"insert or replace into af_result(content, {_COLUMNS}) values (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

        await self._writer.do(work)


def make_tables(db: sqlite3.Connection) -> None:
    """Create the table of results if it is missing."""
    for statement in _SCHEMA:
        db.execute(statement)


def _read(db: sqlite3.Connection, content: bytes, since: float) -> StoredResult | None:
    """A result not older than ``since``; None if there is none or it is damaged, so that it is computed again."""
    row: tuple[Any, ...] | None = db.execute(
        f"select {_COLUMNS} from af_result where content = ? and at >= ?", (content, since)
    ).fetchone()
    if row is None or checksum(row[:-1]) != row[-1]:
        return None
    kind, name, value, turns, usage, cost, at, _ = row
    return StoredResult(
        kind=kind,
        name=name,
        value=load(value, db),
        turns=load(turns, db),
        usage=None if usage is None else tuple(json.loads(usage)),
        cost=cost,
        at=at,
    )
