"""The :class:`~agentflow.core.ports.store_ports.JournalStore` in PostgreSQL: for the runs of many machines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import asyncpg

from agentflow.core.events.journal_rows import BranchEnd, EffectRow, EffectState, NewRun, OwnedRun, RunRow, RunStatus
from agentflow.journal.cleaning import ROW_BYTES, StorageSurvey, keep_summaries, removable
from agentflow.journal.connection import Row
from agentflow.journal.errors import owned_run, unknown_run
from agentflow.journal.postgres import forks, leases
from agentflow.journal.postgres.connection import AsyncpgConnection, blobs_in
from agentflow.journal.postgres.link import DatabaseLink, PostgresDatabase
from agentflow.journal.postgres.owner import STALE_S, OpenedConversations, OwnerSession, end_stale, is_alive
from agentflow.journal.postgres.queue import (
    DEAD_CLAIMS,
    JOB,
    JOB_COLUMNS,
    TELL,
    PostgresQueue,
    QueueEngine,
    free_claims,
)
from agentflow.journal.postgres.rows import ADD, PUT, PostgresRows, beginning, columns
from agentflow.journal.rows import OWNER, REF, dump, effect_values, escape
from agentflow.journal.sessions import Sessions, remove_openings
from agentflow.journal.store import FINISH, Journal
from agentflow.journal.writer import Put, Writer

_RUN, _DEATHS = PostgresRows.run, PostgresRows.deaths
_DEAD = """
with owners as materialized (select distinct owner from af_run where status = 'running' and owner <> $1),
dead as materialized (select owner from owners where pg_try_advisory_xact_lock_shared(owner))
"""
_ABANDONED = f"""{_DEAD}
select {_DEATHS}, {_RUN} from af_run r join dead using (owner) where status = 'running' and queue is null order by rid limit 100
"""
_REQUEUE = f"""{_DEAD}
update af_run r set status = 'queued', owner = null, deaths = {_DEATHS}, updated = now(), spent_s = spent_s + {PostgresRows.unsaid_s}
from dead where r.owner = dead.owner and r.status = 'running' and r.queue is not null returning r.run
"""
_LOOK = """
select exists (select from af_owner where seen < now() - make_interval(secs => $2)), exists (
  with owners as materialized (select distinct owner from af_run where status = 'running' and owner <> $1)
  select from owners where pg_try_advisory_xact_lock_shared(owner))
"""
"""Whether an owner has gone silent, and whether one is dead: without either there is nothing to take over."""
_CREATE = f"""
insert into af_run as r(run, base, program, digest, input, queue, tenant, priority)
  values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (run) do nothing returning {JOB}, {_RUN}
"""
_OWN_NEW = f"""
update af_run r set status = 'running', epoch = 1, slice = 1, owner = $2, build = $3, updated = now()
where run = $1 and status = 'queued' and epoch = 0 and slice = 0 returning {PostgresRows.leased}, {_RUN}
"""
"""A run without an owner so far has no records, no conversation to claim again, and no reservations."""
_FINISH_ALONE = f"""
{FINISH} and epoch = $6 and fork is null and not exists (select from af_session where holder = $1)
  and not exists (select from af_lease l where l.run = $1) returning queue is not null
"""
"""The end of a run that has only its own row."""
_GIVE_BACK = """
update af_run set status = 'queued', owner = null
where run = $1 and owner = $2 and status = 'running' and epoch = coalesce($3, epoch)
"""


def _bytes(*columns: str) -> str:
    return " + ".join([f"coalesce(octet_length({column}), 0)" for column in columns])


_SIZES = f"""
select r.run, ({ROW_BYTES} + {_bytes("r.program", "r.input", "r.result", "r.error", "x.value")} + coalesce(e.size, 0))::bigint
from af_run r left join af_opening o on o.run = r.run left join af_exchange x on x.hash = o.hash
left join (select rid, sum({ROW_BYTES} + {_bytes("path", "name", "value", "turns")}) as size from af_effect group by rid) e
  on e.rid = r.rid
"""
_EMPTIED = """
select p.name from af_part p join af_part after on after.first = p.upto
where after.created < now() - interval '1 hour' and not exists (
  select from af_run r left join unnest($1::text[]) as gone(run) using (run)
  where r.rid >= p.first and r.rid < p.upto and gone.run is null)
