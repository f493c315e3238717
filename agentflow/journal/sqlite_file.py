"""The SQLite file of durable runs: its connection, its tables, and what may be wrong with it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.core.events.journal import Sync
from agentflow.journal import openings, results, sessions
from agentflow.journal.errors import other_version, owned_run, unknown_run
from agentflow.journal.rows import (
    EVENT_TABLES,
    PUT,
    PUT_ALONE,
    SCHEMA,
    VERSION,
    Blobs,
    corrupt,
    effect_values,
    keep_blobs,
)
from agentflow.journal.writer import Job, Put, Unavailable
from agentflow.lib.private_files import make_private_file

_CHECKED_BYTES = 64 * 1024 * 1024
"""Size up to which a database is checked as a whole when it is opened; damage in a larger one is found when it is read."""
_BUSY_S = 1.0
_NOTES = "af_note"
"""How the tables of notes begin, which may be in the file before any run is."""

_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_AWAY = frozenset(
    {
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_INTERRUPT,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)


def _is_locked(error: sqlite3.Error) -> bool:
    """Whether the database can be used once another process is done with it."""
    return _primary(error) in _LOCKED


def _may_pass(error: sqlite3.Error) -> bool:
    """Whether the database may be usable later; any other error concerns its content."""
    return _primary(error) in _LOCKED | _AWAY


def _primary(error: sqlite3.Error) -> int:
    return (
        getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    )  # an error about text that is not UTF-8 has no code


class SqliteFile:
    """The file and its connection: the :class:`~agentflow.journal.writer.Database` whose batches are one transaction."""

    def __init__(self, path: Path, sync: Sync) -> None:
        self._path = path
        self._name = str(path)
        self._sync = sync
        self._db: sqlite3.Connection | None = None
        self._seen: os.stat_result | None = None

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None and self._seen is not None:
            try:
                if os.path.samestat(self._seen, os.stat(self._name)):
                    return self._db
            except OSError as error:
                raise Unavailable(f"the file is gone ({error.strerror})") from None
            self.close()  # the file was replaced
        return self._open()

    def _open(self) -> sqlite3.Connection:
        first = self._seen is None
        try:
            if first:
                make_private_file(self._path)
            db = sqlite3.connect(str(self._path), isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(self._path, error) from error
        try:
            db.execute("pragma journal_mode = wal")
            db.execute(f"pragma synchronous = {'full' if self._sync == 'full' else 'normal'}")
            self._prepare(db)
        except sqlite3.OperationalError as error:
            db.close()
            if first and not _is_locked(error):
                raise _unusable(self._path, error) from error
            raise
        except sqlite3.DatabaseError as error:
            db.close()
            raise corrupt(str(error)) from error
        except BaseException:  # the connection is closed, and the error raised again
            db.close()
            raise
        self._db, self._seen = db, self._path.stat()
        return db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Create the tables in an empty database; check one that has them."""
        db.execute("begin immediate")
        names = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
        tables = {name for name in names - EVENT_TABLES if not name.startswith(_NOTES)}
        if not tables:
            for statement in SCHEMA.split(";")[:-1]:
                db.execute(statement)
            db.execute("insert into af_meta values ('version', ?)", (str(VERSION),))
            sessions.make_tables(db)
            results.make_tables(db)
            openings.make_tables(db)
        db.execute("commit")
        if not tables:
            return
        if "af_meta" not in tables:
            raise JournalError(
                f"{self._path} is a database of something else",
                code="durable/database",
                hint="name another file: durable='sqlite:///runs.db'",
            )
        row = db.execute("select value from af_meta where key = 'version'").fetchone()
        version = row[0] if row else None
        if version != str(VERSION):
            raise other_version(str(self._path), version, VERSION)
        if self._path.stat().st_size <= _CHECKED_BYTES:
            (said,) = db.execute("pragma quick_check(1)").fetchone()
            if said != "ok":
                raise corrupt(str(said)[:200])

    def transact(self, jobs: Sequence[Job]) -> None:
        try:
            self._transact(jobs)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and _may_pass(error):
                raise Unavailable(str(error)) from error
            raise corrupt(str(error)) from error

    def _transact(self, jobs: Sequence[Job]) -> None:
        db = self._connection()
        if len(jobs) == 1 and _put_alone(db, jobs[0]):
            return
        db.execute("begin immediate")
        try:
            puts: list[Put] = []
            for job in jobs:
                job.error = None
                if isinstance(job, Put):
                    puts.append(job)
                    continue
                _put(db, puts)
                puts = []
                assert job.work is not None
                try:
                    job.result = job.work(db)
                except AgentflowError as error:
                    job.error = error
            _put(db, puts)
            db.execute("commit")
        except BaseException:  # nothing half-written stays
            if db.in_transaction:
                db.execute("rollback")
            raise

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _put_alone(db: sqlite3.Connection, job: Job) -> bool:
    """Store the only record of a transaction in one statement, in a third of the time of four.

    False if it was not stored, and has to be looked at: of another owner, ended before, or no JSON data.
    """
    if not isinstance(job, Put) or len(job.rows) != 1 or job.drop:
        return False
    blobs: Blobs = {}
    try:
        values = (*effect_values(job.run, job.rows[0], blobs), job.run, job.epoch)
    except (TypeError, ValueError, RecursionError):
        return False
    job.error = None
    if not blobs:
        return db.execute(PUT_ALONE, values).rowcount == 1
    db.execute("begin immediate")
    try:
        keep_blobs(db, blobs)
        stored = db.execute(PUT_ALONE, values).rowcount == 1
        db.execute("commit" if stored else "rollback")
    except BaseException:  # nothing half-written stays
        if db.in_transaction:
            db.execute("rollback")
        raise
    return stored


def _put(db: sqlite3.Connection, jobs: Sequence[Put]) -> None:
    if not jobs:
        return
    epochs: dict[str, int | None] = {}
    values: list[tuple[Any, ...]] = []
    blobs: Blobs = {}
    for job in jobs:
        if job.run not in epochs:
            row = db.execute("select epoch from af_run where run = ?", (job.run,)).fetchone()
            epochs[job.run] = row[0] if row is not None else None
        if epochs[job.run] != job.epoch:
            job.error = unknown_run(job.run) if epochs[job.run] is None else owned_run(job.run)
            continue
        try:
            values += [effect_values(job.run, row, blobs) for row in job.rows]
        except (TypeError, ValueError, RecursionError) as error:  # no JSON data: the others' rows are not to blame
            job.error = error
            continue
        if job.drop:  # in the order of the calls: a record may be stored and forgotten in one batch
            db.executemany(PUT, values)
            values = []
            db.executemany("delete from af_effect where run = ? and key = ?", [(job.run, key) for key in job.drop])
    keep_blobs(db, blobs)
    db.executemany(PUT, values)


def _unusable(path: Path, error: Exception) -> JournalError:
    return JournalError(
        f"the database of durable runs at {path} cannot be opened: {error}",
        code="durable/database",
        hint="name a file that can be written to: durable='sqlite:///runs.db'",
    )


__all__ = ["SqliteFile", "Sync"]
