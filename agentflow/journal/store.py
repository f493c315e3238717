"""The :class:`~agentflow.core.ports.store_ports.JournalStore`, the base class of both databases.

The common part of files and servers is here, over :class:`~agentflow.journal.connection.DatabaseConnection`. A leaf defines
the owner of a run, the layout of rows, the storing of records and the removal; the hooks of runs on workers have bodies for
a store without workers.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic

from agentflow.core.call.inbox import full
from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal_rows import (
    AGAIN,
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
    StoredResult,
)
from agentflow.core.events.run_query import RunQuery
from agentflow.journal import cleaning, sessions
from agentflow.journal.cleaning import StorageSurvey
from agentflow.journal.connection import C, DatabaseConnection, Row
from agentflow.journal.errors import owned_run, unknown_run
from agentflow.journal.rows import OWNER, REF, Rows, escape, parse, selected, unescape
from agentflow.journal.stored_batches import StoredBatches
from agentflow.journal.stored_purses import StoredPurses
from agentflow.journal.writer import Put, Writer

_COLUMNS = "kind, name, value, turns, usage, cost, at"
_KEEP = f"""
insert into af_result(content, {_COLUMNS}) values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (content) do update set {", ".join(f"{one} = excluded.{one}" for one in _COLUMNS.split(", "))}
"""


class Results:
    """The :class:`~agentflow.core.ports.store_ports.ResultStore` for the runs that ``writer`` stores."""

    def __init__(self, writer: Writer[Any], rows: Rows) -> None:
        self._writer = writer
        self._rows = rows

    async def find(self, content: bytes, since: float) -> StoredResult | None:
        columns = _COLUMNS.replace("usage", self._rows.usage)
        query = f"select {columns}, {self._rows.sum} from af_result where content = $1 and at >= $2"

        async def work(db: DatabaseConnection) -> StoredResult | None:
            row = await db.fetchrow(query, content, since)
            if row is None or not self._rows.is_whole(row):  # a damaged one is computed again
                return None
            kind, name, value, turns, usage, cost, at, _ = row
            return StoredResult(
                kind=kind,
                name=unescape(name),
                value=await self._rows.load(db, value),
                turns=await self._rows.load(db, turns),
                usage=None if usage is None else tuple(parse(usage)),
                cost=cost,
                at=at,
            )

        return await self._writer.do(work)

    async def keep(self, content: bytes, result: StoredResult) -> None:
        async def work(db: DatabaseConnection) -> None:
            await db.execute(
                _KEEP,
                content,
                result.kind,
                escape(result.name),
                await self._rows.put(db, result.value) or "null",
                await self._rows.put(db, result.turns),
                None if result.usage is None else self._rows.counts(result.usage),
                None if result.cost is None else float(result.cost),
                result.at,
            )

        await self._writer.do(work)


_IS_DUE = "status = 'queued' or (status = 'waiting' and wake_at <= now())"
_OWN = """
update af_run set status = 'running', epoch = epoch + 1, slice = slice + 1, wake_at = null, owner = $2, build = $3,
  reached = $4, deaths = $5, spent_s = $6, updated = now() where run = $1
