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
from collections.abc import Iterable, Sequence
from itertools import repeat

from agentflow.memory.rows import Words

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

    def add(self, files: Sequence[int], said: Sequence[Words]) -> None:
        """Let files, which have no words yet, say what stands in ``said`` at their place."""
        rows = [file + KEPT_ROW if kept else file for file, kept in zip(files, self._are_kept(files), strict=True)]
        packed = [
            (file, zlib.compress(b"\0".join((words.path, words.symbols.encode(*_UTF8), words.body)), 1))
            for file, row, words in zip(files, rows, said, strict=True)
            if row != file
        ]
        run = self._db.executemany
        if packed:
            run("INSERT INTO kept VALUES (?, ?)", packed)
        for at, field in enumerate(WORD_FIELDS):
            run(
                f"INSERT INTO {field} (rowid, t) VALUES (?, ?)",
                [(row, words[at]) for row, words in zip(rows, said, strict=True) if words[at]],
            )

    def remove(self, file: int) -> None:
        """Let a file that has words say nothing."""
        kept = self._db.execute("SELECT words FROM kept WHERE file = ?", (file,)).fetchone()
        if kept is None:
            self._db.execute("INSERT INTO stale VALUES (?)", (file,))
            return
        texts = zlib.decompress(kept[0]).split(b"\0", 2)
        for field, text in zip(_PACKED, texts, strict=True):
            if text:
                delete = f"INSERT INTO {field} ({field}, rowid, t) VALUES ('delete', ?, ?)"
                self._db.execute(delete, (file + KEPT_ROW, text))
        self._db.execute("DELETE FROM kept WHERE file = ?", (file,))

    def _are_kept(self, files: Sequence[int]) -> Iterable[bool]:
        """Of each file, whether its words are kept."""
        if not self.building:
            return repeat(True, len(files))
        query = "SELECT row FROM stale WHERE row BETWEEN ? AND ?"
        stale = {row for (row,) in self._db.execute(query, (min(files), max(files)))}
        return [file <= self._all_up_to or file in stale for file in files]


def row_and_condition(field: str) -> tuple[str, str]:
    """In SQL, the number of the file that a row of ``field`` belongs to, and a condition that leaves out stale rows."""
    if field not in WORD_FIELDS:
        return "rowid", ""
    return f"rowid & {KEPT_ROW - 1}", " AND rowid NOT IN (SELECT row FROM stale)"


_PACKED = ("path", "symbols", "body")
"""The order of fields in what is kept: a body may hold the NUL between them."""
_UTF8 = ("utf-8", "surrogatepass")
