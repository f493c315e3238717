"""Logs of runs in PostgreSQL, beside the journal: all machines can read them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from agentflow.core.data.event_log import FIRST, EventId, LogBounds, LogEntry, LogInfo
from agentflow.journal.events import ends_of, events_of, log_of
from agentflow.journal.postgres.connection import Connection, Work
from agentflow.journal.postgres.jobs import TELL
from agentflow.journal.postgres.link import Blocking, Link
from agentflow.journal.writer import Unavailable

_INFO = "select run, started, finished, bytes, updated from af_event_log"
_TRIES = 5
_PAUSE_S = 0.5


def removable(logs: list[LogInfo], bounds: LogBounds, spare: Collection[str]) -> list[str]:
    """The runs whose logs are to go: of ``logs``, the newest first, the oldest, until the others are within ``bounds``."""
    now = time.time()
    return [log.run_id for log in bounds.excess(logs, lambda log: log.run_id in spare or log.is_kept(now))]


class PostgresEvents:
    """The :class:`~agentflow.core.ports.store_ports.EventStore` in the database at ``url``, on a connection of its own."""

    def __init__(self, url: str) -> None:
        self._link = Link(url)
        self._blocking = Blocking()
        self._lock = threading.Lock()

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        started, finished = ends_of(entries)
        contents = [(run, digest, body) for entry in entries for digest, body in entry.contents]

        async def work(db: Connection) -> None:
            if contents:
                await db.executemany(
                    "insert into af_event_content values ($1, $2, $3) on conflict do nothing", contents
                )
            await db.execute(
                "insert into af_event(run, slice, seq, line)"
                " select $1, slice, seq, line from unnest($2::int[], $3::bigint[], $4::bytea[]) with ordinality as e(slice, seq, line, n)"
                " order by n",
                run,
                [entry.slice for entry in entries],
                [entry.seq for entry in entries],
                [entry.line for entry in entries],
            )
            await db.execute(
                "insert into af_event_log(run, started, finished, bytes) values ($1, $2, $3, $4) on conflict (run) do update"
                " set started = coalesce(af_event_log.started, excluded.started), finished = excluded.finished,"
                " bytes = af_event_log.bytes + excluded.bytes, updated = excluded.updated",
                run,
                started,
                finished,
                sum(entry.size for entry in entries),
            )

        self._do(work)
        with contextlib.suppress(OSError):  # whoever follows the run looks now and then, too
            self._do(lambda db: db.execute(TELL, run), atomic=False)

    def close(self) -> None:
        with self._lock:
            self._blocking.run(self._link.aclose())
            self._blocking.close()

    def list(self, *, limit: int | None = None) -> list[LogInfo]:
        rows = self._do(lambda db: db.fetch(f"{_INFO} order by updated desc, run limit $1", limit))
        return [log_of(row, self._link.name) for row in rows]

    def find(self, run: str) -> LogInfo | None:
        row = self._do(lambda db: db.fetchrow(f"{_INFO} where run = $1", run))
        return None if row is None else log_of(row, self._link.name)

    def read(self, run: str, after: EventId = FIRST) -> Iterator[dict[str, Any]]:
        async def work(db: Connection) -> tuple[list[Any], list[Any]]:
            text = "select line from af_event where run = $1 and (slice, seq) > ($2, $3) order by number"
            lines = await db.fetch(text, run, *after)
            contents = "select digest, body from af_event_content where run = $1"
            return lines, await db.fetch(contents, run) if lines else []

        lines, contents = self._do(work)
        return events_of(lines, contents, after)

    def gc(self, bounds: LogBounds, spare: Collection[str] = ()) -> list[str]:
        gone = removable(self.list(), bounds, spare)
        self.remove(gone)
        return gone

    def remove(self, runs: Sequence[str]) -> None:
        """Remove logs; those that are not here do not matter."""

        async def work(db: Connection) -> None:
            for table in ("af_event", "af_event_content", "af_event_log"):
                await db.execute(f"delete from {table} where run = any($1)", runs)

        if runs:
            self._do(work)

    def _do(self, work: Work, *, atomic: bool = True) -> Any:
        with self._lock:
            return self._blocking.run(self._tried(work, atomic))

    async def _tried(self, work: Work, atomic: bool) -> Any:
        """Do work, in a transaction if it is ``atomic``, after a few attempts to begin one. Raises OSError, JournalError."""
        left = _TRIES
        while True:
            left -= 1
            begun = False
            try:
                async with self._link.transaction() if atomic else self._link.connection() as db:
                    begun = True
                    return await work(db)
            except Unavailable as error:
                if begun or not left:  # once begun it may have been committed, and events are not written twice
                    raise OSError(f"{self._link.name}: {error}") from error
            time.sleep(_PAUSE_S)  # noqa: ASYNC251 - the loop has nothing else to do
