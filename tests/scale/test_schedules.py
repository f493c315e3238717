"""Programs that workers run at certain times."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import ConfigurationError
from agentflow.journal.postgres.queue import next_time
from tests.cli.test_command import agentflow
from tests.scale.workers import working
from tests.support.postgres import Server


async def test_a_run_begins_when_it_is_time_and_once(postgres_server: Server, postgres_url: str) -> None:
    """Two workers start one run, called after its time; of the times that passed while nobody looked the first counts."""
    async with (
        AgentFlow(model="offline", durable=postgres_url) as one,
        AgentFlow(model="offline", durable=postgres_url) as other,
    ):
        stored = await one.schedule("0 7 * * *", "(+ a 2)", {"a": 1}, name="daily", queue="slow")
        assert stored == (await other.store.schedules())[0] and stored.last is None
        late = "update af_schedule set next = date_trunc('minute', now()) - interval '2 days'"
        postgres_server.sql(late, postgres_url)
        async with working(one, {"slow": 0}), working(other, {"slow": 0}):
            while not [run for run in await one.runs() if run.status == "done"]:
                await asyncio.sleep(0.05)
        (run,) = await one.runs()
        (kept,) = await one.store.schedules()
        assert kept.last == run.run_id and kept.next == stored.next
        day = datetime.fromtimestamp(run.created - 2 * 86_400, UTC)
        assert run.run_id.startswith(f"daily@{day:%Y%m%dT%H}") and run.run_id.endswith("Z")
        assert (await (await one.start("(+ a 2)", {"a": 1}, run_id=run.run_id)).result()).value == 3
        assert await other.store.unschedule("daily") and not await other.store.unschedule("daily")


async def test_times_are_those_of_the_zone() -> None:
    """Seven in Berlin is five in summer and six in winter, by UTC."""
    hours = [
        datetime.fromtimestamp(
            next_time("0 7 * * *", "Europe/Berlin", datetime(2026, month, 10, tzinfo=UTC).timestamp()), UTC
        ).hour
        for month in (7, 12)
    ]
    assert hours == [5, 6]


CLOCKS_GO_BACK = [
    ("Europe/Berlin", "2 10", "2027-10-31"),
    ("America/New_York", "1 10", "2027-11-07"),
    ("America/Havana", "0 10", "2027-11-07"),
    ("Australia/Lord_Howe", "1 45", "2027-04-04"),  # by half an hour
    ("Africa/Cairo", "23 59", "2027-10-28"),
]


@pytest.mark.parametrize(("zone", "at", "day"), CLOCKS_GO_BACK)
def test_a_time_of_day_is_one_time_when_clocks_go_back(zone: str, at: str, day: str) -> None:
    """The first of the two counts, whatever ``after`` is between them; so it does in a list of hours."""
    hour, minute = at.split()
    (first,) = times(f"{minute} {hour} * * *", zone, day)
    assert first.fold == 0 and first in (twice := times(f"{minute} {hour},12 * * *", zone, day)) and len(twice) == 2
    between = first.timestamp() + 60
    assert datetime.fromtimestamp(next_time(f"{minute} {hour} * * *", zone, between), UTC) > datetime.fromtimestamp(
        between + 20 * 3_600, UTC
    )


def test_a_time_of_day_is_one_time_when_clocks_go_forward() -> None:
    """A time that the day does not have is the hour after it."""
    (found,) = times("30 2 * * *", "Europe/Berlin", "2027-03-28")
    assert found.hour == 3


def test_what_is_done_every_so_often_goes_by_the_time_that_passes() -> None:
    """The longest day of the year has 25 hours, and 100 quarters."""
    assert len(times("0 * * * *", "Europe/Berlin", "2027-10-31")) == 25
    assert len(times("*/15 * * * *", "Europe/Berlin", "2027-10-31")) == 100
    assert len(times("0 * * * *", "Europe/Berlin", "2027-03-28")) == 23


def times(cron: str, zone: str, day: str) -> list[datetime]:
    """The times that ``cron`` names on a day."""
    found: list[datetime] = []
    at = datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp() - 1
    while (moment := datetime.fromtimestamp(at := next_time(cron, zone, at), ZoneInfo(zone))).isoformat()[:10] == day:
        found.append(moment)
    return found


@pytest.mark.parametrize(
    ("cron", "zone", "name"),
    [
        ("7 oclock", "UTC", "d"),
        ("* * * * * *", "UTC", "d"),
        ("0 25 * * *", "UTC", "d"),
        ("0 7 * * *", "Mars", "d"),
        ("0 7 * * *", "UTC", "a b"),
    ],
)
async def test_what_is_no_time_is_refused(postgres_url: str, cron: str, zone: str, name: str) -> None:
    """Lines with seconds too, unknown zones, and names that would not do for runs."""
    async with AgentFlow(model="offline", durable=postgres_url) as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.schedule(cron, "(+ 1 2)", name=name, zone=zone)
        assert caught.value.code == ("config/run-id" if name == "a b" else "config/schedule")
        assert await flow.store.schedules() == []


@pytest.mark.slow
async def test_the_command_schedules(postgres_url: str, tmp_path: Path) -> None:
    """What it stored it lists, and removes."""
    (tmp_path / "p.sexp").write_text("(+ 1 2)")
    database = ("--db", postgres_url, "-m", "offline", "--json")

    async def said(*arguments: str, code: int = 0) -> str:
        done = await agentflow("schedule", *arguments, *database, tmp_path=tmp_path, cwd=tmp_path)
        assert done.code == code, done.err
        return done.out

    (stored,) = json.loads(await said("0 7 * * *", "p.sexp"))
    assert (stored["name"], stored["cron"], stored["queue"]) == ("p", "0 7 * * *", "default")
    assert json.loads(await said()) == [stored]
    assert json.loads(await said("--remove", "p")) == [] == json.loads(await said())
    assert "there is no schedule" in await said("--remove", "p", code=2)
    await said("0 7 * * *", code=2)
