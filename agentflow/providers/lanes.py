"""The connections of one adapter on one event loop: lanes of clients, and turns so that a crowd leaves the loop to others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

_PER_TURN = 12
"""Calls that may begin in one turn of the loop: building and sending a request takes half a millisecond of CPU."""


class Lane:
    """One SDK client with a pool of its own, and how many calls are on it."""

    __slots__ = ("active", "base_url", "client")

    def __init__(self, client: Any) -> None:
        self.client = client
        self.base_url = str(client.base_url).rstrip("/")
        self.active = 0


class Lanes:
    """As many clients as the calls in flight need, ``size`` calls on each.

    Parameters: ``client`` the first SDK client; ``make`` builds the HTTP client of another, which differs in nothing
    else; ``size`` the connections of one.
    """

    def __init__(self, client: Any, make: Callable[[], Any], size: int) -> None:
        self._make = make
        self._size = size
        self._lanes = [Lane(client)]

    def take(self) -> Lane:
        """The first lane with room. Give it back by counting ``active`` down."""
        for lane in self._lanes:
            if lane.active < self._size:
                break
        else:
            lane = Lane(self._lanes[0].client.copy(http_client=self._make()))
            self._lanes.append(lane)
        lane.active += 1
        return lane

    async def aclose(self) -> None:
        """Close every client."""
        await asyncio.gather(*(lane.client.close() for lane in self._lanes))


class Turns:
    """Lets a few calls begin in each turn of the event loop; the others come in the next ones, in order."""

    __slots__ = ("_begun", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Begin now, or in a later turn when enough others begin in this one."""
        if self._begun < _PER_TURN and not self._waiting:
            if self._begun == 0:
                self._loop.call_soon(self._next)
            self._begun += 1
            return
        turn = self._loop.create_future()
        self._waiting.append(turn)
        await turn

    def _next(self) -> None:
        self._begun = 0
        waiting = self._waiting
        while waiting and self._begun < _PER_TURN:
            turn = waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._begun += 1
        if self._begun:
            self._loop.call_soon(self._next)
