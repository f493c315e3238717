"""Writes whole files to paths that a user chooses: reports, workflows, formatted programs, lists.

A regular file is replaced atomically and keeps its mode and owner; a link stays, and the file that it leads to is replaced.
Anything else (a terminal, a pipe, a device, a descriptor such as ``/dev/stdout``) is written to.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from pathlib import Path
from typing import Any, cast

from agentflow.lib.atomic import replace
from agentflow.lib.text.late_pattern import late_pattern

_ENCODED = late_pattern(r"[\udc80-\udcff]|\\(?=x(?:[89a-f][0-9a-f]|5c))")
_WRITTEN = late_pattern(r"\\x([89a-f][0-9a-f]|5c)")


def name_text(name: str) -> str:
    """The text of ``name``, a file name or path as the :mod:`os` functions give it. The inverse is :func:`text_name`."""
    if name.isascii() and "\\" not in name:
        return name
    return _ENCODED.sub(lambda match: f"\\x{ord(match.group()) & 0xFF:02x}", name)


def text_name(text: str) -> str:
    """The name that ``text`` stands for, as the :mod:`os` functions take it.

    Escapes that spell UTF-8 give the same name as the characters themselves, so that rules on names see one spelling.
    """
    if "\\x" not in text:
        return text
    raw = _WRITTEN.sub(lambda match: chr(0xDC00 + int(match.group(1), 16)) if match.group(1) != "5c" else "\\", text)
    return os.fsdecode(os.fsencode(raw))


READER_S = 10.0
"""Seconds to wait for the reader of a named pipe."""
_MAX_LINKS = 40
_IN_PLACE = frozenset({errno.EBUSY, errno.EXDEV, errno.EACCES, errno.EPERM, errno.EROFS})
"""Errors of replacing a file that may still be written to: a mount of one file, a directory that takes no new files."""


def write_file(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Make ``data`` the content of the file ``path``; ``mode`` is that of a new file, less the umask. Blocking.

    Raises OSError, for a named pipe also without a reader within :data:`READER_S`; a regular file is then unchanged.
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
    """The target path of links; the number of a descriptor of this process if they lead there."""
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
                raise OSError(errno.ENXIO, "this pipe has no reader", path) from error
            time.sleep(0.05)
        else:
            os.set_blocking(descriptor, True)
            return descriptor


def _write(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb") as file:
        file.write(data)


FILE_MODE = 0o600
DIRECTORY_MODE = 0o700


def state_path() -> Path:
    """The directories of agentflow's persistent files, by the XDG base directories; they may not exist yet."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "agentflow"


def data_path() -> Path:
    """The directory of files that agentflow installed for its user, by the XDG base directories; it may not exist yet."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "agentflow"


def make_private_directory(path: Path) -> Path:
    """Create ``path`` and its missing parents, closed to others; leave existing ones unchanged. Raises OSError."""
    missing: list[Path] = []
    at = path
    while not at.is_dir():
        missing.append(at)
        at = at.parent
    for directory in reversed(missing):
        try:
            directory.mkdir(mode=DIRECTORY_MODE)
        except FileExistsError:
            if not directory.is_dir():
                raise
    return path


def open_private(path: str, flags: int) -> int:
    """An opener for :func:`open` that creates files closed to others, regardless of the umask. Raises OSError."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def make_private_file(path: Path) -> None:
    """Create the file ``path`` (and its directory) if it is missing, for libraries that open it. Raises OSError."""
    make_private_directory(path.parent)
    os.close(open_private(str(path), os.O_WRONLY | os.O_CREAT))


def write_private(path: Path, text: str) -> None:
    """Write ``text`` as UTF-8 to the file ``path``, see :func:`write_file`; a new one is closed to others. Raises OSError.

    Blocking.
    """
    make_private_directory(path.parent)
    write_file(path, text.encode("utf-8", "backslashreplace"), mode=FILE_MODE)


FILE_NAME = "agentflow.toml"
"""The settings of a directory."""


def _store() -> Path:
    return state_path() / "trusted.json"


def _trusted() -> dict[str, str]:
    try:
        read: Any = json.loads(_store().read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, str]", read) if isinstance(read, dict) else {}


def is_trusted(path: Path, digest: str) -> bool:
    """Whether the file ``path`` was trusted with contents of this digest. Blocking."""
    return _trusted().get(str(path.resolve())) == digest


def trust(path: Path, digest: str | None) -> None:
    """Trust the file ``path`` with contents of this digest, and no others; None: withdraw trust. Raises OSError. Blocking."""
    trusted = _trusted()
    trusted.pop(str(path.resolve()), None)
    if digest is not None:
        trusted[str(path.resolve())] = digest
    write_private(_store(), json.dumps(trusted, indent=1))
