"""The rows of PostgreSQL: their columns, and large values of records outside of the database.

A large value is stored as a reference, ``@`` and a digest of the text. It is written before the record that refers to it;
in the transaction of the record the writer shares a lock with others. A process that removes unreferenced values holds the lock
exclusively, so that no writer is about to refer to one of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import JournalError
from agentflow.core.events.journal_rows import NewRun
from agentflow.core.ports.store_ports import BlobStore
from agentflow.journal import connection as journal
from agentflow.journal.postgres.connection import AsyncpgConnection
from agentflow.journal.postgres.leases import LEASED
from agentflow.journal.rows import EFFECT, EFFECT_CHANGED, TURNS, VALUE, Rows, dump, escape, is_long
from agentflow.lib.file_writer import make_private_directory, open_private


class BlobDirectory:
    """The :class:`~agentflow.core.ports.store_ports.BlobStore` in the directory ``path``; each value is a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, name: str, body: bytes) -> None:
        path = self._file(name)
        if path.exists():
            return
        make_private_directory(path.parent)
        beside = path.with_name(f".{name}.{os.getpid()}")
        try:
            with open(beside, "wb", opener=open_private) as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
            _sync(path.parent)
        except BaseException:  # nothing half-written stays, even when interrupted
            beside.unlink(missing_ok=True)
            raise

    def read(self, name: str) -> bytes | None:
        try:
            return self._file(name).read_bytes()
        except FileNotFoundError:
            return None

    def names(self) -> Iterator[str]:
        return (path.name for path in self._path.glob("??/[!.]*"))

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._path / name[:2] / name


def _sync(directory: Path) -> None:
    """Have the names in ``directory`` outlive a crash of the machine."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


PUT = f"""
with job as materialized (
  select n, r.rid from unnest($1::text[], $2::bigint[]) with ordinality as j(run, epoch, n)
    join af_run r on r.run = j.run and r.epoch = j.epoch order by r.rid for share of r),
put as (
  insert into af_effect(rid, key, {EFFECT})
    select rid, key, path, leaf, kind, name, content, state, value, turns, translate(usage, '[]', '{{}}')::bigint[], cost, t0, t1
    from unnest($3::bigint[], $4::bytea[], $5::text[], $6::bytea[], $7::text[], $8::text[], $9::bytea[], $10::smallint[],
      $11::text[], $12::text[], $13::text[], $14::float8[], $15::float8[], $16::float8[])
      as e(n, key, {EFFECT}) join job using (n)
  on conflict (rid, key) do update set {EFFECT_CHANGED} where af_effect.state = 0)
select n from job
"""
"""Stores the records of all jobs with a run that has the job's epoch, and returns the numbers of these jobs.

The rows of the runs stay locked against another owner until the records are committed.
"""
_EFFECT_COLUMNS = 14
ADD = f"""
insert into af_effect(rid, key, {EFFECT})
  values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, translate($11, '[]', '{{}}')::bigint[], $12, $13, $14) on conflict (rid, key) do nothing returning 1
"""
"""Stores one record, unless there is one of its key."""


_LOCK = 0x61666C6F62  # the advisory lock for writing or removing values
_AT_ONCE = 1_000
_TEXTS = slice(VALUE + 1, TURNS + 2)
"""The positions of value and turns among the values of a record, which begin with its key."""
_USE = """
insert into af_blob(hash, rid) select u.hash, r.rid from unnest($1::bytea[], $2::text[]) as u(hash, run) join af_run r using (run)
on conflict do nothing
"""


def beginning(new: NewRun) -> tuple[Any, ...]:
    """The columns ``program, digest, input, queue, tenant, priority`` of a new run."""
    return dump(new.program), new.digest, dump(dict(new.input)), new.queue, escape(new.tenant), new.priority


def columns(rows: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Rows as the columns that ``unnest`` takes, each with the number of its job first."""
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in range(_EFFECT_COLUMNS)]


class PostgresRows(Rows):
    """The rows of a database, with large values of records in files beneath ``directory``; None: all are in the database itself."""

    ref = "rid"
    usage = "array_to_json(usage)::text"
    more = (
        "queue, tenant, cancelling or (fork is not null and exists (select from af_fork f where f.id = fork and f.state > 0)),"
        " parent, build"
    )
    leased = LEASED
    listed = "parent is null or status in ('waiting', 'interrupted')"
    """Branches are listed only if they need a decision or an answer."""

    def __init__(self, directory: str | None) -> None:
        super().__init__()
        self._directory = directory
        self._opened: BlobStore | None = None

    @property
    def have_files(self) -> bool:
        """Whether large values are in files."""
        return self._directory is not None

    def counts(self, usage: Sequence[int]) -> Any:
        return list(usage)

    async def apart(self, db: journal.DatabaseConnection, text: str) -> str:
        body = None if self._directory is None else (await self._store(db)).read(text[1:])
        if body is None:
            raise _missing(text[1:], self._directory)
        return body.decode("ascii")

    async def offload(
        self, db: AsyncpgConnection, runs: Sequence[str], records: Sequence[tuple[Any, ...]]
    ) -> Sequence[tuple[Any, ...]]:
        """Records of ``runs``, one for each, as they are stored: with references in the place of large values, which are written.

        Raises OSError.
        """
        if self._directory is None or not any([is_long(each) for fields in records for each in fields[_TEXTS]]):
            return records
        await db.execute("select pg_advisory_xact_lock_shared($1)", _LOCK)
        store = await self._store(db)
        used: list[tuple[bytes, str]] = []

        def stored_text(run: str, field: Any) -> Any:
            if not is_long(field):
                return field
            body = field.encode("ascii")
            digest = blake2b(body, digest_size=16).digest()
            store.write(digest.hex(), body)
            used.append((digest, run))
            return f"@{digest.hex()}"

        stored = [
            (*fields[: _TEXTS.start], *[stored_text(run, each) for each in fields[_TEXTS]], *fields[_TEXTS.stop :])
            for run, fields in zip(runs, records, strict=True)
        ]
        await db.execute(_USE, [digest for digest, _ in used], [run for _, run in used])
        return stored

    async def collect(self, db: AsyncpgConnection) -> None:
        """Remove the values that no record refers to any more."""
        if self._directory is None:
            return
        await db.execute("select pg_advisory_xact_lock($1)", _LOCK)
        store = await self._store(db)
        every = iter(store.names())
        while names := list(islice(every, _AT_ONCE)):
            used = await db.fetch(
                "select distinct encode(hash, 'hex') from af_blob where hash = any($1)",
                [bytes.fromhex(name) for name in names],
            )
            store.remove(set(names) - {name for (name,) in used})

    async def _store(self, db: journal.DatabaseConnection) -> BlobStore:
        """The values of this database, apart from those of others in the same directory."""
        assert self._directory is not None
        if self._opened is None:
            name = await db.fetchval("select value from af_meta where key = 'id'")
            self._opened = BlobDirectory(Path(self._directory) / name)
        return self._opened


def _missing(name: str, directory: str | None) -> JournalError:
    if directory is None:
        return JournalError(
            "a value of the run is stored outside of the database, and its URL does not say where",
            code="durable/blob",
            hint="name the directory as the other processes do: postgresql://user@host/database?blobs=/srv/blobs",
        )
    return JournalError(
        f"a value of the run is missing in {directory}: {name}",
        code="durable/blob",
        hint="let all processes of the database name one directory, which all their machines have",
    )
