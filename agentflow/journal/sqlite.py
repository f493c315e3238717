"""The :class:`~agentflow.core.ports.store_ports.JournalStore` in one SQLite file: for the runs of one machine."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import re
import secrets
import sqlite3
import sys
import time
import weakref
from collections import defaultdict
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from struct import Struct
from struct import error as StructError
from typing import Any, TypeVar
from zlib import crc32

from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.core.events.journal_rows import EffectRow, NewRun, RunRow, Sync
from agentflow.journal.cleaning import ROW_BYTES, StorageSurvey, keep_summaries, removable
from agentflow.journal.connection import DatabaseConnection, Row, changed
from agentflow.journal.errors import corrupt, other_version, owned_run, unknown_run
from agentflow.journal.rows import EFFECT, EFFECT_CHANGED, KEPT, LONG, Rows, dump, effect_values, is_apart
from agentflow.journal.sessions import Sessions, remove_openings
from agentflow.journal.store import Journal
from agentflow.journal.writer import Put, Unavailable, WriteJob, Writer
from agentflow.lib.event_loop import outlast
from agentflow.lib.file_writer import make_private_directory, make_private_file, open_private

VERSION = 5
"""The version of the tables. The first summed up records otherwise, and lacked tables; the second counted no deaths; the third
referred to long values otherwise, the fourth had no purses."""
SCHEMA = """
create table af_meta(key text primary key, value text not null) without rowid;
create table af_run(run text primary key, base text, program text not null, digest text not null, input text not null,
  status text not null default 'queued', epoch integer not null default 0, owner text, build text,
  seq integer not null default 0, slice integer not null default 0, deaths integer not null default 0, reached text,
  wake_at real, spent_s real not null default 0, result text, error text, created real not null, updated real not null,
  sum integer not null default 0) without rowid;
create table af_effect(run text not null, key blob not null, path text not null, leaf blob, kind text not null,
  name text not null, content blob not null, state integer not null, value text, turns text, usage text, cost real,
  t0 real, t1 real, sum integer not null, primary key(run, key)) without rowid;
create table af_blob(hash blob primary key, data blob not null) without rowid;
create table af_exchange(hash blob primary key, before blob, value text not null) without rowid;
create table af_opening(run text primary key, hash blob not null) without rowid;
create table af_session(name text primary key, state text not null, turns integer not null, holder text, last text,
  created real not null, updated real not null, sum integer not null default 0) without rowid;
create table af_turn(session text not null, number integer not null, value text not null, sum integer not null default 0,
  primary key(session, number)) without rowid;
create table af_result(content blob primary key, kind text not null, name text not null, value text not null, turns text,
  usage text, cost real, at real not null, sum integer not null default 0) without rowid;
create table af_summary(run text not null, name text not null, status text not null, queue text, tenant text not null,
  slices integer not null, spent_s real not null, usage text not null, cost real, error text, created real not null,
  updated real not null, primary key(run, created)) without rowid;
create table af_purse(name text not null, starts real not null, ends real, nanos integer not null default 0,
  tokens integer not null default 0, calls integer not null default 0, primary key(name, starts)) without rowid;
create table af_purse_lease(name text not null, starts real not null, owner text not null, nanos integer not null default 0,
  tokens integer not null default 0, calls integer not null default 0, number integer not null default 0,
  expires real not null, primary key(name, starts, owner)) without rowid;
create index af_run_due on af_run(status, wake_at);
create index af_session_holder on af_session(holder);
create index af_result_at on af_result(at);
"""
_ADDED = (
    "create index if not exists af_run_updated on af_run(updated desc, run)",
    "create table if not exists af_batch(id text primary key, model text not null, endpoint text not null, "
    "state text not null, vendor text not null, created real not null, due real not null, sender text not null) without rowid",
    "create table if not exists af_batch_call(id text primary key, run text not null, key blob not null, model text not null, "
    "endpoint text not null, body text not null, within_s real not null, at real not null, "
    "purse text not null, period real not null, batch text not null, answer text)",
    "create index if not exists af_batch_call_batch on af_batch_call(batch)",
)
"""The parts that tables created by an earlier release may lack, and get when they are opened."""
EVENT_SCHEMA = """
create table if not exists af_event(number integer primary key, run text not null, slice integer not null,
  seq integer not null, line blob not null);
