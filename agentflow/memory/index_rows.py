"""The stored data of files and commits in an index, as values."""

from __future__ import annotations

import re
import sqlite3
import zlib
from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import NamedTuple

from agentflow.core.data.frozen import frozen

_CHARS_PER_TOKEN = 3.5


def estimated_tokens(text: str) -> int:
    """Tokens of ``text``, estimated at 3.5 characters each (code is denser than prose)."""
    return int(len(text) / _CHARS_PER_TOKEN) + 1


def shards(described: Mapping[str, str], budget_tokens: int) -> list[dict[str, str]]:
    """Split candidates, in order, into shards of similar size and at most ``budget_tokens`` each.

    A single candidate larger than the budget is truncated to it and gets a shard of its own.
    """
    if not described:
        return []
    limit_chars = max(200, int(budget_tokens * _CHARS_PER_TOKEN))
    cut = {path: text[: limit_chars - len(path) - 8] for path, text in described.items()}
    sizes = {path: estimated_tokens(path) + estimated_tokens(text) for path, text in cut.items()}
    count = max(1, -(-sum(sizes.values()) // budget_tokens))
    aim = sum(sizes.values()) / count
    result: list[dict[str, str]] = [{}]
    filled = 0
    for path, text in cut.items():
        if result[-1] and (
            filled + sizes[path] > budget_tokens or (filled + sizes[path] / 2 > aim and len(result) < count)
        ):
            result.append({})
            filled = 0
        result[-1][path] = text
        filled += sizes[path]
    return result


@frozen
class FileRow:
    """An indexed file. ``path`` is relative to ``root`` (an absolute directory path)."""

    id: int
    root: str
    path: str
    language: str
    lines: int
    symbols: tuple[str, ...]
    recency: float
    is_test: bool
    bare: str
    """The file's name without suffix and test marker: ``tests/test_x.py`` and ``x.py`` share one."""


class Known(NamedTuple):
    """The state of a file on disk when it was indexed."""

    id: int
    size: int
    mtime_ns: int
    inode: int
    digest: bytes
    seen_ns: int
    path: str


KnownFields = tuple[int, int, int, int, bytes, int, str]
"""The fields of a :class:`Known`: an unchanged tree is looked at without making one of each row."""


@frozen
class PastCommit:
    """A commit in the history of ``root`` (its id): hash, time (unix seconds) and subject line."""

    root: int
    digest: str
    time: int
    subject: str


class Words(NamedTuple):
    """The indexed text of a file in each field; bytes are UTF-8."""

    body: bytes
    path: bytes
    symbols: str


class NewFile(NamedTuple):
    """A file to index: the fields of its row in their order, and its ``words``.

    ``symbols`` are names with a newline between them.
    """

    root: int
    path: str
    size: int
    mtime_ns: int
    inode: int
    digest: bytes
    language: str
    lines: int
    symbols: str
    seen_ns: int
    words: Words


FILE_ROWS = "SELECT id, root, path, language, lines, symbols, recency FROM files"
"""The start of the query for the rows of :func:`file_row`."""
FileFields = tuple[int, int, str, str, int, str, float | None]


def file_row(row: FileFields, roots: Mapping[int, tuple[str, float]]) -> FileRow:
    """The file that a row of :data:`FILE_ROWS` describes; ``roots`` has path and highest recency of each root, by id."""
    id, root, path, language, lines, symbols, recency = row
    top, newest = roots[root]
    names = tuple(symbols.split("\n")) if symbols else ()
    share = 0.0 if recency is None else 2.0 ** (recency - newest)
    return FileRow(id, top, path, language, lines, names, share, _TEST.search(path) is not None, bare_name(path))


_TEST = re.compile(r"(?:^|/)(?:tests?|testing|spec)/|(?:^|/)test_[^/]*$|[_.-](?:tests?|spec)\.\w+$")
_TEST_NAME = re.compile(r"^(?:tests?[_-])|(?:[_.-](?:tests?|spec))$|^lib(?=.{3})")


def bare_name(path: str) -> str:
    """A file's name in lower case, without directories, suffix and test marker."""
    name = path.rsplit("/", 1)[-1]
    return _TEST_NAME.sub("", name.rsplit(".", 1)[0].lower())


WORD_FIELDS = ("body", "path", "symbols")
"""The fields from the contents of a file itself."""
KEPT_SCHEMA = """
CREATE TABLE kept (file INTEGER PRIMARY KEY, words BLOB NOT NULL);
CREATE TABLE stale (row INTEGER PRIMARY KEY);
"""
KEPT_ROW = 1 << 40
"""Added to the number of a file, it is the number of the row with kept words."""
ALL_KEPT = 2_000
"""The words of files with numbers up to this are always kept."""


class KeptWords:
    """The words of files in the full-text tables of a :class:`~agentflow.memory.index_store.Store`, within its transactions.

    ``all_up_to``: the words of files with numbers up to this are kept in first builds, too.
    """

    def __init__(self, db: sqlite3.Connection, all_up_to: int) -> None:
        self._db = db
        self._all_up_to = all_up_to
        self.building = False
        """Whether this is a first build, which adds files without keeping their words."""

    def add(self, files: Sequence[int], said: Sequence[Words]) -> None:
        """Give files that have no words yet the texts ``said`` at their positions."""
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
"""The order of fields in the kept text: a body may contain the NUL between them."""
_UTF8 = ("utf-8", "surrogatepass")
