"""Conversations that last, in PostgreSQL: a row for each, and one for each of its exchanges."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from agentflow.core.events.journal import SessionChanges, SessionInfo, StoredSession, session_held
from agentflow.journal.postgres import openings
from agentflow.journal.postgres.connection import Connection
from agentflow.journal.postgres.owner import OwnerSession, is_alive
from agentflow.journal.postgres.rows import dump, escape, load, unescape
from agentflow.journal.rows import corrupt
from agentflow.journal.writer import Job, Writer


class PostgresSessions:
    """The :class:`~agentflow.core.ports.store_ports.SessionStore` beside the runs that ``writer`` stores, opened by ``owner``."""

    def __init__(self, writer: Writer[Connection], owner: OwnerSession) -> None:
        self._writer = writer
        self._owner = owner
        self._open: set[str] = set()

    async def open(self, name: str) -> StoredSession | None:
        async def work(db: Connection) -> StoredSession | None:
            opener = await db.fetchval(
                "insert into af_opened(name, owner) values ($1, $2)"
                " on conflict (name) do update set name = excluded.name returning owner",
                escape(name),
                self._owner.id,
            )
            if name in self._open or (opener != self._owner.id and await is_alive(db, opener)):
                return None
            await db.execute("update af_opened set owner = $2 where name = $1", escape(name), self._owner.id)
            stored = await _read(db, name)
            self._open.add(name)
            return stored

        await self._writer.do(lambda db: db.fetchval("select 1"))
        await asyncio.to_thread(self._owner.ensure)
        try:
            return await self._writer.do(work)
        except asyncio.CancelledError:
            self.close(name)
            raise

    async def has(self, name: str) -> bool:
        """Whether there is a conversation of this name, or somebody has opened it."""
        query = (
            "select exists (select from af_session where name = $1) or exists (select from af_opened where name = $1)"
        )
        return bool(await self._writer.do(lambda db: db.fetchval(query, escape(name))))

    async def runs(self, name: str) -> tuple[str | None, str | None]:
        async def work(db: Connection) -> tuple[str | None, str | None]:
            row = await _row(db, name)
            return row.holder, row.last

        return await self._writer.do(work)

    async def list(self, limit: int) -> list[SessionInfo]:
        text = (
            "select name, turns, extract(epoch from created)::float8, extract(epoch from updated)::float8, holder"
            " from af_session order by updated desc, name limit $1"
        )
        rows = await self._writer.do(lambda db: db.fetch(text, limit))
        return [
            SessionInfo(name=unescape(name), exchanges=turns, created=created, updated=updated, run_id=holder)
            for name, turns, created, updated, holder in rows
        ]

    async def opening(self, run: str) -> list[Any]:
        return await self._writer.do(lambda db: openings.read(db, run))

    async def change(self, name: str, changes: SessionChanges) -> None:
        await self._writer.do(lambda db: change(db, name, changes))

    async def remove(self, name: str) -> bool:
        async def work(db: Connection) -> bool:
            row = await _row(db, name)
            if row.holder is not None:
                raise session_held(name, row.holder)
            await db.execute("delete from af_turn where session = $1", escape(name))
            gone = await db.fetchval("delete from af_session where name = $1 returning 1", escape(name))
            return gone is not None

        return await self._writer.do(work)

    def close(self, name: str) -> None:
        async def work(db: Connection) -> None:
            self._open.discard(name)
            await db.execute("delete from af_opened where name = $1 and owner = $2", escape(name), self._owner.id)

        if not self._writer.closed:  # closed, it has no owner
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._writer.submit(Job(future, work))


async def hold(db: Connection, name: str, run: str) -> None:
    """Reserve a conversation for a new run until the run ends. Raises SessionBusy."""
    row = await _row(db, name)
    if row.holder is not None and row.holder != run:
        raise session_held(name, row.holder)
    await _write(db, row._replace(holder=run))


async def hold_again(db: Connection, run: str) -> None:
    """Reserve the conversation again for a run that is retried, unless another run has continued it since."""
    await db.execute("update af_session set holder = $1, updated = now() where last = $1 and holder is null", run)


async def let_go(db: Connection, run: str, changes: SessionChanges | None) -> None:
    """Store the changes of an ended run to the conversation it holds, and release the conversation."""
    held = await db.fetchval("select name from af_session where holder = $1 for update", run)
    if held is None:
        return
    if changes is not None:
        await change(db, unescape(held), changes)
    await db.execute("update af_session set holder = null, last = $2, updated = now() where name = $1", held, run)


async def change(db: Connection, name: str, changes: SessionChanges) -> None:
    """Store changes of a conversation."""
    row = await _row(db, name)
    if changes.reset:
        await db.execute("delete from af_turn where session = $1", escape(name))
        row = row._replace(turns=0)
    values = [(escape(name), number, dump(turn)) for number, turn in enumerate(changes.turns, row.turns)]
    if changes.state:
        row = row._replace(state=dump({**load(row.state), **changes.state}) or "{}")
    await db.executemany("insert into af_turn values ($1, $2, $3)", values)
    await _write(db, row._replace(turns=row.turns + len(values), last=None))


class _Row(NamedTuple):
    name: str
    state: str = "{}"
    turns: int = 0
    holder: str | None = None
    last: str | None = None


async def _write(db: Connection, row: _Row) -> None:
    await db.execute(
        "insert into af_session(name, state, turns, holder, last) values ($1, $2, $3, $4, $5) on conflict (name) do update"
        " set state = excluded.state, turns = excluded.turns, holder = excluded.holder, last = excluded.last, updated = now()",
        escape(row.name),
        *row[1:],
    )


async def _row(db: Connection, name: str) -> _Row:
    """The row of a conversation, locked, or a new one."""
    text = "select state, turns, holder, last from af_session where name = $1 for update"
    fields = await db.fetchrow(text, escape(name))
    return _Row(name) if fields is None else _Row(name, *fields)


async def _read(db: Connection, name: str) -> StoredSession:
    row = await _row(db, name)
    stored = await db.fetch("select value from af_turn where session = $1 order by number", escape(name))
    if len(stored) != row.turns:
        raise corrupt(f"turns of the stored session '{name}' are missing")
    turns = [load(value) for (value,) in stored]
    return StoredSession(name=name, turns=turns, state=load(row.state), holder=row.holder, last=row.last)
