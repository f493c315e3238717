"""Texts in Python stay near what the same program costs as hand-written ``async def``; the figures are those of ``surface_speed``."""

from __future__ import annotations

import pytest

from tests.benchmarks.surface_speed import COMPILE_GOAL_MS, ROWS, Row, compiling_ms_a_line, ratio

pytestmark = pytest.mark.slow  # two minutes of ratios, of which a tenth of the newcomer's run was made
MARGIN = 2
"""A busy machine's medians of five small rounds are less steady than those of the benchmark."""


@pytest.mark.parametrize("row", [row for row in ROWS if row.goal is not None], ids=lambda row: row.name)
async def test_texts_cost_a_small_multiple_of_code_by_hand(row: Row) -> None:
    """Loops, calls, appends and f-strings cost at most twice the goal: falling off the native path costs more than that."""
    assert row.goal is not None
    assert await ratio(row, rounds=5, scale=0.1) <= MARGIN * row.goal


def test_compiling_takes_a_fraction_of_a_millisecond_a_line() -> None:
    """A text of 280 lines is compiled within three times what is asked for a line."""
    assert compiling_ms_a_line(rounds=3) <= 3 * COMPILE_GOAL_MS
