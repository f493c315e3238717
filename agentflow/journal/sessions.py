"""Conversations, in the database of durable runs: lasting ones, and the openings of runs.

A lasting conversation has a row, and one for each of its exchanges. Each exchange in the opening of a run is stored once
for all runs: it refers to the previous one, and its hash covers both; a run refers to the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from agentflow.core.events.journal_rows import SessionChanges, SessionInfo, StoredSession, session_held
from agentflow.journal.connection import DatabaseConnection, changed
from agentflow.journal.errors import corrupt
from agentflow.journal.rows import Rows, dump, escape, parse, unescape
from agentflow.journal.writer import Writer

_WRITE = """
insert into af_session(name, state, turns, holder, last, created, updated) values ($1, $2, $3, $4, $5, now(), now())
on conflict (name) do update set state = excluded.state, turns = excluded.turns, holder = excluded.holder,
  last = excluded.last, updated = excluded.updated
"""
_LIST = """
select name, turns, extract(epoch from created)::float8, extract(epoch from updated)::float8, holder
from af_session order by updated desc, name limit $1
"""

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


class Openers(Protocol):
    """The process that has opened a conversation, among all that share the database."""

    async def acquire(self, run: str, /) -> bool:
        """Open something; False if it is open already, here or in another process."""
        ...

    def release(self, run: str, /) -> None:
        """Close it."""
        ...


class Sessions:
    """The :class:`~agentflow.core.ports.store_ports.SessionStore` for the runs that ``writer`` stores."""

    def __init__(self, writer: Writer[Any], rows: Rows, openers: Openers) -> None:
        self._writer = writer
        self._rows = rows
        self._openers = openers

    async def open(self, name: str) -> StoredSession | None:
        if not await self._openers.acquire(_lock(name)):
            return None
        try:
            return await self._writer.do(lambda db: self._read(db, name))
        except BaseException:  # it is closed, even when cancelled
            self.close(name)
            raise

    async def runs(self, name: str) -> tuple[str | None, str | None]:
        row = await self._writer.do(lambda db: _row(self._rows, db, name))
        return row.holder, row.last

    async def list(self, limit: int) -> list[SessionInfo]:
        rows = await self._writer.do(lambda db: db.fetch(_LIST, limit))
        return [
            SessionInfo(name=unescape(name), exchanges=turns, created=created, updated=updated, run_id=holder)
            for name, turns, created, updated, holder in rows
        ]

    async def opening(self, run: str) -> list[Any]:
        return await self._writer.do(lambda db: read_opening(db, run))

    async def change(self, name: str, changes: SessionChanges) -> None:
        await self._writer.do(lambda db: change(self._rows, db, name, changes))

    async def remove(self, name: str) -> bool:
        async def work(db: DatabaseConnection) -> bool:
            row = await _row(self._rows, db, name)
            if row.holder is not None:
                raise session_held(name, row.holder)
            await db.execute("delete from af_turn where session = $1", escape(name))
            return changed(await db.execute("delete from af_session where name = $1", escape(name))) > 0

        return await self._writer.do(work)

    def close(self, name: str) -> None:
        self._openers.release(_lock(name))

    async def _read(self, db: DatabaseConnection, name: str) -> StoredSession:
        rows = self._rows
        row = await _row(rows, db, name)
        query = f"select session, number, value, {rows.sum} from af_turn where session = $1 order by number"
        turns = [
            await rows.load(db, rows.checked(fields, f"a turn of the stored session '{name}'")[2])
            for fields in await db.fetch(query, escape(name))
        ]
        if len(turns) != row.turns:
            raise corrupt(f"turns of the stored session '{name}' are missing")
        state = await rows.load(db, row.state)
        return StoredSession(name=name, turns=turns, state=state, holder=row.holder, last=row.last)


async def hold(rows: Rows, db: DatabaseConnection, name: str, run: str) -> None:
    """Reserve a conversation for a new run until the run ends. Raises SessionBusy."""
    row = await _row(rows, db, name)
    if row.holder is not None and row.holder != run:
        raise session_held(name, row.holder)
    await _write(db, row._replace(holder=run))


async def hold_again(rows: Rows, db: DatabaseConnection, run: str) -> None:
    """Reserve the conversation again for a retried run, unless another run has continued it since."""
    for (name,) in await db.fetch("select name from af_session where last = $1 and holder is null", run):
        await _write(db, (await _row(rows, db, unescape(name)))._replace(holder=run))


async def let_go(rows: Rows, db: DatabaseConnection, run: str, changes: SessionChanges | None) -> None:
    """Store the changes of an ended run to the conversation it holds, and release the conversation."""
    held = await db.fetchval("select name from af_session where holder = $1 for update", run)
    if held is None:
        return
    name = unescape(held)
    if changes is not None:
        await change(rows, db, name, changes)
    await _write(db, (await _row(rows, db, name))._replace(holder=None, last=run))


async def change(rows: Rows, db: DatabaseConnection, name: str, changes: SessionChanges) -> None:
    """Store changes of a conversation."""
    row = await _row(rows, db, name)
    if changes.reset:
        await db.execute("delete from af_turn where session = $1", escape(name))
        row = row._replace(turns=0)
    turns = [(escape(name), number, await rows.put(db, turn)) for number, turn in enumerate(changes.turns, row.turns)]
    if changes.state:
        state = await rows.put(db, {**await rows.load(db, row.state), **changes.state})
        row = row._replace(state=state or "{}")
    await db.executemany("insert into af_turn(session, number, value) values ($1, $2, $3)", turns)
    await _write(db, row._replace(turns=row.turns + len(turns), last=None))


class _Row(NamedTuple):
    name: str
    state: str = "{}"
    turns: int = 0
    holder: str | None = None
    last: str | None = None


async def _write(db: DatabaseConnection, row: _Row) -> None:
    await db.execute(_WRITE, escape(row.name), *row[1:])


async def _row(rows: Rows, db: DatabaseConnection, name: str) -> _Row:
    """The row of a conversation, locked, or a new one."""
    query = f"select {', '.join(_Row._fields)}, {rows.sum} from af_session where name = $1 for update"
    fields = await db.fetchrow(query, escape(name))
    if fields is None:
        return _Row(name)
    return _Row(*rows.checked(fields, f"the stored session '{name}'"))._replace(name=name)


def _lock(name: str) -> str:
    return f"session {name}"  # no id of a run has a space


async def store_exchanges(db: DatabaseConnection, exchanges: Sequence[Any]) -> bytes | None:
    """Store exchanges, JSON data, oldest first. Returns the hash of the last one, None without any."""
    last: bytes | None = None
    rows: list[tuple[bytes, bytes | None, str]] = []
    for exchange in exchanges:
        text = dump(exchange) or "null"
        before, last = last, _hash(last, text)
        rows.append((last, before, text))
    await db.executemany("insert into af_exchange values ($1, $2, $3) on conflict do nothing", rows)
    return last


async def keep_opening(db: DatabaseConnection, run: str, exchanges: Sequence[Any]) -> None:
    """Store the conversation before a run: its exchanges as JSON data, oldest first."""
    last = await store_exchanges(db, exchanges)
    if last is not None:
        await db.execute("insert into af_opening values ($1, $2)", run, last)


async def keep_opening_of(db: DatabaseConnection, run: str, base: str) -> None:
    """Let ``run`` begin with the same conversation as the run ``base``."""
    await db.execute("insert into af_opening select $1, hash from af_opening where run = $2", run, base)


async def read_opening(db: DatabaseConnection, run: str) -> list[Any]:
    """The conversation before a run. Raises JournalError (``durable/corrupt``)."""
    return _unchained(run, await db.fetch(_CHAIN, run))


async def remove_openings(db: DatabaseConnection, runs: Sequence[str]) -> None:
    """Remove the conversations before ``runs``, and the exchanges that no other run begins with."""
    await db.execute("delete from af_opening where run = any($1)", list(runs))
    await db.execute(_UNUSED)


def _unchained(run: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
    exchanges: list[Any] = []
    last: bytes | None = None
    for digest, before, text in rows:
        if before != last or digest != _hash(before, text):
            raise corrupt(f"the conversation before the run '{run}' is damaged")
        exchanges.append(parse(text))
        last = digest
    return exchanges


def _hash(before: bytes | None, text: str) -> bytes:
    return blake2b((before or b"") + text.encode("ascii"), digest_size=16).digest()
