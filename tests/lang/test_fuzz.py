"""Made-up and byte-mutated programs: whatever the text, a value or an error of agentflow, soon."""

from __future__ import annotations

import pytest

from tests.lang.fuzz import fuzz, fuzz_authority

COUNT = 10_000
PARTS = [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))]


@pytest.mark.parametrize("part", PARTS)
async def test_no_text_breaks_the_language(part: int) -> None:
    """No crash, no hang, no foreign exception, no task left over; messages of bounded size.

    A million: ``python tests/lang/fuzz.py --count 1000000 --jobs 2``.
    """
    each = COUNT // len(PARTS)
    report = await fuzz(part * each, each)
    assert not report.broken, "\n\n".join(report.broken[:5])


AUTHORITY = 800


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, 10))])
async def test_no_procedure_has_more_authority_than_its_authors(part: int) -> None:
    """No effect runs that not all authors on its chain may do, and none is refused that they may.

    A million: ``python tests/lang/fuzz.py --count 1000000 --jobs 2 --authority``.
    """
    report = await fuzz_authority(part * AUTHORITY, AUTHORITY)
    assert not report.broken, "\n\n".join(report.broken[:5])
    assert min(report.checked[kind] for kind in ("effects", "refusals", "crossing")) > AUTHORITY / 2
