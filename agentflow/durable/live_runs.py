"""The durable runs of this process: working on them, parking those that wait, resuming them in time, and storing their ends."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from agentflow.core.call.call import contained
from agentflow.core.data.errors import AgentflowError, DataError, JournalError, RunStopped, SessionBusy, WorkflowError
from agentflow.core.data.labels import NO_SOURCES, bare, box
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.core.data.values import is_long
from agentflow.core.data.walk import LEAVES
from agentflow.core.events.journal_rows import ENDED, BranchEnd, EffectRow, OnInflight, OwnedRun, RunRow, SessionChanges
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.branch_runs import BranchRuns, Ended
from agentflow.durable.change_signals import RunChanges
from agentflow.durable.conversations import Conversations, RunSession
from agentflow.durable.deriving import overrides_of, stored_run, successor_of
from agentflow.durable.following import Following
from agentflow.durable.generations import Change
from agentflow.durable.handle import LiveRun, RunEnd, RunWork
from agentflow.durable.journal import RunJournal, beside, holds_much
from agentflow.durable.remote import worker_forms
from agentflow.durable.repeated_calls import check_given, check_payer_of, unusable, usable_limits
from agentflow.durable.run_records import Records, last_failures
from agentflow.durable.stored_input import (
    PythonProgram,
    StoredInput,
    begin_draw,
    carry_out,
    draw_of,
    find_target,
    go_on_with,
    has_changed,
    reference_in,
    trace_of,
)
from agentflow.durable.values.codec import Codec, NotData, read_usage, write_usage
from agentflow.durable.values.error_codec import NO_VALUE, as_recorded, bare_error
from agentflow.lang.program import Program
from agentflow.lib.event_loop import KeyLocks, TaskTable
from agentflow.lib.redact import Redactor
from agentflow.run.at_limits import raise_limit
from agentflow.run.engine import Engine
from agentflow.run.handle import Recorded, RunResult
from agentflow.run.reservation import RunFunds
from agentflow.run.run import Run
from agentflow.run.run_spec import RunSpec
from agentflow.run.run_stream import RunDoors

if TYPE_CHECKING:  # few runs are batched
    from agentflow.durable.batch_desk import BatchDesk

_log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two queries for answers from other processes."""
_EACH_S = 0.01
"""Minimum of seconds per waiting run between two queries, so that many runs cause little work."""


