"""Time limits for ``finally`` forms that run because of a limit or a cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

FORM_S = 1.0
"""Seconds allowed to one form."""
GRANTED_S = 2.0
"""Seconds allowed to all forms of programs with grants together while a run is being stopped."""
LEAST_S = 0.01
"""Seconds below which a form is allowed none: each of thousands would find what was restored since the one before."""
HOST_S = 3.0
"""Seconds allowed to all forms of the host's own programs together."""


class CleanupTime:
    """The time allowed to the ``finally`` forms of a run that is being stopped: ``each`` form, and all of them together.

    All times are in seconds. Forms of programs with grants (``granted``) cannot use up the time of the host's (``host``).
    Time in which several forms run counts once. Used time is restored at the same rate while no form runs, so that a run
    that continues has all of it for its next stop.
    """

    def __init__(
        self,
        each: float = FORM_S,
        *,
        granted: float = GRANTED_S,
        host: float = HOST_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._each = each
        self._now = now
        self._granted = _Allowance(granted, now())
        self._host = _Allowance(host, now())

    @contextmanager
    def form(self, *, trusted: bool) -> Generator[float, None, None]:
        """A block that counts the time of a form, and yields the seconds it may take; at 0 the form runs until it first waits."""
        allowance = self._host if trusted else self._granted
        allowance.settle(self._now())
        allowance.running += 1
        try:
            yield min(self._each, allowance.left) if allowance.left >= LEAST_S else 0.0
        finally:
            allowance.settle(self._now())
            allowance.running -= 1


class _Allowance:
    __slots__ = ("_settled", "_whole", "left", "running")

    def __init__(self, whole: float, now: float) -> None:
        self._whole = self.left = whole
        self._settled = now
        self.running = 0

    def settle(self, now: float) -> None:
        passed, self._settled = now - self._settled, now
        self.left = max(0.0, self.left - passed) if self.running else min(self._whole, self.left + passed)
