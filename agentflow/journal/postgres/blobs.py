"""Large values of records, outside of the database: what is stored there is a reference, ``@`` and a digest of the text.

A value is written before the record that refers to it, in whose transaction the writer shares a lock with others. Whoever removes
values that nothing refers to has the lock alone, so that what it does not see referred to has no writer, either.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import JournalError
from agentflow.core.ports.store_ports import BlobStore
from agentflow.journal.blobs import BlobDirectory
from agentflow.journal.postgres.connection import Connection

LONGEST = 64 * 1024
"""Characters of a value that stays in the database."""
_LOCK = 0x61666C6F62  # the advisory lock of whoever writes or removes values
_AT_ONCE = 1_000
_VALUES = slice(7, 9)
"""Where value and turns stand among the fields of a record."""
_USE = """
insert into af_blob(hash, rid) select u.hash, r.rid from unnest($1::bytea[], $2::text[]) as u(hash, run) join af_run r using (run)
on conflict do nothing
"""


class Blobs:
    """The large values of a database, in files beneath ``directory``; None: all values are in the database itself."""

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._opened: BlobStore | None = None

    @property
    def are_used(self) -> bool:
        """Whether large values are in files."""
        return self._directory is not None

    async def offload(
        self, db: Connection, runs: Sequence[str], records: Sequence[tuple[Any, ...]]
    ) -> Sequence[tuple[Any, ...]]:
        """Records of ``runs``, one for each, as they are stored: with references in the place of large values, which are written.

        Raises OSError.
        """
        if self._directory is None or not any([_is_large(each) for fields in records for each in fields[_VALUES]]):
            return records
        await db.execute("select pg_advisory_xact_lock_shared($1)", _LOCK)
        store = await self._store(db)
        used: list[tuple[bytes, str]] = []

        def stored_text(run: str, field: Any) -> Any:
            if not _is_large(field):
                return field
            body = field.encode("ascii")
            digest = blake2b(body, digest_size=16).digest()
            store.write(digest.hex(), body)
            used.append((digest, run))
            return f"@{digest.hex()}"

        stored = [
            (*fields[: _VALUES.start], *[stored_text(run, each) for each in fields[_VALUES]], *fields[_VALUES.stop :])
            for run, fields in zip(runs, records, strict=True)
        ]
        await db.execute(_USE, [digest for digest, _ in used], [run for _, run in used])
        return stored

    async def fetch(self, db: Connection, text: str | None) -> str | None:
        """The text that was stored. Raises JournalError (``durable/blob``) for one that is not to be had, OSError."""
        if text is None or not text.startswith("@"):
            return text
        body = None if self._directory is None else (await self._store(db)).read(text[1:])
        if body is None:
            raise _missing(text[1:], self._directory)
        return body.decode("ascii")

    async def collect(self, db: Connection) -> None:
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

    async def _store(self, db: Connection) -> BlobStore:
        """The values of this database, beside those of others in the same directory."""
        assert self._directory is not None
        if self._opened is None:
            name = await db.fetchval("select value from af_meta where key = 'id'")
            self._opened = BlobDirectory(Path(self._directory) / name)
        return self._opened


def _is_large(field: Any) -> bool:
    return isinstance(field, str) and len(field) > LONGEST


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


__all__ = ["LONGEST", "Blobs"]
