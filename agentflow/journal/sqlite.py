"""The :class:`~agentflow.core.ports.store_ports.JournalStore` in one SQLite file: for the runs of one machine."""

from __future__ import annotations

import os
import platform
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from agentflow.core.events.journal import EffectRow, NewRun, RunRow, Sync
from agentflow.journal.cleaning import ROW_BYTES, StorageSurvey, keep_summaries, removable
from agentflow.journal.connection import DatabaseConnection, Row, changed
from agentflow.journal.errors import corrupt, owned_run
from agentflow.journal.owner import OwnerLocks
from agentflow.journal.rows import Rows, dump, is_apart
from agentflow.journal.sessions import Sessions, remove_openings
from agentflow.journal.sqlite_file import (
    PUT,
    Apart,
    SqliteConnection,
    SqliteFile,
    checksum,
    is_whole_effect,
    keep_apart,
    put_values,
    set_apart,
)
from agentflow.journal.store import Journal
from agentflow.journal.writer import Writer

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
"""The columns whose texts may be stored apart, by table."""


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
            raise corrupt(f"a stored value is no JSON: {error}") from None
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

    ``sync="full"`` waits for the disk at every commit. Owners of runs are told apart by locks on files in the directory
    ``<path>.owners``.
    """

    def __init__(self, path: Path, *, sync: Sync = "normal") -> None:
        self._locks = OwnerLocks(path.with_name(f"{path.name}.owners"))
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

    async def _is_worked_on(self, db: SqliteConnection, row: Row) -> bool:
        return self._locks.alive(row[0])

    async def _begin_to_own(self, run: str) -> None:
        if not await self._locks.acquire(run):
            raise owned_run(run)

    def _not_owned(self, run: str, error: BaseException) -> None:
        self._locks.release(run)

    def _release(self, run: str) -> None:
        self._locks.release(run)

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
