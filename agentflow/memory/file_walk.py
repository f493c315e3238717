"""Finding and reading files below a root without ever leaving it.

Every name is opened relative to a directory descriptor, component by component, with ``O_NOFOLLOW``: if the tree changes
between listing and reading (a directory swapped for a symbolic link, a file for a FIFO), the file read is still a
regular file reached from the root only through real directories.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import NamedTuple

from agentflow.lib.file_writer import name_text, text_name
from agentflow.memory.rules import IgnoreRules, IndexRules

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_TOP = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | getattr(os, "O_NOCTTY", 0)
_NO_PATH = re.compile(r"(?:\A|/)\.{0,2}(?:/|\Z)|\0")
"""An empty component or one that leads elsewhere, or no name at all."""
_NO_NAMES = ("", ".", "..")
_KEPT_DIRECTORIES = 48
_MAX_DEPTH = 200

OpenRoot = Callable[[str], int]
"""Returns a descriptor of a root's directory, on a worker thread; the caller closes it. Raises OSError or AgentflowError."""


class Skip(Exception):
    """A file is not indexed; the argument is the reason, in words for the user."""


class Stamp(NamedTuple):
    """Detects a change of a file: size in bytes, modification time in ns, inode."""

    size: int
    mtime_ns: int
    inode: int


StampFields = tuple[int, int, int]
"""The fields of a :class:`Stamp`, which equals them."""


class RootReader:
    """Stats and reads files below ``root`` (an absolute directory path) through descriptors.

    ``open_root`` gives the descriptor of the root, which the reader closes; by default the path is opened.
    A context manager: the descriptors are closed at its end. Raises OSError when the root cannot be opened.
    """

    def __init__(self, root: str, open_root: OpenRoot | None = None) -> None:
        self.root = root
        self._top = open_root(root) if open_root is not None else os.open(text_name(root), _TOP)
        self._open: OrderedDict[str, int] = OrderedDict()
        self._last = ("", self._top)
        self._checked: str | None = None
        """The directory of the last path that was checked."""

    def __enter__(self) -> RootReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all descriptors. May be called twice."""
        for descriptor in self._open.values():
            os.close(descriptor)
        self._open.clear()
        if self._top >= 0:
            os.close(self._top)
            self._top = -1
        self._last = ("", -1)

    def is_at(self, path: str) -> bool:
        """Whether ``path`` still leads to the root's directory."""
        try:
            return os.path.samestat(os.stat(text_name(path)), os.fstat(self._top))
        except OSError:
            return False

    def directory(self, path: str) -> int:
        """A descriptor of the directory ``path`` (relative, ``/`` between names, ``""`` the root). The reader closes
        it.

        Raises OSError; ELOOP or ENOTDIR when a component is a symbolic link.
        """
        if path == self._last[0]:
            return self._last[1]
        if not path:
            return self._top
        cached = self._open.get(path)
        if cached is not None:
            self._open.move_to_end(path)
            self._last = (path, cached)
            return cached
        parent, _, name = path.rpartition("/")
        descriptor = os.open(text_name(name), _DIRECTORY, dir_fd=self.directory(parent))
        self._open[path] = descriptor
        while len(self._open) > _KEPT_DIRECTORIES:
            _, oldest = self._open.popitem(last=False)
            os.close(oldest)
        self._last = (path, descriptor)
        return descriptor

    def stamp(self, path: str) -> Stamp:
        """Size, time and inode of the regular file ``path``. Raises Skip if it is not one or cannot be reached."""
        _check(path)
        parent, _, name = path.rpartition("/")
        try:
            status = os.stat(text_name(name), dir_fd=self.directory(parent), follow_symlinks=False)
        except OSError as error:
            raise Skip(why(error)) from None
        return _stamp(status)

    def stamp_fields(self, path: str) -> StampFields | None:
        """:meth:`stamp` of a path indexed before; None instead of a reason."""
        parent, _, name = path.rpartition("/")
        try:
            status = os.stat(text_name(name), dir_fd=self.directory(parent), follow_symlinks=False)
        except OSError:
            return None
        return _stamp_fields(status)

    def read(self, path: str, max_bytes: int) -> tuple[bytes, Stamp]:
        """The bytes of the regular file ``path``. Raises Skip if there are more than ``max_bytes``."""
        parent, _, name = path.rpartition("/")
        if parent != self._checked or name in _NO_NAMES or "\0" in name:
            _check(path)
            self._checked = parent
        try:
            descriptor = os.open(text_name(name), _FILE, dir_fd=self.directory(parent))
        except OSError as error:
            raise Skip(why(error)) from None
        try:
            stamp = _stamp(os.fstat(descriptor))
            if stamp.size > max_bytes:
                raise Skip(too_large(stamp.size, max_bytes))
            data = os.read(descriptor, stamp.size + 1)
            return data if len(data) == stamp.size else _read_on(descriptor, data, max_bytes), stamp
        except OSError as error:
            raise Skip(why(error)) from None
        finally:
            os.close(descriptor)


