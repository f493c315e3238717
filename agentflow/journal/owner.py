"""Which process owns a run on this machine: a lock on one file per run, which the system releases when the process ends.

The system gives the lock to every process that has the file open, so a child that was forked closes what it inherits.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
import weakref
from hashlib import blake2b
from pathlib import Path

from agentflow.core.call.own_task import outlast
from agentflow.lib.file_writer import make_private_directory, open_private

_TRIES = 5
_PAUSE_S = 0.01


class OwnerLocks:
    """File locks of runs, in ``directory``. Locks taken here are held until they are released or the process ends.

    On systems without such locks no owner counts as alive, and only the epoch in the database tells owners apart.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._held: dict[str, int] = {}
        _OPEN.add(self)

    def take(self, run: str) -> bool:
        """Lock ``run``; False if it is locked already, here or by another process. Raises OSError."""
        if run in self._held:
            return False
        for attempt in range(_TRIES):
            descriptor = self._lock(run)
            if descriptor is not None:
                self._held[run] = descriptor
                return True
            if attempt + 1 < _TRIES:
                time.sleep(_PAUSE_S)  # another process may hold it for a moment, in `alive`
        return False

    async def acquire(self, run: str) -> bool:
        """:meth:`take` on a thread. A caller that is cancelled meanwhile has not locked it. Raises OSError."""
        taking = asyncio.create_task(asyncio.to_thread(self.take, run))
        cancelled = await outlast(taking)
        if cancelled is not None:
            if taking.exception() is None and taking.result():
                self.release(run)
            raise cancelled
        return taking.result()

    def holds(self, run: str) -> bool:
        """Whether this process holds the lock of ``run``."""
        return run in self._held

    def alive(self, run: str) -> bool:
        """Whether any process holds the lock of ``run``. Raises OSError."""
        if run in self._held:
            return True
        if not self._path(run).exists():
            return False
        descriptor = self._lock(run)
        if descriptor is None:
            return True
        os.close(descriptor)
        return False

    def release(self, run: str) -> None:
        """Release the lock of ``run``, and remove its file."""
        descriptor = self._held.pop(run, None)
        if descriptor is not None:
            self._path(run).unlink(missing_ok=True)
            os.close(descriptor)

    def release_all(self) -> None:
        """Release all locks."""
        for run in list(self._held):
            self.release(run)

    def disown(self) -> None:
        """Close what this process, a forked child, has inherited: the locks stay with its parent alone."""
        held, self._held = self._held, {}
        for descriptor in held.values():
            os.close(descriptor)

    def _path(self, run: str) -> Path:
        return self._directory / f"{blake2b(run.encode(), digest_size=16).hexdigest()}.lock"

    def _lock(self, run: str) -> int | None:
        path = self._path(run)
        make_private_directory(self._directory)
        while True:
            descriptor = open_private(str(path), os.O_RDWR | os.O_CREAT)
            if not _try_lock(descriptor):
                os.close(descriptor)
                return None
            try:
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
            except FileNotFoundError:
                pass
            os.close(descriptor)  # its owner has removed the file meanwhile


if sys.platform == "win32":

    def _try_lock(descriptor: int) -> bool:
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


_OPEN: weakref.WeakSet[OwnerLocks] = weakref.WeakSet()
"""All that hold locks in this process, for children that it forks."""


def _disown_all() -> None:
    for locks in list(_OPEN):
        locks.disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)
