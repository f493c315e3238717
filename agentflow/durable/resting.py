"""Looks after the durable runs of a flow that wait outside of the memory, and resumes them in time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

LOOK_S = 1.0
"""Seconds between two queries for answers from other processes."""
_EACH_S = 0.01
"""Minimum of seconds per waiting run between two queries, so that many runs cause little work."""


class Resting:
    """Runs that wait. All of them together need no more than a timer of the event loop.

    ``look`` is called for each run now and then, with its id and whether its time has come; ``spawn`` runs that in the
    background.
    """

    def __init__(
        self,
        look: Callable[[str, bool], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._look = look
        self._spawn = spawn
        self._due: dict[str, float | None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, run: str, wake_at: float | None) -> None:
        """Look after a run, which continues by itself at the unix time ``wake_at``; None: only when answered."""
        self._due[run] = wake_at
        self._arm()

    def remove(self, run: str) -> None:
        """Stop looking after a run."""
        self._due.pop(run, None)

    def close(self) -> None:
        """Stop looking after all runs."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            soonest = min((at for at in self._due.values() if at is not None), default=float("inf"))
            delay = min(max(0.0, soonest - time.time()), max(LOOK_S, _EACH_S * len(self._due)))
            self._timer = asyncio.get_running_loop().call_later(delay, lambda: self._spawn(self._look_at_all()))

    async def _look_at_all(self) -> None:
        try:
            for run, wake_at in list(self._due.items()):
                if run in self._due:
                    await self._look(run, wake_at is not None and wake_at <= time.time())
        finally:
            self._arm()
