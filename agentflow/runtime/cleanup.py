"""How long ``finally`` forms may take that run because of a limit or a cancellation."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

FORM_S = 1.0
"""Seconds that one form has."""
GRANTED_S = 2.0
"""Seconds that the forms of programs with grants have together while a run is being stopped."""
HOST_S = 3.0
"""Seconds that those of the host's own programs have together."""


class CleanupTime:
    """The time of the ``finally`` forms of a run that is being stopped: ``each`` has some, and all have so much together.

    Forms of programs with grants (``granted``) cannot use up the time of the host's (``host``). Time in which several run
    counts once. What was used comes back as fast while none runs: a run that goes on has it all for its next stop.
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
        """Count the time of a form; gives the seconds it has. With none left it runs as far as it can without waiting."""
        allowance = self._host if trusted else self._granted
        allowance.settle(self._now())
        allowance.running += 1
        try:
            yield min(self._each, allowance.left)
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
