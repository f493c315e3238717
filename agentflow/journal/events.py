"""Logs of runs in tables beside the journal: the :class:`~agentflow.core.ports.store_ports.EventStore` of flows with a database."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentflow.core.data.event_log import FIRST, EventId, LogBounds, LogEntry, LogInfo, event_id, in_order, parse
from agentflow.journal.rows import EVENT_SCHEMA
from agentflow.lib.private_files import make_private_file

_BUSY_S = 5.0
_INFO = "run, started, finished, bytes, updated"


class SqliteEvents:
    """Logs in the SQLite file ``path``, on a separate connection that one thread at a time uses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        started, finished = ends_of(entries)
        with self._lock, _transaction(self._connection()) as db:
            db.executemany(
                "insert or ignore into af_event_content values (?, ?, ?)",
                [(run, digest, body) for entry in entries for digest, body in entry.contents],
            )
            db.executemany(
                "insert into af_event(run, slice, seq, line) values (?, ?, ?, ?)",
                [(run, entry.slice, entry.seq, entry.line) for entry in entries],
            )
            db.execute(
                "insert into af_event_log values (?, ?, ?, ?, ?) on conflict(run) do update set"
                " started = coalesce(started, excluded.started), finished = excluded.finished,"
                " bytes = bytes + excluded.bytes, updated = excluded.updated",
                (run, started, finished, sum(entry.size for entry in entries), time.time()),
            )

    def close(self) -> None:
        with self._lock:
            db, self._db = self._db, None
            if db is not None:
                db.close()

    def list(self, *, limit: int | None = None) -> list[LogInfo]:
        rows = self._rows(f"select {_INFO} from af_event_log order by updated desc, run limit ?", limit or -1)
        return [log_of(row, str(self._path)) for row in rows]

    def find(self, run: str) -> LogInfo | None:
        rows = self._rows(f"select {_INFO} from af_event_log where run = ?", run)
        return log_of(rows[0], str(self._path)) if rows else None

    def read(self, run: str, after: EventId = FIRST) -> Iterator[dict[str, Any]]:
        lines = self._rows(
            "select line from af_event where run = ? and (slice, seq) > (?, ?) order by number",
            run,
            *after,
        )
        contents = self._rows("select digest, body from af_event_content where run = ?", run) if lines else []
        return events_of(lines, contents, after)

    def gc(self, bounds: LogBounds, spare: Collection[str] = ()) -> list[str]:
        now = time.time()
        gone = bounds.excess(self.list(), lambda log: log.run_id in spare or log.is_kept(now))
        if gone:
            with self._lock, _transaction(self._connection()) as db:
                for table in ("af_event", "af_event_content", "af_event_log"):
                    db.executemany(f"delete from {table} where run = ?", [(log.run_id,) for log in gone])
        return [log.run_id for log in gone]

    def _rows(self, query: str, *values: Any) -> list[Any]:
        with self._lock:
            return (
                []
                if self._db is None and not self._path.is_file()
                else self._connection().execute(query, values).fetchall()
            )

    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            make_private_file(self._path)
            db = sqlite3.connect(str(self._path), isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
            try:
                db.execute("pragma journal_mode = wal")
                db.execute("pragma synchronous = normal")
                for statement in EVENT_SCHEMA.split(";")[:-1]:
                    db.execute(statement)
            except BaseException:  # the connection is closed, and the error raised again
                db.close()
                raise
            self._db = db
        return self._db


def ends_of(entries: Sequence[LogEntry]) -> tuple[bytes | None, bytes | None]:
    """The line among ``entries`` that begins a run, and the one that ends it."""
    started = next((entry.line for entry in entries if _is(entry, "run_started")), None)
    return started, entries[-1].line if entries and _is(entries[-1], "run_finished") else None


def log_of(row: Sequence[Any], where: str) -> LogInfo:
    """The log in ``where`` whose row is: run, the line that began it, the one that ended it, bytes, unix time."""
    run, started, finished, size, updated = row
    begun = parse(started) if started is not None else None
    return LogInfo(run, begun or {}, parse(finished) if finished is not None else None, size, updated, where)


def events_of(
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


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Generator[sqlite3.Connection]:
    db.execute("begin immediate")
    try:
        yield db
        db.execute("commit")
    except BaseException:  # nothing half-written stays
        db.execute("rollback")
        raise
