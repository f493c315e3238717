"""Long work in small parts, which can be paid for and paused between.

Work is a generator: each ``yield n`` says that the next part costs ``n`` steps, and the generator returns the result.
:func:`finish` carries it out at once, :func:`in_slices` gives the event loop back in between, and a strand does that and
charges for each part. A part takes a millisecond or two at most.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Generator[int, None, T]
"""Long work: yields the steps that the next part costs, returns the result."""

ELEMENTS_PER_STEP = 64
CHARACTERS_PER_STEP = 1_024
BITS_PER_STEP = 4_096
PART = 2_048
"""Elements in a part of work that takes Python about half a microsecond each."""
LONG_TEXT = 65_536
"""Characters from which on a text is gone over in parts where that can wait."""
PAUSE_S = 0.002
"""Seconds that work goes on before it gives the loop back."""


def finish(work: Work[T]) -> T:
    """Carry out work at once; gives its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


async def in_slices(work: Work[T]) -> T:
    """Carry out work, and let others run every few milliseconds; gives its result."""
    paused = time.monotonic()
    try:
        while True:
            next(work)
            if time.monotonic() - paused > PAUSE_S:
                await asyncio.sleep(0)
                paused = time.monotonic()
    except StopIteration as done:
        return done.value
    finally:
        work.close()


def slices(elements: Sequence[Any], size: int = PART) -> Iterator[Sequence[Any]]:
    """The elements in slices of at most ``size``; a short list is its own slice."""
    if len(elements) <= size:
        return iter((elements,))
    return (elements[start : start + size] for start in range(0, len(elements), size))
