"""Logs of runs in PostgreSQL, next to the journal: all machines can read them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Sequence
from typing import Any

from agentflow.core.data.event_log import LogEntry
from agentflow.journal.connection import Work
from agentflow.journal.events import Events
from agentflow.journal.postgres.connection import AsyncpgConnection
from agentflow.journal.postgres.link import Blocking, DatabaseLink
from agentflow.journal.postgres.queue import TELL
from agentflow.journal.writer import Unavailable

_TRIES = 5
_PAUSE_S = 0.5


class PostgresEvents(Events[AsyncpgConnection]):
    """Logs in the database at ``url``, on a connection of their own."""

    def __init__(self, url: str) -> None:
        self._link = DatabaseLink(url)
        self._blocking = Blocking()
        self._lock = threading.Lock()
        self.name = self._link.name

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        super().append(run, entries, last=last)
        with contextlib.suppress(OSError):  # followers of the run also look now and then
            self._do(lambda db: db.execute(TELL, run), atomic=False)

    def close(self) -> None:
        with self._lock:
            self._blocking.run(self._link.aclose())
            self._blocking.close()

    def _do(self, work: Work[AsyncpgConnection], nothing: Any = None, *, atomic: bool = True) -> Any:
        with self._lock:
            return self._blocking.run(self._tried(work, atomic))

    async def _tried(self, work: Work[AsyncpgConnection], atomic: bool) -> Any:
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
