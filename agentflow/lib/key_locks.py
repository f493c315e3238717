"""A lock for each key, between the tasks of one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager


class KeyLocks:
    """One lock for each key in use, on one event loop. Locks are not reentrant."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """A block that has ``key`` to itself."""
        lock, users = self._locks.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users and self._locks.get(key, (None,))[0] is lock:
                del self._locks[key]

    def clear(self) -> None:
        """Forget all locks of a closed event loop."""
        self._locks.clear()
