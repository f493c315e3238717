"""Large lists of a run, freed in slices.

The time to free a list grows with its length, and freeing cannot be interrupted: five million elements take 50 ms. So a
run keeps references to its large lists, and empties those that nothing else refers to any more, a few elements at a time.
"""

from __future__ import annotations

import asyncio
from sys import getrefcount
from time import monotonic
from typing import Any

LARGE = 100_000
"""Number of elements from which on a list is large: freeing it takes about a millisecond."""
_AT_ONCE = 1_024
_SLICE_S = 0.002
_EVERY_S = 0.05
_HELD_S = 0.2
"""Seconds after the end of a run during which its lists are still freed here: its error may hold them for a moment."""

_probe: tuple[list[Any]] = ([],)
_ALONE = getrefcount(_probe[0])
"""The reference count of a list that is held by one container only."""


class LargeLists:
    """The large lists built by a run that still exist."""

    __slots__ = ("_lists", "_timer", "_until")

    def __init__(self) -> None:
        self._lists: list[list[Any]] = []
        self._timer: asyncio.Handle | None = None
        self._until: float | None = None

    def __bool__(self) -> bool:
        return bool(self._lists)

    def add(self, value: list[Any]) -> None:
        """Add a list, to be freed in slices."""
        if not any(each is value for each in self._lists):
            self._lists.append(value)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._look)

    def free(self) -> bool:
        """Free elements of lists that nothing else refers to, for one slice. Returns whether there are more."""
        lists = self._lists
        end = monotonic() + _SLICE_S
        for at in range(len(lists) - 1, -1, -1):
            if getrefcount(lists[at]) > _ALONE:
                continue
            while lists[at]:
                del lists[at][-_AT_ONCE:]
                if monotonic() > end:
                    return True
            del lists[at]
        return False

    def end(self) -> None:
        """End with the run: free what is left of its lists in slices, and release those that the host holds."""
        self._until = monotonic() + _HELD_S
        if self._timer is not None:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Free a slice now and then, as long as there are lists."""
        loop = asyncio.get_running_loop()
        if self.free():
            self._timer = loop.call_soon(self._look)
        elif self._lists and (self._until is None or monotonic() < self._until):
            self._timer = loop.call_later(_EVERY_S, self._look)
        else:
            self._lists.clear()
            self._timer = None
