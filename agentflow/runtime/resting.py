"""The durable runs of a flow that wait outside of the memory: who looks after them, and when they go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

LOOK_S = 1.0
"""Seconds after which the store is asked for answers that other processes have given."""
_EACH_S = 0.01
"""The same for each of many runs: looking takes up little time, however many wait."""


class Resting:
    """Runs that wait. Nothing but a timer of the event loop exists for them meanwhile.

    ``look`` is called for each now and then, with whether its time has come; ``spawn`` runs that in the background.
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
        """Look after a run, which goes on by itself at the unix time ``wake_at``."""
        self._due[run] = wake_at
        self._arm()

    def remove(self, run: str) -> None:
        """Look after a run no more."""
        self._due.pop(run, None)

    def close(self) -> None:
        """Look after none any more."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()

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


__all__ = ["LOOK_S", "Resting"]
