"""What a test may say about time: how much processor time a block spends, never what the clock on the wall showed."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

Clock = Callable[[], float]


class _Collected:
    """The time that the cyclic collector spent, by a clock: it grows with what else the process of the tests holds."""

    def __init__(self, clock: Clock) -> None:
        self.seconds = 0.0
        self._clock = clock
        self._began = 0.0

    def __call__(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = self._clock()
        else:
            self.seconds += self._clock() - self._began


class Spent:
    """``seconds`` of processor time that a block spent, without the collector's; set when the block has ended."""

    seconds = 0.0


@contextmanager
def spent(clock: Clock = time.process_time) -> Generator[Spent]:
    """Measure the block, of all threads (``time.process_time``) or of this one (``time.thread_time``)."""
    spending, collected = Spent(), _Collected(clock)
    gc.callbacks.append(collected)
    began = clock()
    try:
        yield spending
    finally:
        spending.seconds = clock() - began - collected.seconds
        gc.callbacks.remove(collected)


@contextmanager
def at_most(seconds: float, what: str = "") -> Generator[None]:
    """The block, however it ends, must have spent no more than ``seconds`` of processor time."""
    spending = Spent()
    try:
        with spent() as spending:
            yield
    finally:
        assert spending.seconds <= seconds, f"{what or 'this'} took {spending.seconds:.3f} s of processor time"
