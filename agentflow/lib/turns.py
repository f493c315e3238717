"""Taking turns: who waits for something is served by priority, then in the order of arrival."""

from __future__ import annotations

import asyncio
import itertools
from heapq import heappop, heappush


class Turns:
    """A queue of futures on one event loop: the highest priority first, among equals the first come."""

    __slots__ = ("_order", "_waiting")

    def __init__(self) -> None:
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, int, asyncio.Future[None]]] = []

    def join(self, priority: int = 0, weight: int = 0) -> asyncio.Future[None]:
        """A place in the queue: a future that whoever serves it completes, and cancellation takes out of it."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heappush(self._waiting, (-priority, next(self._order), weight, turn))
        return turn

    def first(self) -> tuple[int, asyncio.Future[None]] | None:
        """Weight and future of who is next; None if nobody waits."""
        waiting = self._waiting
        while waiting:
            _, _, weight, turn = waiting[0]
            if not turn.done():
                return weight, turn
            heappop(waiting)
        return None


class Gate:
    """Lets ``size`` at a time through; the others wait for their turn."""

    __slots__ = ("_free", "_turns")

    def __init__(self, size: int) -> None:
        self._free = size
        self._turns = Turns()

    def take_free(self) -> bool:
        """Go through if there is room and nobody waits."""
        if self._free <= 0 or self._turns.first() is not None:
            return False
        self._free -= 1
        return True

    async def take(self, priority: int = 0) -> None:
        """Go through as soon as it is one's turn."""
        if self.take_free():
            return
        turn = self._turns.join(priority)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Make room for the next."""
        waiting = self._turns.first()
        if waiting is None:
            self._free += 1
        else:
            waiting[1].set_result(None)