def _check(path: str) -> None:
    if _NO_PATH.search(path) is not None:
        raise Skip("not a path below the root")
    if path.count("/") > _MAX_DEPTH:
        raise Skip(f"nested deeper than {_MAX_DEPTH} directories")


def _stamp(status: os.stat_result) -> Stamp:
    if stat.S_ISREG(status.st_mode):
        return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)
    raise Skip("a symbolic link" if stat.S_ISLNK(status.st_mode) else "not a regular file")


def _read_on(descriptor: int, begun: bytes, max_bytes: int) -> bytes:
    """The whole contents of a file after ``begun`` was read of it, if it differs from its size."""
    pieces = [begun]
    left = max_bytes + 1 - len(begun)
    while left > 0 and (piece := os.read(descriptor, min(left, 1 << 20))):
        pieces.append(piece)
        left -= len(piece)
    if left <= 0:
        raise Skip(f"grew beyond {max_bytes:,} bytes while it was read")
    return b"".join(pieces)


def too_large(size: int, max_bytes: int) -> str:
    """The reason for leaving out a file of ``size`` bytes."""
    return f"larger than {max_bytes:,} bytes ({size:,})"


def why(error: OSError) -> str:
    """The reason for skipping a file after an operating-system error."""
    match error.errno:
        case errno.ENOENT:
            return "gone before it was read"
        case errno.ELOOP | errno.ENOTDIR:
            return "reached through a symbolic link"
        case errno.EACCES | errno.EPERM:
            return "permission denied"
        case _:
            return (error.strerror or "cannot be read").lower()


def walk(
    reader: RootReader,
    rules: IndexRules,
    skipped: Callable[[str, str], None],
    check: Callable[[], None],
    start: str = "",
    *,
    stamps: bool = True,
) -> Iterator[tuple[str, StampFields | None]]:
    """The files below ``start`` in name order, without those that ``.gitignore`` files exclude.

    Yields each path with its stamp at the time its directory was listed; None if it is not a regular file, or was gone by
    then, and for all files without ``stamps``, which cost a system call each. Symbolic links are reported and never
    followed, so loops cannot occur. ``skipped(path, reason)`` is called for each file left out, except those excluded by
    ignore rules. ``check`` is called often and may raise.
    """
    pending: list[tuple[str, IgnoreRules]] = [(start, IgnoreRules())]
    while pending:
        at, inherited = pending.pop()
        below: list[tuple[str, IgnoreRules]] = []
        files: list[tuple[str, StampFields | None]] = []
        links: list[str] = []
        prefix = f"{at}/" if at else ""
        try:
            # entries are asked for their stamps through the directory's descriptor, so before anything else is opened
            with os.scandir(reader.directory(at)) as scan:
                entries = {name_text(entry.name): entry for entry in scan}
            local = inherited
            if ".gitignore" in entries and not entries[".gitignore"].is_dir(follow_symlinks=False):
                local = _extended(inherited, reader, prefix, skipped)
            ignored = local.ignored if local.any else None
            check()
            for name in sorted(entries):
                entry, path = entries[name], prefix + name
                is_directory = entry.is_dir(follow_symlinks=False)
                if is_directory and not rules.enters(path):
                    continue
                if ignored is not None and ignored(text_name(path), is_directory):
                    continue
                if not is_directory:
                    stamp = _stamp_of(entry) if stamps else None
                    if stamp is None and entry.is_symlink():
                        links.append(path)
                    else:
                        files.append((path, stamp))
                elif path.count("/") < _MAX_DEPTH:
                    below.append((path, local))
                else:
                    skipped(path, f"nested deeper than {_MAX_DEPTH} directories")
        except OSError as error:
            skipped(at or ".", why(error))
            continue
        for path in links:
            skipped(path, "a symbolic link")
        yield from files
        pending.extend(reversed(below))


def _extended(rules: IgnoreRules, reader: RootReader, prefix: str, skipped: Callable[[str, str], None]) -> IgnoreRules:
    try:
        text, _ = reader.read(f"{prefix}.gitignore", 1 << 20)
    except Skip as reason:
        skipped(f"{prefix}.gitignore", str(reason))
        return rules
    return rules.extended(text_name(prefix.removesuffix("/")), os.fsdecode(text))


def _stamp_of(entry: os.DirEntry[str]) -> StampFields | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None
    return _stamp_fields(status)


def _stamp_fields(status: os.stat_result) -> StampFields | None:
    return (status.st_size, status.st_mtime_ns, status.st_ino) if stat.S_ISREG(status.st_mode) else None
