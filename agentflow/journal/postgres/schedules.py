"""Programs that workers run at certain times: rows that say when, and what is stored of each run at its beginning.

A run and the time of the next one are one transaction, and the id of a run has its time in it: whoever of several workers
comes first starts it, once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentflow.core.data.errors import ConfigurationError, cut
from agentflow.core.events.journal import NewRun, Schedule
from agentflow.journal.connection import Row
from agentflow.journal.postgres.connection import AsyncpgConnection
from agentflow.journal.postgres.rows import beginning
from agentflow.journal.rows import load

_COLUMNS = "name, cron, zone, input, queue, extract(epoch from next)::float8, last"
_DUE = f"select {_COLUMNS} from af_schedule where next <= now() order by next limit 100 for update skip locked"
_START = """
insert into af_run(run, program, digest, input, queue, tenant, priority)
  select $2, program, digest, input, queue, tenant, priority from af_schedule where name = $1 on conflict (run) do nothing
"""


def check(cron: str, zone: str) -> None:
    """Raise ConfigurationError (``config/schedule``) for what is no line of cron's, or no time zone."""
    from croniter import croniter

    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"'{cut(zone, 80)}' is no time zone", code="config/schedule", hint="for example Europe/Berlin, or UTC"
        ) from None
    if len(cron.split()) != 5 or not croniter.is_valid(cron):
        raise ConfigurationError(
            f"'{cut(cron, 80)}' is no line of cron's: minute, hour, day of the month, month, day of the week",
            code="config/schedule",
            hint="'0 7 * * *' is every day at seven, '*/15 * * * 1-5' every quarter of an hour from Monday to Friday",
        )


def next_time(cron: str, zone: str, after: float) -> float:
    """The first time, in unix seconds, that ``cron`` names after ``after``.

    An hour that a line names occurs once a day, also on the day on which clocks go back: only the first counts. A line
    whose hour is ``*``, or ``*/N``, goes by the time that passes.
    """
    from croniter import croniter

    timezone = ZoneInfo(zone)
    times = croniter(cron, datetime.fromtimestamp(after, timezone))
    moment = times.get_next(datetime)
    while moment.fold and not cron.split()[1].startswith("*"):
        moment = times.get_next(datetime)
    return float(moment.timestamp())


async def keep(db: AsyncpgConnection, name: str, cron: str, zone: str, new: NewRun) -> Schedule:
    """Store a schedule in the place of that of this name."""
    now = await db.fetchval("select extract(epoch from now())::float8")
    row = await db.fetchrow(
        "insert into af_schedule(name, cron, zone, next, program, digest, input, queue, tenant, priority)"
        " values ($1, $2, $3, to_timestamp($4), $5, $6, $7, $8, $9, $10) on conflict (name) do update set cron = excluded.cron,"
        " zone = excluded.zone, next = excluded.next, program = excluded.program, digest = excluded.digest,"
        " input = excluded.input, queue = excluded.queue, tenant = excluded.tenant, priority = excluded.priority"
        f" returning {_COLUMNS}",
        name,
        cron,
        zone,
        next_time(cron, zone, now),
        *beginning(new),
    )
    assert row is not None
    return _schedule(row)


async def read(db: AsyncpgConnection) -> list[Schedule]:
    """The schedules, the next one first."""
    return [_schedule(row) for row in await db.fetch(f"select {_COLUMNS} from af_schedule order by next, name")]


async def remove(db: AsyncpgConnection, name: str) -> bool:
    """Remove a schedule. False if there is none of this name."""
    return await db.fetchval("delete from af_schedule where name = $1 returning 1", name) is not None


async def start_due(db: AsyncpgConnection) -> list[str]:
    """Start the runs whose time has come, and give their ids. Of times that passed while nobody looked the first counts."""
    now = await db.fetchval("select extract(epoch from now())::float8")
    started: list[str] = []
    for row in await db.fetch(_DUE):
        due = _schedule(row)
        run = f"{due.name}@{datetime.fromtimestamp(due.next, UTC):%Y%m%dT%H%MZ}"
        await db.execute(_START, due.name, run)
        await db.execute(
            "update af_schedule set next = to_timestamp($2), last = $3 where name = $1",
            due.name,
            next_time(due.cron, due.zone, max(now, due.next)),
            run,
        )
        started.append(run)
    return started


def _schedule(row: Row) -> Schedule:
    name, cron, zone, job, queue, due, last = row
    return Schedule(name=name, cron=cron, zone=zone, program=load(job)["name"], queue=queue, next=due, last=last)
