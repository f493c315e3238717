"""Taking turns: who waits for something is served by priority, then in the order of arrival."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """A queue on one event loop, in which everything waits that has to: for a permit, a budget, a rate or a connection.

    The highest ``priority`` goes first; of equal ones what lies deepest in its run, so that what was begun is ended before
    more is begun, and then the first come. ``entries`` is the heap; it is true while somebody may be waiting.
    """

    __slots__ = ("_order", "entries")

    def __init__(self) -> None:
        self._order = itertools.count()
        self.entries: list[tuple[int, int, int, T, asyncio.Future[bool]]] = []

    def join(self, item: T, priority: int = 0, depth: int = 0) -> asyncio.Future[bool]:
        """A turn for ``item``: a future that whoever serves it sets to True; cancelled or set by others, it has left."""
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heappush(self.entries, (-priority, -depth, next(self._order), item, turn))
        return turn

    def first(self) -> asyncio.Future[bool] | None:
        """The turn that is next; None if nobody waits."""
        entries = self.entries
        while entries:
            turn = entries[0][4]
            if not turn.done():
                return turn
            heappop(entries)
        return None

    def send_back(self) -> None:
        """Put the first behind its equals."""
        priority, depth, _, item, turn = self.entries[0]
        heapreplace(self.entries, (priority, depth, next(self._order), item, turn))

    def serve(self, goes: Callable[[T], bool | None]) -> None:
        """Let those go for whom ``goes`` says True, in order.

        False lets those behind pass, None stops here. An error of ``goes`` is that of the turn.
        """
        entries = self.entries
        stay: list[tuple[int, int, int, T, asyncio.Future[bool]]] = []
        while entries:
            entry = heappop(entries)
            item, turn = entry[3:]
            if turn.done():
                continue
            try:
                verdict = goes(item)
            except Exception as error:  # noqa: BLE001 - it belongs to whoever waits
                turn.set_exception(error)
                continue
            if verdict:
                turn.set_result(True)
                continue
            stay.append(entry)
            if verdict is None:
                break
        for entry in stay:
            heappush(entries, entry)


class Gate:
    """Lets ``size`` at a time through; the others wait for their turn."""

    __slots__ = ("_free", "_turns")

    def __init__(self, size: int) -> None:
        self._free = size
        self._turns: Turns[None] = Turns()

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
        turn = self._turns.join(None, priority)
        try:
            await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Make room for the next."""
        turn = self._turns.first()
        if turn is None:
            self._free += 1
        else:
            turn.set_result(True)
