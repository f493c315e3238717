"""Programs that workers run at certain times."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from agentflow import AgentFlow
from agentflow.core.errors import ConfigurationError
from agentflow.journal.postgres.schedules import next_time
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
        assert stored == (await other.schedules())[0] and stored.last is None
        late = "update af_schedule set next = date_trunc('minute', now()) - interval '2 days'"
        postgres_server.sql(late, postgres_url)
        async with working(one, {"slow": 0}), working(other, {"slow": 0}):
            while not [run for run in await one.runs() if run.status == "done"]:
                await asyncio.sleep(0.05)
        (run,) = await one.runs()
        (kept,) = await one.schedules()
        assert kept.last == run.run_id and kept.next == stored.next
        day = datetime.fromtimestamp(run.created - 2 * 86_400, UTC)
        assert run.run_id.startswith(f"daily@{day:%Y%m%dT%H}") and run.run_id.endswith("Z")
        assert (await (await one.start("(+ a 2)", {"a": 1}, run_id=run.run_id)).result()).value == 3
        assert await other.unschedule("daily") and not await other.unschedule("daily")


async def test_times_are_those_of_the_zone() -> None:
    """Seven in Berlin is five in summer and six in winter, by UTC."""
    hours = [
        datetime.fromtimestamp(
            next_time("0 7 * * *", "Europe/Berlin", datetime(2026, month, 10, tzinfo=UTC).timestamp()), UTC
        ).hour
        for month in (7, 12)
    ]
    assert hours == [5, 6]


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
        assert await flow.schedules() == []


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
