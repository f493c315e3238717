"""Jobs of workers, in the tables of PgQueuer: queued in the transaction that marks a run to be resumed.

A job is the next slice of a run. It may be lost or delivered more than once: only the job of the next slice can own the
run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from agentflow.core.data.errors import ConfigurationError
from agentflow.journal.connection import Row
from agentflow.journal.postgres.connection import Connection
from agentflow.journal.postgres.schema import has_table

TABLE = "af_job"
CHANNEL = "af_job"
"""What workers listen to; it has the jobs of all schemas of a database."""
CHANGES = "af_run"
"""What followers of runs listen to; it has the runs of all schemas of a database."""
TELL = f"select pg_notify('{CHANGES}', left($1, 1000))"
"""Says that there is something new of a run: apart from the transaction that stored it, since those that notify commit one by one."""
TENANT_MOST = 9_999
"""Number of unfinished runs of a tenant that count when its next one is queued."""
_INSTALLING = 0x61666A6F62  # the advisory lock of whoever makes tables
_KEY = "r.run || '@' || r.slice || '.' || r.seq"
JOB = f"""r.run, r.slice, {_KEY}, r.queue, case when r.status = 'waiting' then extract(epoch from r.wake_at - now())::float8 end,
  100000 * r.priority - (select count(*) from (select from af_run t where t.queue is not null and t.tenant = r.tenant
    and t.status in ('queued', 'running', 'waiting') limit {TENANT_MOST}) as unfinished)"""
"""The job of a run ``r``. A row that is being inserted is not among the unfinished ones of its tenant yet."""
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
"""Gives the status of the run then. A waiting one may have a job for later, which is that of another ``seq``."""
CANCELLED = """
select run from af_run r where owner = $1 and status = 'running' and (cancelling
  or (fork is not null and exists (select from af_fork f where f.id = r.fork and f.state > 0)))
"""
"""The runs of an owner that are to be cancelled: they were asked to be, or another branch of their form failed."""
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


def check_engine() -> None:
    """Raise ConfigurationError (``config/extra``) where PgQueuer is missing."""
    if find_spec("pgqueuer") is None:
        raise ConfigurationError(
            "runs of workers need a package that is not installed: pgqueuer",
            code="config/extra",
            hint="pip install 'agentflow[scale]'",
        )


class Engine:
    """PgQueuer with these table names, whatever its environment variables say. It is imported on first use.

    ``installed`` says that its tables were seen in the database.
    """

    def __init__(self) -> None:
        self.installed = False
        self._builders: dict[str, Any] = {}

    def queries(self, db: Connection) -> Any:
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

    async def install(self, db: Connection) -> None:
        """Create PgQueuer's tables if they are missing, one process at a time."""
        if await self.is_installed(db):
            return
        async with db.transaction():
            await db.execute("select pg_advisory_xact_lock($1)", _INSTALLING)
            if not await has_table(db, TABLE):
                await self.queries(db).install(create_schema=False)

    async def is_installed(self, db: Connection) -> bool:
        """Whether PgQueuer's tables are there."""
        self.installed = self.installed or await has_table(db, TABLE)
        return self.installed

    async def enqueue(self, db: Connection, runs: Sequence[str]) -> None:
        """Queue a job for each of ``runs`` that workers are to resume, now or when it is time; once for each slice.

        Without PgQueuer here, the workers find these runs themselves, a little later.
        """
        if runs:
            await self.enqueue_rows(db, await db.fetch(_JOBS, runs))

    async def enqueue_rows(self, db: Connection, rows: Sequence[Row]) -> None:
        """Queue jobs with the columns :data:`JOB`."""
        if not rows or find_spec("pgqueuer") is None:
            return
        names, slices, keys, queues, after, priorities = zip(*rows, strict=True)
        payloads = [json.dumps([run, slice]).encode() for run, slice in zip(names, slices, strict=True)]
        delays = [None if seconds is None else timedelta(seconds=max(0.0, seconds)) for seconds in after]
        await self.queries(db).enqueue(list(queues), payloads, list(priorities), delays, list(keys), on_conflict="skip")


async def free_claims(db: Connection, owner: int) -> None:
    """Free the jobs that other workers than ``owner`` had claimed when they died; there has to be a table of them."""
    if await db.fetchval(_FREE, owner):
        await db.execute("select pg_notify($1, '')", CHANNEL)


async def lost(db: Connection, seconds: float) -> list[str]:
    """Runs, at most 1,000, that have waited to be resumed for more than ``seconds`` and have no job."""
    return [run for (run,) in await db.fetch(_LOST, seconds)]
