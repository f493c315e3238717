"""Kills over PostgreSQL, a bounded number; ``python -m tests.durable.harness --kills 300 --postgres`` does more."""

from __future__ import annotations

import pytest

from tests.durable.harness import FAILPOINTS, campaign, failpoint_campaign
from tests.support.postgres import Server

pytestmark = pytest.mark.slow


def test_a_killed_run_repeats_nothing_that_was_stored(postgres_server: Server) -> None:
    """SIGKILL at random moments: the value is the undisturbed one, and no effect is carried out again whose record was
    acknowledged; replayed from its records the run is the same."""
    report = campaign(3, 3, programs=["tasks", "mixed"], database=lambda _: postgres_server.schema())
    assert report.kills >= 3 and report.stored > 50 and report.replays == report.runs
    assert report.faults == []


def test_a_process_may_end_at_any_point(postgres_server: Server) -> None:
    """Before an effect, when it has ended, when its record is written, at the end of the run: the same holds."""
    report = failpoint_campaign(1, 4, programs=["tasks"], database=lambda _: postgres_server.schema())
    assert report.kills == len(FAILPOINTS) and report.replays == report.runs
    assert report.faults == []