create table if not exists af_event_content(run text not null, digest text not null, body blob not null,
  primary key(run, digest)) without rowid;
create table if not exists af_event_log(run text primary key, started blob, finished blob, bytes integer not null,
  updated real not null) without rowid;
create index if not exists af_event_run on af_event(run, number);
"""
"""Tables of the event logs of runs; the journal does not need them."""
_EVENT_TABLES = frozenset({"af_event", "af_event_content", "af_event_log"})
_SEALED = {
    "af_run": ("run", KEPT),
    "af_session": ("name", "name, state, turns, holder, last"),
    "af_turn": ("session, number", "session, number, value"),
    "af_result": ("content", "kind, name, value, turns, usage, cost, at"),
}
"""The tables with rows that have a checksum maintained by the connection: the key of each, and the columns that the
checksum covers."""
_WRITTEN = re.compile(r"\s*(?:insert into|update) (\w+)")
_PLACES = ", ".join("?" * 15)
_UNLESS_ENDED = f"on conflict(run, key) do update set {EFFECT_CHANGED}, sum = excluded.sum where af_effect.state = 0"
PUT = f"insert into af_effect(run, key, {EFFECT}, sum) values ({_PLACES}) {_UNLESS_ENDED}"
_PUT_ALONE = f"""
insert into af_effect(run, key, {EFFECT}, sum) select {_PLACES}
where (select epoch from af_run where run = ?) = ? {_UNLESS_ENDED}
"""
"""Stores a record if the run, a parameter after the record's, has the epoch after that: a transaction of one statement."""
_REWRITTEN = (
    (r"= any\((\$\d+)\)", r"in (select value from json_each(\1))"),
    (r"extract\(epoch from ((?:[^()]|\(\))*)\)::float8", r"\1"),
    (r" for update", ""),
    (r"::\w+", ""),
    (r"\$(\d+)", r"?\1"),
)
"""How the SQL of the store becomes that of SQLite: times are unix seconds, and the whole file is locked."""
_CHECKED_BYTES = 64 * 1024 * 1024
"""Maximum size of a database to check as a whole on opening; damage in a larger one is found when it is read."""
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
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # an error about invalid UTF-8 has no code


@lru_cache(512)
def _rewritten(query: str) -> tuple[str, str | None]:
    """A statement for SQLite, and the table that it writes to, if its rows have a checksum to be kept."""
    for pattern, text in _REWRITTEN:
        query = re.sub(pattern, text, query)
    written = _WRITTEN.match(query)
    return query, written[1] if written is not None and written[1] in _SEALED else None


class SqliteConnection:
    """The :class:`~agentflow.journal.connection.DatabaseConnection` over ``db``."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self.db = db
        self._kept: set[str] = set()

    async def execute(self, query: str, *args: Any) -> str:
        return f"rows {self._do(query, args).rowcount}"

    async def executemany(self, command: str, args: Sequence[Row]) -> None:
        self.db.executemany(self._ready(command), args)

    async def fetch(self, query: str, *args: Any) -> list[Row]:
        return self._do(query, args).fetchall()

    async def fetchrow(self, query: str, *args: Any) -> Row | None:
        return self._do(query, args).fetchone()

    async def fetchval(self, query: str, *args: Any) -> Any:
        row = self._do(query, args).fetchone()
        return None if row is None else row[0]

    def forget_sums(self) -> None:
        """Create the checksum triggers again: a rolled-back transaction may have created them."""
        self._kept.clear()

    def _do(self, query: str, args: Sequence[Any]) -> sqlite3.Cursor:
        values = [json.dumps(each) if isinstance(each, list) else each for each in args]
        return self.db.execute(self._ready(query), values)

    def _ready(self, query: str) -> str:
        """A statement for SQLite, preceded by the checksum triggers of a table that it is the first to write to."""
        query, table = _rewritten(query)
        if table is not None and table not in self._kept:
            self._kept.add(table)
            keep_sums(self.db, table)
        return query


T = TypeVar("T")


def finished(work: Coroutine[Any, Any, T]) -> T:
    """The result of ``work`` on a :class:`SqliteConnection`, which never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    work.close()
    raise AssertionError("work on a file has nothing to wait for")