"""
_PARK = """
update af_run set status = 'waiting', wake_at = to_timestamp($2), owner = null, deaths = 0, spent_s = spent_s + $3, updated = now()
where run = $1
"""
FINISH = """
update af_run set status = $2, result = $3, error = $4, spent_s = spent_s + $5, owner = null, deaths = 0, updated = now()
where run = $1
"""
_TAKEN_OVER = "update af_run set status = 'cancelled', result = $2, owner = null, updated = now() where run = $1"
_ANSWERED = """
update af_run set seq = seq + $2, updated = now(), status = case when status = 'waiting' then 'queued' else status end
where run = $1
"""


# One store in one SQL: eight twins had to be mended twice (decision 49)
class Journal(ABC, Generic[C]):
    """Durable runs that ``writer`` stores in ``rows``."""

    def __init__(self, writer: Writer[C], rows: Rows) -> None:
        self._writer = writer
        self._rows = rows
        self.results = Results(writer, rows)
        self.purses = StoredPurses(writer, self._lender, self._lender_lives)
        self.batches = StoredBatches(writer, self._lender, self._lender_lives)

    # -- parts of a subclass -------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def _me(self) -> tuple[Any, str | None]:
        """This process as an owner of runs, and its build if it is a worker."""

    @abstractmethod
    async def _insert(self, db: C, run: str, new: NewRun) -> RunRow | None:
        """Store a new, queued run, with its job; None if there is one of this id."""

    @abstractmethod
    async def _answer(self, db: C, row: Row, record: EffectRow) -> None:
        """Store the answer to an open record, of the run with the columns ``row``."""

    @abstractmethod
    async def _add(self, db: C, row: Row, record: EffectRow) -> None:
        """Store a new record of the run with the columns ``row``."""

    @abstractmethod
    async def _is_worked_on(self, db: C, row: Row) -> bool:
        """Whether the owner of a running run lives and works on it."""

    @abstractmethod
    async def _begin_to_own(self, run: str) -> None:
        """Get ready to own a run. Raises JournalError where another process works on it, or there is none."""

    @abstractmethod
    def _not_owned(self, run: str, error: BaseException) -> None:
        """Undo :meth:`_begin_to_own`."""

    @abstractmethod
    def _release(self, run: str) -> None:
        """Forget a run that this process does not work on any more."""

    @abstractmethod
    async def _lender(self) -> str:
        """This process as an owner of leases of purses. It lives until this is closed or the process ends."""

    @abstractmethod
    async def _lender_lives(self, db: C, owner: str) -> bool:
        """Whether another owner of leases lives."""

    @abstractmethod
    async def survey_in(self, db: C) -> StorageSurvey:
        """The removable data, and the size of all stored data."""

    @abstractmethod
    async def remove_in(self, db: C, runs: Sequence[str], results: Sequence[bytes]) -> None:
        """Remove ended runs with all that they have, and results; missing ones do not matter."""

    @abstractmethod
    async def abandoned(self) -> list[RunRow]:
        """As the port says."""

    # -- hooks of runs that workers do ------------------------------------------------------------------------------------

    async def _own_new(self, run: str) -> OwnedRun | None:
        """Own a new run, in one statement; None if its row must be read first."""

    async def _finish_alone(self, epoch: int, *outcome: Any) -> bool | None:
        """End a run that has only its own row, in one statement; None if it has more. Otherwise like :meth:`_ended`."""

    async def _is_taken(self, db: C, row: Row) -> bool:
        """Whether another process works on a run that this one is ready to own."""
        return False

    async def _owned_now(self, db: C, owned: OwnedRun, leased: bool) -> None:
        """Note that this process owns a run; ``leased``: something of a budget is still set aside for it."""

    async def _may_wait(self, db: C, row: RunRow) -> bool:
        """Whether a run may wait: nothing has cancelled it."""
        return True

    async def _status_then(self, db: C, row: RunRow, status: RunStatus) -> RunStatus:
        """The status to leave a run in, given the requested ``status``."""
        return status

    async def _ended(self, db: C, row: RunRow, status: RunStatus, then: RunStatus, branch: BranchEnd | None) -> None:
        """Apply the consequences of the end of a run, or of its slice, to others."""

    async def _enqueue(self, db: C, runs: Sequence[str]) -> None:
        """Queue jobs for those of ``runs`` that workers are to resume."""

    def _give_back(self, run: str, epoch: int | None = None) -> None:
        """Give up a run that this process owns and does not work on."""
        self._release(run)

    def _tell(self, run: str) -> None:
        """Say to those who follow a run of workers that there is something new of it."""

    async def _sweep(self) -> None:
        """Remove unreferenced data."""

    # -- the port -----------------------------------------------------------------------------------------------------------

    async def create(self, run: str, new: NewRun) -> tuple[RunRow, bool]:
        async def work(db: C) -> tuple[RunRow, bool]:
            if new.base is not None and new.takes_over is not None:
                await self._owned(db, new.base, new.takes_over)
                await sessions.let_go(self._rows, db, new.base, None)
                await db.execute(_TAKEN_OVER, new.base, await self._rows.put(db, {"successor": run}))
            created = await self._insert(db, run, new)
            if created is None:
                return await self._shown(db, await self._row(db, run)), False
            if new.session is not None:
                await sessions.hold(self._rows, db, new.session, run)
            if new.opening is not None:
                await sessions.keep_opening(db, run, new.opening)
            elif new.base is not None:
                await sessions.keep_opening_of(db, run, new.base)
            return created, True

        created = await self._writer.do(work)
        if new.base is not None and new.takes_over is not None:
            self._release(new.base)
        return created

    async def own(self, run: str, slice: int | None = None) -> OwnedRun:
        rows = self._rows
        query = (
            f"select {_IS_DUE}, {rows.leased}, {rows.reached}, {rows.deaths}, {rows.unsaid_s}, extract(epoch from now())::float8,"
            f" {rows.run} from af_run r where run = $1 for update"
        )

        async def work(db: C) -> OwnedRun:
            looked = await db.fetchrow(query, run)
            if looked is None:
                raise unknown_run(run)
            due, leased, reached, deaths, unsaid_s, now, *row = looked
            before = await rows.run_of(db, row)
            died = before.status == "running"
            if (died and await self._is_taken(db, row)) or (slice is not None and (slice != before.slice or not due)):
                raise owned_run(run)
            if before.status in ENDED:
                await sessions.hold_again(rows, db, run)
            deaths = deaths if died else 0 if before.queue is None else before.deaths
            spent_s = before.spent_s + unsaid_s
            me, build = self._me
            await db.execute(_OWN, run, me, build, reached, deaths, spent_s)
            records = await rows.effects(db, row[REF], rows.answers)
            after = replace(
                before,
                status="running",
                epoch=before.epoch + 1,
                slice=before.slice + 1,
                wake_at=None,
                spent_s=spent_s,
                deaths=deaths,
                build=build,
                updated=now,
            )
            usage, cost = await rows.spent(db, row[REF])
            other = before.build if before.build is not None and build not in (None, before.build) else None
            owned = OwnedRun(
                run=after, records=records, usage=usage, cost=cost, leased=leased is not None, other_build=other
            )
            await self._owned_now(db, owned, bool(leased))
            return owned

        await self._begin_to_own(run)
        try:
            return (await self._own_new(run) if not slice else None) or await self._writer.do(work)
        except BaseException as error:  # no process works on it then, even when cancelled
            self._not_owned(run, error)
            raise

    def put(self, run: str, epoch: int, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writer.submit(Put(future, run=run, epoch=epoch, rows=rows, drop=drop))
        return future

    async def park(self, run: str, epoch: int, seq: int, wake_at: float | None, *, spent_s: float = 0.0) -> bool:
        shared = False

        async def work(db: C) -> bool:
            nonlocal shared
            row = await self._owned(db, run, epoch)
            shared = row.queue is not None
            if row.seq != seq or not await self._may_wait(db, row):
                return False
            await db.execute(_PARK, run, wake_at, spent_s)
            if wake_at is not None:
                await self._enqueue(db, [run])
            return True

        try:
            parked = await self._writer.do(work)
        except BaseException:  # with any result, this process does not work on it any more
            self._give_back(run, epoch)
            raise
        if parked:
            self._release(run)
            if shared:
                self._tell(run)
        return parked

    async def deliver(self, run: str, answers: Sequence[EffectRow]) -> frozenset[bytes]:
        tried = False

        async def work(db: C) -> frozenset[bytes]:
            nonlocal tried
            before, tried = tried, True
            row = await self._row(db, run, "for update")
            await self._rows.run_of(db, row)
            now, delivered = time.time(), list[bytes]()
            repeated: list[bytes] = []
            for answer in answers:
                records = await self._rows.effects(db, row[REF], "key = $2", answer.key)
                if not records or records[0].started != answer.started:
                    continue
                if records[0].state == EffectState.OPEN:
                    await self._answer(db, row, replace(answer, ended=now))
                    delivered.append(answer.key)
                elif before and (records[0].state, records[0].value) == (answer.state, answer.value):
                    repeated.append(answer.key)  # perhaps committed without a reply
            if delivered:
                await db.execute(_ANSWERED, run, len(delivered))
                await self._enqueue(db, [run])
            return frozenset(delivered + repeated)

        return await self._writer.do(work)

    async def post(self, run: str, message: EffectRow, wakes: str = "", most: int = 0) -> EffectRow | None:
        async def work(db: C) -> EffectRow | None:
            row = await self._row(db, run, "for update")
            stored = await self._rows.run_of(db, row)
            earlier = await self._rows.effects(db, row[REF], "kind = $2", message.kind)
            same = [each for each in earlier if each.content == message.content]
            if same:  # committed before, without a reply
                return same[0]
            if stored.status in ENDED:
                return None
            if sum([each.state == EffectState.OPEN and each.name == message.name for each in earlier]) >= most > 0:
                raise full(run, most)
            number = sum([not each.path.endswith(AGAIN) for each in earlier])
            posted = replace(message, path=f"@{message.kind}/{number:06}", state=EffectState.OPEN, started=time.time())
            await self._add(db, row, posted)
            waiting = [] if not wakes else await self._rows.effects(db, row[REF], "kind = $2 and state = 0", wakes)
            if any([each.name == message.name for each in waiting]):
                await db.execute(_ANSWERED, run, 1)
                await self._enqueue(db, [run])
            return posted

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
        async def work(db: C) -> bool:
            row = await self._owned(db, run, epoch)
            then = await self._status_then(db, row, status)
            if status in ENDED:
                await sessions.let_go(self._rows, db, run, session)
            texts = [await self._rows.put(db, data) for data in (result, error)]
            await db.execute(FINISH, run, then, *texts, spent_s)
            await self._ended(db, row, status, then, branch)
            return row.queue is not None

        try:
            alone = status in ENDED and branch is None
            shared = await self._finish_alone(epoch, run, status, result, error, spent_s) if alone else None
            if shared is None:
                shared = await self._writer.do(work)
        except BaseException:  # with any result, this process does not work on it any more
            self._give_back(run, epoch)
            raise
        self._release(run)
        if shared:
            self._tell(run)

    async def find(self, run: str) -> RunRow | None:
        async def work(db: C) -> RunRow | None:
            row = await db.fetchrow(f"select {self._rows.run} from af_run where run = $1", run)
            return None if row is None else await self._shown(db, row)

        return await self._writer.ask(work)

    async def list(self, *, limit: int = 100, query: RunQuery | None = None) -> list[RunRow]:
        where, values = selected(query)
        text = f"select {self._rows.run} from af_run where ({self._rows.listed}){where} order by af_run.updated desc, run limit $1"

        async def work(db: C) -> list[RunRow]:
            return [await self._shown(db, row) for row in await db.fetch(text, limit, *values)]

        return await self._writer.ask(work)

    async def statuses(self, runs: Sequence[str]) -> dict[str, RunStatus]:
        query = "select run, status from af_run where run = any($1)"
        rows = await self._writer.ask(lambda db: db.fetch(query, list(runs)))
        return {run: status for run, status in rows}

    async def effects(self, run: str, state: EffectState | None = None, kinds: Sequence[str] = ()) -> list[EffectRow]:
        where = "true" if state is None else f"state = {int(state)}"
        if kinds:
            where += " and kind = any($2)"

        async def work(db: C) -> list[EffectRow]:
            ref = await db.fetchval(f"select {self._rows.ref} from af_run where run = $1", run)
            return [] if ref is None else await self._rows.effects(db, ref, where, *([list(kinds)] if kinds else ()))

        return await self._writer.ask(work)

    async def gc(self, before: float | None, bounds: LogBounds | None = None, *, forget: float | None = None) -> int:
        removed = await self._writer.do(lambda db: cleaning.collect(self, db, before, bounds))
        if forget is not None:
            await self._writer.do(lambda db: cleaning.forget_summaries(db, forget))
        await self._sweep()
        return removed

    async def past(self, *, limit: int = 100) -> list[PastRow]:
        return await self._writer.ask(lambda db: cleaning.read_summaries(self._rows, db, limit))

    def leave(self) -> None:
        self._writer.leave()

    async def _row(self, db: C, run: str, lock: str = "") -> Row:
        row = await db.fetchrow(f"select {self._rows.run} from af_run where run = $1 {lock}", run)
        if row is None:
            raise unknown_run(run)
        return row

    async def _owned(self, db: C, run: str, epoch: int) -> RunRow:
        """A run owned with ``epoch``, locked. Raises JournalError (``durable/owned``)."""
        row = await self._rows.run_of(db, await self._row(db, run, "for update"))
        if row.epoch != epoch:
            raise owned_run(run)
        return row

    async def _shown(self, db: C, row: Row) -> RunRow:
        """A stored run; one with a dead owner is ``queued``."""
        run = await self._rows.run_of(db, row)
        if run.status == "running" and (row[OWNER] is None or not await self._is_worked_on(db, row)):
            return replace(run, status="queued")
        return run
