"""Opens files beneath a directory held as a descriptor, immune to concurrent changes of the path.

The kernel resolves a path in one step beneath the root's descriptor with ``openat2`` (``RESOLVE_BENEATH``,
``RESOLVE_NO_MAGICLINKS``, ``RESOLVE_NO_SYMLINKS``; Linux 5.6, see openat2(2)). Where that call is missing, or where a
symbolic link must be followed, :func:`walk` opens one component after the other with ``O_NOFOLLOW``, keeps the
descriptors, and resolves links itself: every name involved is known and can be checked, and no name is looked up again
after its check.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from pathlib import Path

from agentflow.core.data.errors import ConfigurationError, FileFailure, PathDenied
from agentflow.executors.path_rules import split
from agentflow.lib.text.terminal import shown

_SYS_OPENAT2 = 437  # the same number on every architecture but alpha
_RESOLVE_NO_MAGICLINKS = 0x02
_RESOLVE_NO_SYMLINKS = 0x04
_RESOLVE_BENEATH = 0x08
_MAX_LINKS = 40
_O_PATH = getattr(os, "O_PATH", os.O_RDONLY)

Checker = Callable[[tuple[str, ...]], None]
"""Called with the components of a resolved path; raises PathDenied if they may not be used."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Root:
    """A directory held open: exactly what lies beneath its descriptor is inside.

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
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS | _RESOLVE_NO_SYMLINKS
    size = ctypes.c_size_t(ctypes.sizeof(_OpenHow))

    def openat2(directory: int, name: str, flags: int, mode: int) -> int:
        how = _OpenHow(flags, mode if flags & os.O_CREAT else 0, resolve)
        raw = os.fsencode(name)
        while True:
            descriptor = syscall(
                ctypes.c_long(_SYS_OPENAT2), ctypes.c_int(directory), ctypes.c_char_p(raw), ctypes.byref(how), size
            )
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
            # a link appeared between check and open: somebody is racing us
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
