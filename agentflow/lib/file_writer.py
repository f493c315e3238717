"""Writes whole files: reports, workflows, formatted programs, lists, whatever a user names as the place for them.

A regular file is replaced atomically and keeps its mode and owner; a link stays, and the file that it leads to is replaced.
Anything else (a terminal, a pipe, a device, a descriptor such as ``/dev/stdout``) is written to.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from pathlib import Path

from agentflow.lib.atomic import replace

READER_S = 10.0
"""Seconds to wait for the reader of a named pipe."""
_MAX_LINKS = 40
_IN_PLACE = frozenset({errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors of replacing a file that may still be written to: a mount of one file, a directory that takes no new files."""


def write_file(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Make ``data`` the content of the file ``path``; ``mode`` is that of a new file, less the umask. Blocking.

    Raises OSError, for a named pipe also if nobody reads it within :data:`READER_S`; a regular file is then unchanged.
    """
    target = _target(path)
    if isinstance(target, int):
        return _write(os.dup(target), data)
    try:
        old = os.stat(target)
    except FileNotFoundError:
        old = None
    if old is not None and stat.S_ISFIFO(old.st_mode):
        return _write(_open_pipe(target), data)
    if old is not None and not stat.S_ISREG(old.st_mode):
        return _write(os.open(target, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), data)
    if old is None or os.geteuid() in (0, old.st_uid):
        try:
            return _replace(target, data, old, mode)
        except OSError as error:
            if old is None or error.errno not in _IN_PLACE:
                raise
    _write(os.open(target, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC), data)


def _target(path: Path) -> str | int:
    """The path to which links lead; the number of a descriptor of this process if they lead there."""
    at = os.path.abspath(path)
    for _ in range(_MAX_LINKS):
        at = os.path.join(os.path.realpath(os.path.dirname(at)), os.path.basename(at))
        if number := re.fullmatch(rf"/proc/(?:self|{os.getpid()})/fd/(\d+)", at):
            return int(number[1])
        if not os.path.islink(at):
            return at
        at = os.path.join(os.path.dirname(at), os.readlink(at))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))


def _replace(target: str, data: bytes, old: os.stat_result | None, mode: int) -> None:
    directory = os.open(os.path.dirname(target), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        replace(directory, os.path.basename(target), data, old=old, exclusive=False, mode=mode)
    finally:
        os.close(directory)


def _open_pipe(path: str) -> int:
    """Open a named pipe for writing, once it has a reader."""
    until = time.monotonic() + READER_S
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() > until:
                raise OSError(errno.ENXIO, "nobody reads this pipe", path) from error
            time.sleep(0.05)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def _write(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(data)


__all__ = ["write_file"]
