"""Reads and writes files within roots, for file tools, tasks and the index.

The rules hold by construction, not by checks that a concurrent rename could invalidate: a path is resolved beneath the
root's descriptor (:mod:`agentflow.executors.file_access`); only regular files are opened; links that stay inside are
followed for reading, none for writing; protected names are refused; a write is atomic
(:mod:`agentflow.lib.atomic`). A small read is one call on a worker thread, so a cancellation leaks nothing.
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import stat
import struct
import sys
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Protocol, TypeVar, cast

from aiofiles import threadpool

from agentflow.core.data.errors import AgentflowError, ConfigurationError, FileFailure, PathDenied
from agentflow.core.ports.executor_ports import FileText
from agentflow.lib.atomic import TEMPORARY, replace, sweep
from agentflow.lib.file_writer import name_text, text_name
from agentflow.lib.own_threads import own_thread
from agentflow.lib.protected_names import EXECUTED, PROTECTED, Protection
from agentflow.lib.shielded import run_or_undo
from agentflow.lib.text.safe_text import shown

MAX_NAME = 255
"""Longest path component in bytes (NAME_MAX of Linux file systems)."""
MAX_PATH = 4_096
"""Longest path in bytes (PATH_MAX)."""


def check_text(path: object) -> str:
    """The file name that ``path`` denotes (:func:`~agentflow.lib.file_writer.text_name`), if the kernel accepts it.

    Raises PathDenied (``files/name``) if it is not text, empty, too long, contains a NUL or cannot be encoded.
    """
    if not isinstance(path, str):
        raise PathDenied(
            f"a path is text, not {type(path).__name__}", code="files/name", hint='write it as "dir/file.txt"'
        )
    if not path:
        raise PathDenied("the path is empty", code="files/name", hint='"." names the root itself')
    if "\0" in path:
        raise PathDenied(f"{shown(path)}: a path cannot hold a NUL character", code="files/name")
    try:
        name = text_name(path)
        raw = os.fsencode(name)
    except UnicodeEncodeError:
        raise PathDenied(f"{shown(path)}: it cannot be encoded as a file name", code="files/name") from None
    if len(raw) > MAX_PATH:
        raise PathDenied(f"the path has {len(raw)} bytes, the maximum is {MAX_PATH}", code="files/name")
    for part in raw.split(b"/"):
        if len(part) > MAX_NAME:
            raise PathDenied(
                f"{shown(path)}: a name has {len(part)} bytes, the maximum is {MAX_NAME}", code="files/name"
            )
    return name


def split(path: str) -> tuple[str, ...] | None:
    """The components of ``path`` with ``.`` and ``..`` resolved as text; None if it climbs above its start."""
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not parts:
                return None
            parts.pop()
        else:
            parts.append(part)
    return tuple(parts)


_SYS_OPENAT2 = 437  # the same number on every architecture but alpha
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_MAX_LINKS = 40
_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)

Checker = Callable[[tuple[str, ...]], None]
"""Called with the components of a resolved path; raises PathDenied if they may not be used."""


class Root:
    """A directory held open: only files beneath its descriptor are inside.

    Parameters: ``path`` an existing directory; a link in the path of the root itself is followed once, now.
    ``kernel`` false uses the descriptor walk even where ``openat2`` exists. Raises ConfigurationError
    (``files/root``) if it is not a directory or the platform cannot open files beneath a descriptor.
    """

    __slots__ = ("_openat2", "aliases", "fd", "path")

    def __init__(self, path: str | os.PathLike[str], *, kernel: bool = True) -> None:
        if os.open not in os.supports_dir_fd:
            raise ConfigurationError("this platform cannot open files beneath a descriptor", code="files/root")
        lexical = Path(path)
        try:
            lexical = Path(os.path.abspath(lexical))  # which needs the working directory, and that may be gone
            # realpath is used to name the root, never to decide whether something lies in it
            real = Path(os.path.realpath(lexical, strict=True))
            self.fd = os.open(real, _O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigurationError(
                f"the root {shown(str(lexical))} is not a directory that can be opened: {error.strerror}",
                code="files/root",
                hint="give an existing directory",
            ) from None
        self.path = real
        self.aliases: tuple[tuple[str, ...], ...] = tuple({real.parts[1:]: None, lexical.parts[1:]: None})
        self._openat2 = _load_openat2(self.fd) if kernel else None

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def relative(self, parts: tuple[str, ...]) -> tuple[str, ...] | None:
        """The components of an absolute path relative to the root; None if it is not below the root."""
        for alias in self.aliases:
            if parts[: len(alias)] == alias:
                return parts[len(alias) :]
        return None

    def open(self, parts: tuple[str, ...], flags: int, path: str, *, links: bool, check: Checker, mode: int = 0) -> int:
        """Open the file ``parts`` beneath the root and return its descriptor, which the caller closes.

        ``links`` follows symbolic links that stay inside; ``check`` is called with every resolved path before it is
        opened. Raises PathDenied (``files/outside``, ``files/symlink``), FileFailure (``files/closed``), OSError.
        """
        if self.fd < 0:
            raise FileFailure(
                "the file manager is closed", code="files/closed", hint="it was closed by aclose(); create a new one"
            )
        check(parts)
        flags |= os.O_CLOEXEC
        if not parts:
            return os.open(".", flags, dir_fd=self.fd)
        if self._openat2 is not None:
            try:
                return self._openat2(self.fd, "/".join(parts), flags | os.O_NOFOLLOW, mode)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.EXDEV, errno.ENOTDIR):
                    raise
        return walk(self, parts, flags, path, links=links, check=check, mode=mode)


def _load_openat2(fd: int) -> Callable[[int, str, int, int], int] | None:
    """A function that calls openat2; None if the kernel lacks it or a filter forbids it."""
    if sys.platform != "linux":
        return None
    import ctypes

    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS

    def openat2(directory: int, name: str, flags: int, mode: int) -> int:
        how = struct.pack("=QQQ", flags, mode if flags & os.O_CREAT else 0, resolve)  # open_how, openat2(2)
        raw = os.fsencode(name)
        while True:
            call = ctypes.c_long(_SYS_OPENAT2), ctypes.c_int(directory), ctypes.c_char_p(raw), ctypes.c_char_p(how)
            descriptor = syscall(*call, ctypes.c_size_t(len(how)))
            if descriptor >= 0:
                return int(descriptor)
            number = ctypes.get_errno()
            # EAGAIN: something was renamed meanwhile and the kernel could not vouch for the answer
            if number not in (errno.EINTR, errno.EAGAIN):
                raise OSError(number, os.strerror(number), name)

    try:
        os.close(openat2(fd, ".", _O_PATH | os.O_CLOEXEC, 0))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM, errno.E2BIG, errno.EINVAL):
            return None
        raise
    return openat2


def walk(
    root: Root, parts: tuple[str, ...], flags: int, path: str, *, links: bool, check: Checker, mode: int = 0
) -> int:
    """Open ``parts`` beneath ``root`` one component at a time; the arguments and errors are those of Root.open."""
    held = [root.fd]
    names: list[str] = []
    todo = list(reversed(parts))
    followed = 0
    try:
        while todo:
            name = todo.pop()
            if name == "..":
                if not names:
                    raise _outside(path)
                names.pop()
                os.close(held.pop())
                continue
            target = _link_target(name, held[-1])
            if target is not None:
                followed += 1
                if not links or followed > _MAX_LINKS:
                    raise _link_refused(path, name, followed)
                ahead = _expand(root, target, path)
                if target.startswith("/"):
                    _release(held, names)
                todo.extend(reversed(ahead))
                continue
            names.append(name)
            if not todo:
                check(tuple(names))
                return os.open(name, flags | os.O_NOFOLLOW, mode, dir_fd=held[-1])
            held.append(os.open(name, _O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=held[-1]))
        check(tuple(names))
        return os.open(".", flags, dir_fd=held[-1])
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            # a link appeared between check and open: another process is racing us
            raise _link_refused(path, names[-1] if names else "", 1) from None
        raise
    finally:
        _release(held, names)


def _release(held: list[int], names: list[str]) -> None:
    while len(held) > 1:
        os.close(held.pop())
    names.clear()


def _link_target(name: str, directory: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        if error.errno == errno.ENOENT:
            return None  # the open that follows reports that, or creates the file
        raise


def _expand(root: Root, target: str, path: str) -> list[str]:
    """The components a link leads to: from the root for an absolute target, else from the link's directory."""
    if target.startswith("/"):
        absolute = split(target)
        below = root.relative(absolute) if absolute is not None else None
        if below is None:
            raise _outside(path)
        return list(below)
    return [part for part in target.split("/") if part not in ("", ".")]


