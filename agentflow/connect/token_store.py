"""Stores of users' sign-ins: the port, one in memory, and one of private files. Nothing here imports the protocol's SDK."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, runtime_checkable

from agentflow.core.data.values import to_json
from agentflow.lib.event_loop import KeyLocks
from agentflow.lib.file_writer import make_private_directory, open_private, state_path, write_private
from agentflow.lib.shielded import run_or_undo

POLL_S = 0.02
"""Seconds between two attempts to take a lock that another process holds."""


def tokens_key(url: str, user: str) -> str:
    """The key of the sign-in of a user at the MCP server with this address."""
    return to_json(["tokens", url, user])


@runtime_checkable
class TokenStore(Protocol):
    """A port to the host's store of sign-ins: texts by their keys, and a lock for each key.

    The texts hold refresh tokens and secrets of clients: encrypt them where others can read the store. Keys are texts of any
    characters, at most a few thousand. The processes of one application share a store.
    """

    async def load(self, key: str) -> str | None:
        """The text of ``key``; None without one."""
        ...

    async def save(self, key: str, text: str | None) -> None:
        """Store the text of ``key``, before this returns; None removes it."""
        ...

    def lock(self, key: str) -> AbstractAsyncContextManager[object]:
        """A block that one task at a time is in, of all processes that share the store; others wait. A process that ended holds
        none. Not reentrant."""
        ...


class MemoryTokens:
    """Sign-ins in memory: for tests, and for applications of one process: their users sign in again after a restart."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._locks = KeyLocks()

    async def load(self, key: str) -> str | None:
        return self._texts.get(key)

    async def save(self, key: str, text: str | None) -> None:
        if text is None:
            self._texts.pop(key, None)
        else:
            self._texts[key] = text

    def lock(self, key: str) -> AbstractAsyncContextManager[object]:
        return self._locks.hold(key)


class FileTokens:
    """Sign-ins as files of one directory, which only their owner can read (mode 0600, the directory 0700).

    The processes of one machine share it. The texts are not encrypted. ``directory`` is made when the first text is stored; None:
    ``tokens`` in agentflow's state directory. It must not be below a root of the flow. Methods raise OSError.
    """

    def __init__(self, directory: str | os.PathLike[str] | None = None) -> None:
        self.directory = (state_path() / "tokens" if directory is None else Path(directory)).resolve()
        self._locks = KeyLocks()

    def holds(self, key: str) -> bool:
        """Whether there is a text of ``key``."""
        return self._path(key, "json").exists()

    def _path(self, key: str, ending: str) -> Path:
        digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=20).hexdigest()
        return self.directory / f"{digest}.{ending}"

    async def load(self, key: str) -> str | None:
        return await asyncio.to_thread(self._read, self._path(key, "json"))

    def _read(self, path: Path) -> str | None:
        try:
            return path.read_text("utf-8")
        except FileNotFoundError:
            return None

    async def save(self, key: str, text: str | None) -> None:
        """Store the text of ``key``, synced to the disk; None removes it."""
        path = self._path(key, "json")
        if text is None:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        else:
            await asyncio.to_thread(write_private, path, text)

    def _opened(self, key: str) -> int:
        make_private_directory(self.directory)
        return open_private(str(self._path(key, "lock")), os.O_RDWR | os.O_CREAT)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncGenerator[None]:
        """A block that one task at a time is in, of all processes of this machine. The system frees it when a process ends."""
        async with self._locks.hold(key):  # so that the tasks of one process wait without asking again and again
            descriptor = await run_or_undo(asyncio.to_thread(self._opened, key), undo=os.close)
            try:
                while True:
                    with suppress(BlockingIOError):
                        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    await asyncio.sleep(POLL_S)
                yield
            finally:
                os.close(descriptor)
