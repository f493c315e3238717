"""Kills over PostgreSQL, a bounded number.

``python -m tests.durable.harness --kills 300 --postgres`` and ``python -m tests.scale.fleet --runs 1000 --kills 100`` do more.
"""

from __future__ import annotations

import pytest

from tests.durable.harness import FAILPOINTS, campaign, failpoint_campaign
from tests.scale import fleet
from tests.support.postgres import Server

pytestmark = pytest.mark.slow


def test_a_killed_run_repeats_nothing_that_was_stored(postgres_server: Server) -> None:
    """SIGKILL at random moments: the value is the undisturbed one, and no effect is carried out again whose record was
    acknowledged; replayed from its records the run is the same."""
    report = campaign(2, 3, programs=["tasks"], database=lambda _: postgres_server.schema())
    assert report.kills >= 2 and report.stored > 50 and report.replays == report.runs
    assert report.faults == []


def test_a_process_may_end_at_any_point(postgres_server: Server) -> None:
    """When an effect has ended, when its record is written, when the run is stored as waiting: the same holds.

    The points that do not touch the store are tried over SQLite, in ``tests/durable/``.
    """
    points = [point for point in FAILPOINTS if point in ("unwritten", "undelivered", "park")]
    report = failpoint_campaign(1, 4, programs=["tasks"], database=lambda _: postgres_server.schema(), points=points)
    assert report.kills == len(points) == 3 and report.replays == report.runs
    assert report.faults == []


async def test_what_a_killed_process_worked_on_goes_on_in_the_others(postgres_url: str) -> None:
    """Of a fleet whose processes are killed no run is lost, and nothing is repeated that was acknowledged."""
    seen = await fleet.campaign(postgres_url, runs=30, kills=2, workers=2, seed=1)
    assert (seen.report.runs, seen.report.kills) == (30, 2)  # each run with all its records is the campaign's own check
    assert seen.report.faults == []


async def test_workers_that_are_killed_lose_nothing(postgres_url: str) -> None:
    """The same of runs that were left to workers, whose queue is emptied by hand meanwhile."""
    seen = await fleet.campaign(postgres_url, runs=40, kills=2, workers=2, seed=1, queue=True, empty=1)
    assert (seen.report.runs, seen.report.kills) == (40, 2)
    assert seen.report.faults == []


async def test_branches_on_workers_outlive_those_who_do_them(postgres_url: str) -> None:
    """SIGKILL of whoever works on the branches, and of whoever works on the run around them: each branch has its value, once."""
    seen = await fleet.wide(postgres_url, branches=40, kills=2, workers=2, seed=1)
    assert (seen.report.runs, seen.report.kills) == (41, 2)
    assert seen.report.faults == []


async def test_a_race_on_workers_has_one_winner_whatever_is_killed(postgres_url: str) -> None:
    """SIGKILL of those who race, and of whoever waits for them: what is done with the winner is done with one, and once."""
    seen = await fleet.wide(postgres_url, branches=6, kills=2, workers=2, seed=1, races=True)
    assert seen.report.kills == 2 and seen.report.stored >= 12
    assert seen.report.faults == []
