"""The :class:`~agentflow.core.ports.store_ports.JournalStore` in one SQLite file: for the runs of one machine."""

from __future__ import annotations

import asyncio
import os
import platform
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal import (
    ENDED,
    BranchEnd,
    EffectRow,
    EffectState,
    NewRun,
    OwnedRun,
    PastRow,
    RunRow,
    RunStatus,
    SessionChanges,
    Sync,
)
from agentflow.journal import openings, results, sessions, summaries
from agentflow.journal.cleaning import collect
from agentflow.journal.errors import owned_run, unknown_run
from agentflow.journal.owner import OwnerLocks
from agentflow.journal.rows import (
    CREATE,
    EFFECT,
    RUN,
    Blobs,
    change_run,
    deaths,
    dump,
    effect_checksum,
    effect_of,
    keep_blobs,
    reached,
    run_of,
    run_values,
    spent,
)
from agentflow.journal.sqlite_file import SqliteFile
from agentflow.journal.writer import Put, Writer

_BEFORE = f"""
select {reached("e.run = r.run")}, {deaths("e.run = r.run")},
  max(0.0, coalesce((select max(t1) from af_effect e where e.run = r.run) - updated, 0.0)) from af_run r where run = ?
"""
"""Of a run that is taken: what it had reached, the deaths of its owners if the last has died, and the seconds for which that one
had worked, as far as its records tell."""


class SqliteJournal:
    """Durable runs in the SQLite file ``path``, which only the user who owns the file may read.

    ``sync="full"`` waits for the disk at every commit. Owners of runs are told apart by locks on files in the directory
    ``<path>.owners``.
    """

    def __init__(self, path: Path, *, sync: Sync = "normal") -> None:
        self._file = SqliteFile(path, sync)
        self._locks = OwnerLocks(path.with_name(f"{path.name}.owners"))
        self._writer: Writer[sqlite3.Connection] = Writer(self._file, f"durable runs in {path}")
        self.sessions = sessions.SqliteSessions(self._writer, self._locks)
        self.results = results.SqliteResults(self._writer)
        self.jobs = None

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

    async def own(self, run: str, slice: int | None = None) -> OwnedRun:
        def work(db: sqlite3.Connection) -> OwnedRun:
            before = _row(db, run)
            if slice is not None and (slice != before.slice or before.status != "queued"):
                raise owned_run(run)
            if before.status in ENDED:
                sessions.hold_again(db, run)
            reached, deaths, killed_s = db.execute(_BEFORE, (run,)).fetchone()
            change_run(
                db,
                run,
                time.time(),
                status="running",
                epoch=before.epoch + 1,
                slice=before.slice + 1,
                owner=f"{platform.node()}:{os.getpid()}",
                wake_at=None,
                deaths=deaths if before.status == "running" else 0,
                reached=reached,
                spent_s=before.spent_s + killed_s,
            )
            usage, cost = spent(db, run)
            return OwnedRun(run=_row(db, run), records=_answers(db, run), usage=usage, cost=cost)

        if not await self._locks.acquire(run):
            raise owned_run(run)
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
            change_run(db, run, time.time(), status="waiting", wake_at=wake_at, owner=None, spent_s=spent, deaths=0)
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
        branch: BranchEnd | None = None,
    ) -> None:
        assert branch is None  # runs of branches are those of workers

        def work(db: sqlite3.Connection) -> None:
            row = self._owned(db, run, epoch)
            if status in ENDED:
                sessions.let_go(db, run, session)
            blobs: Blobs = {}
            ends: dict[str, Any] = {"result": dump(result, blobs), "error": dump(error, blobs)}
            keep_blobs(db, blobs)
            change_run(db, run, time.time(), status=status, spent_s=row.spent_s + spent_s, owner=None, deaths=0, **ends)

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

    async def statuses(self, runs: Sequence[str]) -> dict[str, RunStatus]:
        def work(db: sqlite3.Connection) -> dict[str, RunStatus]:
            marks = ", ".join("?" * len(runs))
            return dict(db.execute(f"select run, status from af_run where run in ({marks})", list(runs)).fetchall())

        return await self._writer.do(work)

    async def abandoned(self) -> list[RunRow]:
        def work(db: sqlite3.Connection) -> list[RunRow]:
            ids = db.execute("select run from af_run where status = 'running' order by run").fetchall()
            dead = [_row(db, run) for (run,) in ids if not self._locks.alive(run)]
            return [replace(_dead(row), deaths=db.execute(_BEFORE, (row.run,)).fetchone()[1]) for row in dead]

        return await self._writer.do(work)

    async def effects(self, run: str, state: EffectState | None = None) -> list[EffectRow]:
        def work(db: sqlite3.Connection) -> list[EffectRow]:
            only = "" if state is None else f" and state = {int(state)}"
            rows = db.execute(
                f"select {EFFECT} from af_effect where run = ?{only} order by t0, path", (run,)
            ).fetchall()
            return [effect_of(row, db) for row in rows]

        return await self._writer.do(work)

    async def gc(self, before: float | None, bounds: LogBounds | None = None, *, forget: float | None = None) -> int:
        def work(db: sqlite3.Connection) -> int:
            removed = collect(db, before, bounds)
            if forget is not None:
                summaries.forget(db, forget)
            return removed

        return await self._writer.do(work)

    async def past(self, *, limit: int = 100) -> list[PastRow]:
        return await self._writer.do(lambda db: summaries.read(db, limit))

    def leave(self) -> None:
        self._writer.leave()

    async def aclose(self) -> None:
        await self._writer.aclose()
        self._locks.release_all()

    def _find(self, db: sqlite3.Connection, run: str) -> RunRow | None:
        fields = db.execute(f"select {RUN} from af_run where run = ?", (run,)).fetchone()
        if fields is None:
            return None
        row = run_of(fields, db)
        if row.status == "running" and not self._locks.alive(run):
            return _dead(row)
        return row

    def _owned(self, db: sqlite3.Connection, run: str, epoch: int) -> RunRow:
        row = _row(db, run)
        if row.epoch != epoch:
            raise owned_run(run)
        return row


def _row(db: sqlite3.Connection, run: str) -> RunRow:
    fields = db.execute(f"select {RUN} from af_run where run = ?", (run,)).fetchone()
    if fields is None:
        raise unknown_run(run)
    return run_of(fields, db)


def _dead(row: RunRow) -> RunRow:
    """A run whose owner is dead, as it is shown."""
    return replace(row, status="queued")


def _answers(db: sqlite3.Connection, run: str) -> list[EffectRow]:
    """The records that are not nested in a finished one."""
    rows = db.execute(
        f"select {EFFECT} from af_effect where run = ? and (leaf is null or leaf not in"
        " (select key from af_effect where run = ? and state in (1, 2))) order by t0, path",
        (run, run),
    ).fetchall()
    return [effect_of(row, db) for row in rows]


__all__ = ["SqliteJournal"]
