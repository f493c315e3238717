"""A queue of waiters, served by priority and then in the order of arrival."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

T = TypeVar("T")


class WaitQueue(Generic[T]):
    """A queue on one event loop, for waits for a permit, a budget, a rate or a connection.

    The highest ``priority`` goes first; of equal ones the deepest in its run, so that what was begun ends before more
    begins; then the first come. ``entries`` is the heap; it is true while somebody may be waiting.
    """

    __slots__ = ("_order", "entries")

    def __init__(self) -> None:
        self._order = itertools.count()
        self.entries: list[tuple[int, int, int, T, asyncio.Future[bool]]] = []

    def join(self, item: T, priority: int = 0, depth: int = 0) -> asyncio.Future[bool]:
        """Add a waiter for ``item``: a future that is set to True when it is served; cancelled or set otherwise, it has left."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heappush(self.entries, (-priority, -depth, next(self._order), item, waiter))
        return waiter

    def first(self) -> asyncio.Future[bool] | None:
        """The next waiter; None if nobody waits."""
        entries = self.entries
        while entries:
            waiter = entries[0][4]
            if not waiter.done():
                return waiter
            heappop(entries)
        return None

    def send_back(self) -> None:
        """Put the first behind its equals."""
        priority, depth, _, item, waiter = self.entries[0]
        heapreplace(self.entries, (priority, depth, next(self._order), item, waiter))

    def serve(self, goes: Callable[[T], bool | None]) -> None:
        """Serve, in order, the waiters for whose item ``goes`` returns True.

        False skips a waiter, None stops. An error of ``goes`` is raised to the waiter.
        """
        entries = self.entries
        stay: list[tuple[int, int, int, T, asyncio.Future[bool]]] = []
        while entries:
            entry = heappop(entries)
            item, waiter = entry[3:]
            if waiter.done():
                continue
            try:
                verdict = goes(item)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
                waiter.set_exception(error)
                continue
            if verdict:
                waiter.set_result(True)
                continue
            stay.append(entry)
            if verdict is None:
                break
        for entry in stay:
            heappush(entries, entry)


class Gate:
    """Lets ``size`` at a time through; the others wait."""

    __slots__ = ("_free", "_queue", "size")

    def __init__(self, size: int) -> None:
        self.size = self._free = size
        self._queue: WaitQueue[None] = WaitQueue()

    def take_free(self) -> bool:
        """Go through if there is room and nobody waits."""
        if self._free <= 0 or self._queue.first() is not None:
            return False
        self._free -= 1
        return True

    async def take(self, priority: int = 0) -> None:
        """Go through, waiting if there is no room."""
        if self.take_free():
            return
        waiter = self._queue.join(None, priority)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Make room for the next."""
        waiter = self._queue.first()
        if waiter is None or self._free < 0:
            self._free += 1
        else:
            waiter.set_result(True)

    def resize(self, size: int) -> None:
        """Let ``size`` at a time through from now on. Those that are through already stay."""
        more = size - self.size
        self.size = size
        self._free += more
        while self._free > 0 and (waiter := self._queue.first()) is not None:
            self._free -= 1
            waiter.set_result(True)