def equip(db: sqlite3.Connection) -> None:
    """Give a connection the functions that statements of the store use."""
    for name in ("now", "clock_timestamp"):
        db.create_function(name, 0, time.time)
    db.create_function("to_timestamp", 1, _same)
    db.create_function("greatest", 2, _greatest)


def _same(seconds: Any) -> Any:
    return seconds


def _greatest(one: float, other: float | None) -> float:
    return one if other is None else max(one, other)


def _sum(*fields: Any) -> int:
    return checksum(fields)


def keep_sums(db: sqlite3.Connection, table: str) -> None:
    """Make a connection maintain the checksums of the rows it changes in a table, by temporary triggers of this connection."""
    key, columns = _SEALED[table]
    this = " and ".join(f"{name} = new.{name}" for name in key.split(", "))
    db.create_function("af_sum", -1, _sum)
    for change in ("insert", "update"):
        db.execute(
            f"create temp trigger if not exists {table}_{change} after {change} on main.{table}"
            f" begin update {table} set sum = af_sum({columns}) where {this}; end"
        )


def checksum(fields: Row) -> int:
    """A checksum of a row, to detect damage that SQLite does not check for."""
    return crc32(repr(tuple(fields)).encode("ascii", "backslashreplace"))


_REALS = Struct("<3d").pack


def effect_checksum(fields: Sequence[Any]) -> int:
    """The checksum of a record's columns: as :func:`checksum`, in half the time, since there are thousands."""
    path, leaf, kind, name, content, state, value, turns, usage, cost, started, ended = fields
    text = f"{path} {kind} {name} {state} {value} {turns} {usage}".encode("utf-8", "surrogatepass")
    reals = _REALS(
        -1.0 if cost is None else cost, -1.0 if started is None else started, -1.0 if ended is None else ended
    )
    return crc32(text, crc32(reals, crc32(content, crc32(leaf or b""))))


def is_whole_effect(fields: Row) -> bool:
    """Whether a record with its checksum, the last of its fields, is intact."""
    try:
        return effect_checksum(fields[:-1]) == fields[-1]
    except (TypeError, StructError):  # a column of another type
        return False


Apart = dict[bytes, bytes]
"""Long texts stored by content, each once: by their digests."""


def set_apart(text: str | None, apart: Apart) -> str | None:
    """A text as a column has it: a long one is added to ``apart``, and a reference to it is returned."""
    if text is None or len(text) <= LONG:
        return text
    body = text.encode("ascii")
    digest = blake2b(body, digest_size=16).digest()
    apart[digest] = body
    return f"@{digest.hex()}"


def keep_apart(db: sqlite3.Connection, apart: Apart) -> None:
    """Store long texts."""
    if apart:
        db.executemany("insert or ignore into af_blob values (?, ?)", list(apart.items()))


def put_values(run: str, row: EffectRow, apart: Apart) -> tuple[Any, ...]:
    """The values of :data:`PUT` for a record of a run. Raises as :func:`~agentflow.journal.rows.effect_values`."""
    key, path, leaf, kind, name, content, state, value, turns, *rest = effect_values(row)
    fields = (path, leaf, kind, name, content, state, set_apart(value, apart), set_apart(turns, apart), *rest)
    return (run, key, *fields, effect_checksum(fields))


