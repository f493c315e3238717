"""Made-up and byte-mutated programs: whatever the text, a value or an error of agentflow, soon."""

from __future__ import annotations

import pytest

from tests.lang.fuzz import fuzz

COUNT = 20_000
PARTS = [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in range(2, 10))]


@pytest.mark.parametrize("part", PARTS)
async def test_no_text_breaks_the_language(part: int) -> None:
    """No crash, no hang, no foreign exception, no task left over; messages of bounded size.

    A million: ``python tests/lang/fuzz.py --count 1000000 --jobs 2``.
    """
    each = COUNT // len(PARTS)
    report = await fuzz(part * each, each)
    assert not report.broken, "\n\n".join(report.broken[:5])
