"""Time limits of work: their clocks stop while the work waits for others, above all for people."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar


class WorkClock:
    """The time limit of one prompt or one attempt of a tool: ``seconds`` of work.

    ``timer`` is the time-out that ends it. The clock resumes when everything that stopped it has released it.
    """

    __slots__ = ("_deadline", "_since", "_stops", "timer")

    def __init__(self, seconds: float, timer: asyncio.Timeout | None = None) -> None:
        self._deadline = time.monotonic() + seconds
        self._since = 0.0
        self._stops = 0
        self.timer = timer

    @property
    def left(self) -> float:
        """Seconds left."""
        return max(0.001, self._deadline - time.monotonic())

    def stop(self) -> None:
        """Stop the clock."""
        if not self._stops:
            self._since = time.monotonic()
            self._reschedule(None)
        self._stops += 1

    def go_on(self) -> None:
        """Resume the clock, with the deadline moved by the time it was stopped. A running clock is left alone."""
        if not self._stops:
            return
        self._stops -= 1
        if not self._stops:
            self._deadline += time.monotonic() - self._since
            self._reschedule(asyncio.get_running_loop().time() + self.left)

    def _reschedule(self, when: float | None) -> None:
        if self.timer is not None and not self.timer.expired():
            self.timer.reschedule(when)


_running: ContextVar[tuple[WorkClock, ...]] = ContextVar("agentflow_work_clocks", default=())


@contextmanager
def timed(clock: WorkClock) -> Generator[None]:
    """A block timed by ``clock``, with the work in tasks and threads that it starts."""
    token = _running.set((*_running.get(), clock))
    try:
        yield
    finally:
        _running.reset(token)


@contextmanager
def untimed() -> Generator[None]:
    """A block not counted by any surrounding clock: a person is thinking about a question."""
    clocks = _running.get()
    for clock in clocks:
        clock.stop()
    try:
        yield
    finally:
        for clock in clocks:
            clock.go_on()
