"""The history of an index: past commits, the files each of them touched, and what a file has of all that touched it."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence

from agentflow.memory.rows import PastCommit

HISTORY_SCHEMA = """
CREATE TABLE touches (commit_id INTEGER NOT NULL, file INTEGER NOT NULL, PRIMARY KEY (commit_id, file)) WITHOUT ROWID;
CREATE INDEX touches_by_file ON touches (file, commit_id);
CREATE TABLE past (id INTEGER PRIMARY KEY, root INTEGER NOT NULL, digest TEXT NOT NULL, time INTEGER NOT NULL,
    subject TEXT NOT NULL);
CREATE INDEX past_by_root ON past (root);
CREATE VIRTUAL TABLE messages USING fts5(t, tokenize='ascii');
CREATE VIRTUAL TABLE commits USING fts5(t, tokenize='ascii');
"""


class History:
    """The commits in the database of a :class:`~agentflow.memory.store.Store`, within its transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def head(self, root: int) -> tuple[str, int]:
        """The commit up to which history is indexed for ``root`` (``""`` for none), and the number of commits."""
        return self._db.execute("SELECT head, commits FROM roots WHERE id = ?", (root,)).fetchone()

    def set_head(self, root: int, head: str, commits: int) -> None:
        """Record the commit up to which history is indexed."""
        self._db.execute("UPDATE roots SET head = ?, commits = ? WHERE id = ?", (head, commits, root))

    def clear(self, root: int) -> None:
        """Remove the commits of ``root``."""
        run = self._db.execute
        mine = "(SELECT id FROM past WHERE root = ?)"
        run(f"DELETE FROM touches WHERE commit_id IN {mine}", (root,))
        run(f"DELETE FROM commits WHERE rowid IN {mine}", (root,))
        run("DELETE FROM past WHERE root = ?", (root,))
        run("DELETE FROM messages WHERE rowid IN (SELECT id FROM files WHERE root = ?)", (root,))
        run("UPDATE files SET recency = NULL WHERE root = ?", (root,))
        run("UPDATE roots SET head = '', commits = 0 WHERE id = ?", (root,))

    def add(self, commit: PastCommit, terms: str, files: Sequence[int]) -> None:
        """Add a commit with its message's terms and the files it touched. Oldest first, so that ids rise with time."""
        cursor = self._db.execute(
            "INSERT INTO past (root, digest, time, subject) VALUES (?, ?, ?, ?)",
            (commit.root, commit.digest, commit.time, commit.subject),
        )
        self._db.execute("INSERT INTO commits (rowid, t) VALUES (?, ?)", (cursor.lastrowid, terms))
        self._db.executemany("INSERT INTO touches VALUES (?, ?)", ((cursor.lastrowid, file) for file in files))

    def add_to_file(self, file: int, terms: str, touched_at: Sequence[float]) -> None:
        """Add the terms of messages of commits that touched ``file``, and their times in half-lives.

        A file's recency is the sum of 2 ** time over the commits that touched it, stored as its logarithm: a later
        commit adds to it and leaves every other file alone.
        """
        run = self._db.execute
        before = run("SELECT t FROM messages WHERE rowid = ?", (file,)).fetchone()
        text = terms if before is None else f"{before[0]} {terms}"
        run("INSERT OR REPLACE INTO messages (rowid, t) VALUES (?, ?)", (file, text))
        recency = run("SELECT recency FROM files WHERE id = ?", (file,)).fetchone()[0]
        for at in touched_at:
            high, low = (at, recency) if recency is None or at > recency else (recency, at)
            recency = high if low is None else high + math.log2(1 + 2 ** (low - high))
        run("UPDATE files SET recency = ? WHERE id = ?", (recency, file))

    def drop(self, file: int) -> None:
        """Remove what there is of a file."""
        self._db.execute("DELETE FROM messages WHERE rowid = ?", (file,))
        self._db.execute("DELETE FROM touches WHERE file = ?", (file,))

    def files(self, commits: Sequence[int]) -> list[tuple[int, int]]:
        """``(commit, file)`` for each file the commits touched."""
        marks = ",".join("?" * len(commits))
        return self._db.execute(
            f"SELECT commit_id, file FROM touches WHERE commit_id IN ({marks}) ORDER BY commit_id, file", tuple(commits)
        ).fetchall()

    def commits_of(self, file: int, limit: int) -> list[int]:
        """The newest ``limit`` commits that touched ``file``."""
        rows = self._db.execute(
            "SELECT commit_id FROM touches WHERE file = ? ORDER BY commit_id DESC LIMIT ?", (file, limit)
        )
        return [commit for (commit,) in rows]

    def commits(self, commits: Sequence[int]) -> dict[int, PastCommit]:
        """These commits, by id, newest first."""
        marks = ",".join("?" * len(commits))
        rows = self._db.execute(
            f"SELECT id, root, digest, time, subject FROM past WHERE id IN ({marks}) ORDER BY id DESC", tuple(commits)
        )
        return {id: PastCommit(*rest) for id, *rest in rows}
