"""The :class:`~agentflow.core.ports.store_ports.JournalStore` in PostgreSQL: for the runs of many machines."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal import (
    ENDED,
    BranchEnd,
    EffectRow,
    EffectState,
    NewRun,
    OwnedRun,
    PastRow,
    RunRow,
    RunStatus,
    SessionChanges,
)
from agentflow.journal.errors import owned_run, unknown_run
from agentflow.journal.postgres import forks, leases, openings, sessions, summaries
from agentflow.journal.postgres.blobs import Blobs
from agentflow.journal.postgres.cleaning import Survey, collect, remove, survey
from agentflow.journal.postgres.connection import Connection, Row, Work, blobs_in
from agentflow.journal.postgres.jobs import DEAD_CLAIMS, JOB, JOB_COLUMNS, TELL, Engine, free_claims
from agentflow.journal.postgres.leases import LEASED
from agentflow.journal.postgres.link import Link, PostgresDatabase
from agentflow.journal.postgres.owner import STALE_S, OwnerSession, end_stale, is_alive
from agentflow.journal.postgres.queue import PostgresQueue
from agentflow.journal.postgres.results import PostgresResults
from agentflow.journal.postgres.rows import (
    ANSWERS,
    OWNER,
    PUT,
    RID,
    RUN,
    beginning,
    columns,
    dump,
    effect_values,
    effects,
    run_of,
    spent,
)
from agentflow.journal.rows import deaths, reached
from agentflow.journal.writer import Job, Put, Writer

_DEAD = """
with owners as materialized (select distinct owner from af_run where status = 'running' and owner <> $1),
dead as materialized (select owner from owners where pg_try_advisory_xact_lock_shared(owner))
"""
_REACHED, _DEATHS = reached("e.rid = r.rid"), deaths("e.rid = r.rid")
_ABANDONED = f"""{_DEAD}
select {_DEATHS}, {RUN} from af_run r join dead using (owner) where status = 'running' and queue is null order by rid limit 100
"""
_REQUEUE = f"""{_DEAD}
update af_run r set status = 'queued', owner = null, deaths = {_DEATHS}, updated = now(), spent_s = spent_s + greatest(0,
  coalesce((select max(t1) from af_effect e where e.rid = r.rid) - extract(epoch from r.updated), 0))
from dead where r.owner = dead.owner and r.status = 'running' and r.queue is not null returning r.run
"""
_LIST = f"""
select {RUN} from af_run where parent is null or status in ('waiting', 'interrupted') order by updated desc, run limit $1
"""
"""Of runs that do branches of others only those are listed that need somebody."""
_LOOK = """
select exists (select from af_owner where seen < now() - make_interval(secs => $2)), exists (
  with owners as materialized (select distinct owner from af_run where status = 'running' and owner <> $1)
  select from owners where pg_try_advisory_xact_lock_shared(owner))
"""
"""Whether an owner says nothing any more, and whether one is dead: without either there is nothing to take over."""
_CREATE = f"""
insert into af_run as r(run, base, program, digest, input, queue, tenant, priority)
  values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (run) do nothing returning {JOB}, {RUN}
"""
_IS_DUE = "status = 'queued' or (status = 'waiting' and wake_at <= now())"
_OWN = f"""
update af_run r set status = 'running', epoch = epoch + 1, slice = slice + 1, owner = $2, wake_at = null,
  build = $4, deaths = case when $3 then {_DEATHS} when queue is null then 0 else deaths end,
  reached = {_REACHED}, updated = now(), spent_s = spent_s
    + greatest(0, (select max(t1) from af_effect e where e.rid = r.rid) - extract(epoch from updated))