class SqliteFile:
    """The file and its connection: the :class:`~agentflow.journal.writer.Database` with one transaction for each batch."""

    def __init__(self, path: Path, sync: Sync) -> None:
        self._path = path
        self._name = str(path)
        self._sync = sync
        self._db: SqliteConnection | None = None
        self._seen: os.stat_result | None = None

    def _connection(self) -> SqliteConnection:
        if self._db is not None and self._seen is not None:
            try:
                if os.path.samestat(self._seen, os.stat(self._name)):
                    return self._db
            except OSError as error:
                raise Unavailable(f"the file is gone ({error.strerror})") from None
            self.close()  # the file was replaced
        return self._open()

    def _open(self) -> SqliteConnection:
        first = self._seen is None
        try:
            if first:
                make_private_file(self._path)
            db = sqlite3.connect(str(self._path), isolation_level=None, check_same_thread=False, timeout=_BUSY_S)
        except (OSError, sqlite3.Error) as error:
            raise _unusable(self._path, error) from error
        try:
            db.execute("pragma journal_mode = wal")
            db.execute("pragma temp_store = memory")
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
        self._db, self._seen = SqliteConnection(db), self._path.stat()
        return self._db

    def _prepare(self, db: sqlite3.Connection) -> None:
        """Create the tables in an empty database; check one that has them."""
        db.execute("begin immediate")
        names = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")}
        tables = {name for name in names - _EVENT_TABLES if not name.startswith(_NOTES)}
        if not tables:
            for statement in SCHEMA.split(";")[:-1]:
                db.execute(statement)
            db.execute("insert into af_meta values ('version', ?)", (str(VERSION),))
        db.execute("commit")
        if tables:
            self._check(db, tables)
        for statement in _ADDED:
            db.execute(statement)
        equip(db)

    def _check(self, db: sqlite3.Connection, tables: set[str]) -> None:
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

    def transact(self, jobs: Sequence[WriteJob]) -> None:
        try:
            self._transact(jobs)
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError) and _may_pass(error):
                raise Unavailable(str(error)) from error
            raise corrupt(str(error)) from error

    def _transact(self, jobs: Sequence[WriteJob]) -> None:
        connection = self._connection()
        db = connection.db
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
                    job.result = finished(job.work(connection))
                except AgentflowError as error:
                    job.error = error
            _put(db, puts)
            db.execute("commit")
        except BaseException:  # nothing half-written stays
            connection.forget_sums()
            if db.in_transaction:
                db.execute("rollback")
            raise

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.db.close()


def _put_alone(db: sqlite3.Connection, job: WriteJob) -> bool:
    """Store the only record of a transaction in one statement, in a third of the time of four.

    False if it was not stored, and has to be looked at: of another owner, ended before, or no JSON data.
    """
    if not isinstance(job, Put) or len(job.rows) != 1 or job.drop:
        return False
    apart: Apart = {}
    try:
        values = (*put_values(job.run, job.rows[0], apart), job.run, job.epoch)
    except (TypeError, ValueError, RecursionError):
        return False
    job.error = None
    if not apart:
        return db.execute(_PUT_ALONE, values).rowcount == 1
    db.execute("begin immediate")
    try:
        keep_apart(db, apart)
        stored = db.execute(_PUT_ALONE, values).rowcount == 1
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
    apart: Apart = {}
    for job in jobs:
        if job.run not in epochs:
            row = db.execute("select epoch from af_run where run = ?", (job.run,)).fetchone()
            epochs[job.run] = row[0] if row is not None else None
        if epochs[job.run] != job.epoch:
            job.error = unknown_run(job.run) if epochs[job.run] is None else owned_run(job.run)
            continue
        try:
            values += [put_values(job.run, row, apart) for row in job.rows]
        except (TypeError, ValueError, RecursionError) as error:  # no JSON data: the others' rows are not to blame
            job.error = error
            continue
        if job.drop:  # in the order of the calls: a record may be stored and forgotten in one batch
            db.executemany(PUT, values)
            values = []
            db.executemany("delete from af_effect where run = ? and key = ?", [(job.run, key) for key in job.drop])
    keep_apart(db, apart)
    db.executemany(PUT, values)


def _unusable(path: Path, error: Exception) -> JournalError:
    return JournalError(
        f"the database of durable runs at {path} cannot be opened: {error}",
        code="durable/database",
        hint="name a file that can be written to: durable='sqlite:///runs.db'",
    )


_TRIES = 5
_PAUSE_S = 0.01


