"""Processor time of pieces of work that take turns, so that whatever else the machine does slows all of them alike."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

Name = TypeVar("Name")
Work = Callable[[], Awaitable[object]]


async def cpu_seconds(work: Work, times: int = 1) -> float:
    """Processor seconds of one run of ``work``, over ``times`` runs. Rubbish of earlier work is collected before."""
    gc.collect()
    began = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - began) / times


async def medians(works: Mapping[Name, Work], rounds: int, times: int = 1) -> dict[Name, float]:
    """Median processor seconds of one run of each, after one run of each to warm up."""
    taken: dict[Name, list[float]] = {name: [] for name in works}
    for work in works.values():
        await work()
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(await cpu_seconds(work, times))
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


FIB_BY_HAND_MS = 7.4
"""Milliseconds that fib(22) by hand took on the machine for which goals in units of time were set: such a goal means nothing without."""


async def fib(n: int) -> int:
    """The numbers of Fibonacci as a Python programmer writes them."""
    if n < 2:
        return n
    return await fib(n - 1) + await fib(n - 2)


async def fib_by_hand_ms(rounds: int = 9) -> float:
    """Milliseconds of processor time of ``fib(22)``: how fast a machine is."""

    def work() -> Awaitable[object]:
        return fib(22)

    return (await medians({"by hand": work}, rounds))["by hand"] * 1e3
