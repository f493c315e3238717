"""Conversations that last, in the database of durable runs: a row for each, and one for each of its exchanges."""

from __future__ import annotations

import sqlite3
import time
from typing import Any, NamedTuple

from agentflow.core.events.journal import SessionChanges, SessionInfo, StoredSession, session_held
from agentflow.journal import openings
from agentflow.journal.owner import OwnerLocks
from agentflow.journal.rows import Blobs, checksum, corrupt, dump, keep_blobs, load
from agentflow.journal.writer import Writer

_SCHEMA = (
    "create table if not exists af_session(name text primary key, state text not null, turns integer not null, holder text,"
    " last text, created real not null, updated real not null, sum integer not null) without rowid",
    "create table if not exists af_turn(session text not null, number integer not null, value text not null,"
    " sum integer not null, primary key(session, number)) without rowid",
    "create index if not exists af_session_holder on af_session(holder)",
)


class SqliteSessions:
    """The :class:`~agentflow.core.ports.store_ports.SessionStore` beside the runs that ``writer`` stores, with their ``locks``."""

    def __init__(self, writer: Writer[sqlite3.Connection], locks: OwnerLocks) -> None:
        self._writer = writer
        self._locks = locks

    async def open(self, name: str) -> StoredSession | None:
        if not await self._locks.acquire(_lock(name)):
            return None
        try:
            return await self._writer.do(lambda db: _read(db, name))
        except BaseException:  # the lock is given back, even when cancelled
            self.close(name)
            raise

    async def runs(self, name: str) -> tuple[str | None, str | None]:
        def work(db: sqlite3.Connection) -> tuple[str | None, str | None]:
            row = _row(db, name)
            return row.holder, row.last

        return await self._writer.do(work)

    async def list(self, limit: int) -> list[SessionInfo]:
        text = "select name, turns, created, updated, holder from af_session order by updated desc, name limit ?"
        rows = await self._writer.do(lambda db: db.execute(text, (limit,)).fetchall())
        return [
            SessionInfo(name=name, exchanges=turns, created=created, updated=updated, run_id=holder)
            for name, turns, created, updated, holder in rows
        ]

    async def opening(self, run: str) -> list[Any]:
        return await self._writer.do(lambda db: openings.read(db, run))

    async def change(self, name: str, changes: SessionChanges) -> None:
        await self._writer.do(lambda db: change(db, name, changes))

    async def remove(self, name: str) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            row = _row(db, name)
            if row.holder is not None:
                raise session_held(name, row.holder)
            db.execute("delete from af_turn where session = ?", (name,))
            return db.execute("delete from af_session where name = ?", (name,)).rowcount > 0

        return await self._writer.do(work)

    def close(self, name: str) -> None:
        self._locks.release(_lock(name))


def make_tables(db: sqlite3.Connection) -> None:
    """Create the tables of conversations if they are missing."""
    for statement in _SCHEMA:
        db.execute(statement)


def hold(db: sqlite3.Connection, name: str, run: str) -> None:
    """Reserve a conversation for a new run until the run ends. Raises SessionBusy."""
    row = _row(db, name)
    if row.holder is not None and row.holder != run:
        raise session_held(name, row.holder)
    _write(db, row._replace(holder=run))


def hold_again(db: sqlite3.Connection, run: str) -> None:
    """Reserve the conversation again for a run that is retried, unless another run has continued it since."""
    for (name,) in db.execute("select name from af_session where last = ? and holder is null", (run,)).fetchall():
        _write(db, _row(db, name)._replace(holder=run))


def let_go(db: sqlite3.Connection, run: str, changes: SessionChanges | None) -> None:
    """Store the changes of an ended run to the conversation it holds, and release the conversation."""
    held = db.execute("select name from af_session where holder = ?", (run,)).fetchone()
    if held is None:
        return
    if changes is not None:
        change(db, held[0], changes)
    _write(db, _row(db, held[0])._replace(holder=None, last=run))


def change(db: sqlite3.Connection, name: str, changes: SessionChanges) -> None:
    """Store changes of a conversation."""
    row = _row(db, name)
    blobs: Blobs = {}
    if changes.reset:
        db.execute("delete from af_turn where session = ?", (name,))
        row = row._replace(turns=0)
    values: list[tuple[Any, ...]] = []
    for number, turn in enumerate(changes.turns, row.turns):
        fields = (name, number, dump(turn, blobs))
        values.append((*fields, checksum(fields)))
    if changes.state:
        row = row._replace(state=dump({**load(row.state, db), **changes.state}, blobs) or "{}")
    keep_blobs(db, blobs)
    db.executemany("insert into af_turn values (?, ?, ?, ?)", values)
    _write(db, row._replace(turns=row.turns + len(values), last=None))


class _Row(NamedTuple):
    name: str
    state: str = "{}"
    turns: int = 0
    holder: str | None = None
    last: str | None = None


_COLUMNS = ", ".join(_Row._fields)


def _write(db: sqlite3.Connection, row: _Row) -> None:
    now = time.time()
    set_ = ", ".join(f"{name} = excluded.{name}" for name in ("state", "turns", "holder", "last", "updated", "sum"))
    db.execute(
        f"insert into af_session({_COLUMNS}, created, updated, sum) values (?, ?, ?, ?, ?, ?, ?, ?)"
        f" on conflict(name) do update set {set_}",
        (*row, now, now, checksum(row)),
    )


def _row(db: sqlite3.Connection, name: str) -> _Row:
    """The row of a conversation, or a new one."""
    fields = db.execute(f"select {_COLUMNS}, sum from af_session where name = ?", (name,)).fetchone()
    if fields is None:
        return _Row(name)
    if checksum(fields[:-1]) != fields[-1]:
        raise corrupt(f"the stored session '{name}' is damaged")
    return _Row(*fields[:-1])


def _read(db: sqlite3.Connection, name: str) -> StoredSession:
    row = _row(db, name)
    turns: list[Any] = []
    cursor = db.execute("select session, number, value, sum from af_turn where session = ? order by number", (name,))
    for *fields, total in cursor.fetchall():
        if checksum(fields) != total:
            raise corrupt(f"a turn of the stored session '{name}' is damaged")
        turns.append(load(fields[2], db))
    if len(turns) != row.turns:
        raise corrupt(f"turns of the stored session '{name}' are missing")
    return StoredSession(name=name, turns=turns, state=load(row.state, db), holder=row.holder, last=row.last)


def _lock(name: str) -> str:
    return f"session {name}"  # no id of a run has a space
