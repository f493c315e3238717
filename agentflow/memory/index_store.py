"""The index as SQLite tables: files, their terms in FTS5, the commits that touched them. One thread at a time.

FTS5 itself splits and stems the texts of files (:mod:`agentflow.memory.rerank`). The terms of other fields come from
:class:`~agentflow.lib.text.terms.Tokeniser`; FTS5 only splits them at spaces.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from agentflow.lib.file_writer import make_private_file
from agentflow.memory.index_rows import (
    ALL_KEPT,
    FILE_ROWS,
    KEPT_SCHEMA,
    FileRow,
    KeptWords,
    Known,
    KnownFields,
    NewFile,
    PastCommit,
    file_row,
    row_and_condition,
)

VECTOR_SCHEMA = """
CREATE TABLE embedded (file INTEGER PRIMARY KEY, digest BLOB NOT NULL, model TEXT NOT NULL);
CREATE TABLE vectors (file INTEGER NOT NULL, first INTEGER NOT NULL, last INTEGER NOT NULL, vector BLOB NOT NULL);
CREATE INDEX vectors_by_file ON vectors (file);
"""
_AT_ONCE = 2_000


class VectorTable:
    """The vectors in the database of a :class:`~agentflow.memory.index_store.Store`, within its transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def missing(self, model: str, limit: int) -> list[tuple[int, str, str, bytes]]:
        """Id, root, path and digest of the first ``limit`` files without vectors of ``model`` for their present text."""
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
    """The commits in the database of a :class:`~agentflow.memory.index_store.Store`, within its transactions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def head(self, root: int) -> tuple[str, int]:
        """The last commit of the indexed history of ``root`` (``""`` for none), and the number of commits."""
        return self._db.execute("SELECT head, commits FROM roots WHERE id = ?", (root,)).fetchone()

    def set_head(self, root: int, head: str, commits: int) -> None:
        """Record the last commit of the indexed history."""
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
        """Remove all data of a file."""
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


SCHEMA_VERSION = 12
FIELDS = ("body", "path", "symbols", "messages")
"""The searchable fields. Each is an FTS5 table, so that each has its own statistics and length."""

_KEPT_ROWS = 20_000
_BUSY_S = 1.0
"""Maximum wait of a write for another process, which holds the database for one batch at a time."""
_CLAIM_S = 5.0
"""How long a process counts as the one that indexes after it has said so; it does at every batch."""
_BULK: Mapping[str, int] = {"hashsize": 8 << 20, "automerge": 0, "crisismerge": 256}
_USUAL: Mapping[str, int] = {"hashsize": 1 << 20, "automerge": 4, "crisismerge": 16}
_MERGED_PAGES = 1_000
_PAGES_ASKED, _PAGES_BUILT = -32_000, -16_000
"""Memory for the database's pages, in KiB as SQLite wants it; a first build, which mostly adds, has its words in memory too."""
_COMMON = 0.25
"""A term held by more than this share of the rows is left out of a search that has rarer terms."""

_SCHEMA = f"""{VECTOR_SCHEMA}{KEPT_SCHEMA}{HISTORY_SCHEMA}
CREATE TABLE writer (id INTEGER PRIMARY KEY CHECK (id = 1), store TEXT NOT NULL, pid INTEGER NOT NULL, until REAL NOT NULL);
CREATE TABLE roots (id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, head TEXT NOT NULL DEFAULT '',
    built INTEGER NOT NULL DEFAULT 0, commits INTEGER NOT NULL DEFAULT 0, names TEXT NOT NULL DEFAULT '');
CREATE TABLE files (id INTEGER PRIMARY KEY, root INTEGER NOT NULL, path TEXT NOT NULL, size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL, inode INTEGER NOT NULL, digest BLOB NOT NULL, language TEXT NOT NULL,
    lines INTEGER NOT NULL, symbols TEXT NOT NULL, seen_ns INTEGER NOT NULL,
    recency REAL, UNIQUE (root, path));
CREATE INDEX files_by_recency ON files (root, recency) WHERE recency IS NOT NULL;
CREATE TABLE skips (root INTEGER NOT NULL, path TEXT NOT NULL, reason TEXT NOT NULL, PRIMARY KEY (root, path))
    WITHOUT ROWID;
CREATE VIRTUAL TABLE body USING fts5(t, tokenize='porter unicode61 remove_diacritics 0', content='');
CREATE VIRTUAL TABLE path USING fts5(t, tokenize='porter unicode61 remove_diacritics 0', content='');
CREATE VIRTUAL TABLE symbols USING fts5(t, tokenize='porter unicode61 remove_diacritics 0', content='');
"""
_OWN = NewFile._fields[:-1]
"""The fields of a row of ``files`` about the file itself."""


