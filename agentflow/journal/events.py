"""Logs of runs in tables next to the journal: the :class:`~agentflow.core.ports.store_ports.EventStore` of flows with a database."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic

from agentflow.core.data.event_log import FIRST, EventId, LogBounds, LogEntry, LogInfo, event_id, in_order, parse
from agentflow.journal.connection import C, Row, Work
from agentflow.journal.sqlite import EVENT_SCHEMA, SqliteConnection, equip, finished
from agentflow.lib.file_writer import make_private_file

_BUSY_S = 5.0
_INFO = "select run, started, finished, bytes, updated from af_event_log"
_ALL = 2**62
_APPEND = """
insert into af_event_log(run, started, finished, bytes, updated)
  values ($1, $2, $3, $4, extract(epoch from clock_timestamp())::float8)
on conflict (run) do update set started = coalesce(af_event_log.started, excluded.started), finished = excluded.finished,
  bytes = af_event_log.bytes + excluded.bytes, updated = excluded.updated
"""


class Events(ABC, Generic[C]):
    """Logs in the database ``name``. A leaf says how work is done there, one thread at a time."""

    name: str

    @abstractmethod
    def _do(self, work: Work[C], nothing: Any = None) -> Any:
        """Do work in a transaction. Without a database, the answer is ``nothing`` unless None."""

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        contents = [(run, digest, body) for entry in entries for digest, body in entry.contents]
        lines = [(run, entry.slice, entry.seq, entry.line) for entry in entries]
        started = next((entry.line for entry in entries if _is(entry, "run_started")), None)
        finished = entries[-1].line if entries and _is(entries[-1], "run_finished") else None

        async def work(db: C) -> None:
            if contents:
                await db.executemany(
                    "insert into af_event_content values ($1, $2, $3) on conflict do nothing", contents
                )
            await db.executemany("insert into af_event(run, slice, seq, line) values ($1, $2, $3, $4)", lines)
            await db.execute(_APPEND, run, started, finished, sum([entry.size for entry in entries]))

        self._do(work)

    def list(self, *, limit: int | None = None) -> list[LogInfo]:
        query = f"{_INFO} order by updated desc, run limit $1"
        return [self._log(row) for row in self._do(lambda db: db.fetch(query, limit or _ALL), [])]

    def find(self, run: str) -> LogInfo | None:
        rows = self._do(lambda db: db.fetch(f"{_INFO} where run = $1", run), [])
        return self._log(rows[0]) if rows else None

    def read(self, run: str, after: EventId = FIRST) -> Iterator[dict[str, Any]]:
        async def work(db: C) -> tuple[Sequence[Row], Sequence[Row]]:
            text = "select line from af_event where run = $1 and (slice, seq) > ($2, $3) order by number"
            lines = await db.fetch(text, run, *after)
            contents = "select digest, body from af_event_content where run = $1"
            return lines, await db.fetch(contents, run) if lines else []

        lines, contents = self._do(work, ([], []))
        return _events_of(lines, contents, after)

    def gc(self, bounds: LogBounds, spare: Collection[str] = ()) -> list[str]:
        gone = removable(self.list(), bounds, spare)
        self.remove(gone)
        return gone

    def remove(self, runs: Sequence[str]) -> None:
        """Remove logs; missing ones do not matter."""

        async def work(db: C) -> None:
            for table in ("af_event", "af_event_content", "af_event_log"):
                await db.execute(f"delete from {table} where run = any($1)", list(runs))

        if runs:
            self._do(work)

    def _log(self, row: Row) -> LogInfo:
        run, started, finished, size, updated = row
        begun = parse(started) if started is not None else None
        return LogInfo(run, begun or {}, parse(finished) if finished is not None else None, size, updated, self.name)


class SqliteEvents(Events[SqliteConnection]):
    """Logs in the SQLite file ``path``, on a separate connection that one thread at a time uses."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def close(self) -> None:
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                db.close()

    def _do(self, work: Work[SqliteConnection], nothing: Any = None) -> Any:
        with self._lock:
            if nothing is not None and self._db is None and not self._path.is_file():
                return nothing
            db = self._connection()
            if nothing is not None:  # it reads
                return finished(work(SqliteConnection(db)))
            with _transaction(db):
                return finished(work(SqliteConnection(db)))

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            make_private_file(self._path)
            db = sqlite3.connect(str(self._path), isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
            try:
                db.execute("pragma journal_mode = wal")
                db.execute("pragma synchronous = normal")
                for statement in EVENT_SCHEMA.split(";")[:-1]:
                    db.execute(statement)
                equip(db)
            except BaseException:  # the connection is closed, and the error raised again
                db.close()
                raise
            self._db = db
        return self._db


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[None]:
    db.execute("begin immediate")
    try:
        yield
        db.execute("commit")
    except BaseException:  # nothing half-written stays
        db.execute("rollback")
        raise


def removable(logs: Sequence[LogInfo], bounds: LogBounds, spare: Collection[str]) -> list[str]:
    """The runs with logs to remove: the oldest of ``logs``, which are sorted newest first, until the others are
    within ``bounds``."""
    now = time.time()
    return [log.run_id for log in bounds.excess(list(logs), lambda log: log.run_id in spare or log.is_kept(now))]


def _events_of(
    lines: Iterable[Sequence[bytes]], contents: Iterable[Sequence[Any]], after: EventId
) -> Iterator[dict[str, Any]]:
    """The events after ``after`` in rows of lines, with the contents that they refer to: rows of digest and body."""
    bodies: dict[str, bytes] = {digest: body for digest, body in contents}

    def value(digest: str) -> Any:
        content = parse(b'{"type":"content","value":%s}' % bodies[digest]) if digest in bodies else None
        return None if content is None else content["value"]

    parsed = (event for (line,) in lines if (event := parse(line)) is not None)
    return (event for event in in_order(parsed, value) if event_id(event) > after)


def _is(entry: LogEntry, kind: str) -> bool:
    return f'"type":"{kind}"'.encode() in entry.line[:60]