class OwnerLocks:
    """File locks of runs, in ``directory``. Locks taken here are held until they are released or the process ends.

    On systems without such locks no owner counts as alive, and only the epoch in the database distinguishes owners.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}
        _OPEN.add(self)

    def take(self, run: str) -> bool:
        """Lock ``run``; False if it is locked already, here or by another process. Raises OSError."""
        if run in self._held:
            return False
        for attempt in range(_TRIES):
            descriptor = self._lock(run)
            if descriptor is not None:
                self._held[run] = descriptor
                return True
            if attempt + 1 < _TRIES:
                time.sleep(_PAUSE_S)  # another process may hold it for a moment, in `alive`
        return False

    async def acquire(self, run: str) -> bool:
        """:meth:`take` on a thread. A caller cancelled meanwhile does not hold the lock. Raises OSError."""
        taking = asyncio.create_task(asyncio.to_thread(self.take, run))
        cancelled = await outlast(taking)
        if cancelled is not None:
            if taking.exception() is None and taking.result():
                self.release(run)
            raise cancelled
        return taking.result()

    def holds(self, run: str) -> bool:
        """Whether this process holds the lock of ``run``."""
        return run in self._held

    def alive(self, run: str) -> bool:
        """Whether any process holds the lock of ``run``. Raises OSError."""
        if run in self._held:
            return True
        if not self._path(run).exists():
            return False
        descriptor = self._lock(run)
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def release(self, run: str) -> None:
        """Release the lock of ``run``, and remove its file."""
        descriptor = self._held.pop(run, None)
        if descriptor is not None:
            self._path(run).unlink(missing_ok=True)
            os.close(descriptor)

    def release_all(self) -> None:
        """Release all locks."""
        for run in list(self._held):
            self.release(run)

    def disown(self) -> None:
        """Close descriptors inherited by this forked child: the locks stay with its parent."""
        held, self._held = self._held, {}
        for descriptor in held.values():
            os.close(descriptor)

    def _path(self, run: str) -> Path:
        return self._directory / f"{blake2b(run.encode(), digest_size=16).hexdigest()}.lock"

    def _lock(self, run: str) -> int | None:
        path = self._path(run)
        make_private_directory(self._directory)
        while True:
            descriptor = open_private(str(path), os.O_RDWR | os.O_CREAT)
            if not _try_lock(descriptor):
                os.close(descriptor)
                return None
            try:
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
            except FileNotFoundError:
                pass
            os.close(descriptor)  # its owner has removed the file meanwhile


if sys.platform == "win32":

    def _try_lock(descriptor: int) -> bool:
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_OPEN: weakref.WeakSet[OwnerLocks] = weakref.WeakSet()
"""All that hold locks in this process, for children that it forks."""


def _disown_all() -> None:
    for locks in list(_OPEN):
        locks.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)


_CREATE = """
insert into af_run(run, base, program, digest, input, created, updated) values ($1, $2, $3, $4, $5, now(), now())
on conflict (run) do nothing
"""
_LONG_COLUMNS = {
    "af_effect": ("value", "turns"),
    "af_run": ("input", "result", "error"),
    "af_session": ("state",),
    "af_turn": ("value",),
    "af_result": ("value", "turns"),
}
"""The columns with texts that may be stored separately, by table."""


class SqliteRows(Rows):
    """The rows of a file: each has a checksum, long texts are stored apart, and nothing is said of workers."""

    ref = "run"
    sum = "sum"
    more = "null, '', 0, null, build"

    async def put(self, db: DatabaseConnection, data: Any) -> str | None:
        apart: Apart = {}
        text = set_apart(dump(data), apart)
        for digest, body in apart.items():
            await db.execute("insert into af_blob values ($1, $2) on conflict do nothing", digest, body)
        return text

    async def apart(self, db: DatabaseConnection, text: str) -> str:
        try:
            digest = bytes.fromhex(text[1:])
        except ValueError as error:
            raise corrupt(f"a stored value is not JSON: {error}") from None
        body = await db.fetchval("select data from af_blob where hash = $1", digest)
        if body is None or blake2b(body, digest_size=16).digest() != digest:
            raise corrupt("a stored value is damaged")
        return body.decode("ascii")

    def is_whole(self, fields: Row) -> bool:
        return checksum(fields[:-1]) == fields[-1]

    def is_whole_effect(self, fields: Row) -> bool:
        return is_whole_effect(fields)


class SqliteJournal(Journal[SqliteConnection]):
    """Durable runs in the SQLite file ``path``, which only the user who owns the file may read.

    ``sync="full"`` waits for the disk at every commit. Owners of runs are distinguished by locks on files in the directory
    ``<path>.owners``.
    """

    def __init__(self, path: Path, *, sync: Sync = "normal") -> None:
        self._locks = OwnerLocks(path.with_name(f"{path.name}.owners"))
        self._leasing = f"purses {secrets.token_hex(8)}"
        super().__init__(Writer(SqliteFile(path, sync), f"durable runs in {path}"), SqliteRows())
        self.sessions = Sessions(self._writer, self._rows, self._locks)
        self.jobs = None

    @property
    def _me(self) -> tuple[str, None]:
        return f"{platform.node()}:{os.getpid()}", None

    async def _insert(self, db: SqliteConnection, run: str, new: NewRun) -> RunRow | None:
        input_ = await self._rows.put(db, dict(new.input))
        stored = await db.execute(_CREATE, run, new.base, dump(new.program), new.digest, input_)
        return await self._rows.run_of(db, await self._row(db, run)) if changed(stored) else None

    async def _answer(self, db: SqliteConnection, row: Row, record: EffectRow) -> None:
        apart: Apart = {}
        values = put_values(row[0], record, apart)
        keep_apart(db.db, apart)
        db.db.execute(PUT, values)

    _add = _answer

    async def _is_worked_on(self, db: SqliteConnection, row: Row) -> bool:
        return self._locks.alive(row[0])

    async def _begin_to_own(self, run: str) -> None:
        if not await self._locks.acquire(run):
            raise owned_run(run)

    def _not_owned(self, run: str, error: BaseException) -> None:
        self._locks.release(run)

    def _release(self, run: str) -> None:
        self._locks.release(run)

    async def _lender(self) -> str:
        if not self._locks.holds(self._leasing) and not await self._locks.acquire(self._leasing):
            return await self._lender()  # another task of this process is about to have it
        return self._leasing

    async def _lender_lives(self, db: SqliteConnection, owner: str) -> bool:
        return self._locks.alive(owner)

    async def abandoned(self) -> list[RunRow]:
        query = f"select {self._rows.deaths}, {self._rows.run} from af_run r where status = 'running' order by run"

        async def work(db: SqliteConnection) -> list[RunRow]:
            rows = [(deaths, row) for deaths, *row in await db.fetch(query) if not self._locks.alive(row[0])]
            return [replace(await self._rows.run_of(db, row), status="queued", deaths=deaths) for deaths, row in rows]

        return await self._writer.do(work)

    async def survey_in(self, db: SqliteConnection) -> StorageSurvey:
        blobs = {name: size for name, size in await db.fetch("select lower(hex(hash)), length(data) from af_blob")}

        def size(text: str | None) -> int:
            """Size of a stored text in bytes, with the one it refers to (counted once per reference)."""
            return 0 if text is None else blobs.get(text[1:], 0) if is_apart(text) else len(text)

        sizes: defaultdict[str, int] = defaultdict(int)
        for run, *texts in await db.fetch("select run, program, input, result, error from af_run"):
            sizes[run] = ROW_BYTES + sum([size(text) for text in texts])
        for run, length, *texts in await db.fetch(
            "select run, length(path) + length(name), value, turns from af_effect"
        ):
            sizes[run] += ROW_BYTES + length + sum([size(text) for text in texts])
        last = "select o.run, length(e.value) from af_opening o join af_exchange e on e.hash = o.hash"
        for run, length in await db.fetch(last):
            sizes[run] += length
        results = await db.fetch("select content, at, value, turns from af_result")
        kept = [(at, key, ROW_BYTES + size(value) + size(turns)) for key, at, value, turns in results]
        return StorageSurvey(sizes, await removable(db), kept)

    async def remove_in(self, db: SqliteConnection, runs: Sequence[str], results: Sequence[bytes]) -> None:
        if runs:
            await keep_summaries(self._rows, db, runs)
            for table in ("af_effect", "af_run"):
                await db.execute(f"delete from {table} where run = any($1)", list(runs))
            await remove_openings(db, runs)
        await db.executemany("delete from af_result where content = $1", [(key,) for key in results])
        if runs or results:
            used = " union ".join(
                f"select substr({name}, 2) from {table} where {name} like '@%'"
                for table, names in _LONG_COLUMNS.items()
                for name in names
            )
            await db.execute(f"delete from af_blob where lower(hex(hash)) not in ({used})")

    async def aclose(self) -> None:
        await self._writer.aclose()
        self._locks.release_all()