where run = $1 returning {LEASED}, {RUN}
"""
"""The last slice of a run that was killed had worked until its last record, as far as is known."""
_OWN_NEW = f"""
update af_run r set status = 'running', epoch = 1, slice = 1, owner = $2, build = $3, updated = now()
where run = $1 and status = 'queued' and epoch = 0 and slice = 0 returning {LEASED}, {RUN}
"""
"""One that nobody has worked on has no records, no conversation to be held again, and nothing set aside."""
_FINISH = """
update af_run set status = $2, result = $3, error = $4, spent_s = spent_s + $5, owner = null, deaths = 0, updated = now()
where run = $1
"""
_FINISH_ALONE = f"""
{_FINISH} and epoch = $6 and fork is null and not exists (select from af_session where holder = $1)
  and not exists (select from af_lease l where l.run = $1) returning queue is not null
"""
"""The end of a run that has nothing besides its own row."""


class PostgresJournal:
    """Durable runs in the database at ``url``, ``postgresql://user@host/database``, with those of other processes.

    It has two connections: one on which everything is stored, and one whose lock says that this process lives.
    """

    def __init__(self, url: str) -> None:
        link = Link(url)
        self._blobs = Blobs(blobs_in(url))
        database = PostgresDatabase(link, partial(_put, self._blobs))
        self._writer: Writer[Connection] = Writer(database, f"durable runs in {link.name}")
        self._owner = OwnerSession(url)
        self._held: dict[str, int] = {}
        self._engine = Engine()
        self.jobs = PostgresQueue(url, self._writer, database, self._owner, self._engine)
        self.sessions = sessions.PostgresSessions(self._writer, self._owner)
        self.results = PostgresResults(self._writer)

    async def create(self, run: str, new: NewRun) -> tuple[RunRow, bool]:
        async def work(db: Connection) -> tuple[RunRow, bool]:
            if new.base is not None and new.takes_over is not None:
                await _owned(db, new.base, new.takes_over)
                await sessions.let_go(db, new.base, None)
                await db.execute(
                    "update af_run set status = 'cancelled', result = $2, owner = null, updated = now() where run = $1",
                    new.base,
                    dump({"successor": run}),
                )
            row = await db.fetchrow(_CREATE, run, new.base, *beginning(new))
            if row is None:
                return await self._shown(db, await _row(db, run)), False
            if new.session is not None:
                await sessions.hold(db, new.session, run)
            if new.opening is not None:
                await openings.keep(db, run, new.opening)
            elif new.base is not None:
                await openings.keep_as(db, run, new.base)
            if new.queue is not None:
                await self._engine.enqueue_rows(db, [row[:JOB_COLUMNS]])
            return run_of(row[JOB_COLUMNS:]), True

        created = await self._writer.do(work)
        if new.base is not None and new.takes_over is not None:
            self._held.pop(new.base, None)
        return created

    async def own(self, run: str, slice: int | None = None) -> OwnedRun:
        async def begin(db: Connection) -> OwnedRun | None:
            after = await db.fetchrow(_OWN_NEW, run, self._owner.id, self._owner.build)
            return None if after is None else self._begun(after, [], (), 0.0)

        async def work(db: Connection) -> OwnedRun:
            row = await db.fetchrow(f"select {_IS_DUE}, {RUN} from af_run where run = $1 for update", run)
            if row is None:
                raise unknown_run(run)
            due, before = row[0], run_of(row[1:])
            died = before.status == "running"
            if died and await self._is_worked_on(db, run, row[OWNER]):
                raise owned_run(run)
            if slice is not None and (slice != before.slice or not due):
                raise owned_run(run)
            if before.status in ENDED:
                await sessions.hold_again(db, run)
            after = await db.fetchrow(_OWN, run, self._owner.id, died, self._owner.build)
            assert after is not None
            records = await effects(db, self._blobs, after[RID], ANSWERS)
            if after[0]:
                await leases.free(db, run)
            owned = self._begun(after, records, *await spent(db, after[RID]))
            other = before.build is not None and owned.run.build not in (None, before.build)
            return replace(owned, other_build=before.build) if other else owned

        if not self._owner.is_held:
            await self._writer.ask(lambda db: _row(db, run))
            await asyncio.to_thread(self._owner.ensure)
        try:
            begun = await self._writer.ask(begin) if not slice else None
            return begun or await self._writer.do(work)
        except asyncio.CancelledError:
            self._give_back(run)
            raise

    def put(self, run: str, epoch: int, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.submit(Put(future, run=run, epoch=epoch, rows=rows, drop=drop))
        return future

    async def park(self, run: str, epoch: int, seq: int, wake_at: float | None, *, spent_s: float = 0.0) -> bool:
        shared = False

        async def work(db: Connection) -> bool:
            nonlocal shared
            row = run_of(await _owned(db, run, epoch))
            shared = row.queue is not None
            if row.seq != seq or (row.parent is not None and not await forks.is_wanted(db, run)):
                return False
            await db.execute(
                "update af_run set status = 'waiting', wake_at = to_timestamp($2), owner = null, deaths = 0,"
                " spent_s = spent_s + $3, updated = now() where run = $1",
                run,
                wake_at,
                spent_s,
            )
            if wake_at is not None:
                await self._engine.enqueue(db, [run])
            return True

        parked = True
        try:
            parked = await self._writer.do(work)
        except BaseException:  # whatever became of it, this process does not work on it any more
            self._give_back(run, epoch)
            raise
        if parked:
            self._held.pop(run, None)
            if shared:
                self._tell(run)
        return parked

    async def deliver(self, run: str, key: bytes, state: EffectState, value: Any) -> bool:
        tried = False

        async def work(db: Connection) -> bool:
            nonlocal tried
            before, tried = tried, True
            rid = (await _row(db, run, "for update"))[RID]
            answer = (rid, key, int(state), dump(value))
            changed = await db.fetchval(
                "update af_effect set state = $3, value = $4, t1 = $5 where rid = $1 and key = $2 and state = 0 returning 1",
                *answer,
                time.time(),
            )
            if changed is None:
                text = "select 1 from af_effect where rid = $1 and key = $2 and state = $3 and value is not distinct from $4"
                return before and await db.fetchval(text, *answer) is not None
            await db.execute(
                "update af_run set seq = seq + 1, updated = now(),"
                " status = case when status = 'waiting' then 'queued' else status end where rid = $1",
                rid,
            )
            await self._engine.enqueue(db, [run])
            return True

        return await self._writer.do(work)

    async def finish(
        self,
        run: str,
        epoch: int,
        status: RunStatus,
        *,
        result: Any = None,
        error: Any = None,
        spent_s: float = 0.0,
        session: SessionChanges | None = None,
        branch: BranchEnd | None = None,
    ) -> None:
        outcome = (run, status, dump(result), dump(error), spent_s)

        async def end(db: Connection) -> bool | None:
            return await db.fetchval(_FINISH_ALONE, *outcome, epoch)

        async def work(db: Connection) -> bool:
            before = run_of(await _owned(db, run, epoch))
            asks = status == "interrupted"
            cancelled = asks and (before.cancelling or not await forks.is_wanted(db, run))
            queued = cancelled or status == "queued"  # what is to be cancelled asks nobody
            if status in ENDED:
                await sessions.let_go(db, run, session)
            await db.execute(_FINISH, run, "queued" if queued else status, *outcome[2:])
            if queued:
                await self._engine.enqueue(db, [run])
            elif before.queue is not None:
                await (leases.free if asks else leases.end)(db, run)
            if branch is not None and before.status == "running":
                await self._engine.enqueue(db, await forks.ended(db, self._blobs, run, branch))
            return before.queue is not None

        try:
            alone = status in ENDED and branch is None
            shared: bool | None = await self._writer.ask(end) if alone else None
            if shared is None:
                shared = await self._writer.do(work)
        except BaseException:  # whatever became of it, this process does not work on it any more
            self._give_back(run, epoch)
            raise
        self._held.pop(run, None)
        if shared:
            self._tell(run)

    async def has(self, run: str) -> bool:
        """Whether there is a run of this id."""
        query = "select exists (select from af_run where run = $1)"
        return bool(await self._writer.ask(lambda db: db.fetchval(query, run)))

    async def database_id(self) -> str:
        """The id of the database, which it keeps for good."""
        return await self._writer.ask(lambda db: db.fetchval("select value from af_meta where key = 'id'"))

    async def find(self, run: str) -> RunRow | None:
        async def work(db: Connection) -> RunRow | None:
            row = await db.fetchrow(f"select {RUN} from af_run where run = $1", run)
            return None if row is None else await self._shown(db, row)

        return await self._writer.ask(work)

    async def list(self, *, limit: int = 100) -> list[RunRow]:
        async def work(db: Connection) -> list[RunRow]:
            rows = await db.fetch(_LIST, limit)
            return [await self._shown(db, row) for row in rows]

        return await self._writer.ask(work)

    async def statuses(self, runs: Sequence[str]) -> dict[str, RunStatus]:
        query = "select run, status from af_run where run = any($1)"
        rows = await self._writer.ask(lambda db: db.fetch(query, list(runs)))
        return {run: status for run, status in rows}

    async def abandoned(self) -> list[RunRow]:
        async def look(db: Connection) -> bool:
            more = f", {DEAD_CLAIMS}" if await self._engine.is_installed(db) else ""
            return any(await db.fetchrow(f"{_LOOK}{more}", self._owner.id, STALE_S) or ())

        async def work(db: Connection) -> tuple[int, list[RunRow]]:
            await end_stale(db)
            if await self._engine.is_installed(db):
                await free_claims(db, self._owner.id)
            requeued = [run for (run,) in await db.fetch(_REQUEUE, self._owner.id)]
            await self._engine.enqueue(db, requeued)
            rows = await db.fetch(_ABANDONED, self._owner.id)
            return len(requeued), [replace(run_of(row), status="queued", deaths=died) for died, *row in rows]

        if not await self._writer.ask(look):
            return []
        requeued, rows = await self._writer.do(work)
        self.jobs.takeovers += requeued
        return rows

    async def effects(self, run: str, state: EffectState | None = None) -> list[EffectRow]:
        async def work(db: Connection) -> list[EffectRow]:
            rid = await db.fetchval("select rid from af_run where run = $1", run)
            where = "true" if state is None else f"state = {int(state)}"
            return [] if rid is None else await effects(db, self._blobs, rid, where)

        return await self._writer.ask(work)

    async def gc(self, before: float | None, bounds: LogBounds | None = None, *, forget: float | None = None) -> int:
        removed = await self._writer.do(lambda db: collect(db, before, bounds))
        if forget is not None:
            await self._writer.do(lambda db: summaries.forget(db, forget))
        await self._writer.do(self._blobs.collect)
        return removed

    async def past(self, *, limit: int = 100) -> list[PastRow]:
        return await self._writer.ask(lambda db: summaries.read(db, limit))

    async def survey(self) -> Survey:
        """What may be removed, and what all that is stored takes."""
        return await self._writer.do(survey)

    async def remove(self, runs: list[str], results: list[bytes]) -> None:
        """Remove runs that have ended, and results; those that are not here do not matter."""
        await self._writer.do(lambda db: remove(db, runs, results))
        await self._writer.do(self._blobs.collect)

    def leave(self) -> None:
        self._writer.leave()

    async def aclose(self) -> None:
        try:
            await self._writer.aclose()
        finally:
            await asyncio.to_thread(self._owner.close)

    def _begun(self, row: Row, records: list[EffectRow], usage: tuple[int, ...], cost: float | None) -> OwnedRun:
        """A run that was just had, from a row of :data:`_OWN`."""
        run = run_of(row[1:])
        self._held[run.run] = run.epoch
        return OwnedRun(run=run, records=records, usage=usage, cost=cost, leased=row[0] is not None)

    async def _shown(self, db: Connection, row: Row) -> RunRow:
        """A stored run; one whose owner is dead is ``queued``."""
        run = run_of(row)
        if run.status != "running" or await self._is_worked_on(db, run.run, row[OWNER]):
            return run
        return replace(run, status="queued")

    async def _is_worked_on(self, db: Connection, run: str, owner: int | None) -> bool:
        if owner == self._owner.id:
            return run in self._held
        return owner is not None and await is_alive(db, owner)

    def _give_back(self, run: str, epoch: int | None = None) -> None:
        """Give up a run that this process owns and does not work on, in the background."""

        async def work(db: Connection) -> None:
            if epoch is None or self._held.get(run) == epoch:
                self._held.pop(run, None)
            await db.execute(
                "update af_run set status = 'queued', owner = null where run = $1 and owner = $2 and status = 'running'"
                " and epoch = coalesce($3, epoch)",
                run,
                self._owner.id,
                epoch,
            )
            await self._engine.enqueue(db, [run])

        self._submit(work)  # the owner's end gives it up too

    def _tell(self, run: str) -> None:
        """Say to those who follow a run of workers that there is something new of it."""
        self._submit(lambda db: db.execute(TELL, run), atomic=False)

    def _submit(self, work: Work, *, atomic: bool = True) -> None:
        """Do ``work`` in the background; if that fails, it is left out."""
        if not self._writer.closed:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._writer.submit(Job(future, work, atomic=atomic))


async def _row(db: Connection, run: str, lock: str = "") -> Row:
    row = await db.fetchrow(f"select {RUN} from af_run where run = $1 {lock}", run)
    if row is None:
        raise unknown_run(run)
    return row


async def _owned(db: Connection, run: str, epoch: int) -> Row:
    """The row of a run that was owned with ``epoch``, locked. Raises JournalError (``durable/owned``)."""
    row = await _row(db, run, "for update")
    if run_of(row).epoch != epoch:
        raise owned_run(run)
    return row


async def _put(blobs: Blobs, db: Connection, jobs: Sequence[Put]) -> None:
    """Store the records of ``jobs``, and forget what they drop, in their order: one statement, where that will do."""
    if not blobs.are_used and not any([job.drop for job in jobs]):
        await _put_all(blobs, db, jobs)
        return
    async with db.transaction():
        await _put_all(blobs, db, jobs)


async def _put_all(blobs: Blobs, db: Connection, jobs: Sequence[Put]) -> None:
    waiting: dict[int, Put] = {}
    rows: dict[tuple[str, bytes], tuple[Any, ...]] = {}
    for number, job in enumerate(jobs, 1):
        try:
            values = [effect_values(row) for row in job.rows]
        except (TypeError, ValueError, RecursionError) as error:  # no JSON data: the others' rows are not to blame
            job.error = error
            continue
        waiting[number] = job
        for row, fields in zip(job.rows, values, strict=True):
            before = rows.get((job.run, row.key))
            if before is None or before[_STATE] == EffectState.OPEN:
                rows[job.run, row.key] = (number, *fields)
        if job.drop:  # a record may be stored and forgotten in one batch
            await _write(blobs, db, waiting, list(rows.values()))
            waiting, rows = {}, {}
            if job.error is None:
                await db.execute(
                    "delete from af_effect e using af_run r where r.run = $1 and e.rid = r.rid and e.key = any($2)",
                    job.run,
                    list(job.drop),
                )
    await _write(blobs, db, waiting, list(rows.values()))


_STATE = 7
"""The position of the state among the values of a record that follow the number of its job."""


async def _write(blobs: Blobs, db: Connection, jobs: dict[int, Put], rows: Sequence[tuple[Any, ...]]) -> None:
    """Store rows of jobs, by their numbers; a job of a stale owner gets its error, and its rows are left out."""
    if not jobs:
        return
    positions = {number: position for position, number in enumerate(jobs, 1)}
    fields = await blobs.offload(db, [jobs[row[0]].run for row in rows], [row[1:] for row in rows])
    placed = [(positions[row[0]], *stored) for row, stored in zip(rows, fields, strict=True)]
    owners = list(jobs.values())
    args = columns(placed)
    current = {n for (n,) in await db.fetch(PUT, [job.run for job in owners], [job.epoch for job in owners], *args)}
    stale = [job for position, job in enumerate(owners, 1) if position not in current]
    if stale:
        there = await db.fetch("select run from af_run where run = any($1)", [job.run for job in stale])
        stored = {run for (run,) in there}
        for job in stale:
            job.error = owned_run(job.run) if job.run in stored else unknown_run(job.run)
