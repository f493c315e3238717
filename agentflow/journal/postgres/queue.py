"""Jobs of workers, in the tables of PgQueuer: queued in the transaction that marks a run to be resumed, claimed by a worker, removed when done.

A job is the next slice of a run. It may be lost or delivered more than once: only the job of the next slice can own the
run.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Any, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import asyncpg

from agentflow.core.data.errors import ConfigurationError, cut
from agentflow.core.events.journal_rows import (
    Claim,
    Deposit,
    EffectRow,
    FleetCounts,
    Leased,
    NewRun,
    QueueLoad,
    Schedule,
    WorkerInfo,
)
from agentflow.journal.connection import Row
from agentflow.journal.postgres import forks, leases
from agentflow.journal.postgres.connection import CONNECT_S, AsyncpgConnection, connect
from agentflow.journal.postgres.link import PostgresDatabase
from agentflow.journal.postgres.owner import OwnerSession
from agentflow.journal.postgres.rows import beginning
from agentflow.journal.postgres.schema import has_table
from agentflow.journal.rows import load, unescape
from agentflow.journal.writer import WriteJob, Writer
from agentflow.lib.distribution import install

_COLUMNS = "name, cron, zone, input, queue, extract(epoch from next)::float8, last"
_DUE = f"select {_COLUMNS} from af_schedule where next <= now() order by next limit 100 for update skip locked"
_START = """
insert into af_run(run, program, digest, input, queue, tenant, priority)
  select $2, program, digest, input, queue, tenant, priority from af_schedule where name = $1 on conflict (run) do nothing
"""


def check_schedule(cron: str, zone: str) -> None:
    """Raise ConfigurationError (``config/schedule``) for an invalid cron line or time zone."""
    from croniter import croniter

    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigurationError(
            f"'{cut(zone, 80)}' is not a time zone", code="config/schedule", hint="for example Europe/Berlin, or UTC"
        ) from None
    if len(cron.split()) != 5 or not croniter.is_valid(cron):
        raise ConfigurationError(
            f"'{cut(cron, 80)}' is not a cron line: minute, hour, day of the month, month, day of the week",
            code="config/schedule",
            hint="'0 7 * * *' is every day at seven, '*/15 * * * 1-5' every quarter of an hour from Monday to Friday",
        )


def next_time(cron: str, zone: str, after: float) -> float:
    """The first time, in unix seconds, that ``cron`` names after ``after``.

    An hour that a line names occurs once a day, also on the day when clocks go back: only the first counts. A line with
    ``*``, or ``*/N``, as the hour goes by the elapsed time.
    """
    from croniter import croniter

    timezone = ZoneInfo(zone)
    times = croniter(cron, datetime.fromtimestamp(after, timezone))
    moment = times.get_next(datetime)
    while moment.fold and not cron.split()[1].startswith("*"):
        moment = times.get_next(datetime)
    return float(moment.timestamp())


async def keep_schedule(db: AsyncpgConnection, name: str, cron: str, zone: str, new: NewRun) -> Schedule:
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


async def read_schedules(db: AsyncpgConnection) -> list[Schedule]:
    """The schedules, the next one first."""
    return [_schedule(row) for row in await db.fetch(f"select {_COLUMNS} from af_schedule order by next, name")]


async def remove_schedule(db: AsyncpgConnection, name: str) -> bool:
    """Remove a schedule. False if there is none of this name."""
    return await db.fetchval("delete from af_schedule where name = $1 returning 1", name) is not None


async def start_due(db: AsyncpgConnection) -> list[str]:
    """Start the due runs, and return their ids. Of several missed times only the first counts."""
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


TABLE = "af_job"
CHANNEL = "af_job"
"""The channel of workers; it carries the jobs of all schemas of a database."""
CHANGES = "af_run"
"""The channel of followers of runs; it carries the runs of all schemas of a database."""
TELL = f"select pg_notify('{CHANGES}', left($1, 1000))"
"""Says that there is something new of a run: apart from the transaction that stored it, since those that notify commit one by one."""
TENANT_MOST = 9_999
"""Number of unfinished runs of a tenant that count when its next one is queued."""
_INSTALLING = 0x61666A6F62  # the advisory lock for making tables
_KEY = "r.run || '@' || r.slice || '.' || r.seq"
JOB = f"""r.run, r.slice, {_KEY}, r.queue, case when r.status = 'waiting' then extract(epoch from r.wake_at - now())::float8 end,
  100000 * r.priority - (select count(*) from (select from af_run t where t.queue is not null and t.tenant = r.tenant
    and t.status in ('queued', 'running', 'waiting') limit {TENANT_MOST}) as unfinished)"""
"""The job of a run ``r``. A row being inserted is not among the unfinished ones of its tenant yet."""
JOB_COLUMNS = 6
_JOBS = f"""
select {JOB} from af_run r where r.run = any($1) and r.queue is not null
  and (r.status = 'queued' or (r.status = 'waiting' and r.wake_at is not null))
