"""Replaces a file atomically: it holds the old or the new content whenever the process or the machine stops.

The new content is written to a temporary file in the same directory and synced; one rename puts it in place, and the
directory is synced (rename(2), fsync(2)). The name of a temporary file contains the identity of its writer, which
distinguishes a file left by a killed writer from one being written.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
from contextlib import suppress

TEMPORARY = ".agentflow-tmp-"
"""Prefix of temporary file names."""
_RENAME_NOREPLACE = 1


def process_identity(pid: int) -> str | None:
    """The start time of a process, which distinguishes it from a later one with the same number; None if it has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name in parentheses may itself contain blanks and parentheses
            return file.read().rpartition(b")")[2].split()[19].decode()
    except FileNotFoundError:
        return None if os.path.exists("/proc/self/stat") else _alive(pid)
    except ProcessLookupError:
        return None


def _alive(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "0"


def replace(
    directory: int, name: str, data: bytes, *, old: os.stat_result | None, exclusive: bool, mode: int = 0o666
) -> None:
    """Write ``data`` as ``name`` in the open ``directory``.

    ``old`` is the file being replaced; its mode (and owner, where permitted) is kept. ``mode`` is that of a new file, less
    the umask. ``exclusive`` refuses to replace anything. Raises OSError (EEXIST if ``exclusive`` and the name exists) and then leaves the directory unchanged.
    """
    pid = os.getpid()
    temporary = f"{TEMPORARY}{pid}-{process_identity(pid)}-{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, mode if old is None else 0o600, dir_fd=directory)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if old is not None:
                _keep(fd, old)
            os.fsync(fd)
        finally:
            os.close(fd)
        if exclusive:
            _rename_new(temporary, name, directory)
        else:
            os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:  # nothing half-written stays, even when cancelled
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    with suppress(OSError):
        # some network file systems cannot sync a directory; there is nothing stronger to ask of them
        os.fsync(directory)


def _keep(fd: int, old: os.stat_result) -> None:
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):
            os.fchown(fd, old.st_uid, old.st_gid)
    # set-uid and set-gid must not apply to content of another author
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o1777)


def _rename_new(temporary: str, name: str, directory: int) -> None:
    """Rename without replacing: renameat2 where libc has it, else a hard link, which cannot replace either."""
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is not None:
        status = renameat2(directory, os.fsencode(temporary), directory, os.fsencode(name), _RENAME_NOREPLACE)
        if status == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(number, os.strerror(number), name)
    os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    os.unlink(temporary, dir_fd=directory)


def is_stale(name: str) -> bool:
    """Whether ``name`` is a temporary file of a dead writer."""
    if not name.startswith(TEMPORARY):
        return False
    pid, _, rest = name.removeprefix(TEMPORARY).partition("-")
    if not pid.isdecimal() or len(pid) > 10:
        return False
    identity = process_identity(int(pid))
    return identity is None or identity != rest.partition("-")[0]


def sweep(directory: int) -> int:
    """Remove the files that killed writers left below the open ``directory``. Returns their number. Follows no links.

    ``.git`` is skipped, since nothing is ever written there, and so are directories that cannot be read.
    """
    removed = 0
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    pending: list[list[str]] = [[]]
    while pending:
        parts = pending.pop()
        try:
            at = os.open("/".join(parts) or ".", flags, dir_fd=directory)
        except OSError:
            continue
        try:
            with os.scandir(at) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if entry.name != ".git":
                            pending.append([*parts, entry.name])
                    elif is_stale(entry.name):
                        with suppress(OSError):
                            os.unlink(entry.name, dir_fd=at)
                            removed += 1
        except OSError:
            continue
        finally:
            os.close(at)
    return removed
