"""Wakes the followers of a run that another process carries out."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator

from agentflow.core.ports.store_ports import JobQueue

SELDOM_S = 1.0
"""Seconds between two queries for missed notifications of the database."""


class RunChanges:
    """Notifications of the database: each ``wake`` of :meth:`of` is set when its run has changed. There are none without
    a queue of workers (``jobs``), nor before :meth:`listen` has begun."""

    def __init__(self, jobs: JobQueue | None) -> None:
        self._jobs = jobs
        self._wakes: dict[str, set[asyncio.Event]] = {}
        self._told = False
        self.begun = jobs is None

    def restart(self) -> None:
        """The event loop was closed, so nothing listens any more."""
        self._told, self.begun = False, self._jobs is None

    async def listen(self) -> None:
        """Listen, until this coroutine is cancelled."""
        assert self._jobs is not None
        try:
            await self._jobs.changes(self._wake)
        finally:
            self._told = False

    def pause(self, seconds: float) -> float:
        """Seconds until the next query of a caller that polls every ``seconds`` without notifications."""
        return max(seconds, SELDOM_S) if self._told else seconds

    @contextlib.contextmanager
    def of(self, run: str) -> Generator[asyncio.Event]:
        """The event set when there is something new of a run, during the block."""
        wake = asyncio.Event()
        self.add(run, wake)
        try:
            yield wake
        finally:
            self.remove(run, wake)

    def add(self, run: str, wake: asyncio.Event) -> None:
        """Set ``wake`` when there is something new of a run."""
        self._wakes.setdefault(run, set()).add(wake)

    def remove(self, run: str, wake: asyncio.Event) -> None:
        """Set it no more."""
        wakes = self._wakes.get(run, set())
        wakes.discard(wake)
        if not wakes:
            self._wakes.pop(run, None)

    def _wake(self, run: str | None) -> None:
        """There is something new of ``run``; None: perhaps of every run, and from now on it will be said."""
        if run is None:
            self._told = True
        for wake in (
            [each for wakes in self._wakes.values() for each in wakes] if run is None else self._wakes.get(run, ())
        ):
            wake.set()


async def wait_for(wake: asyncio.Event, seconds: float) -> None:
    """Wait until ``wake`` is set, ``seconds`` at most, and clear it."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await wake.wait()
    wake.clear()
