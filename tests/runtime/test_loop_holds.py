"""No program holds the loop: the cases of ``tests/support/loop_cases.py`` that are bounded by what this package does at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.benchmarks.loop_hold import HOLD_WORST_MS, run_case
from tests.support.loop_cases import CASES

MARGIN = 3.0
QUICK = (
    "equal-wide",
    "sort",
    "to-json",
    "format",
    "string-split",
    "member-often",
    "zip",
    "log-message",
    "log-shared",
    "tool-shared",
    "task-shared",
    "eval-shared",
    "solve-shared",
    "dict-colliding-at-once",
    "task-wide",
)
"""One of each way in which a program's work can be long."""
SLOW = sorted(set(CASES) - set(QUICK))


async def held(name: str) -> dict[str, Any]:
    """The figures of a case, in a process of its own."""
    return await asyncio.to_thread(run_case, name)


@pytest.mark.parametrize("name", QUICK)
async def test_long_work_gives_the_loop_back(name: str) -> None:
    """The processor time between two turns of the loop stays below three times what is promised."""
    row = await held(name)
    assert row["turns"] > 0, row["outcome"]
    assert row["worst_ms"] <= HOLD_WORST_MS * MARGIN


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
async def test_no_case_holds_the_loop(name: str) -> None:
    """The same for all other cases."""
    row = await held(name)
    assert row["turns"] > 0, row["outcome"]
    assert row["worst_ms"] <= HOLD_WORST_MS * MARGIN
