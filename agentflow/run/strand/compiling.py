"""Compiling within a run: without blocking the event loop, and within the run's limits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.allowance import Allowance
from agentflow.lang.program import Program, python_is_loaded
from agentflow.run.strand.budget import BYTES_PER_STEP, Budget, MemoryAccount, out_of_time

T = TypeVar("T")

SMALL_TEXT = 1_000
"""Longest text, in characters, that is compiled on the loop: about 3 ms of processor time, at most 10. A thread costs 0.2 ms."""


class _CompileAllowance(Allowance):
    """An allowance whose memory is bounded like a run's. It is used by one thread at a time."""

    def __init__(self, steps: int | None, memory: int | None) -> None:
        super().__init__(steps)
        self._memory = MemoryAccount(memory)

    def take(self, steps: int) -> None:
        """Count steps. Raises LimitExceeded."""
        super().take(steps)
        self._memory.add(steps * BYTES_PER_STEP)

    def allocate(self, count: int) -> None:
        """Count bytes. Raises LimitExceeded."""
        self._memory.add(count)


def is_small(program: str | Source | Program) -> bool:
    """Whether a text may be compiled on the loop: it is short, has no macros that could take long, and its compiler has been loaded."""
    if isinstance(program, str):
        return len(program) <= SMALL_TEXT and "defmacro" not in program
    if program.surface == "python":
        return len(program.text) <= SMALL_TEXT and python_is_loaded()
    return is_small(program.text)


async def beside_the_loop(
    program: str | Source | Program,
    work: Callable[[Allowance], T],
    limits: Limits,
    budget: Budget | None = None,
    *,
    at_once: bool = True,
) -> T:
    """The result of ``work``, which compiles or checks ``program``: in a thread, unless ``at_once`` is true and
    its text :func:`is_small`.

    Macros take their steps from ``budget``, that of the run; without one, before the run is opened, ``limits`` bound
    them, and its wall time the whole. On cancellation the thread is told to stop, and not waited for.
    """
    allowance = _CompileAllowance(limits.steps if budget is None else budget.steps_left, limits.memory)
    try:
        if at_once and is_small(program):
            return work(allowance)
        seconds = limits.wall_s if budget is None else None
        clock = asyncio.timeout(seconds)
        try:
            async with clock:
                return await asyncio.to_thread(work, allowance)
        except TimeoutError:
            if seconds is None or not clock.expired():
                raise
            raise out_of_time(seconds) from None
    finally:
        allowance.stop()
        if budget is not None and allowance.used:
            budget.owe(allowance.used)
