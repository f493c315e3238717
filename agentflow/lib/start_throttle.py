"""Spreads the start of many runs or calls over iterations of the event loop, so that other tasks get their share."""

from __future__ import annotations

import asyncio
from collections import deque

PER_ITERATION = 12
"""Starts per iteration of the loop; building and sending one request takes half a millisecond of CPU."""


class StartThrottle:
    """Lets a few calls start in each iteration of the event loop; the others start in later ones, in order."""

    __slots__ = ("_begun", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Return now, or in a later iteration if this one has enough starts."""
        if self._begun < PER_ITERATION and not self._waiting:
            if self._begun == 0:
                self._loop.call_soon(self._next)
            self._begun += 1
            return
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _next(self) -> None:
        self._begun = 0
        waiting = self._waiting
        while waiting and self._begun < PER_ITERATION:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._begun += 1
        if self._begun:
            self._loop.call_soon(self._next)