class Resting:
    """Runs that wait. All of them together need no more than a timer of the event loop.

    ``look`` is called for each run now and then, with its id and whether its time has come; ``spawn`` runs that in the
    background.
    """

    def __init__(
        self,
        look: Callable[[str, bool], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._look = look
        self._spawn = spawn
        self._due: dict[str, float | None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, run: str, wake_at: float | None) -> None:
        """Look after a run, which continues by itself at the unix time ``wake_at``; None: only when answered."""
        self._due[run] = wake_at
        self._arm()

    def remove(self, run: str) -> None:
        """Stop looking after a run."""
        self._due.pop(run, None)

    def close(self) -> None:
        """Stop looking after all runs."""
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due:
            soonest = min((at for at in self._due.values() if at is not None), default=float("inf"))
            delay = min(max(0.0, soonest - time.time()), max(LOOK_S, _EACH_S * len(self._due)))
            self._timer = asyncio.get_running_loop().call_later(delay, lambda: self._spawn(self._look_at_all()))

    async def _look_at_all(self) -> None:
        try:
            for run, wake_at in list(self._due.items()):
                if run in self._due:
                    await self._look(run, wake_at is not None and wake_at <= time.time())
        finally:
            self._arm()


class LiveRuns:
    """Works on durable runs until they end, wait or are given up.

    ``stored`` encodes and decodes the inputs of runs; ``doors`` reach a run by its id; ``on_inflight`` is for runs that do
    not say it themselves.
    """

    def __init__(
        self,
        engine: Engine,
        store: JournalStore,
        codec: Codec,
        redactor: Redactor | None,
        sessions: Conversations,
        stored: StoredInput,
        records: Recorded | None,
        doors: RunDoors,
        on_inflight: OnInflight,
    ) -> None:
        self._doors = doors
        self._on_inflight: OnInflight = on_inflight
        self._records = records
        self._engine = engine
        self._store = store
        self._codec = codec
        self._redactor = redactor
        self._sessions = sessions
        self._input = stored
        self.branches = None if store.jobs is None else BranchRuns(store.jobs, codec, sessions, stored, self._trace)
        self._live: dict[str, LiveRun] = {}
        self._tasks: TaskTable | None = None
        self._resting = Resting(self.look, self._spawn)
        self._watching: set[asyncio.Task[None]] = set()
        self._claimed: set[LiveRun] = set()
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._turns = KeyLocks()
        self._changes = RunChanges(store.jobs)
        self._following = Following(store, self._changes, self.recorded_end)
        self._closing = False
        self.told: Callable[[RunRow, RunEnd], None] | None = None
        """Called with each run that ended and was stored here, and that end."""

    def _trace(self) -> dict[str, str] | None:
        return trace_of(self._engine.observers)

    def find(self, run_id: str) -> LiveRun | None:
        """The handle of a run in progress or waiting here. Raises JournalError (``durable/other-loop``)."""
        self._check_loop()
        return self._live.get(run_id)

    def _check_loop(self) -> None:
        """Give up the runs of an event loop that was closed, as if the flow had been closed with it.

        Raises JournalError (``durable/other-loop``) if the loop of the runs is another one, still open.
        """
        tasks = self._tasks
        if tasks is None or tasks.loop is asyncio.get_running_loop():
            return
        if not tasks.loop.is_closed():
            raise JournalError(
                "durable runs of this flow are at work on another event loop",
                code="durable/other-loop",
                hint="give each loop that is open at the same time a flow of its own; one flow serves loops one after the other",
            )
        self._tasks = None
        self._watching.clear()
        self._leaving.clear()
        self._turns.clear()
        self._changes.restart()
        self._resting.close()
        for live in list(self._live.values()):
            self._forget(live)
            live.abandon()
        self._following.close()

    @asynccontextmanager
    async def turn(self, run_id: str) -> AsyncGenerator[None]:
        """A block for one caller in this flow that begins, resumes, cancels or takes over the run: other callers wait.

        Work on a run does not take its turn, and the block must not wait for the end of a run. Raises JournalError
        (``durable/other-loop``).
        """
        self._check_loop()
        async with self._turns.hold(run_id):
            if (leaving := self._leaving.get(run_id)) is not None:
                await asyncio.wait([leaving])
            yield

    async def aclose(self) -> None:
        """Give up the runs, to be resumed later."""
        self._check_loop()
        self._closing = True
        self._resting.close()
        for task in self._watching:
            task.cancel()
        self._following.close()
        if self._tasks is not None:
            await asyncio.sleep(0)
            for live in list(self._live.values()):
                live.suspend()
            tasks, self._tasks = self._tasks, None
            await tasks.wait()

    async def go_on(
        self,
        row: RunRow,
        program: Program | PythonProgram,
        spec: RunSpec,
        *,
        retry: bool = False,
        cancelled: bool = False,
        slice: int | None = None,
    ) -> LiveRun:
        """Resume a stored run in the caller's session, and return its handle.

        With ``retry`` the last failures of a failed run are tried again; a ``cancelled`` run is replayed to the end of its
        records, and cleans up there; with ``slice``, the number in a worker's job, only if that slice is the next. Raises
        JournalError, SessionBusy.
        """
        check_given(row, spec, self._engine)
        stored = row.input["limits"]
        spec = replace(
            spec,
            limits=spec.limits or (None if stored is None else Limits(**stored)),
            run_id=row.run,
            labels=row.input["labels"],
            priority=row.input.get("priority", 0),
            purse=spec.purse or row.input.get("purse"),
            state=row.input.get("state"),
            at_limit=row.input.get("at_limit"),
            batch=row.input.get("batch", False),
            on_inflight=spec.on_inflight or self._on_inflight,
        )
        work = RunWork(program, spec, row.status in ENDED)
        before = self._live.get(row.run)
        handle = self._live[row.run] = LiveRun(row.run, self._doors, work, cancelled=cancelled)
        try:
            await self.begin(handle, row, retry=retry, slice=slice)
        except BaseException:  # also when cancelled: a run that was not begun is not live, but perhaps its slice before
            self.end(handle, RunEnd("queued"))
            if before is not None and before.is_live:
                self._live.setdefault(row.run, before)
            raise
        if slice is not None:
            self._claimed.add(handle)
        return handle

    def take(
        self,
        live: LiveRun,
        spec: RunSpec,
        bindings: Mapping[str, Any] | None = None,
    ) -> None:
        """Apply the options of a call that names a live run again: from its next slice on if it waits, but its approver at
        once.

        Raises JournalError (``durable/argument``) for limits and bindings that differ from those of a run at work.
        """
        live.adopted = False
        work = live.work
        if work is None:
            return
        mine, limits, approve = work.spec, spec.limits, spec.approve
        check_payer_of(live.run_id, mine.purse, spec.purse)
        held = mine.bindings or {}
        other = [name for name, value in (bindings or {}).items() if not _is_same(held.get(name, _NONE), value)]
        if not live.resting:
            usable_limits(live.run_id, limits, mine.limits or self._engine.limits, at_work=True)
            if other:
                raise unusable(
                    live.run_id, f"the bindings {', '.join(other)}", "it is at work with its own", "leave them out"
                )
            if spec.deps is not None and spec.deps is not mine.deps:
                raise unusable(live.run_id, "deps=", "it is at work with its own", "leave them out")
            run = None if live.records is None else live.records.live
            if approve is not None and isinstance(run, Run):
                run.approve_by(approve)
            live.work = work._replace(spec=replace(mine, approve=approve or mine.approve))
            return
        if other:
            raise unusable(live.run_id, f"the bindings {', '.join(other)}", "it waits with its own", "leave them out")
        deps = mine.deps if spec.deps is None else spec.deps
        mine = replace(mine, limits=limits or mine.limits, approve=approve or mine.approve, deps=deps)
        live.work = work._replace(spec=mine)

    async def follow(self, row: RunRow) -> LiveRun:
        """The handle of a run that workers carry out."""
        await self.changes()
        handle = LiveRun(row.run, self._doors)
        self._follow(handle)
        return handle

    def _follow(self, handle: LiveRun) -> None:
        begins = self._following.add(handle)
        if self._tasks is None:
            self._following.close()
        elif begins:
            self._beside(self._following.watch(), "following of durable runs")

    async def changes(self) -> RunChanges:
        """A signal for followers of runs, which listens from now on."""
        self._open()
        if not self._changes.begun:
            self._changes.begun = True
            self._beside(self._changes.listen(), "listening for runs elsewhere")
        return self._changes

    def release(self) -> None:
        """Give up the runs claimed for the workers' queues."""
        for handle in list(self._claimed):
            handle.suspend()

    async def begin(self, handle: LiveRun, row: RunRow, *, retry: bool = False, slice: int | None = None) -> None:
        """Acquire a run and start working on it. Raises JournalError, SessionBusy."""
        self._resting.remove(row.run)
        rest_again, work = handle.wake(), handle.work
        assert work is not None
        session = None
        try:
            session = await self._sessions.begin(row, work.spec.session)
            owned = await self._store.own(row.run, slice)
            if retry and row.status in ENDED:
                failures = last_failures(owned.records)
                await self._store.put(row.run, owned.run.epoch, [], drop=[each.key for each in failures])
                kept = [each for each in owned.records if each not in failures]
                owned = replace(owned, records=kept, retried=frozenset([each.path for each in failures]))
            self._open()
        except BaseException:  # also when cancelled: the run waits again, and its session is free
            if rest_again is not None:
                rest_again()
                self._resting.add(row.run, handle.wake_at)
            if session is not None:
                await session.end(None)
            raise
        if self._tasks is None:
            await self._store.finish(row.run, owned.run.epoch, "queued")
            if session is not None:
                await session.end(None)
            self.end(handle, RunEnd("queued"))
            return
        task = self._tasks.begin(self._work(handle, work, owned, session), f"durable run {row.run}")
        handle.begin(task, (read_usage(owned.usage), owned.cost))
        task.add_done_callback(partial(self._stopped, handle))

    def _stopped(self, handle: LiveRun, task: asyncio.Task[None]) -> None:
        """Settle a handle after its work ended without a reported outcome: it was cancelled at a point where it could not
        continue."""
        if handle.task is task and handle.is_lost:
            self.end(handle, RunEnd("queued"))

    @asynccontextmanager
    async def taken_from(self, run_id: str) -> AsyncGenerator[None]:
        """A block that may own a run in the turn of this flow.

        If this flow took the run over from a process that died and no caller has asked for it, the flow gives it up first.
        """
        async with self.turn(run_id):
            live = self._live.get(run_id)
            if live is not None and live.adopted and live.task is not None and live.at_work:
                await asyncio.sleep(0)  # see `LiveRun.stop`
                live.suspend()
                await asyncio.wait([live.task])
            yield

    @cached_property
    def batches(self) -> BatchDesk:
        """The gatherer of model calls that wait for batches."""
        from agentflow.durable.batch_desk import BatchDesk  # few runs have any

        assert self._engine.router is not None, "a flow has providers"
        return BatchDesk(self._store, self._codec, self._engine.router.resolve, self.answered)

    def gather(self) -> BatchDesk:
        """Gather the model calls that wait for batches, in the background, until none waits."""
        self._open()
        self.batches.begin(self._gathering)
        return self.batches

    def gather_again(self) -> None:
        """Gather in the background for processes that have ended, if calls of theirs wait."""
        self._open()
        self._gathering(self._gather_left())

    async def _gather_left(self) -> None:
        waiting = self._store.batches
        try:
            if await waiting.unfinished() or any([each.run for each in await waiting.waiting()]):
                self.gather()
        except AgentflowError as error:  # the first use of the database raises it
            _log.info("batches of model calls: %s", error)

    def _gathering(self, work: Coroutine[Any, Any, None]) -> None:
        self._beside(work, "batches of model calls")

    async def answered(self, run_id: str, answers: Sequence[EffectRow]) -> None:
        """Pass answers that were stored to their run, if it is in this process."""
        live = self.find(run_id)
        if live is None:
            return
        if live.resting:
            await self.look(run_id, due=True)
        elif live.records is not None:
            for each in answers:
                live.records.parking.answer(each.path, each.value)

    async def watch(self, work: Coroutine[Any, Any, None]) -> None:
        """Run ``work`` in the background until the runs are given up."""
        self._open()
        self._beside(work, "takeover of durable runs")

    def _beside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        if self._tasks is None:
            work.close()
        else:
            task = self._tasks.begin(work, name)
            self._watching.add(task)
            task.add_done_callback(self._watching.discard)

    def _open(self) -> None:
        self._check_loop()
        if self._tasks is None and not self._closing:
            self._tasks = TaskTable()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:
            work.close()
        else:
            self._tasks.begin(work)

    async def look(self, run_id: str, due: bool) -> None:
        """Resume a run that waits here if it is ``due`` or was answered, unless another process has done so."""
        async with self.turn(run_id):
            live = self._live.get(run_id)
            if live is not None and live.resting:
                await self._look(live, due)

    async def _look(self, live: LiveRun, due: bool) -> None:
        run_id = live.run_id
        try:
            row = await stored_run(self._store, run_id)
            if row.status in ENDED:
                end = self.recorded_end(row, Source.of(str(row.input["name"]), row.program))
                self.end(live, end or RunEnd("queued"))
            elif row.status == "queued" or (due and row.status == "waiting"):
                await self.begin(live, row)
        except SessionBusy:
            pass  # the session will be released some time
        except Exception as error:  # noqa: BLE001 - it reaches this run's handle, and the other runs are looked at
            if not isinstance(error, JournalError) or error.code != "durable/owned":
                self.end(live, RunEnd("queued", error=error))

    def end(self, handle: LiveRun, end: RunEnd) -> None:
        """Set the end of a run on its handle, and forget the handle."""
        self._resting.remove(handle.run_id)
        self._forget(handle)
        handle.settle(end)

    def _forget(self, handle: LiveRun) -> None:
        """Forget a handle, to be settled or followed, but not that of the next slice of its run, which this process may have been
        given already."""
        self._claimed.discard(handle)
        if self._live.get(handle.run_id) is handle:
            del self._live[handle.run_id]

    async def _work(self, handle: LiveRun, work: RunWork, owned: OwnedRun, session: RunSession | None) -> None:
        """Run it until it ends or waits, and store that. Raises nothing: the handle gets the outcome."""
        began = time.monotonic()
        begin_draw(draw_of(owned.run.input))
        root = cast("asyncio.Task[object] | None", asyncio.current_task())
        assert root is not None
        on_inflight = work.spec.on_inflight or self._on_inflight
        records = Records(self._store, owned, root, worker_forms, on_inflight, cancelling=handle.cancelled)
        records.gathers = self.gather
        handle.write_to(records)
        if owned.run.queue is not None:
            records.branches = self.branches
        try:
            if owned.run.input.get("overrides"):
                source, is_branch = work.program.source, "branch" in owned.run.input
                records.overrides = overrides_of(Change.of(owned.run), self._engine.tasks, source, is_branch)
            if owned.run.base is not None:
                change = Change.of(owned.run)
                base = await self._store.find(owned.run.base)
                inherited = await self._store.effects(owned.run.base)
                records.pool = change.pool(base, inherited, owned.records)
            end = await self._run(owned, records, work, session)
        except asyncio.CancelledError:
            if records.fatal is not None:
                asks = records.fatal.code == "durable/in-flight"
                end = RunEnd("interrupted" if asks else "queued", error=records.fatal)
            elif records.rest is not None and not handle.cancelled:
                end = RunEnd("waiting")
            else:
                end = RunEnd("cancelled" if handle.cancelled else "queued")
        except Exception as error:  # noqa: BLE001 - the program's error, or one of a host's observer: the handle's
            end = RunEnd("failed", error=error)
        except KeyboardInterrupt:  # in a notebook: the run is given up there, and the next caller to name it resumes it
            self.end(handle, RunEnd("queued"))
            if self._tasks is not None:
                run = owned.run.run
                self._leaving[run] = self._tasks.begin(self._give_up(owned, session), f"giving up of {run}")
            raise
        except BaseException as error:  # noqa: BLE001 - the run ends alone, with any error
            end = RunEnd("failed", error=contained(error))
        records.flush_state()
        changes = session.changes(again=work.again) if session is not None and end.status in ENDED else None
        spent_s = time.monotonic() - began
        try:
            if records.rest is not None and end.status == "waiting":
                answered = not await self._store.park(
                    owned.run.run, owned.run.epoch, records.parking.seq, records.rest.wake_at, spent_s=spent_s
                )
                end = RunEnd("queued") if answered else end
            if end.status != "waiting":
                end = await self._finish(owned, records, work.program, end, spent_s, changes)
        except JournalError as error:
            end, changes = RunEnd(end.status, error=end.error or error), None
        except asyncio.CancelledError:  # interrupted, or cancelled for good, while that was stored
            end, changes = RunEnd("queued"), None
        finally:
            if session is not None:
                await session.end(changes)
        await self._leave(handle, records, end)

    async def _give_up(self, owned: OwnedRun, session: RunSession | None) -> None:
        """Store that a run interrupted from the keyboard has no owner."""
        try:
            await self._store.finish(owned.run.run, owned.run.epoch, "queued")
        finally:
            self._leaving.pop(owned.run.run, None)
            if session is not None:
                await session.end(None)

    async def _leave(self, handle: LiveRun, records: Records, end: RunEnd) -> None:
        """Report the run's state to its handle, or resume a run that was answered meanwhile."""
        if (
            records.rest is None
            or handle in self._claimed  # the worker that gets the job resumes it
            or self._closing
            or handle.cancelled
            or end.error
            or end.status not in ("waiting", "queued")
        ):
            self.end(handle, end)
        elif records.run.queue is not None:  # it was resumed here once: workers do the rest
            self._forget(handle)
            self._follow(handle)
        elif end.status == "waiting":
            handle.rest(records.rest)
            self._resting.add(handle.run_id, records.rest.wake_at)
        else:
            try:
                await self.begin(handle, records.run)
            except (JournalError, SessionBusy) as error:
                self.end(handle, RunEnd("queued", error=error))

    async def _run(self, owned: OwnedRun, records: Records, work: RunWork, session: RunSession | None) -> RunEnd:
        row = owned.run
        program = work.program
        journal = RunJournal(records, self._codec, self._redactor, program=program.source.digest)
        go_on_with(self._engine.observers, row.input.get("trace"))
        await self._engine.turn()
        spec = replace(work.spec, session=None if session is None else session.session)
        bindings = spec.bindings or {}
        opened = self._engine.open(
            program.source.name, spec, program=program.source.digest, grants=program.allow, journal=journal
        )
        async with opened as (run, call):
            records.live = run
            for name, value in records.raised_limits(spec.limits or self._engine.limits):
                raise_limit(run, name, value)
            if records.unread:
                run.shared.inbox = records.inbox
            if records.branches is not None and isinstance(run.funds, RunFunds):
                records.funds = run.funds
                if owned.leased:
                    run.funds.share(records.branches.lender(row))
            call.definitions = records.overrides
            if owned.other_build is not None:
                call.warn(
                    "durable/build",
                    "the run is resumed by a worker with other definitions of tools, tasks or workflows: recorded effects are not"
                    " carried out again, all others run as they are defined now",
                    before=owned.other_build,
                    now=row.build,
                )
            if has_changed(row.program, program.source):
                call.warn(
                    "durable/changed",
                    f"the file of {program.source.name} has changed since the run began: recorded effects are not carried"
                    " out again, all others run as the file is now",
                    reference=reference_in(row.program),
                )
            if self._engine.shows_bounds and isinstance(program, Program):
                await self._engine.admission.announce(program, bindings, program.allow, call)
            value = await carry_out(self._engine, program, bindings, call)
        status = "failed" if isinstance(value, TaskResult) and value.problem() is not None else "done"
        return RunEnd(
            status,
            RunResult(
                value,
                run.usage,
                run.cost_usd,
                run.run_id,
                run.budget.steps_used,
                self._records,
                sources=NO_SOURCES if call.reading is None else call.reading.sources,
            ),
        )

    async def _finish(
        self,
        owned: OwnedRun,
        records: Records,
        program: Program | PythonProgram,
        end: RunEnd,
        spent_s: float,
        changes: SessionChanges | None,
    ) -> RunEnd:
        """Store the end of a run. Returns it as its record gives it."""
        try:
            end, result, error = await self._as_recorded(owned, records, program, end)
        except asyncio.CancelledError:  # else the run would stay with this process, without any work on it
            await self._store.finish(owned.run.run, owned.run.epoch, "queued", spent_s=spent_s)
            raise
        await self._store.finish(
            owned.run.run,
            owned.run.epoch,
            end.status,
            result=self._sessions.with_changes(result, owned.run, changes),
            error=error,
            spent_s=spent_s,
            session=changes,
            branch=self._branch_end(owned.run, records, end, result, error, changes),
        )
        if self.told is not None:
            self.told(replace(owned.run, spent_s=owned.run.spent_s + spent_s), end)
        return end

    async def _as_recorded(
        self, owned: OwnedRun, records: Records, program: Program | PythonProgram, end: RunEnd
    ) -> tuple[RunEnd, dict[str, Any] | None, Any]:
        """The end of a run as recorded, with result and error in their stored form; callers here get the same."""
        if end.result is not None:
            try:
                data = await self._value_data(owned, program, end.result)
                value = await self._value(program, data)
            except (NotData, JournalError) as what:
                end = RunEnd("failed", error=_no_value(program.source.name, what))
            else:
                result: dict[str, Any] = {
                    "usage": write_usage(end.result.usage),
                    "cost": end.result.cost,
                    "steps": end.result.steps,
                    "value": data,
                }
                if end.result.sources:
                    result["sources"] = sorted(end.result.sources)
                return end._replace(result=replace(end.result, value=value)), result, None
        if end.status != "failed" or end.error is None:
            return end, None, None
        raised = failure_of(end.error, program.source.name if isinstance(program, PythonProgram) else None)
        error = await self.stored_error(raised)
        end = end._replace(error=as_recorded(raised, self._codec.decode_error(error, program.source)))
        usage, cost = (records.usage, records.cost) if records.live is None else records.live.so_far()
        steps = 0 if records.live is None else records.live.steps_used
        return end, {"usage": write_usage(usage), "cost": cost, "steps": steps}, error

    async def _value_data(self, owned: OwnedRun, program: Program | PythonProgram, result: RunResult) -> Any:
        """The stored form of the value of a run. Raises NotData."""
        value = result.value
        if isinstance(program, PythonProgram):
            value = program.target.store(value)
        if "branch" in owned.run.input:
            value = box(value, result.sources)  # for the run that it is a branch of
        much = holds_much(value)
        data = await beside(much, self._codec.encode, value)
        return await self._input.cleaned(data) if much else self._input.clean(data)

    async def _value(self, program: Program | PythonProgram, data: Any) -> Any:
        """The value of a run from its stored form. Raises JournalError (``durable/mismatch``)."""
        value = bare(await beside(is_long(data), self._codec.decode, data, program.source))
        return program.target.restore(value) if isinstance(program, PythonProgram) else value

    def _branch_end(
        self,
        run: RunRow,
        records: Records,
        end: RunEnd,
        result: Mapping[str, Any] | None,
        error: Any,
        changes: SessionChanges | None,
    ) -> BranchEnd | None:
        if self.branches is None:
            return None
        value = None if result is None or error is not None else {"v": result["value"]}
        live = records.live
        usage, cost = (records.usage, records.cost) if live is None else live.so_far()
        gave = None if end.result is None else bare(end.result.value)
        failed = isinstance(gave, TaskResult) and gave.failed
        stopped = isinstance(end.error, RunStopped)
        return self.branches.end(run, end.status, Ended(value, error, usage, cost, changes, failed, stopped))

    async def stored_error(self, error: BaseException) -> Any:
        """An error as data: encoded off the loop and searched in slices, since it may carry any value."""
        error = failure_of(error, None)
        try:
            data = await beside(True, self._codec.encode_error, error)
        except NotData:
            data = self._codec.encode_error(bare_error(error))
        return await self._input.cleaned(data)

    def recorded_end(self, row: RunRow, source: Source) -> RunEnd | None:
        """The stored end of a run; None if its value is not stored."""
        if row.status == "cancelled":
            return RunEnd("cancelled", successor=successor_of(row))
        if row.error is not None:
            error = self._codec.decode_error(row.error, source)
            error.run_id = row.run
            if row.result is not None and "usage" in row.result:
                error.usage, error.cost = read_usage(row.result["usage"]), row.result["cost"]
            return RunEnd("failed", error=error)
        if row.result is None or "value" not in row.result:
            return None
        stored: Mapping[str, Any] = row.result
        value = bare(self._codec.decode(stored["value"], source))
        reference = reference_in(row.program)
        if reference is not None:
            value = find_target(self._engine.functions, reference).restore(value)
        usage = read_usage(stored["usage"])
        sources = frozenset(stored.get("sources", ()))
        result = RunResult(value, usage, stored["cost"], row.run, stored["steps"], self._records, sources=sources)
        return RunEnd(row.status, result)


def failure_of(error: BaseException, function: str | None) -> AgentflowError:
    """The recorded form of the error of a failed run; ``function`` is the workflow that raised it."""
    if isinstance(error, AgentflowError):
        return error
    said = f"{type(error).__name__}: {error}"
    if function is None:
        failure: AgentflowError = AgentflowError(said)
    else:
        failure = WorkflowError(
            f"{function} raised {said}", code="host/raised", details={"exception": type(error).__name__}
        )
    failure.__cause__ = error
    return failure.with_traceback(error.__traceback__)


def _no_value(name: str, what: NotData | JournalError) -> DataError:
    """The failure of a run that was carried out to its end with a value other than data."""
    return DataError(
        f"{name} was carried out, and its value cannot be stored: {what.message if isinstance(what, JournalError) else what}",
        code=NO_VALUE,
        hint="return data, or annotate the return value with a type that pydantic writes and reads",
    )


_NONE = object()


def _is_same(one: object, other: object) -> bool:
    return one is other or (type(one) is type(other) and type(one) in LEAVES and one == other)
