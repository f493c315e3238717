"""Which row of the full-text tables holds the words of a file, and what deleting it takes.

The FTS5 tables of a file's own words keep no text, which would be most of the database, and SQLite removes a row of such a
table (before 3.43) only when it is told what stood there. So that is kept, compressed, except for most files of a large
first build, for which it would take as much room as their words do in the tables. When such a file changes or goes, its row,
which has the file's own number, stays and is passed over (it is *stale*), and the file says what it says from then on in a row
whose words are kept. A file leaves at most one stale row behind, so that there are never more than a first build has files.
All that they change is how rare a word counts as, by little among so many files.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Mapping

WORD_FIELDS = ("body", "path", "symbols")
"""The fields that are said by a file itself."""
KEPT_SCHEMA = """
CREATE TABLE kept (file INTEGER PRIMARY KEY, words BLOB NOT NULL);
CREATE TABLE stale (row INTEGER PRIMARY KEY);
"""
KEPT_ROW = 1 << 40
"""Added to the number of a file, it is that of the row whose words are kept."""
ALL_KEPT = 2_000
"""The words of files with numbers up to this are always kept."""


class KeptWords:
    """The words of files in the full-text tables of a :class:`~agentflow.memory.store.Store`, within its transactions.

    ``all_up_to``: the words of files with numbers up to this are kept in first builds, too.
    """

    def __init__(self, db: sqlite3.Connection, all_up_to: int) -> None:
        self._db = db
        self._all_up_to = all_up_to
        self.building = False
        """Whether this is a first build, in which files are added and their words are not kept."""

    def add(self, file: int, words: Mapping[str, str]) -> None:
        """Let a file, which has no words yet, say ``words`` (by field)."""
        row = file
        if file <= self._all_up_to or not self.building or self._is_stale(file):
            row += KEPT_ROW
            packed = zlib.compress("\0".join(words[field] for field in _PACKED).encode(*_UTF8), 1)
            self._db.execute("INSERT INTO kept VALUES (?, ?)", (file, packed))
        for field in WORD_FIELDS:
            if words[field]:
                self._db.execute(f"INSERT INTO {field} (rowid, t) VALUES (?, ?)", (row, words[field]))

    def remove(self, file: int) -> None:
        """Let a file that has words say nothing."""
        kept = self._db.execute("SELECT words FROM kept WHERE file = ?", (file,)).fetchone()
        if kept is None:
            self._db.execute("INSERT INTO stale VALUES (?)", (file,))
            return
        texts = zlib.decompress(kept[0]).decode(*_UTF8).split("\0", 2)
        for field, text in zip(_PACKED, texts, strict=True):
            if text:
                delete = f"INSERT INTO {field} ({field}, rowid, t) VALUES ('delete', ?, ?)"
                self._db.execute(delete, (file + KEPT_ROW, text))
        self._db.execute("DELETE FROM kept WHERE file = ?", (file,))

    def _is_stale(self, row: int) -> bool:
        return self._db.execute("SELECT 1 FROM stale WHERE row = ?", (row,)).fetchone() is not None


def row_and_condition(field: str) -> tuple[str, str]:
    """In SQL, the number of the file that a row of ``field`` belongs to, and a condition that leaves out stale rows."""
    if field not in WORD_FIELDS:
        return "rowid", ""
    return f"rowid & {KEPT_ROW - 1}", " AND rowid NOT IN (SELECT row FROM stale)"


_PACKED = ("path", "symbols", "body")
"""The order of fields in what is kept: a body may hold the NUL between them."""
_UTF8 = ("utf-8", "surrogatepass")