class Store:
    """The tables of one index. All methods block; call them from one thread.

    Parameters: ``database`` a file path, or None to keep the index in memory; an index of another version is replaced.
    ``all_kept``: the data needed for deletion is kept of all files with numbers up to this, also in a first build. Raises
    sqlite3.Error or OSError if the file cannot be opened or is not an index.
    """

    def __init__(self, database: Path | None, *, all_kept: int = ALL_KEPT) -> None:
        self._rows: dict[int, FileRow] = {}
        self._holding: dict[tuple[str, str], int] = {}
        self._counts: dict[str, int] = {}
        self._tops: dict[int, tuple[str, float]] | None = None
        self._version = self._read_version = -1
        self._changes = 0
        self._token = os.urandom(8).hex()
        if database is not None:
            make_private_file(database)
        self._db = _connected(database)
        try:
            self._prepare(database)
        except BaseException:  # also when interrupted: no connection stays open without an owner
            self._db.close()
            raise
        self._words = KeptWords(self._db, all_kept)
        self.history = History(self._db)
        """Past commits and the files they touched."""
        self.vectors = VectorTable(self._db)
        """The vectors of files by embedding models."""

    def _prepare(self, database: Path | None) -> None:
        run = self._db.execute
        if database is not None:
            if not run("PRAGMA page_count").fetchone()[0]:  # of an old one it changes nothing, and wants to write
                run("PRAGMA auto_vacuum=INCREMENTAL")
            run("PRAGMA journal_mode=WAL")
            run("PRAGMA synchronous=NORMAL")
        run(f"PRAGMA cache_size={_PAGES_ASKED}")
        run("PRAGMA temp_store=MEMORY")
        version = run("PRAGMA user_version").fetchone()[0]
        if version == SCHEMA_VERSION:
            return
        names = [name for (name,) in run("SELECT name FROM sqlite_master WHERE type = 'table'")]
        if version == 0 and names:
            raise sqlite3.DatabaseError("it is a database of something else")
        if version:
            self._db.close()
            assert database is not None
            remove_database(database)
            self._db = _connected(database)
            self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")
            self._db.execute("PRAGMA journal_mode=WAL")
        self._db.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} PRAGMA user_version={SCHEMA_VERSION}; COMMIT")

    def close(self) -> None:
        """Close the database."""
        self._db.close()

    def changed_elsewhere(self) -> bool:
        """Whether another connection has written since the last call."""
        version = self._data_version()
        changed, self._version = version != self._version, version
        return changed

    def version(self) -> tuple[int, int]:
        """A value that changes when files have changed, by this store or any other connection."""
        return self._data_version(), self._changes

    def _data_version(self) -> int:
        return self._db.execute("PRAGMA data_version").fetchone()[0]

    @contextmanager
    def snapshot(self) -> Generator[None]:
        """Read a consistent snapshot within the block, even while other processes write."""
        if self._db.in_transaction:
            yield
            return
        self._db.execute("BEGIN")
        try:
            version = self._data_version()
            if version != self._read_version:
                self._read_version = version
                self.forget()
            yield
        finally:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")

    @contextmanager
    def transaction(self) -> Generator[None]:
        """Commit the block, or roll it back if it raises. A block that writes nothing leaves all caches valid."""
        before = self._db.total_changes
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:  # also when interrupted: uncommitted changes are rolled back
            self._db.execute("ROLLBACK")
            raise
        else:
            self._db.execute("COMMIT")
        finally:
            if self._db.total_changes != before:
                self.forget()

    def claim(self) -> None:
        """Record that this process is indexing, and continues after the open transaction."""
        values = (self._token, os.getpid(), time.time() + _CLAIM_S)
        self._db.execute("INSERT OR REPLACE INTO writer VALUES (1, ?, ?, ?)", values)

    def release(self) -> None:
        """Take back :meth:`claim`."""
        self._words.building = False  # also where a first build was stopped
        self._db.execute("DELETE FROM writer WHERE store = ?", (self._token,))

    def written_elsewhere(self) -> bool:
        """Whether another process says that it is indexing, and is there."""
        row = self._db.execute("SELECT pid, until FROM writer WHERE store <> ?", (self._token,)).fetchone()
        return row is not None and 0 < row[1] - time.time() <= _CLAIM_S and _runs(row[0])

    def forget(self) -> None:
        """Forget cached rows: they have changed, or may have."""
        self._rows.clear()
        self._holding.clear()
        self._counts.clear()
        self._tops = None

    def root(self, path: str) -> int:
        """The id of the root ``path``; adds it if it is new."""
        self._db.execute("INSERT OR IGNORE INTO roots (path) VALUES (?)", (path,))
        return self._db.execute("SELECT id FROM roots WHERE path = ?", (path,)).fetchone()[0]

    def roots(self) -> list[str]:
        """All roots, in the order they were added."""
        return [path for (path,) in self._db.execute("SELECT path FROM roots ORDER BY id")]

    def known(self, root: int) -> dict[str, KnownFields]:
        """The indexed state of the files of ``root``, by path."""
        query = "SELECT id, size, mtime_ns, inode, digest, seen_ns, path FROM files WHERE root = ?"
        return {row[-1]: row for row in self._db.execute(query, (root,))}

    def paths(self, root: int) -> dict[str, int]:
        """The files of ``root``: paths with their ids."""
        return dict(self._db.execute("SELECT path, id FROM files WHERE root = ?", (root,)))

    def is_empty(self, root: str) -> bool:
        """Whether nothing below ``root`` is indexed."""
        query = "SELECT 1 FROM files WHERE root = (SELECT id FROM roots WHERE path = ?) LIMIT 1"
        return self._db.execute(query, (root,)).fetchone() is None

    def is_built(self, root: str) -> bool:
        """Whether the first build of ``root`` has ended."""
        return bool(self._db.execute("SELECT 1 FROM roots WHERE path = ? AND built", (root,)).fetchone())

    def set_built(self, root: int, built: bool = True) -> None:
        """Record whether the first build of ``root`` has ended."""
        self._db.execute("UPDATE roots SET built = ? WHERE id = ?", (built, root))

    def names(self, root: int) -> str:
        """The digest of the rules that accepted the names of all files of ``root``; ``""`` if unknown."""
        return self._db.execute("SELECT names FROM roots WHERE id = ?", (root,)).fetchone()[0]

    def set_names(self, root: int, digest: str) -> None:
        """Record the digest of the rules that accepted the names of all files of ``root``."""
        self._db.execute("UPDATE roots SET names = ? WHERE id = ? AND names <> ?", (digest, root, digest))

    def known_one(self, root: int, path: str) -> Known | None:
        """The indexed state of one file."""
        row = self._db.execute(
            "SELECT id, size, mtime_ns, inode, digest, seen_ns, path FROM files WHERE root = ? AND path = ?",
            (root, path),
        ).fetchone()
        return Known(*row) if row else None

    def add(self, files: Sequence[NewFile]) -> range:
        """Add files. Returns their ids."""
        self._changes += 1
        highest = self._db.execute("SELECT max(id) FROM files").fetchone()[0] or 0
        ids = range(highest + 1, highest + 1 + len(files))
        self._db.executemany(
            f"INSERT INTO files ({', '.join(_OWN)}, id) VALUES ({'?, ' * len(_OWN)}?)",
            [(*file[:-1], id) for file, id in zip(files, ids, strict=True)],
        )
        self._words.add(ids, [file.words for file in files])
        return ids

    def replace(self, old: int, file: NewFile) -> None:
        """Let the file ``old`` be ``file``."""
        self._changes += 1
        self._db.execute(
            f"UPDATE files SET {', '.join(f'{name} = ?' for name in _OWN)} WHERE id = ?", (*file[:-1], old)
        )
        self._words.remove(old)
        self._words.add([old], [file.words])

    def touch(self, file: int, size: int, mtime_ns: int, inode: int, seen_ns: int) -> None:
        """Record that a file was examined and its content is unchanged."""
        self._db.execute(
            "UPDATE files SET size=?, mtime_ns=?, inode=?, seen_ns=? WHERE id=?", (size, mtime_ns, inode, seen_ns, file)
        )

    def remove(self, files: Iterable[int]) -> None:
        """Remove files."""
        for file in files:
            self._changes += 1
            self._words.remove(file)
            self._db.execute("DELETE FROM files WHERE id = ?", (file,))
            self.history.drop(file)
            self.vectors.drop(file)

    def set_skips(self, root: int, skips: Mapping[str, str]) -> None:
        """Replace the skipped files of ``root``."""
        if dict(self._db.execute("SELECT path, reason FROM skips WHERE root = ?", (root,))) == skips:
            return
        self._db.execute("DELETE FROM skips WHERE root = ?", (root,))
        self._db.executemany("INSERT INTO skips VALUES (?, ?, ?)", ((root, p, r) for p, r in sorted(skips.items())))

    def set_skip(self, root: int, path: str, reason: str | None) -> None:
        """Record why one file is skipped; None if it no longer is."""
        self._db.execute("DELETE FROM skips WHERE root = ? AND path = ?", (root, path))
        if reason is not None:
            self._db.execute("INSERT INTO skips VALUES (?, ?, ?)", (root, path, reason))

    def skips(self, limit: int) -> list[tuple[str, str, str]]:
        """``(root, path, reason)`` of the first ``limit`` skipped files, sorted."""
        return self._db.execute(
            "SELECT roots.path, skips.path, reason FROM skips JOIN roots ON roots.id = skips.root ORDER BY 1, 2 LIMIT ?",
            (limit,),
        ).fetchall()

    def rename(self, root: int, old: str, new: str) -> None:
        """Let the file ``old`` be the file ``new``, to be read anew, with the history it has. Nothing if it is there."""
        self._changes += 1
        self._db.execute(
            "UPDATE OR IGNORE files SET path = ?, digest = x'', seen_ns = 0 WHERE root = ? AND path = ?",
            (new, root, old),
        )

    def search(self, field: str, terms: Sequence[str], limit: int) -> dict[int, float]:
        """BM25 of the best ``limit`` rows of ``field`` (one of :data:`FIELDS`, or ``commits``) holding any term.

        The search text for a field depends on its notation (:func:`~agentflow.memory.ranking.looked_for`). A term that many
        rows hold adds little to BM25 and costs the most, so it is dropped if there are rarer ones.
        """
        rows = self._count(field)
        rare = [term for term in terms if 0 < self._held(field, term) <= rows * _COMMON]
        selected = " OR ".join(f'"{term}"' for term in rare or terms)
        if not selected:
            return {}
        row, condition = row_and_condition(field)
        scores = self._db.execute(
            f"SELECT {row}, -rank FROM {field} WHERE {field} MATCH ?{condition} ORDER BY rank LIMIT ?",
            (selected, limit),
        )
        return dict(scores.fetchall())

    def count_holding(self, phrase: str) -> int:
        """Number of files with ``phrase`` in their body (see :meth:`search`)."""
        return self._held("body", phrase)

    def _held(self, field: str, term: str) -> int:
        key = (field, term)
        count = self._holding.get(key)
        if count is None:
            if len(self._holding) >= _KEPT_ROWS:
                self._holding.clear()
            cursor = self._db.execute(f"SELECT count(*) FROM {field} WHERE {field} MATCH ?", (f'"{term}"',))
            count = self._holding[key] = cursor.fetchone()[0]
        return count

    def _count(self, field: str) -> int:
        count = self._counts.get(field)
        if count is None:
            count = self._counts[field] = self._db.execute(f"SELECT count(*) FROM {field}_docsize").fetchone()[0]
        return count

    def rows(self, files: Sequence[int]) -> dict[int, FileRow]:
        """The files with these ids, by id."""
        cached = self._rows
        missing = [file for file in files if file not in cached]
        if missing and len(cached) + len(missing) > _KEPT_ROWS:
            cached.clear()
            missing = list(files)
        for start in range(0, len(missing), 500):
            some = tuple(missing[start : start + 500])
            marks = ",".join("?" * len(some))
            roots = self._recent()
            for row in self._db.execute(f"{FILE_ROWS} WHERE id IN ({marks})", some):
                cached[row[0]] = file_row(row, roots)
        return {file: cached[file] for file in files if file in cached}

    def all_rows(self) -> list[FileRow]:
        """Every file, by root and path."""
        roots = self._recent()
        rows = [file_row(row, roots) for row in self._db.execute(FILE_ROWS)]
        return sorted(rows, key=lambda row: (row.root, row.path))

    def rows_at(self, files: Iterable[tuple[str, str]]) -> dict[tuple[str, str], FileRow]:
        """The files at these roots and relative paths."""
        query = f"{FILE_ROWS} WHERE root = (SELECT id FROM roots WHERE path = ?) AND path = ?"
        rows = {at: self._db.execute(query, at).fetchone() for at in files}
        roots = self._recent()
        return {at: file_row(row, roots) for at, row in rows.items() if row is not None}

    def _recent(self) -> dict[int, tuple[str, float]]:
        """Path and highest recency of each root."""
        if self._tops is None:
            query = "SELECT id, path, (SELECT max(recency) FROM files WHERE root = roots.id AND recency IS NOT NULL) FROM roots"
            self._tops = {id: (path, newest or 0.0) for id, path, newest in self._db.execute(query)}
        return self._tops

    def described(self) -> Iterator[tuple[str, str, str, int, list[str]]]:
        """Root, path, language, number of lines and names defined, of every file."""
        query = "SELECT roots.path, files.path, language, lines, symbols FROM files JOIN roots ON roots.id = root"
        for root, path, language, lines, symbols in self._db.execute(query):
            yield root, path, language, lines, symbols.split("\n") if symbols else []

    def count(self) -> int:
        """Number of indexed files."""
        return self._db.execute("SELECT count(*) FROM files").fetchone()[0]

    def begin_bulk(self) -> None:
        """Merge term lists later, by :meth:`end_bulk`: merging as they grow takes as long as making them."""
        self._db.execute(f"PRAGMA cache_size={_PAGES_BUILT}")
        self._words.building = True
        self._configure(_BULK)

    def end_bulk(self, check: Callable[[], None]) -> None:
        """Merge the term lists of a first build, which speeds up searches; ``check`` is called between two steps."""
        self._words.building = False
        self._configure(_USUAL)
        for field in (*FIELDS, "commits"):
            pages = -_MERGED_PAGES
            while True:
                before = self._db.total_changes
                self._db.execute(f"INSERT INTO {field} ({field}, rank) VALUES ('merge', ?)", (pages,))
                if self._db.total_changes - before < 2:
                    break
                check()
                self.claim()
                pages = _MERGED_PAGES
        self._db.executescript(
            "PRAGMA incremental_vacuum"
        )  # pages that merging left empty; `execute` would stop after a page
        self._db.execute(f"PRAGMA cache_size={_PAGES_ASKED}")

    def _configure(self, options: Mapping[str, int]) -> None:
        for field in (*FIELDS, "commits"):
            for name, value in options.items():
                self._db.execute(f"INSERT INTO {field} ({field}, rank) VALUES ('{name}', ?)", (value,))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _connected(database: Path | None) -> sqlite3.Connection:
    return sqlite3.connect(
        str(database) if database else ":memory:", isolation_level=None, check_same_thread=False, timeout=_BUSY_S
    )


def remove_database(database: Path) -> None:
    """Remove the files of a database; processes that have it open continue with theirs. Raises OSError."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{database}{suffix}").unlink(missing_ok=True)
