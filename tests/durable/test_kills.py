"""A bounded number of kills in every test run; ``python -m tests.durable.harness --kills 300`` does more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.durable.harness import (
    FAILPOINTS,
    Nursery,
    Report,
    campaign,
    check_log,
    check_once,
    failpoint_campaign,
    job_of,
    replay_campaign,
)
from tests.durable.programs import PROGRAMS
from tests.durable.strikes import campaign as waiting_campaign
from tests.durable.strikes import check_answers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are forked and killed by signal")


@pytest.mark.parametrize(
    "program", [pytest.param(each, marks=() if each == "tasks" else pytest.mark.slow) for each in PROGRAMS]
)
def test_a_killed_run_repeats_nothing_that_was_stored(program: str) -> None:
    """SIGKILL at random moments: the value is the undisturbed one, no stored effect is carried out again, and replayed from
    its records the run is the same without carrying anything out."""
    report = campaign(2, seed=len(program), programs=[program])
    assert report.kills >= 2 and report.stored > 50 and report.replays == report.runs
    assert report.faults == []


@pytest.mark.slow
def test_a_process_may_end_at_any_point() -> None:
    """Before an effect, when it has ended, when its record is written, at the end of the run: the same holds."""
    report = failpoint_campaign(1, seed=4)
    assert report.kills == len(FAILPOINTS) and report.replays == report.runs
    assert report.faults == []


@pytest.mark.parametrize(("kills", "seed"), [(2, 2), pytest.param(8, 5, marks=pytest.mark.slow)])
def test_a_run_may_be_killed_while_it_waits(kills: int, seed: int) -> None:
    """Asked, parked, being answered here or by another process, being taken up: no answer that was acknowledged is lost or
    asked for again, and all else holds as for kills at work."""
    report, struck = waiting_campaign(kills, seed)
    assert report.faults == []
    assert report.kills >= kills and struck.total() - struck["work"] >= kills // 2
    assert report.replays == report.runs >= 2


def test_lost_answers_are_seen(tmp_path: Path) -> None:
    """An acknowledged answer that is not in the value, or was given twice, is a fault."""
    (tmp_path / "log").write_text("at asked\nsent w1 #a1\nat sent\nsent w2 #b2\nsent w2 #b3\nsent never #c4\n")
    report = Report()
    check_answers(tmp_path, (["answer to w1#a1", "answer to w2#b2"], []), report)
    assert len(report.wrong) == 2 and "w2 was answered twice" in report.wrong[0] and "['w2']" in report.wrong[1]


def test_a_replay_does_not_depend_on_timing() -> None:
    """With any concurrency and on a loop that is held at random, a run from its records is the same and carries nothing out."""
    report = replay_campaign(2, "forms", seed=2)
    assert report.replays == 3 and report.faults == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_many_kills(seed: int) -> None:
    """The same over all programs, more often."""
    reports = [campaign(12, seed), failpoint_campaign(1, seed), *(replay_campaign(4, each, seed) for each in PROGRAMS)]
    assert [fault for report in reports for fault in report.faults] == []


@pytest.mark.parametrize("program", ["tasks", pytest.param("mixed", marks=pytest.mark.slow)])
def test_two_processes_start_one_run(tmp_path: Path, program: str) -> None:
    """Started in two processes at once a run is carried out once: the other is told that it is owned, or given the result."""
    job = job_of(tmp_path, program)
    with Nursery() as one, Nursery() as other:
        one.begin(job)
        other.begin({**job, "log": str(tmp_path / "log")})
        statuses = sorted([one.status(), other.status()])
    assert statuses in ([0, 0], [0, 1])
    started = [line for line in (tmp_path / "log").read_text().splitlines() if line.startswith("started")]
    assert len(started) > 20 and len(set(started)) == len(started)


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
    check_once(log, report, "p")
    assert sorted(report.wrong[1:]) == ["p: started a, 2 times", "p: started b, 3 times", "p: started c, 2 times"]