"""
"""Partitions without a run to leave next to the removed ones. A run being stored may still get a number of the one
before the last."""
_BESIDE = """
select rid from af_run r where run = any($1)
  and not exists (select from af_part p where p.name = any($2) and r.rid >= p.first and r.rid < p.upto)
"""
_LOCK_MS = 500
_RESULTS = f"select at, content, {ROW_BYTES} + {_bytes('value', 'turns')} from af_result"


class PostgresJournal(Journal[AsyncpgConnection]):
    """Durable runs in the database at ``url``, ``postgresql://user@host/database``, with those of other processes.

    It has two connections: one for all statements, and one with a lock to show that this process is alive.
    """

    def __init__(self, url: str) -> None:
        link = DatabaseLink(url)
        self._rows: PostgresRows = PostgresRows(blobs_in(url))
        database = PostgresDatabase(link, partial(_put, self._rows))
        super().__init__(Writer(database, f"durable runs in {link.name}"), self._rows)
        self._owner = OwnerSession(url)
        self._held: dict[str, int] = {}
        self._engine = QueueEngine()
        self.jobs = PostgresQueue(url, self._writer, database, self._owner, self._engine)
        self.opened = OpenedConversations(self._writer, self._owner)
        self.sessions = Sessions(self._writer, self._rows, self.opened)

    @property
    def _me(self) -> tuple[int, str | None]:
        return self._owner.id, self._owner.build

    async def _insert(self, db: AsyncpgConnection, run: str, new: NewRun) -> RunRow | None:
        row = await db.fetchrow(_CREATE, run, new.base, *beginning(new))
        if row is None:
            return None
        if new.queue is not None:
            await self._engine.enqueue_rows(db, [row[:JOB_COLUMNS]])
        return await self._rows.run_of(db, row[JOB_COLUMNS:])

    async def _answer(self, db: AsyncpgConnection, row: Row, record: EffectRow) -> None:
        await db.execute(
            "update af_effect set state = $3, value = $4, t1 = $5 where rid = $1 and key = $2 and state = 0",
            row[REF],
            record.key,
            int(record.state),
            dump(record.value),
            record.ended,
        )

    async def _add(self, db: AsyncpgConnection, row: Row, record: EffectRow) -> None:
        [stored] = await self._rows.offload(db, [row[0]], [effect_values(record)])
        await db.execute(ADD, row[REF], *stored)

    async def _is_worked_on(self, db: AsyncpgConnection, row: Row) -> bool:
        owner = row[OWNER]
        if owner == self._owner.id:
            return row[0] in self._held
        return owner is not None and await is_alive(db, owner)

    async def _is_taken(self, db: AsyncpgConnection, row: Row) -> bool:
        return await self._is_worked_on(db, row)

    async def _begin_to_own(self, run: str) -> None:
        if not self._owner.is_held:
            await self._writer.ask(lambda db: self._row(db, run))
            await asyncio.to_thread(self._owner.ensure)

    async def _own_new(self, run: str) -> OwnedRun | None:
        async def work(db: AsyncpgConnection) -> OwnedRun | None:
            row = await db.fetchrow(_OWN_NEW, run, *self._me)
            if row is None:
                return None
            run_row = await self._rows.run_of(db, row[1:])
            owned = OwnedRun(run=run_row, records=[], usage=(), cost=0.0, leased=row[0] is not None)
            await self._owned_now(db, owned, False)
            return owned

        return await self._writer.ask(work)

    async def _owned_now(self, db: AsyncpgConnection, owned: OwnedRun, leased: bool) -> None:
        if leased:
            await leases.free(db, owned.run.run)
        self._held[owned.run.run] = owned.run.epoch

    def _not_owned(self, run: str, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._give_back(run)

    def _release(self, run: str) -> None:
        self._held.pop(run, None)

    async def _may_wait(self, db: AsyncpgConnection, row: RunRow) -> bool:
        return row.parent is None or await forks.is_wanted(db, row.run)

    async def _status_then(self, db: AsyncpgConnection, row: RunRow, status: RunStatus) -> RunStatus:
        if status == "interrupted" and (row.cancelling or not await forks.is_wanted(db, row.run)):
            return "queued"  # a run to be cancelled asks no questions
        return status

    async def _ended(
        self, db: AsyncpgConnection, row: RunRow, status: RunStatus, then: RunStatus, branch: BranchEnd | None
    ) -> None:
        if then == "queued":
            await self._enqueue(db, [row.run])
        elif row.queue is not None:
            await (leases.free if status == "interrupted" else leases.end)(db, row.run)
        if branch is not None and row.status == "running":
            await self._enqueue(db, await forks.ended(db, self._rows, row.run, branch))

    async def _finish_alone(self, epoch: int, *outcome: Any) -> bool | None:
        run, status, result, error, spent_s = outcome
        values = (run, status, dump(result), dump(error), spent_s, epoch)
        return await self._writer.ask(lambda db: db.fetchval(_FINISH_ALONE, *values))

    async def _enqueue(self, db: AsyncpgConnection, runs: Sequence[str]) -> None:
        await self._engine.enqueue(db, runs)

    def _give_back(self, run: str, epoch: int | None = None) -> None:
        async def work(db: AsyncpgConnection) -> None:
            if epoch is None or self._held.get(run) == epoch:
                self._held.pop(run, None)
            await db.execute(_GIVE_BACK, run, self._owner.id, epoch)
            await self._enqueue(db, [run])

        self._writer.submit_quietly(work)  # the owner's end gives it up too

    def _tell(self, run: str) -> None:
        self._writer.submit_quietly(lambda db: db.execute(TELL, run), atomic=False)

    async def _sweep(self) -> None:
        await self._writer.do(self._rows.collect)

    async def has(self, run: str) -> bool:
        """Whether there is a run of this id."""
        query = "select exists (select from af_run where run = $1)"
        return bool(await self._writer.ask(lambda db: db.fetchval(query, run)))

    async def has_session(self, name: str) -> bool:
        """Whether a conversation of this name exists or is open."""
        query = (
            "select exists (select from af_session where name = $1) or exists (select from af_opened where name = $2)"
        )
        names = escape(name), escape(f"session {name}")
        return bool(await self._writer.do(lambda db: db.fetchval(query, *names)))

    async def database_id(self) -> str:
        """The id of the database, which it keeps for good."""
        return await self._writer.ask(lambda db: db.fetchval("select value from af_meta where key = 'id'"))

    async def _lender(self) -> str:
        if not self._owner.is_held:
            await self._writer.ask(lambda db: db.fetchval("select 1"))  # raises for a missing database
            await asyncio.to_thread(self._owner.ensure)
        return str(self._owner.id)

    async def _lender_lives(self, db: AsyncpgConnection, owner: str) -> bool:
        return await is_alive(db, int(owner))

    async def abandoned(self) -> list[RunRow]:
        async def look(db: AsyncpgConnection) -> bool:
            more = f", {DEAD_CLAIMS}" if await self._engine.is_installed(db) else ""
            return any(await db.fetchrow(f"{_LOOK}{more}", self._owner.id, STALE_S) or ())

        async def work(db: AsyncpgConnection) -> tuple[int, list[RunRow]]:
            await end_stale(db)
            if await self._engine.is_installed(db):
                await free_claims(db, self._owner.id)
            requeued = [run for (run,) in await db.fetch(_REQUEUE, self._owner.id)]
            await self._enqueue(db, requeued)
            rows = await db.fetch(_ABANDONED, self._owner.id)
            runs = [replace(await self._rows.run_of(db, row), status="queued", deaths=died) for died, *row in rows]
            return len(requeued), runs

        if not await self._writer.ask(look):
            return []
        requeued, rows = await self._writer.do(work)
        self.jobs.takeovers += requeued
        return rows

    async def survey_in(self, db: AsyncpgConnection) -> StorageSurvey:
        sizes = {run: size for run, size in await db.fetch(_SIZES)}
        return StorageSurvey(
            sizes, await removable(db), [(at, key, size) for at, key, size in await db.fetch(_RESULTS)]
        )

    async def remove_in(self, db: AsyncpgConnection, runs: Sequence[str], results: Sequence[bytes]) -> None:
        await db.execute("delete from af_result where content = any($1)", results)
        emptied = [part for (part,) in await db.fetch(_EMPTIED, runs)]
        if runs:
            await keep_summaries(self._rows, db, runs)
            rids = [rid for (rid,) in await db.fetch(_BESIDE, runs, emptied)]
            await db.execute("delete from af_effect where rid = any($1)", rids)
            await db.execute("delete from af_blob b using af_run r where r.run = any($1) and b.rid = r.rid", runs)
            for table in ("af_run", "af_fork", "af_lease"):
                await db.execute(f"delete from {table} where run = any($1)", runs)
            await db.execute("delete from af_budget where root = any($1)", runs)
            await remove_openings(db, runs)
        for part in emptied:
            await _drop(db, part)

    async def survey(self) -> StorageSurvey:
        """The removable data, and the size of all stored data."""
        return await self._writer.do(self.survey_in)

    async def remove(self, runs: Sequence[str], results: Sequence[bytes]) -> None:
        """Remove runs that have ended, and results; missing ones do not matter."""
        await self._writer.do(lambda db: self.remove_in(db, runs, results))
        await self._sweep()

    async def aclose(self) -> None:
        try:
            await self._writer.aclose()
        finally:
            await asyncio.to_thread(self._owner.close)


async def _put(rows: PostgresRows, db: AsyncpgConnection, jobs: Sequence[Put]) -> None:
    """Store the records of ``jobs``, and delete those they drop, in their order: in one statement if possible."""
    if not rows.have_files and not any([job.drop for job in jobs]):
        await _put_all(rows, db, jobs)
        return
    async with db.transaction():
        await _put_all(rows, db, jobs)


async def _put_all(where: PostgresRows, db: AsyncpgConnection, jobs: Sequence[Put]) -> None:
    waiting: dict[int, Put] = {}
    records: dict[tuple[str, bytes], tuple[Any, ...]] = {}
    for number, job in enumerate(jobs, 1):
        try:
            values = [effect_values(row) for row in job.rows]
        except (TypeError, ValueError, RecursionError) as error:  # no JSON data: the others' rows are not to blame
            job.error = error
            continue
        waiting[number] = job
        for row, fields in zip(job.rows, values, strict=True):
            before = records.get((job.run, row.key))
            if before is None or before[_STATE] == EffectState.OPEN:
                records[job.run, row.key] = (number, *fields)
        if job.drop:  # a record may be stored and forgotten in one batch
            await _write(where, db, waiting, list(records.values()))
            waiting, records = {}, {}
            if job.error is None:
                await db.execute(
                    "delete from af_effect e using af_run r where r.run = $1 and e.rid = r.rid and e.key = any($2)",
                    job.run,
                    list(job.drop),
                )
    await _write(where, db, waiting, list(records.values()))


_STATE = 7
"""The position of the state among the values of a record that follow the number of its job."""


async def _write(
    where: PostgresRows, db: AsyncpgConnection, jobs: dict[int, Put], records: Sequence[tuple[Any, ...]]
) -> None:
    """Store rows of jobs, by their numbers; a job of a stale owner gets its error, and its rows are left out."""
    if not jobs:
        return
    positions = {number: position for position, number in enumerate(jobs, 1)}
    fields = await where.offload(db, [jobs[row[0]].run for row in records], [row[1:] for row in records])
    placed = [(positions[row[0]], *stored) for row, stored in zip(records, fields, strict=True)]
    owners = list(jobs.values())
    args = columns(placed)
    current = {n for (n,) in await db.fetch(PUT, [job.run for job in owners], [job.epoch for job in owners], *args)}
    stale = [job for position, job in enumerate(owners, 1) if position not in current]
    if stale:
        there = await db.fetch("select run from af_run where run = any($1)", [job.run for job in stale])
        stored = {run for (run,) in there}
        for job in stale:
            job.error = owned_run(job.run) if job.run in stored else unknown_run(job.run)


async def _drop(db: AsyncpgConnection, part: str) -> None:
    """Drop a partition, as the last step: no records can be stored from here to the end of the transaction.

    If it cannot be locked at once, for example during a dump, or belongs to another role, a later collection drops it.
    """
    with contextlib.suppress(asyncpg.LockNotAvailableError, asyncpg.InsufficientPrivilegeError):
        async with db.transaction():
            await db.execute(f"set local lock_timeout = '{_LOCK_MS}ms'")
            await db.execute(f'drop table "{part}"')
            await db.execute("delete from af_part where name = $1", part)
            await db.execute("set local lock_timeout = 0")
