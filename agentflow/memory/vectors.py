"""The vectors of an index: which texts of which files were embedded, by which model."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

VECTOR_SCHEMA = """
CREATE TABLE embedded (file INTEGER PRIMARY KEY, digest BLOB NOT NULL, model TEXT NOT NULL);
CREATE TABLE vectors (file INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, vector BLOB NOT NULL);
CREATE INDEX vectors_by_file ON vectors (file);
"""
_AT_ONCE = 2_000


class VectorTable:
    """The vectors in the database of a :class:`~agentflow.memory.store.Store`, within its transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def missing(self, model: str, limit: int) -> list[tuple[int, str, str, bytes]]:
        """Id, root, path and digest of the first ``limit`` files whose text as it is has no vectors of ``model``."""
        return self._db.execute(
            "SELECT files.id, roots.path, files.path, files.digest FROM files JOIN roots ON roots.id = files.root"
            " LEFT JOIN embedded ON embedded.file = files.id AND embedded.digest = files.digest AND model = ?"
            " WHERE embedded.file IS NULL ORDER BY files.id LIMIT ?",
            (model, limit),
        ).fetchall()

    def put(self, file: int, digest: bytes, model: str, vectors: Iterable[tuple[int, int, bytes]]) -> None:
        """Replace the vectors of a file: each with the first and the last line of its text."""
        self.drop(file)
        self._db.execute("INSERT INTO embedded VALUES (?, ?, ?)", (file, digest, model))
        self._db.executemany("INSERT INTO vectors VALUES (?, ?, ?, ?)", ((file, *vector) for vector in vectors))

    def drop(self, file: int) -> None:
        """Remove the vectors of a file."""
        self._db.execute("DELETE FROM vectors WHERE file = ?", (file,))
        self._db.execute("DELETE FROM embedded WHERE file = ?", (file,))

    def clear(self) -> None:
        """Remove all vectors."""
        self._db.execute("DELETE FROM vectors")
        self._db.execute("DELETE FROM embedded")

    def read(self, model: str) -> Iterator[list[tuple[int, int, int, bytes]]]:
        """File, first line, last line and vector of each text embedded by ``model``, some at a time."""
        cursor = self._db.execute(
            "SELECT file, first, last, vector FROM vectors WHERE file IN (SELECT file FROM embedded WHERE model = ?)",
            (model,),
        )
        while some := cursor.fetchmany(_AT_ONCE):
            yield some