def _outside(path: str) -> PathDenied:
    return PathDenied(
        f"{shown(path)} leads outside of the roots", code="files/outside", hint="give a path below one of the roots"
    )


def _link_refused(path: str, name: str, count: int) -> PathDenied:
    if count > _MAX_LINKS:
        return PathDenied(f"{shown(path)}: more than {_MAX_LINKS} symbolic links", code="files/symlink")
    return PathDenied(
        f"{shown(path)}: {shown(name)} is a symbolic link, which is not followed here",
        code="files/symlink",
        hint="write to its target by the target's own path",
    )


T = TypeVar("T")
PathLike = str | os.PathLike[str]

MAX_BYTES = 10_000_000
"""Default read cap in bytes."""
MAX_ENTRIES = 100_000
"""Maximum number of names in one listing."""
_SNIFF = 8_192
_CHUNK = 65_536
_READ = os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOCTTY", 0)


def digest_of(data: bytes) -> str:
    """The digest that :class:`FileText` holds and ``expected_digest`` is compared with: 16-byte blake2b in hex."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


class FileAccessManager:
    """Reads, writes and lists files below ``roots``; implements :class:`~agentflow.core.ports.executor_ports.FilePort`.

    Parameters: ``roots`` is one directory or several (relative paths start at the first); ``max_bytes`` the read cap in
    bytes; ``protected`` are name patterns refused in any component below a root
    (:data:`~agentflow.lib.protected_names.PROTECTED`); ``executed`` those that may be read but not written
    (:data:`~agentflow.lib.protected_names.EXECUTED`); ``writable`` false refuses every write; ``kernel`` false resolves
    paths without ``openat2``, as on platforms that lack it.

    ``..`` in a path is resolved as text before anything is opened. Close it with :meth:`close` or :meth:`aclose`, or
    use it as an (async) context manager. Raises ConfigurationError (``files/root``) for a root that is not a directory.
    """

    def __init__(
        self,
        roots: PathLike | Sequence[PathLike],
        *,
        max_bytes: int = MAX_BYTES,
        protected: Iterable[str] = PROTECTED,
        executed: Iterable[str] = EXECUTED,
        writable: bool = True,
        kernel: bool = True,
    ) -> None:
        paths = [roots] if isinstance(roots, str | os.PathLike) else list(roots)
        if not paths:
            raise ConfigurationError("roots is empty", code="files/root", hint='FileAccessManager(".")')
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int) or max_bytes < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"max_bytes={max_bytes!r} is not a number of bytes", code="files/root")
        self._max_bytes = max_bytes
        protected = tuple(protected)
        self._protection = Protection(protected)
        self._write_protection = Protection((*protected, *executed))
        self._writable = writable
        self._roots: list[Root] = []
        self._lock = threading.Lock()
        self._sweep_lock = threading.Lock()
        self._swept = False
        try:
            for path in paths:
                self._roots.append(Root(path, kernel=kernel))
        except ConfigurationError:
            self.close()
            raise

    # -- life ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the roots' descriptors. Every later call raises FileFailure (``files/closed``). Idempotent."""
        for root in self._roots:
            root.close()

    async def aclose(self) -> None:
        """The same as :meth:`close`."""
        self.close()

    def __enter__(self) -> FileAccessManager:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> FileAccessManager:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # -- names --------------------------------------------------------------------------------------------------

    @property
    def roots(self) -> tuple[Path, ...]:
        """The roots, with links in their own paths resolved."""
        return tuple(root.path for root in self._roots)

    def absolute(self, path: str) -> str:
        """The absolute form of ``path``; a relative path starts at the first root. Does not touch the disk.

        Raises PathDenied for an invalid path and for one outside the roots.
        """
        root, parts = self._locate(path)
        return name_text(str(root.path.joinpath(*parts)))

    def _locate(self, path: str) -> tuple[Root, tuple[str, ...]]:
        text = check_text(path)
        parts = split(text)
        if parts is not None and not text.startswith("/"):
            return self._roots[0], parts
        if parts is not None:
            candidates = [
                (len(below), root, below) for root in self._roots if (below := root.relative(parts)) is not None
            ]
            if candidates:
                _, root, below = min(candidates, key=lambda item: item[0])
                return root, below
        raise PathDenied(
            f"{shown(text)} is outside of the roots",
            code="files/outside",
            hint="give a path below " + ", ".join(str(root.path) for root in self._roots),
        )

    # -- reading ------------------------------------------------------------------------------------------------

    async def read(self, path: str, *, max_bytes: int | None = None) -> FileText:
        """The text of a file, line ends unchanged.

        ``max_bytes`` lowers or raises the cap for this call. A file with NUL bytes is ``binary`` and has an empty text.
        Raises PathDenied, and FileFailure: ``files/not-found``, ``files/too-large``, ``files/encoding`` (not UTF-8),
        ``files/permission``, ``files/io``.
        """
        return await own_thread(self.read_now, path, max_bytes)

    async def read_bytes(self, path: str, *, max_bytes: int | None = None) -> bytes:
        """The bytes of a file. Raises the errors of :meth:`read`, except encoding errors."""
        return await own_thread(self._read_bytes, path, max_bytes)

    async def stream(self, path: str, *, chunk_bytes: int = _CHUNK) -> AsyncGenerator[bytes, None]:
        """The bytes of a file of any size, ``chunk_bytes`` at a time. Use it under ``contextlib.aclosing``.

        Raises the errors of :meth:`read_bytes`, without its cap.
        """
        raw = await run_or_undo(own_thread(self._open_raw, path), undo=io.FileIO.close)
        try:
            file = cast(_AsyncReader, threadpool.wrap(raw))
            while chunk := await run_or_undo(file.read(chunk_bytes)):
                yield chunk
        finally:
            # run_or_undo has waited for the last read, so the descriptor's number cannot have been reused
            raw.close()

    def _open_raw(self, path: str) -> io.FileIO:
        return io.FileIO(self.open_file(path), "rb")

    def open_file(self, path: str) -> int:
        """A descriptor for reading a regular file below the roots, for callers on a worker thread, who close it.

        Raises PathDenied and FileFailure.
        """
        root, parts = self._locate(path)
        fd = _guarded(path, lambda: root.open(parts, _READ, path, links=True, check=self._checker(path)))
        try:
            kind = os.fstat(fd).st_mode
            if not stat.S_ISREG(kind):
                raise _not_regular(path, kind)
            return fd
        except BaseException:  # close the descriptor, then raise again
            os.close(fd)
            raise

    def _checker(self, path: str) -> Callable[[tuple[str, ...]], None]:
        return lambda parts: self._protection.check(parts, path)

    def _read_bytes(self, path: str, max_bytes: int | None) -> bytes:
        cap = self._max_bytes if max_bytes is None else max_bytes
        fd = self.open_file(path)
        try:
            return _guarded(path, lambda: _read_capped(fd, cap, path))
        finally:
            os.close(fd)

    def read_now(self, path: str, max_bytes: int | None = None) -> FileText:
        """The same as :meth:`read`. Blocking."""
        data = self._read_bytes(path, max_bytes)
        digest = digest_of(data)
        if b"\0" in data[:_SNIFF]:
            return FileText(path, "", len(data), digest, binary=True)
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FileFailure(
                f"{shown(path)} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
                code="files/encoding",
                hint="convert it to UTF-8, or read its bytes",
                details={"encoding": "utf-8", "offset": error.start},
            ) from None
        return FileText(path, text, len(data), digest, newline=newline_of(text))

    async def exists(self, path: str) -> bool:
        """Whether ``path`` is a file or directory below the roots. Raises PathDenied for a refused path."""
        return await own_thread(self._mode, path) is not None

    def is_file_now(self, path: str) -> bool:
        """Whether ``path`` is a regular file below the roots, for callers on a worker thread. Raises PathDenied."""
        mode = self._mode(path)
        return mode is not None and stat.S_ISREG(mode)

    def _mode(self, path: str) -> int | None:
        """The mode of the file that ``path`` resolves to; None if there is none."""
        root, parts = self._locate(path)
        flags = getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
        try:
            fd = root.open(parts, flags, path, links=True, check=self._checker(path))
        except OSError:
            return None
        try:
            return os.fstat(fd).st_mode
        finally:
            os.close(fd)

    async def list(self, path: str) -> list[str]:
        """The names in a directory, sorted; bytes other than UTF-8 are written ``\\xNN``, which :meth:`read` understands.

        Raises PathDenied, and FileFailure: ``files/not-found``, ``files/not-directory``, ``files/too-large``.
        """
        return await own_thread(self.list_now, path)

    def list_now(self, path: str) -> list[str]:
        """The same as :meth:`list`. Blocking."""
        fd = self.open_directory(path)
        try:
            names: list[str] = []
            with os.scandir(fd) as entries:
                for entry in entries:
                    if entry.name.startswith(TEMPORARY):
                        continue
                    names.append(name_text(entry.name))
                    if len(names) > MAX_ENTRIES:
                        raise FileFailure(f"{shown(path)} has more than {MAX_ENTRIES} entries", code="files/too-large")
            return sorted(names)
        finally:
            os.close(fd)

    def open_directory(self, path: str) -> int:
        """Open a directory below the roots; the caller, on a worker thread, closes the descriptor.

        Raises PathDenied and FileFailure.
        """
        root, parts = self._locate(path)
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NONBLOCK
        return _guarded(path, lambda: root.open(parts, flags, path, links=True, check=self._checker(path)))

    # -- writing ------------------------------------------------------------------------------------------------

    async def write(
        self, path: str, content: str | bytes, *, overwrite: bool = False, expected_digest: str | None = None
    ) -> None:
        """Write a file atomically: it holds the old or the new content at any moment. Creates missing directories.

        An existing file is replaced only with ``overwrite``, or if ``expected_digest`` is the digest of its current
        content. Text is written as UTF-8, line ends unchanged. Raises PathDenied (``files/symlink``,
        ``files/not-regular`` ...), and FileFailure: ``files/exists``, ``files/changed``, ``files/no-space``,
        ``files/permission``, ``files/encoding``, ``files/io``; the old file is then unchanged.
        """
        await own_thread(self._write, path, content, overwrite, expected_digest)

    def _write(self, path: str, content: str | bytes, overwrite: bool, expected: str | None) -> None:
        root, parts = self._locate(path)
        if not self._writable:
            raise PathDenied(f"{shown(path)}: these roots are read-only", code="files/read-only")
        if not parts or path.endswith("/"):
            raise PathDenied(f"{shown(path)} names a directory", code="files/not-regular")
        self._write_protection.check(parts, path)
        if isinstance(content, str):
            try:
                content = content.encode("utf-8")
            except UnicodeEncodeError as error:
                raise FileFailure(
                    f"the content for {shown(path)} has a lone surrogate at character {error.start}: not UTF-8",
                    code="files/encoding",
                ) from None
        self.sweep_now(once=True)
        _guarded(path, lambda: self._replace(root, parts, path, content, overwrite, expected))

    def _replace(
        self, root: Root, parts: tuple[str, ...], path: str, data: bytes, overwrite: bool, expected: str | None
    ) -> None:
        directory = self._make_parents(root, parts[:-1], path)
        try:
            name = parts[-1]
            old = _look(directory, name, path)
            if old is not None and not overwrite and expected is None:
                raise FileFailure(
                    f"{shown(path)} exists",
                    code="files/exists",
                    hint="pass overwrite=true to replace it, or the digest of the content you read",
                )
            # writers of one process are serialised, so that of two that expect the same digest one fails
            with self._lock:
                if expected is not None:
                    self._expect(directory, name, path, expected)
                replace(directory, name, data, old=old, exclusive=not overwrite and expected is None)
        finally:
            os.close(directory)

    def _make_parents(self, root: Root, parts: tuple[str, ...], path: str) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY
        check = self._checker(path)
        try:
            return root.open(parts, flags, path, links=False, check=check)
        except FileNotFoundError:
            above = self._make_parents(root, parts[:-1], path)
            try:
                os.mkdir(parts[-1], dir_fd=above)
            except FileExistsError:
                pass
            finally:
                os.close(above)
            return root.open(parts, flags, path, links=False, check=check)

    def _expect(self, directory: int, name: str, path: str, expected: str) -> None:
        try:
            fd = os.open(name, _READ | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        except FileNotFoundError:
            held = None
        else:
            try:
                held = digest_of(_read_capped(fd, None, path))
            finally:
                os.close(fd)
        if held != expected:
            raise FileFailure(
                f"{shown(path)} has changed" if held else f"{shown(path)} is gone",
                code="files/changed",
                hint="read it again before you write",
                details={"digest": held, "expected": expected},
            )

    async def sweep(self) -> int:
        """Remove temporary files that killed writers left. Returns their number. The first write does this too."""
        return await own_thread(self.sweep_now)

    def sweep_now(self, *, once: bool = False) -> int:
        """:meth:`sweep`, for callers on a worker thread; ``once`` does nothing after the first time."""
        with self._sweep_lock:
            if once and self._swept:
                return 0
            self._swept = True
            return sum(sweep(root.fd) for root in self._roots if root.fd >= 0)

    # -- the specification's names --------------------------------------------------------------------------------

    async def read_file(self, file_path: str, max_size: int | None = None) -> str | None:
        """The text of a file; None if it cannot be read. :meth:`read` raises the reason."""
        try:
            file = await self.read(file_path, max_bytes=max_size)
            if file.binary:
                raise FileFailure(f"{shown(file_path)} is binary", code="files/binary")
        except (PathDenied, FileFailure) as error:
            _note(error)
            return None
        return file.text

    async def write_file(self, file_path: str, content: str, overwrite: bool = False) -> bool:
        """Write a file; False if it cannot be written. :meth:`write` raises the reason."""
        try:
            await self.write(file_path, content, overwrite=overwrite)
        except (PathDenied, FileFailure) as error:
            _note(error)
            return False
        return True

    async def list_directory(self, directory_path: str) -> list[str] | dict[str, str]:
        """The names in a directory, or ``{"error": message}``. :meth:`list` raises the error."""
        try:
            return await self.list(directory_path)
        except (PathDenied, FileFailure) as error:
            _note(error)
            return {"error": error.message}


_noted: ContextVar[deque[AgentflowError] | None] = ContextVar("agentflow_files_not_done", default=None)


def _note(error: AgentflowError) -> None:
    noted = _noted.get()
    if noted is not None:
        noted.append(error)


@contextmanager
def not_done() -> Generator[deque[AgentflowError]]:
    """The errors behind each None, False and ``{"error": ...}`` that the specification's methods give in the block."""
    noted: deque[AgentflowError] = deque(maxlen=8)
    token = _noted.set(noted)
    try:
        yield noted
    finally:
        _noted.reset(token)


def newline_of(text: str) -> str:
    """The most frequent line end of ``text``: ``\\n``, ``\\r\\n`` or ``\\r``."""
    crlf = text.count("\r\n")
    counts = {"\n": text.count("\n") - crlf, "\r\n": crlf, "\r": text.count("\r") - crlf}
    return max(counts, key=lambda end: counts[end])


def _read_capped(fd: int, cap: int | None, path: str) -> bytes:
    size = os.fstat(fd).st_size
    if cap is not None and size > cap:
        raise _too_large(path, size, cap)
    chunks: list[bytes] = []
    total = 0
    want = size + 1
    while chunk := os.read(fd, max(want - total, _CHUNK) if cap is None else min(max(want, _CHUNK), cap + 1 - total)):
        chunks.append(chunk)
        total += len(chunk)
        if cap is not None and total > cap:
            raise _too_large(path, total, cap)
        if total < want and total == size:
            # the size matches the announced one: another, empty read would only confirm it
            break
    return b"".join(chunks) if len(chunks) != 1 else chunks[0]


def _too_large(path: str, size: int, cap: int) -> FileFailure:
    return FileFailure(
        f"{shown(path)} has {size} bytes, the maximum is {cap}",
        code="files/too-large",
        hint="raise max_bytes, or stream it",
        details={"size": size, "limit": cap},
    )


def _look(directory: int, name: str, path: str) -> os.stat_result | None:
    """The status of ``name``, None if it does not exist. Raises PathDenied unless it is a regular file."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        raise PathDenied(
            f"{shown(path)} is a symbolic link; writes do not follow links",
            code="files/symlink",
            hint="write to its target by the target's own path",
        )
    if not stat.S_ISREG(status.st_mode):
        raise _not_regular(path, status.st_mode)
    return status


_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
)


def _not_regular(path: str, mode: int) -> PathDenied:
    kind = next((name for test, name in _KINDS if test(mode)), "not a file")
    return PathDenied(f"{shown(path)} is {kind}, not a regular file", code="files/not-regular")


_CODES = {
    errno.ENOENT: ("files/not-found", "there is no such file or directory"),
    errno.ENOTDIR: ("files/not-directory", "a part of the path is not a directory"),
    errno.EACCES: ("files/permission", "permission denied"),
    errno.EPERM: ("files/permission", "permission denied"),
    errno.EROFS: ("files/permission", "the file system is read-only"),
    errno.EEXIST: ("files/exists", "it already exists"),
    errno.ENOSPC: ("files/no-space", "no space is left on the device"),
    errno.EDQUOT: ("files/no-space", "the disk quota is used up"),
    errno.EFBIG: ("files/no-space", "the file would exceed the size limit"),
}


def _guarded(path: str, action: Callable[[], T]) -> T:
    """Run ``action`` and map OSError to FileFailure and PathDenied."""
    try:
        return action()
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.ENODEV):
            raise PathDenied(
                f"{shown(path)} is a socket or device, not a regular file", code="files/not-regular"
            ) from None
        if error.errno in (errno.ENAMETOOLONG, errno.EILSEQ):
            raise PathDenied(f"{shown(path)}: the file system refuses this name", code="files/name") from None
        if error.errno == errno.EISDIR:
            raise _not_regular(path, stat.S_IFDIR) from None
        code, words = _CODES.get(error.errno or 0, ("files/io", error.strerror or "input/output error"))
        raise FileFailure(f"{shown(path)}: {words}", code=code, details={"errno": error.errno}) from error


class _AsyncReader(Protocol):
    async def read(self, size: int, /) -> bytes: ...
