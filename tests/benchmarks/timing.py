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