"""
_LOST = f"""
select r.run from af_run r where r.queue is not null
  and (r.status = 'queued' or (r.status = 'waiting' and r.wake_at < now())) and r.updated < now() - make_interval(secs => $1)
  and not exists (select from {TABLE} j where j.dedupe_key = {_KEY} and j.status in ('queued', 'picked')) limit 1000
"""
CANCEL = """
update af_run set cancelling = true, seq = seq + 1, wake_at = null, updated = now(),
  status = case when status in ('waiting', 'interrupted') then 'queued' else status end
where run = $1 and queue is not null and status not in ('done', 'failed', 'cancelled') returning status
"""
"""Returns the status of the run then. A waiting one may have a job for later, which is that of another ``seq``."""
CANCELLED = """
select run from af_run r where owner = $1 and status = 'running' and (cancelling
  or (fork is not null and exists (select from af_fork f where f.id = r.fork and f.state > 0)))
"""
"""The runs of an owner to cancel: this was requested, or another branch of their form failed."""
LOAD = """
select queue, tenant, count(*) filter (where status = 'queued'), count(*) filter (where status = 'running'),
  count(*) filter (where status in ('waiting', 'interrupted')),
  coalesce(extract(epoch from now() - min(updated) filter (where status = 'queued')), 0)::float8
from af_run where queue is not null and status not in ('done', 'failed', 'cancelled') group by queue, tenant order by queue, tenant
"""
_CLAIMERS = f"""
  select distinct queue_manager_id as id, ('x' || right(replace(queue_manager_id::text, '-', ''), 16))::bit(64)::bigint as owner
  from {TABLE} where status = 'picked'"""
DEAD_CLAIMS = f"""
exists (with owners as materialized ({_CLAIMERS}) select from owners where owner <> $1 and pg_try_advisory_xact_lock_shared(owner))
"""
"""Whether a worker other than the owner ``$1`` died with jobs that it had claimed."""
_FREE = f"""
with owners as materialized ({_CLAIMERS}),
dead as materialized (select id from owners where owner <> $1 and pg_try_advisory_xact_lock_shared(owner)),
freed as (update {TABLE} j set status = 'queued', queue_manager_id = null, slot = null, updated = now()
  from dead where j.queue_manager_id = dead.id and j.status = 'picked' returning 1)
