"""What an index stores of files and commits, as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from agentflow.core.data.frozen import frozen


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


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A commit in the history of ``root`` (its id): hash, time (unix seconds) and subject line."""

    root: int
    digest: str
    time: int
    subject: str


class Words(NamedTuple):
    """What a file says in each field, as it is indexed; bytes are UTF-8."""

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
"""The start of the query whose rows are those of :func:`file_row`."""
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
