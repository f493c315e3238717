"""The :class:`~agentflow.core.store_ports.JournalStore` in one SQLite file: for the runs of one machine."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import time
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from agentflow.core.errors import JournalError
from agentflow.core.event_log import LogBounds
from agentflow.core.journal import (
    ENDED,
    EffectRow,
    EffectState,
    NewRun,
    OwnedRun,
    RunRow,
    RunStatus,
    SessionChanges,
)
from agentflow.journal import openings, results, sessions
from agentflow.journal.cleaning import collect
from agentflow.journal.owner import OwnerLocks
from agentflow.journal.rows import (
    CREATE,
    EFFECT,
    EVENT_TABLES,
    PUT,
    RUN,
    SCHEMA,
    VERSION,
    Blobs,
    change_run,
    corrupt,
    dump,
    effect_checksum,
    effect_of,
    effect_values,
    keep_blobs,
    parse,
    run_of,
    run_values,
)
from agentflow.journal.writer import Put, Unavailable, Writer, is_locked
from agentflow.lib.private_files import make_private_file

CHECKED_BYTES = 64 * 1024 * 1024
"""Size up to which a database is checked as a whole when it is opened; damage in a larger one is found when it is read."""
_BUSY_S = 1.0

Sync = Literal["normal", "full"]
"""What a commit survives: ``normal`` a killed process, ``full`` a power cut too."""


class SqliteJournal:
    """Durable runs in the SQLite file ``path``, which only the user who owns the file may read.

    ``sync="full"`` waits for the disk at every commit. Owners of runs are told apart by locks on files in the directory
    ``<path>.owners``.
    """

    def __init__(self, path: Path, *, sync: Sync = "normal") -> None:
        self._file = _File(path, sync)
        self._locks = OwnerLocks(path.with_name(f"{path.name}.owners"))
        self._writer = Writer(self._file, f"durable runs in {path}")
        self.sessions = sessions.SqliteSessions(self._writer, self._locks)
        self.results = results.SqliteResults(self._writer)

    async def create(self, run: str, new: NewRun) -> tuple[RunRow, bool]:
        def work(db: sqlite3.Connection) -> tuple[RunRow, bool]:
            if new.base is not None and new.takes_over is not None:
                self._owned(db, new.base, new.takes_over)
                sessions.let_go(db, new.base, None)
                ends = {"status": "cancelled", "result": dump({"successor": run}, {}), "owner": None}
                change_run(db, new.base, time.time(), **ends)
            stored = self._find(db, run)
            if stored is not None:
                return stored, False
            if new.session is not None:
                sessions.hold(db, new.session, run)
            blobs: Blobs = {}
            values = run_values(run, new, time.time(), blobs)
            keep_blobs(db, blobs)
            db.execute(CREATE, values)
            if new.opening is not None:
                openings.keep(db, run, new.opening)
            elif new.base is not None:
                openings.keep_as(db, run, new.base)
            return _row(db, run), True

        created = await self._writer.do(work)
        if new.base is not None and new.takes_over is not None:
            self._locks.release(new.base)
        return created

    async def own(self, run: str) -> OwnedRun:
        def work(db: sqlite3.Connection) -> OwnedRun:
            before = _row(db, run)
            if before.status in ENDED:
                sessions.hold_again(db, run)
            change_run(
                db,
                run,
                time.time(),
                status="running",
                epoch=before.epoch + 1,
                slice=before.slice + 1,
                owner=f"{platform.node()}:{os.getpid()}",
                wake_at=None,
                spent_s=before.spent_s + _killed_s(db, before),
            )
            return OwnedRun(run=_row(db, run), records=_answers(db, run), **_spent(db, run))

        await self._writer.do(lambda db: _row(db, run))
        if not await asyncio.to_thread(self._locks.take, run):
            raise _owned(run)
        try:
            return await self._writer.do(work)
        except BaseException:  # the lock is given back, even when cancelled
            self._locks.release(run)
            raise

    def put(self, run: str, epoch: int, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.submit(Put(future, run=run, epoch=epoch, rows=rows, drop=drop))
        return future

    async def park(self, run: str, epoch: int, seq: int, wake_at: float | None, *, spent_s: float = 0.0) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            row = self._owned(db, run, epoch)
            if row.seq != seq:
                return False
            spent = row.spent_s + spent_s
            change_run(db, run, time.time(), status="waiting", wake_at=wake_at, owner=None, spent_s=spent)
            return True

        parked = True
        try:
            parked = await self._writer.do(work)
        finally:
            if parked:
                self._locks.release(run)
        return parked

    async def deliver(self, run: str, key: bytes, state: EffectState, value: Any) -> bool:
        def work(db: sqlite3.Connection) -> bool:
            row = _row(db, run)
            stored = db.execute(f"select {EFFECT} from af_effect where run = ? and key = ?", (run, key)).fetchone()
            if stored is None or effect_of(stored, db).state != EffectState.OPEN:
                return False
            blobs: Blobs = {}
            now = time.time()
            fields = [*stored[:5], int(state), dump(value, blobs), *stored[7:11], now]
            keep_blobs(db, blobs)
            db.execute(
                "update af_effect set state = ?, value = ?, t1 = ?, sum = ? where run = ? and key = ?",
                (int(state), fields[6], now, effect_checksum(fields), run, key),
            )
            change_run(db, run, now, seq=row.seq + 1, status="queued" if row.status == "waiting" else row.status)
            return True

        return await self._writer.do(work)

    async def finish(
        self,
        run: str,
        epoch: int,
        status: RunStatus,
        *,
        result: Any = None,
        error: Any = None,
        spent_s: float = 0.0,
        session: SessionChanges | None = None,
    ) -> None:
        def work(db: sqlite3.Connection) -> None:
            row = self._owned(db, run, epoch)
            if status in ENDED:
                sessions.let_go(db, run, session)
            blobs: Blobs = {}
            ends: dict[str, Any] = {"result": dump(result, blobs), "error": dump(error, blobs)}
            keep_blobs(db, blobs)
            change_run(db, run, time.time(), status=status, spent_s=row.spent_s + spent_s, owner=None, **ends)

        try:
            await self._writer.do(work)
        finally:
            self._locks.release(run)

    async def find(self, run: str) -> RunRow | None:
        return await self._writer.do(lambda db: self._find(db, run))

    async def list(self, *, limit: int = 100) -> list[RunRow]:
        def work(db: sqlite3.Connection) -> list[RunRow]:
            ids = db.execute("select run from af_run order by updated desc, run limit ?", (limit,)).fetchall()
            return [row for (run,) in ids if (row := self._find(db, run)) is not None]

        return await self._writer.do(work)

    async def effects(self, run: str, state: EffectState | None = None) -> list[EffectRow]:
        def work(db: sqlite3.Connection) -> list[EffectRow]:
            only = "" if state is None else f" and state = {int(state)}"
            rows = db.execute(
                f"select {EFFECT} from af_effect where run = ?{only} order by t0, path", (run,)
            ).fetchall()
            return [effect_of(row, db) for row in rows]

        return await self._writer.do(work)

    async def gc(self, before: float | None, bounds: LogBounds | None = None) -> int:
        return await self._writer.do(lambda db: collect(db, before, bounds))

    async def aclose(self) -> None:
        await self._writer.aclose()
        self._locks.release_all()

    def _find(self, db: sqlite3.Connection, run: str) -> RunRow | None:
        fields = db.execute(f"select {RUN} from af_run where run = ?", (run,)).fetchone()
        if fields is None:
            return None
        row = run_of(fields, db)
        if row.status == "running" and not self._locks.alive(run):
            change_run(db, run, row.updated, status="queued", owner=None)
            return _row(db, run)
        return row

    def _owned(self, db: sqlite3.Connection, run: str, epoch: int) -> RunRow:
        row = _row(db, run)
        if row.epoch != epoch:
            raise _owned(run)
        return row


class _File:
    """The file and its connection; see :class:`~agentflow.journal.writer.Database`."""

    def __init__(self, path: Path, sync: Sync) -> None:
        self._path = path
        self._name = str(path)
        self._sync = sync
        self._db: sqlite3.Connection | None = None
        self._seen: os.stat_result | None = None

    def connection(self) -> sqlite3.Connection:
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
            if first and not is_locked(error):
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
        tables = {name for (name,) in db.execute("select name from sqlite_master where type = 'table'")} - EVENT_TABLES
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
        version = row[0] if row else ""
        if not str(version).isdecimal():
            raise corrupt("it has no version")
        if int(version) > VERSION:
            raise JournalError(
                f"{self._path} is of version {version}, and this agentflow reads version {VERSION}",
                code="durable/version",
                hint="use the agentflow that wrote it, or a later one; nothing was run",
            )
        if "af_session" not in tables:
            sessions.make_tables(db)
        if "af_result" not in tables:
            results.make_tables(db)
        if "af_opening" not in tables:
            openings.make_tables(db)
        if self._path.stat().st_size <= CHECKED_BYTES:
            (said,) = db.execute("pragma quick_check(1)").fetchone()
            if said != "ok":
                raise corrupt(str(said)[:200])

    def put(self, db: sqlite3.Connection, jobs: Sequence[Put]) -> None:
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
                job.error = _unknown(job.run) if epochs[job.run] is None else _owned(job.run)
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

    def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            db.close()


def _row(db: sqlite3.Connection, run: str) -> RunRow:
    fields = db.execute(f"select {RUN} from af_run where run = ?", (run,)).fetchone()
    if fields is None:
        raise _unknown(run)
    return run_of(fields, db)


def _killed_s(db: sqlite3.Connection, row: RunRow) -> float:
    """Seconds for which the last slice of a killed run had worked, as far as its records tell."""
    (last,) = db.execute("select max(t1) from af_effect where run = ?", (row.run,)).fetchone()
    return 0.0 if last is None else max(0.0, last - row.updated)


def _answers(db: sqlite3.Connection, run: str) -> list[EffectRow]:
    """The records that are not nested in a finished one."""
    rows = db.execute(
        f"select {EFFECT} from af_effect where run = ? and (leaf is null or leaf not in"
        " (select key from af_effect where run = ? and state in (1, 2))) order by t0, path",
        (run, run),
    ).fetchall()
    return [effect_of(row, db) for row in rows]


def _spent(db: sqlite3.Connection, run: str) -> dict[str, Any]:
    rows = db.execute("select usage, cost from af_effect where run = ? and usage is not null", (run,)).fetchall()
    counts = parse(f"[{','.join([usage for usage, _ in rows])}]")
    costs = [cost for _, cost in rows]
    usage = [sum(column) for column in zip_longest(*counts, fillvalue=0)]  # an older version had fewer counts
    return {"usage": tuple(usage), "cost": None if None in costs else sum(costs, 0.0)}


def _unusable(path: Path, error: Exception) -> JournalError:
    return JournalError(
        f"the database of durable runs at {path} cannot be opened: {error}",
        code="durable/database",
        hint="name a file that can be written to: durable='sqlite:///runs.db'",
    )


def _unknown(run: str) -> JournalError:
    return JournalError(
        f"there is no durable run '{run}'",
        code="durable/unknown-run",
        hint="agentflow runs --durable lists those there are",
    )


def _owned(run: str) -> JournalError:
    return JournalError(
        f"the run '{run}' belongs to another process that works on it",
        code="durable/owned",
        hint="wait for it, or end that process; the run can be gone on with then",
    )


__all__ = ["SqliteJournal", "Sync"]