select count(*) from freed
"""


WORKERS = """
select o.host, o.pid, o.build, o.slots, count(r.run), extract(epoch from o.started)::float8, extract(epoch from o.seen)::float8
from af_owner o left join af_run r on r.owner = o.owner and r.status = 'running' where o.build is not null
group by o.owner order by o.started, o.owner
"""
IDLE_S = 1.0
"""Seconds before an idle worker looks for due jobs without a notification."""
BEAT_S = 10.0
CLAIM_S = 30.0
"""Seconds without a beat before a job goes to another worker if its owner is unknown."""
SWEEP_S = 10.0
"""Seconds before runs without a job get one."""
SCHEDULE_S = 1.0
"""Seconds between two checks of a worker for due schedules."""
AT_ONCE = 100
"""Maximum number of jobs claimed together."""
_AWAY_S = 1.0
_SWEEPING = 0x61666A6F73  # the advisory lock of the worker that looks for runs without a job
_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError)

T = TypeVar("T")

_log = logging.getLogger(__name__)


def check_engine() -> None:
    """Raise ConfigurationError (``config/extra``) where PgQueuer is missing."""
    if find_spec("pgqueuer") is None:
        raise ConfigurationError(
            "runs of workers need a package that is not installed: pgqueuer",
            code="config/extra",
            hint=install("scale"),
        )


class QueueEngine:
    """PgQueuer with these table names, independent of its environment variables. It is imported on first use.

    ``installed``: its tables were found in the database.
    """

    def __init__(self) -> None:
        self.installed = False
        self._builders: dict[str, Any] = {}

    def queries(self, db: AsyncpgConnection) -> Any:
        """PgQueuer's queries on a connection, within its transaction if there is one."""
        from pgqueuer.adapters.persistence import qb
        from pgqueuer.db import AsyncpgDriver
        from pgqueuer.domain.settings import DBSettings, Durability
        from pgqueuer.queries import Queries

        if not self._builders:
            settings = DBSettings(
                prefix="",
                db_schema=None,
                channel=CHANNEL,  # pyright: ignore[reportArgumentType] - a NewType of the library's
                function=f"{TABLE}_changed",
                statistics_table=f"{TABLE}_statistics",
                queue_status_type=f"{TABLE}_status",
                queue_table=TABLE,
                queue_table_log=f"{TABLE}_log",
                trigger=f"{TABLE}_changed",
                schedules_table=f"{TABLE}_schedule",
                durability=Durability.balanced,
                widen_id=True,
            )
            self._builders = {
                "qbe": qb.QueryBuilderEnvironment(settings),
                "qbq": qb.QueryQueueBuilder(settings),
                "qbs": qb.QuerySchedulerBuilder(settings),
            }
        return Queries(AsyncpgDriver(db), **self._builders)  # pyright: ignore[reportArgumentType] - has no types

    async def install(self, db: AsyncpgConnection) -> None:
        """Create PgQueuer's tables if they are missing, one process at a time."""
        if await self.is_installed(db):
            return
        async with db.transaction():
            await db.execute("select pg_advisory_xact_lock($1)", _INSTALLING)
            if not await has_table(db, TABLE):
                await self.queries(db).install(create_schema=False)

    async def is_installed(self, db: AsyncpgConnection) -> bool:
        """Whether PgQueuer's tables are there."""
        self.installed = self.installed or await has_table(db, TABLE)
        return self.installed

    async def enqueue(self, db: AsyncpgConnection, runs: Sequence[str]) -> None:
        """Queue a job for each of ``runs`` that workers are to resume, now or when it is time; once for each slice.

        Without PgQueuer here, the workers find these runs themselves, a little later.
        """
        if runs:
            await self.enqueue_rows(db, await db.fetch(_JOBS, runs))

    async def enqueue_rows(self, db: AsyncpgConnection, rows: Sequence[Row]) -> None:
        """Queue jobs with the columns :data:`JOB`."""
        if not rows or find_spec("pgqueuer") is None:
            return
        names, slices, keys, queues, after, priorities = zip(*rows, strict=True)
        payloads = [json.dumps([run, slice]).encode() for run, slice in zip(names, slices, strict=True)]
        delays = [None if seconds is None else timedelta(seconds=max(0.0, seconds)) for seconds in after]
        await self.queries(db).enqueue(list(queues), payloads, list(priorities), delays, list(keys), on_conflict="skip")


async def free_claims(db: AsyncpgConnection, owner: int) -> None:
    """Free the jobs that other workers than ``owner`` had claimed when they died; there has to be a table of them."""
    if await db.fetchval(_FREE, owner):
        await db.execute("select pg_notify($1, '')", CHANNEL)


async def lost(db: AsyncpgConnection, seconds: float) -> list[str]:
    """Runs, at most 1,000, that have waited to be resumed for more than ``seconds`` and have no job."""
    return [run for (run,) in await db.fetch(_LOST, seconds)]


