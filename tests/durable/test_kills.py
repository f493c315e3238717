"""A bounded number of kills in every test run; ``python -m tests.durable.harness --kills 300`` does more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.durable.harness import Report, campaign, check_log

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed by signal")


@pytest.mark.parametrize("program", ["forms", "tasks"])
def test_a_killed_run_repeats_nothing_that_was_stored(program: str) -> None:
    """SIGKILL at random moments: the value is the undisturbed one, no stored effect is carried out again, and replayed from
    its records the run is the same without carrying anything out."""
    report = campaign(5, seed=len(program), programs=[program])
    assert report.kills >= 5 and report.stored > 50 and report.replays == report.runs
    assert report.faults == []


def test_the_harness_sees_what_may_not_be(tmp_path: Path) -> None:
    """An effect that is started again after it was stored is found, and one that was in flight or forgotten is not blamed."""
    log = tmp_path / "log"
    log.write_text(
        "started a\ndone a\nstored a\nstarted a\n"
        "started b\nstarted b\ndone b\nstarted b\ndone b\nstored b\n"
        "started c\ndone c\nstored c\nforgotten c\nstarted c\n"
        "started edge-late\nstarted edge-in-time\n"
    )
    report = Report()
    check_log(log, report, "p")
    assert report.repeated == ["p: a"] and report.in_flight == 1 and report.unstored == 1
    assert len(report.wrong) == 1 and "two outcomes" in report.wrong[0]
