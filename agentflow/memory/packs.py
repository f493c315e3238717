"""What files said when they were indexed: kept compressed, many files together, because deletion has to repeat it.

The FTS5 tables of a file's own words keep no text, which would be most of the database. SQLite removes a row of such a
table (before 3.43) only when it is told what stood there.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping

PACKED = ("body", "path", "symbols")
"""The fields whose terms are packed."""
PACK_SCHEMA = "CREATE TABLE packs (id INTEGER PRIMARY KEY, packed BLOB NOT NULL);"
_CHARS = 64_000
"""A pack is closed at so many characters: twice what the compression looks back."""
_LINES = 1 + len(PACKED)


class Packs:
    """The packs in the database of a :class:`~agentflow.memory.store.Store`, within its transactions.

    ``files.pack`` says which one a file is in. A pack does not change, and goes with the last of its files.
    """

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._open = 0
        self._lines: list[str] = []
        self._size = 0
        self._unpacked: tuple[int, dict[int, dict[str, str]]] = (0, {})

    def add(self, file: int, terms: Mapping[str, str]) -> None:
        """Put what a file says into the open pack, whose id :meth:`current` gave."""
        texts = [terms[field] for field in PACKED]
        self._lines += (str(file), *texts)
        self._size += sum(map(len, texts))
        if self._size >= _CHARS:
            self.flush()

    def current(self) -> int:
        """The id of the pack that the next file is put into."""
        if not self._open:
            self._open = self._db.execute("SELECT coalesce(max(id), 0) + 1 FROM packs").fetchone()[0]
        return self._open

    def flush(self) -> None:
        """Write the open pack. Before a transaction ends."""
        if self._lines:
            packed = zlib.compress("\n".join(self._lines).encode(), 1)
            self._db.execute("INSERT INTO packs VALUES (?, ?)", (self._open, packed))
        self.forget()

    def forget(self) -> None:
        """Drop the open pack: its files are written, or rolled back."""
        self._open = self._size = 0
        self._lines = []
        self._unpacked = (0, {})

    def terms(self, pack: int, file: int) -> dict[str, str]:
        """What a file said, by field."""
        if pack == self._open:
            self.flush()
        if pack != self._unpacked[0]:
            (packed,) = self._db.execute("SELECT packed FROM packs WHERE id = ?", (pack,)).fetchone()
            lines = zlib.decompress(packed).decode().split("\n")
            self._unpacked = (
                pack,
                {
                    int(lines[at]): dict(zip(PACKED, lines[at + 1 : at + _LINES], strict=True))
                    for at in range(0, len(lines), _LINES)
                },
            )
        return self._unpacked[1][file]

    def drop(self, pack: int) -> None:
        """Remove a pack if no file is in it any more."""
        self._db.execute(
            "DELETE FROM packs WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM files WHERE pack = ?1)", (pack,)
        )