class PostgresQueue:
    """The :class:`~agentflow.core.ports.store_ports.JobQueue` in the database at ``url``, on a connection of its own.

    Claims are those of ``owner``, so that they are free when it dies. ``writer`` and ``database`` are those of the store.
    ``takeovers`` counts the runs of dead workers that the store had queued again.
    """

    def __init__(
        self,
        url: str,
        writer: Writer[AsyncpgConnection],
        database: PostgresDatabase,
        owner: OwnerSession,
        engine: QueueEngine,
    ) -> None:
        self.takeovers = 0
        self._url = url
        self._writer = writer
        self._database = database
        self._owner = owner
        self._engine = engine

    async def prepare(self) -> None:
        check_engine()
        if not self._engine.installed:
            await self._writer.do(self._engine.install)

    async def cancel(self, run: str) -> None:
        async def work(db: AsyncpgConnection) -> None:
            if await db.fetchval(CANCEL, run) == "queued":
                await self._engine.enqueue(db, [run])

        await self._writer.do(work)

    async def fork(
        self,
        run: str,
        epoch: int,
        form: EffectRow,
        branches: Sequence[tuple[str, NewRun]],
        opening: Sequence[Any],
        deposit: Deposit | None = None,
    ) -> None:
        async def work(db: AsyncpgConnection) -> None:
            if await forks.begin(db, run, epoch, form, branches, opening):
                await leases.share(db, run, [name for name, _ in branches], deposit)
                await self._engine.enqueue(db, [name for name, _ in branches])

        await self._writer.do(work)

    def lease(self, run: str, usd: float, tokens: int) -> asyncio.Future[Leased]:
        return self._submit(lambda db: leases.take(db, run, usd, tokens))

    def give_back(self, run: str, usd: float, tokens: int) -> asyncio.Future[None]:
        return self._submit(lambda db: leases.give_back(db, run, usd, tokens))

    def give_up(self, run: str, epoch: int, key: bytes) -> asyncio.Future[None]:
        async def work(db: AsyncpgConnection) -> None:
            await self._engine.enqueue(db, await forks.give_up(db, run, epoch, key))

        return self._submit(work)

    def _submit(self, work: Callable[[AsyncpgConnection], Awaitable[T]]) -> asyncio.Future[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writer.submit(WriteJob(future, work))
        return future

    async def cancelled(self) -> list[str]:
        return [run for (run,) in await self._writer.ask(lambda db: db.fetch(CANCELLED, self._owner.id))]

    async def changes(self, wake: Callable[[str | None], None]) -> None:
        lost = asyncio.Event()

        def told(_db: object, _pid: int, _channel: str, run: str) -> None:
            wake(run)

        while True:
            lost.clear()
            try:
                async with _connection(self._url) as db:
                    db.add_termination_listener(lambda *_: lost.set())
                    await db.add_listener(CHANGES, told)
                    wake(None)
                    await lost.wait()
            except _ERRORS as error:
                _log.debug("nothing is said of runs that are followed: %s", error)
            await asyncio.sleep(_AWAY_S)

    async def workers(self) -> list[WorkerInfo]:
        rows = await self._writer.ask(lambda db: db.fetch(WORKERS))
        return [
            WorkerInfo(host=host, pid=pid, build=build, slots=slots, runs=runs, started=started, seen=seen)
            for host, pid, build, slots, runs, started, seen in rows
        ]

    async def load(self) -> list[QueueLoad]:
        rows = await self._writer.ask(lambda db: db.fetch(LOAD))
        return [
            QueueLoad(
                queue=queue, tenant=unescape(tenant), queued=queued, running=running, waiting=waiting, oldest_s=oldest
            )
            for queue, tenant, queued, running, waiting, oldest in rows
        ]

    def counts(self) -> FleetCounts:
        return FleetCounts(
            takeovers=self.takeovers,
            sessions_lost=self._owner.lost,
            refused=self._database.refused,
            commits=self._writer.commits,
            commit_s=self._writer.commit_s,
        )

    async def schedule(self, name: str, cron: str, zone: str, new: NewRun) -> Schedule:
        check_engine()
        check_schedule(cron, zone)
        return await self._writer.do(lambda db: keep_schedule(db, name, cron, zone, new))

    async def schedules(self) -> list[Schedule]:
        return await self._writer.ask(read_schedules)

    async def unschedule(self, name: str) -> bool:
        return await self._writer.do(lambda db: remove_schedule(db, name))

    async def work(
        self,
        handle: Callable[[Claim], Awaitable[None]],
        queues: Mapping[str, int],
        slots: int,
        stop: asyncio.Event,
        build: str = "",
    ) -> None:
        await self.work_in(Slots(slots), handle, queues, stop, build)

    async def work_in(
        self,
        slots: Slots,
        handle: Callable[[Claim], Awaitable[None]],
        queues: Mapping[str, int],
        stop: asyncio.Event,
        build: str,
    ) -> None:
        """Like :meth:`work`, with slots that other queues use, too."""
        await self.prepare()
        self._owner.build, self._owner.slots = build, slots.free
        await asyncio.to_thread(self._owner.ensure)
        await self._writer.do(self._owner.tell)
        try:
            await self._work_on(_Work(self._engine, uuid.UUID(int=self._owner.id), handle, queues, slots, stop))
        finally:
            self._owner.build = self._owner.slots = None
            self._writer.submit_quietly(self._owner.tell)

    async def _work_on(self, work: _Work) -> None:
        told = False
        async with asyncio.TaskGroup() as group:
            told_to_stop = group.create_task(work.wake_at_stop())
            while not work.is_over:
                try:
                    async with _connection(self._url) as db:
                        told = False
                        await work.go_on(db, group)
                except _ERRORS as error:
                    if not told:
                        _log.warning("no jobs can be fetched: %s; active runs continue", error)
                    told = True
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(work.over(), _AWAY_S)
            told_to_stop.cancel()


class Slots:
    """The number of jobs that a worker may have at a time, of all queues together: ``free`` more."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._wakes: list[asyncio.Event] = []

    def join(self, wake: asyncio.Event) -> None:
        """Set ``wake`` whenever a slot becomes free."""
        self._wakes.append(wake)

    def take(self) -> None:
        """Use a slot."""
        self.free -= 1

    def give_back(self) -> None:
        """Use a slot no more."""
        self.free += 1
        for wake in self._wakes:
            wake.set()


@dataclass(slots=True, eq=False)
class _Work:
    """The jobs in progress, independent of the connection."""

    engine: QueueEngine
    owner: uuid.UUID
    handle: Callable[[Claim], Awaitable[None]]
    queues: Mapping[str, int]
    slots: Slots
    stop: asyncio.Event
    _busy: dict[int, Any] = field(default_factory=dict[int, Any])
    _done: list[Any] = field(default_factory=list[Any])
    _wake: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.slots.join(self._wake)

    @property
    def is_over(self) -> bool:
        """Whether nothing is at work, and nothing more is wanted."""
        return self.stop.is_set() and not self._busy and not self._done

    async def over(self) -> None:
        """Wait until the last job has ended after the stop, even if the database cannot be notified."""
        await self.stop.wait()
        while self._busy:
            self._wake.clear()
            await self._wake.wait()
        self._done.clear()  # delivered again they find nothing to do

    async def wake_at_stop(self) -> None:
        """Wake :meth:`go_on` when the worker is to stop."""
        await self.stop.wait()
        self._wake.set()

    async def go_on(self, db: AsyncpgConnection, group: asyncio.TaskGroup) -> None:
        """Claim jobs, start them in ``group`` and remove finished ones, until :attr:`is_over`. Raises the errors of
        asyncpg."""
        from pgqueuer.ports.repository import EntrypointExecutionParameter

        queries = self.engine.queries(db)
        limits = {name: EntrypointExecutionParameter(concurrency_limit=limit) for name, limit in self.queues.items()}
        await db.add_listener(CHANNEL, lambda *_: self._wake.set())
        db.add_termination_listener(lambda *_: self._wake.set())
        beaten, swept, looked = time.monotonic(), -SWEEP_S, -SCHEDULE_S
        while not self.is_over:
            self._wake.clear()
            now = time.monotonic()
            await self._remove(queries)
            if now - swept >= SWEEP_S:
                swept = now
                await self._sweep(db)
            if now - looked >= SCHEDULE_S and not self.stop.is_set():
                looked = now
                async with db.transaction():
                    await self.engine.enqueue(db, await start_due(db))
            if now - beaten >= BEAT_S:
                beaten = now
                await queries.update_heartbeat(list(self._busy))
            jobs: list[Any] = []
            free = min(self.slots.free, AT_ONCE)
            if free > 0 and not self.stop.is_set():
                jobs = await queries.dequeue(free, limits, self.owner, None, timedelta(seconds=CLAIM_S))
            for job in jobs:
                if job.id not in self._busy:
                    self._busy[job.id] = job
                    self.slots.take()
                    group.create_task(self._do(job))
            if (not jobs or len(jobs) < free) and not self._done and not self.is_over:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), IDLE_S)

    async def _do(self, job: Any) -> None:
        run, slice = json.loads(job.payload)
        try:
            await self.handle(Claim(run=run, slice=slice))
        finally:
            self._done.append(self._busy.pop(job.id))
            self._wake.set()
            self.slots.give_back()

    async def _remove(self, queries: Any) -> None:
        """Remove the finished jobs."""
        done, self._done = self._done, []
        if done:
            try:
                await queries.log_jobs([(job, "successful", None) for job in done])
            except BaseException:  # they are removed on another connection
                self._done += done
                raise

    async def _sweep(self, db: AsyncpgConnection) -> None:
        """Queue runs after their job was lost; only one worker at a time does this."""
        async with db.transaction():
            if await db.fetchval("select pg_try_advisory_xact_lock($1)", _SWEEPING):
                await self.engine.enqueue(db, await lost(db, SWEEP_S / 2))
                await db.execute("delete from af_job_log where created < now() - interval '1 day'")


@contextlib.asynccontextmanager
async def _connection(url: str) -> AsyncGenerator[AsyncpgConnection]:
    """A connection that does not wait for its commits: a claim that the server forgets is delivered again, and does nothing then."""
    db = await connect(url, {"synchronous_commit": "off"})
    try:
        yield db
    finally:
        with contextlib.suppress(*_ERRORS):
            await db.close(timeout=CONNECT_S)
