"""Replacing a file so that it is whole old or whole new, whenever the process or the machine stops.

The new content goes to a temporary file in the same directory, is synced, takes the old one's place in one rename, and
the directory is synced (rename(2), fsync(2)). A temporary file carries the identity of its writer in its name, so that
one left by a writer that was killed can be told from one that is being written.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import stat
from contextlib import suppress

TEMPORARY = ".agentflow-tmp-"
"""How the names of temporary files begin."""
_RENAME_NOREPLACE = 1


def process_identity(pid: int) -> str | None:
    """A text that no other process of this machine's uptime shares: the start time; None when there is no such one."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # the name in parentheses may itself hold blanks and parentheses
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


def replace(directory: int, name: str, data: bytes, *, old: os.stat_result | None, exclusive: bool) -> None:
    """Write ``data`` as ``name`` in the open ``directory``.

    ``old`` is what is being replaced, whose mode (and owner, where permitted) is kept; ``exclusive`` refuses to
    replace anything. Raises OSError (EEXIST when ``exclusive`` and the name is taken); then nothing has changed.
    """
    pid = os.getpid()
    temporary = f"{TEMPORARY}{pid}-{process_identity(pid)}-{secrets.token_hex(6)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o666 if old is None else 0o600, dir_fd=directory)
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
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=directory)
        raise
    with suppress(OSError):
        # a file system that cannot sync a directory (some network ones) has no stronger promise to give
        os.fsync(directory)


def _keep(fd: int, old: os.stat_result) -> None:
    now = os.fstat(fd)
    if (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid):
        with suppress(PermissionError):
            os.fchown(fd, old.st_uid, old.st_gid)
    # set-uid and set-gid are not handed on to content that somebody else wrote
    os.fchmod(fd, stat.S_IMODE(old.st_mode) & 0o1777)


def _rename_new(temporary: str, name: str, directory: int) -> None:
    """Rename without replacing: renameat2 where libc has it, else a hard link, which cannot replace either."""
    libc = ctypes.CDLL(None, use_errno=True)
    renameat2 = getattr(libc, "renameat2", None)
    if renameat2 is not None:
        made = renameat2(directory, os.fsencode(temporary), directory, os.fsencode(name), _RENAME_NOREPLACE)
        if made == 0:
            return
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOSYS):
            raise OSError(number, os.strerror(number), name)
    os.link(temporary, name, src_dir_fd=directory, dst_dir_fd=directory, follow_symlinks=False)
    os.unlink(temporary, dir_fd=directory)


def is_stale(name: str) -> bool:
    """Whether ``name`` is a temporary file whose writer is dead."""
    if not name.startswith(TEMPORARY):
        return False
    pid, _, rest = name.removeprefix(TEMPORARY).partition("-")
    if not pid.isdecimal() or len(pid) > 10:
        return False
    identity = process_identity(int(pid))
    return identity is None or identity != rest.partition("-")[0]


def sweep(directory: int) -> int:
    """Remove what killed writers left below the open ``directory``; returns how many files. Follows no link.

    ``.git`` is not entered: nothing is ever written there. Directories that cannot be read are left alone.
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
