"""The slice of the event loop that a run takes in one iteration."""

from __future__ import annotations

import asyncio
from time import monotonic

SLICE_S = 0.002
"""Seconds that the branches of a run may take together before other tasks run."""


class Slices:
    """Tells the branches of one run, however many are ready at once, when their common slice of the loop is used up.

    ``end`` is the end of the slice on the monotonic clock; a branch that sees it in the past awaits :meth:`pause`.
    """

    __slots__ = ("_next", "end")

    def __init__(self) -> None:
        self.end = monotonic() + SLICE_S
        self._next = False

    async def pause(self) -> None:
        """Let other tasks run, and continue in the next slice."""
        while monotonic() > self.end:
            if not self._next:
                self._next = True
                self.end = 0.0
                asyncio.get_running_loop().call_soon(self._begin)
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self.end = monotonic() + SLICE_S
        self._next = False
