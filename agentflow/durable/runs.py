"""Starting, resuming, cancelling and listing durable runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from agentflow.core.data.errors import AgentflowError, ConfigurationError, JournalError, SessionBusy
from agentflow.core.data.event_log import EventId, LogBounds
from agentflow.core.data.limits import Limits
from agentflow.core.data.session import Session
from agentflow.core.data.source import Source
from agentflow.core.data.values import is_long
from agentflow.core.events.journal_rows import ENDED, Claim, NewRun, OnInflight, RunRow, RunStatus
from agentflow.core.ports.store_ports import EventStore, JobQueue, JournalStore, PurseStore, ResultStore
from agentflow.durable.branch_runs import Ended
from agentflow.durable.build import build_of
from agentflow.durable.catalogue import RunCatalogue
from agentflow.durable.conversations import Conversations
from agentflow.durable.deriving import Generations, another_run, overrides_of, stored_run
from agentflow.durable.following import no_value
from agentflow.durable.generations import Change, differing
from agentflow.durable.handle import DurableRun, LiveRun, PastRun, RunEnd, RunInfo
from agentflow.durable.journal import Journaled, beside
from agentflow.durable.live_runs import LiveRuns
from agentflow.durable.open_questions import OpenQuestions
from agentflow.durable.plan import RunPlan, make_plan
from agentflow.durable.repeated_calls import (
    check_at_limit,
    check_purse,
    check_same,
    given,
    raises_limit,
    unusable,
    usable_limits,
)
from agentflow.durable.run_filter import batches_of, listed, run_filter
from agentflow.durable.run_records import answers
from agentflow.durable.samples import Samples
from agentflow.durable.stored_input import (
    PythonProgram,
    StoredInput,
    draw_here,
    draw_of,
    identity,
    limits_data,
    prepared,
    reference_in,
    trace_of,
)
from agentflow.durable.takeover import LOOK_S, MOST_DEATHS, Takeover, Trials, poisoned
from agentflow.durable.values.codec import Codec, read_usage
from agentflow.durable.values.record_values import fingerprint
from agentflow.lang.program import Program
from agentflow.lib.redact import Redactor
from agentflow.run.engine import Engine
from agentflow.run.handle import Recorded, RunResult
from agentflow.run.run import check_name, check_priority, new_run_id
from agentflow.run.run_spec import PLAIN, RunSpec

if TYPE_CHECKING:
    from agentflow.durable.run_mail import RunMail


class DurableRuns:
    """Starts and resumes the durable runs of one flow in one store.

    ``redactor`` removes secrets from everything before it is stored; ``on_inflight`` decides about unfinished calls of
    tools that may not be repeated, after an interruption of their run; ``records`` reads recorded events, and
    ``recordings`` opens the shared store for those of all processes.
    """

    def __init__(
        self,
        engine: Engine,
        store: JournalStore,
        redactor: Redactor | None = None,
        *,
        on_inflight: OnInflight = "retry",
        records: Recorded | None = None,
        recordings: Callable[[], EventStore] | None = None,
    ) -> None:
        _check_inflight(on_inflight)
        self._engine = engine
        self._store = store
        self._redactor = redactor
        self._recordings = recordings
        self._watched: EventStore | None = None
        engine.recorded = Journaled(engine.effects)
        self._codec = Codec(engine.effects.names, engine.following)
        self.sessions = Conversations(store.sessions, self._codec, redactor)
        self._input = StoredInput(self._codec, redactor)
        self._runs = LiveRuns(
            engine, store, self._codec, redactor, self.sessions, self._input, records, self, on_inflight
        )
        self._generations = Generations(engine, store, self._input, self._runs.taken_from)
        self.questions = OpenQuestions(store, self._runs, self._codec, self._input, self.send_signal)
        self.samples = Samples(engine, store, self._codec, self._input, redactor)
        self.samples.gathers = self._runs.gather

    def gather(self) -> None:
        """Gather the model calls that wait for batches in the background, until none waits."""
        self._runs.gather()

    def gather_again(self) -> None:
        """Gather in the background for processes that have ended, if model calls of theirs wait for batches."""
        self._runs.gather_again()

    @cached_property
    def _mail(self) -> RunMail:
        from agentflow.durable.run_mail import RunMail  # few runs get any

        return RunMail(self._engine, self._store, self._runs, self._codec, self._input)

    async def say(self, run_id: str, text: str, *, task: str | None = None) -> None:
        """Say a text to a run, in any process; see :meth:`RunMail.say`."""
        await self._mail.say(run_id, text, task=task)

    async def send_signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Send a signal to a run, in any process; see :meth:`RunMail.send_signal`."""
        await self._mail.send_signal(run_id, name, value)

    async def state(self, run_id: str) -> dict[str, Any]:
        """A copy of the state of a run, in any process."""
        return await self._mail.state(run_id)

    def tell_ends(self, told: Callable[[RunRow, RunEnd], None]) -> None:
        """Call ``told`` with each later run that this process stores the end of, as it was begun, and that end; it must not raise."""
        self._runs.told = told

    async def start(
        self,
        program: Program | PythonProgram,
        spec: RunSpec,
    ) -> DurableRun:
        """Start the run of this id, resume it if it was interrupted, or return its handle if it has ended.

        One that ended at a limit is resumed if the spec's limits allow more. With a queue the workers of that queue carry
        it out. Raises JournalError: ``durable/mismatch`` if a run with this id has another program, other bindings, another
        ``allow`` or another session, ``durable/argument`` for other options an existing run cannot use, ``durable/owned``,
        ``durable/secret``, and the codes of the store; SessionBusy; ConfigurationError (``config/where``).
        """
        if spec.run_id is not None:
            check_name(spec.run_id, None, self._redactor)
        run_id = spec.run_id or new_run_id()
        source, limits, session, queue = program.source, spec.limits, spec.session, spec.queue
        bindings = await self._engine.given(spec.bindings or {})
        spec = replace(spec, bindings=bindings)
        new = await self.new_run(program, spec)
        async with self._runs.turn(run_id):
            row, is_new = await self._store.create(run_id, new)
            if row.digest != new.digest:
                raise self._another_run(row, source, spec)
            if not is_new:
                check_same(row, labels=spec.labels, priority=spec.priority, tenant=spec.tenant, queue=queue)
                check_purse(row, spec.purse)
                check_at_limit(row, spec.at_limit or {})
            live = self._runs.find(run_id)
            if live is not None:
                self._runs.take(live, spec)
                return live
            retry = False
            if row.status in ENDED:
                end = self._runs.recorded_end(row, source)
                before = self._limits_of(row)
                retry = end is not None and end.status == "failed" and raises_limit(end.error, limits or before)
                if end is not None and not retry:
                    usable_limits(run_id, limits, before)
                    self.sessions.ended(row, session)
                    return DurableRun(run_id, end, doors=self)
            if row.queue is not None and not retry:
                if not is_new and limits is not None and limits != self._limits_of(row):
                    raise unusable(
                        run_id, "limits=", "workers carry it out, under those it was started with", "leave it out"
                    )
                return await self._runs.follow(row)
            values = await beside(is_long(bindings), self._input.as_read, new.input["bindings"], bindings)
            return await self._runs.go_on(row, program, replace(spec, bindings=values), retry=retry)

    def _limits_of(self, row: RunRow) -> Limits:
        """The limits that a stored run was started with."""
        stored = row.input["limits"]
        return self._engine.limits if stored is None else Limits(**stored)

    async def new_run(self, program: Program | PythonProgram, spec: RunSpec) -> NewRun:
        """The row to be stored for a new run of bindings as :meth:`Engine.given` gives them. Stores nothing itself. Raises as :meth:`start`."""
        bindings, session, queue, labels = spec.bindings or {}, spec.session, spec.queue, spec.labels
        check_name(None, labels, self._redactor)
        check_priority(spec.priority)
        source, names = program.source, _names(spec)
        purse = self._purse_of(spec)
        tenant = spec.tenant or purse or ""
        if spec.overrides:
            overrides_of(Change(overrides=spec.overrides), self._engine.tasks, source)  # raises for wrong ones
        mark = self._mark(spec)
        much = is_long(bindings)
        digest = (await beside(much, fingerprint, "run", identity(source.text), dict(bindings), names, *mark)).hex()
        opening, exchanges = self.sessions.opening(session)
        stored = await beside(much, self._input.write, bindings)
        self._input.refuse_secret("the tenant's name", tenant)
        self._input.refuse_secret("the purse's name", purse or "")
        if queue is not None:
            self._input.refuse_secret("the queue's name", queue)
            if spec.deps is not None:
                raise ConfigurationError(
                    "workers carry this run out, and the deps= that it is given are never stored",
                    code="config/deps",
                    hint="have the flow make them for each run, on the workers too: AgentFlow(deps=function)",
                )
            if spec.approve is not None:
                raise ConfigurationError(
                    "workers carry this run out, and the approve= that it is given is never stored",
                    code="config/where",
                    hint="have the flow approve, on the workers too: AgentFlow(approve=function)",
                )
            _check_portable(stored, session)
            await self.jobs.prepare()
        fields = {
            "name": source.name,
            "bindings": stored,
            "allow": names,
            "limits": limits_data(spec.limits),
            "labels": None if labels is None else dict(labels),
            "session": opening,
            "priority": spec.priority,
        }
        if purse is not None:
            fields["purse"] = purse
        if draw := draw_here():
            fields["draw"] = draw
        if spec.overrides:
            fields["overrides"] = {name: dict(each) for name, each in spec.overrides.items()}
        if spec.at_limit:
            fields["at_limit"] = dict(spec.at_limit)
        if spec.batch:
            fields["batch"] = spec.batch
        if spec.state is not None:
            from agentflow.core.call.run_state import data_of  # few runs have one

            fields["state"] = data_of(spec.state)
        if names_given := given(spec, self._engine):
            fields["given"] = names_given
        trace = trace_of(self._engine.observers)
        if trace is not None:
            fields["trace"] = trace
        return NewRun(
            program=self._input.text(source),
            digest=digest,
            input=self._input.checked(fields),
            session=opening["name"] if opening else None,
            opening=exchanges,
            queue=queue,
            tenant=tenant,
            priority=spec.priority,
        )

    def _mark(self, spec: RunSpec) -> tuple[Any, ...]:
        """The parts of the identity of a new run that few runs have."""
        drawn = [("draw", draw_here())] if draw_here() else []
        return (*self.sessions.mark(spec.session), *drawn, *([("overrides", spec.overrides)] if spec.overrides else []))

    def _purse_of(self, spec: RunSpec) -> str | None:
        """The name of the purse that pays for a new run, if the flow has it by name. Raises ConfigurationError (``config/purse``)
        for a purse without an allowance."""
        if not isinstance(spec.purse, str):
            return None
        self._engine.payer(spec.purse)
        return spec.purse

    @property
    def jobs(self) -> JobQueue:
        """The queue of jobs for workers. Raises ConfigurationError (``config/where``) for a store without one."""
        if self._store.jobs is None:
            raise ConfigurationError(
                "workers carry out runs that are stored in PostgreSQL, and this flow stores runs in a file",
                code="config/where",
                hint="AgentFlow(durable='postgresql://user@host/database')",
            )
        return self._store.jobs

    @property
    def has_workers(self) -> bool:
        """Whether the store has a queue of jobs for workers."""
        return self._store.jobs is not None

    def build(self) -> str:
        """The build of the application in this process."""
        return build_of(self._engine)

    async def take(self, claim: Claim, trials: Trials) -> DurableRun | None:
        """Resume the run of a claimed job, in its turn among ``trials`` if its worker died; None if it failed before it began.

        Raises JournalError (``durable/owned``) if another worker has already taken the run, and as :meth:`resume`.
        """
        async with self._runs.turn(claim.run):
            return await self._take(claim, trials)

    async def _take(self, claim: Claim, trials: Trials) -> DurableRun | None:
        row = await stored_run(self._store, claim.run)
        if row.slice != claim.slice or row.status not in ("queued", "waiting"):
            raise JournalError(f"the job of the run '{claim.run}' is late", code="durable/owned")
        try:
            if row.deaths >= MOST_DEATHS:
                raise await poisoned(self._store, row)
            program, values = await self._stored_program(row, {})
            go_on = partial(self._runs.go_on, row, program, RunSpec(bindings=values))
            return await trials.begin(row, lambda: go_on(slice=claim.slice, cancelled=row.cancelling))
        except AgentflowError as error:
            if error.code in ("durable/owned", "durable/closed", "durable/database"):
                raise
            await self._fail(row, error, claim.slice)
            return None

    async def cancel_asked(self) -> None:
        """Cancel runs of this process when another process asks for it, until this coroutine is cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                for run_id in await self.jobs.cancelled():
                    live = self._runs.find(run_id)
                    if live is not None and not live.cancelled:
                        group.create_task(self.cancel(run_id))
                await asyncio.sleep(LOOK_S)

    def release(self) -> None:
        """Give up the runs that this process has claimed from workers' queues; other workers resume them."""
        self._runs.release()

    def _another_run(
        self,
        row: RunRow,
        source: Source,
        spec: RunSpec,
    ) -> JournalError:
        """The error for an id that another run has; it names the difference."""
        bindings, names, mark = spec.bindings or {}, _names(spec), self._mark(spec)
        edited = fingerprint("run", identity(row.program), dict(bindings), names, *mark).hex() == row.digest
        differs = [] if identity(row.program) == identity(source.text) else ["the program"]
        differs += [f"the binding '{name}'" for name in self._input.differing(row, bindings)]
        differs += [] if row.input["allow"] == names else ["allow"]
        differs += [] if draw_of(row.input) == draw_here() else ["the draw"]
        differs += ["the overrides"] if differing(row, spec.overrides or {}) else []
        return another_run(
            row, source.name if edited and reference_in(source.text) is None else None, differs or ["the session"]
        )

    async def resume_here(self, run_id: str, spec: RunSpec) -> DurableRun:
        """:meth:`resume`, and in a block of another draw than the run has a generation of that draw (:meth:`derive`)."""
        if draw_here() in (0, draw_of((await stored_run(self._store, run_id)).input)):
            return await self.resume(run_id, spec)
        return await self.derive(run_id, Change(overrides={}), spec=spec)

    async def resume(
        self,
        run_id: str,
        spec: RunSpec,
    ) -> DurableRun:
        """Resume a stored run. The last failures of a failed run are tried again.

        The spec's bindings supply those not stored because they are secret or not data; its limits replace the
        run's, and its ``on_inflight`` the flow's. Raises JournalError: ``durable/unknown-run``, ``durable/bindings``,
        ``durable/argument`` for options that a running or ended run cannot use, ``durable/owned``, and the codes of the
        store.
        """
        _check_inflight(spec.on_inflight)
        async with self._runs.turn(run_id):
            return await self._resume(run_id, spec)

    async def _resume(self, run_id: str, spec: RunSpec) -> DurableRun:
        bindings = spec.bindings
        live = self._runs.find(run_id)
        if live is not None:
            self._runs.take(live, spec, bindings)
            if not live.resting:
                return live
        row = await stored_run(self._store, run_id)
        if live is not None:
            await self._runs.begin(live, row)
            return live
        if row.status in ("done", "cancelled"):
            end = self._runs.recorded_end(row, Source.of(str(row.input["name"]), row.program))
            if end is not None:
                if bindings:
                    raise unusable(run_id, f"the bindings {', '.join(bindings)}", "it has ended", "leave them out")
                usable_limits(run_id, spec.limits, self._limits_of(row))
                return DurableRun(run_id, end, doors=self)
        program, values = await self._stored_program(row, bindings or {})
        return await self._runs.go_on(row, program, replace(spec, bindings=values), retry=True)

    async def derive(
        self,
        run_id: str,
        change: Change,
        *,
        spec: RunSpec,
        source: Source | None = None,
        as_run: str | None = None,
    ) -> DurableRun:
        """Start, or resume, the generation of a run with ``change`` and the program ``source`` (None: the run's own).

        ``as_run`` is the new id. Unless it is a fork, the generation continues the run: an unfinished run is cancelled,
        and the latest of several generations is the base. The spec's bindings replace those of the run or add to
        them. Raises the errors of :meth:`resume` and of compiling.
        """
        _check_inflight(spec.on_inflight)
        row, program, values = await self._generations.begin(run_id, change, source=source, as_run=as_run, spec=spec)
        async with self._runs.turn(row.run):
            live = self._runs.find(row.run)
            if live is not None:
                self._runs.take(live, spec)
                return live
            row = await stored_run(self._store, row.run)
            end = self._runs.recorded_end(row, program.source) if row.status in ("done", "cancelled") else None
            if end is not None:
                usable_limits(row.run, spec.limits, self._limits_of(row))
                return DurableRun(row.run, end, doors=self)
            return await self._runs.go_on(row, program, replace(spec, bindings=values), retry=True)

    async def plan(
        self,
        run_id: str,
        change: Change | None,
        *,
        source: Source | None = None,
        bindings: Mapping[str, Any] | None = None,
    ) -> RunPlan:
        """The plan of :meth:`derive`, or of :meth:`resume` without ``change`` and ``source``. Stores and carries out
        nothing."""
        chosen = change or Change(overrides={})
        row, program, values = await self._generations.changed(run_id, chosen, source, bindings or {})
        chosen = replace(chosen, draw=0) if chosen.draw == draw_of(row.input) else chosen
        rows = await self._store.effects(row.run)
        derives = change is not None or source is not None
        base = row if derives else None if row.base is None else await self._store.find(row.base)
        inherited = rows if derives else [] if base is None else await self._store.effects(base.run)
        own = [] if derives else answers(rows, retry=row.status == "failed")
        chosen = chosen if derives else Change.of(row)
        pool = None if base is None else chosen.pool(base, inherited, own)
        stored = row.input["limits"]
        return await make_plan(
            self._engine,
            self._codec,
            self._store,
            row,
            program,
            values,
            rows=rows if derives else [*rows, *inherited],
            own=own,
            pool=pool,
            overrides=overrides_of(chosen, self._engine.tasks, program.source),
            spec=RunSpec(
                session=await self.sessions.copy(row),
                limits=None if stored is None else Limits(**stored),
                run_id=row.run,
            ),
        )

    async def gc(
        self, older_than_s: float | None, bounds: LogBounds | None = None, forget_s: float | None = None
    ) -> int:
        """Remove runs that ended more than ``older_than_s`` seconds ago, older results for reuse, and the oldest runs
        beyond ``bounds``; delete the summaries of runs that ended more than ``forget_s`` seconds ago. Returns the number of
        runs removed."""
        before, forget = [None if each is None else time.time() - each for each in (older_than_s, forget_s)]
        return await self._store.gc(before, bounds, forget=forget)

    async def past(self, limit: int = 100) -> list[PastRun]:
        """Summaries of at most ``limit`` removed runs, the last changed first."""
        return [PastRun.of(row) for row in await self._store.past(limit=limit)]

    async def cancel(self, run_id: str) -> None:
        """Cancel a run for good, whether it works here, waits or was interrupted, and wait until it has cleaned up.

        An idle run is replayed to the end of its records, and cleans up there. If impossible, because its program no
        longer fits its records or needs unstored bindings, it is cancelled without
        clean-up. A done run stays done. Raises JournalError.
        """
        stopped: LiveRun | None = None
        cleaned = False
        while True:
            async with self._runs.turn(run_id):
                live = self._runs.find(run_id)
                ends = None if live is None else live.stop()
                if ends is not None:
                    stopped = live
                else:
                    row = await stored_run(self._store, run_id)
                    if row.status in ("done", "cancelled") or (stopped is not None and row.status in ENDED):
                        break
                    if row.queue is not None and row.status != "failed":
                        await self.jobs.cancel(run_id)
                        followed = await self._runs.follow(row)
                        ends = asyncio.ensure_future(followed.ended())
                    elif row.status != "failed" and not cleaned:
                        cleaned = True
                        ends = await self._cleaning_up(row, live)
                    if ends is None:
                        await self._end_without_work(row, live)
                        break
            await asyncio.wait([ends])
        if stopped is not None:
            stopped.cancelled_late()

    async def _cleaning_up(self, row: RunRow, live: LiveRun | None) -> asyncio.Task[None] | None:
        """Begin to replay an idle run so that it cleans up. Returns that work; None if it cannot be begun."""
        try:
            if live is not None:
                live.cancelled = True
                await self._runs.begin(live, row)
            else:
                program, values = await self._stored_program(row, {})
                live = await self._runs.go_on(row, program, RunSpec(bindings=values), cancelled=True)
        except (AgentflowError, SessionBusy) as error:
            if isinstance(error, JournalError) and error.code not in (
                "durable/bindings",
                "durable/mismatch",
                "durable/deps",
                "durable/guards",
            ):
                raise
            return None
        return live.task

    async def _end_without_work(self, row: RunRow, live: LiveRun | None) -> None:
        """Cancel a run in its present state, without clean-up."""
        owned = await self._store.own(row.run)
        await self._store.finish(row.run, owned.run.epoch, "cancelled")
        if live is not None:
            self._runs.end(live, RunEnd("cancelled"))

    async def _stored_program(
        self, row: RunRow, bindings: Mapping[str, Any]
    ) -> tuple[Program | PythonProgram, dict[str, Any]]:
        """The program and the bindings of a stored run; ``bindings`` has the unstored ones. Raises JournalError."""
        values = self._input.read(row, bindings)
        source = Source.of(str(row.input["name"]), row.program)
        return await prepared(self._engine, source, values, row.input["allow"]), values

    async def take_over(self) -> None:
        """Start resuming the runs of processes that die, until this is closed."""
        await self._runs.watch(Takeover(self._store, self._adopt, self._end_poisoned).watch())

    async def _adopt(self, row: RunRow) -> DurableRun | None:
        """Resume a run of a process that died, unless a caller here has done so meanwhile."""
        async with self._runs.turn(row.run):
            if self._runs.find(row.run) is not None:
                return None
            handle = await self._resume(row.run, PLAIN)
            if isinstance(handle, LiveRun):
                handle.adopted = True
            return handle

    async def _end_poisoned(self, row: RunRow, error: JournalError) -> None:
        async with self._runs.turn(row.run):
            if self._runs.find(row.run) is None:
                await self._fail(row, error)

    async def _fail(self, row: RunRow, error: AgentflowError, slice: int | None = None) -> None:
        """End a run without an owner as failed."""
        owned = await self._store.own(row.run, slice)
        stored = await self._runs.stored_error(error)
        status: RunStatus = "cancelled" if row.cancelling else "failed"
        branches = self._runs.branches
        end = Ended(error=stored, usage=read_usage(owned.usage), cost=owned.cost)
        await self._store.finish(
            row.run,
            owned.run.epoch,
            status,
            result=None if row.cancelling else {"usage": owned.usage, "cost": owned.cost, "steps": 0},
            error=None if row.cancelling else stored,
            branch=None if branches is None else branches.end(owned.run, status, end),
        )

    async def check(self, within_s: float) -> None:
        """Have the store carry out an operation behind all pending writes. Raises JournalError if it did not within
        ``within_s`` seconds."""
        self._runs.find("")
        try:
            async with asyncio.timeout(within_s):
                await self._store.find("")
        except TimeoutError:
            raise JournalError(
                f"the database of durable runs could not be written to for {within_s:g} s",
                code="durable/database",
                hint="see the log: it is locked, full or away; runs wait for it and lose nothing",
            ) from None

    async def find(self, run_id: str) -> RunInfo | None:
        """The run of this id, or None."""
        row = await self._store.find(run_id)
        return None if row is None else replace(RunInfo.of(row), batches=await batches_of(self._store, row))

    async def recorded_result(self, run_id: str) -> RunResult[Any] | None:
        """The result of an ended run; None if it is unfinished or unknown. Raises its error if it failed."""
        row = await self._store.find(run_id)
        if row is None or row.status not in ENDED:
            return None
        end = self._runs.recorded_end(row, Source.of(str(row.input["name"]), row.program))
        return await DurableRun(run_id, end or RunEnd(row.status, error=no_value(run_id)), doors=self).result()

    async def events(self, run_id: str, after: EventId) -> AsyncGenerator[dict[str, Any]]:
        """The recorded events of a run after ``after``, and new ones until it has ended. Raises JournalError."""
        await stored_run(self._store, run_id)
        if self._watched is None and self._recordings is not None:
            self._watched = self._recordings()
        catalogue = RunCatalogue([] if self._watched is None else [self._watched], self._store)
        changes = await self._runs.changes()
        async with contextlib.aclosing(catalogue.follow(run_id, after, changes=changes)) as events:
            async for event in events:
                yield event

    @property
    def results(self) -> ResultStore:
        """The results for reuse, stored with the runs."""
        return self._store.results

    @property
    def purses(self) -> PurseStore:
        """The purses, stored with the runs."""
        return self._store.purses

    async def list(self, limit: int = 100, where: str = "", *, scores: bool = False) -> list[RunInfo]:
        """At most ``limit`` runs of the store that fit the filter ``where``, the last changed first. Raises ConfigurationError
        (``config/filter``)."""
        return await listed(self._store, run_filter(where), limit, RunInfo.of, scores=scores)

    async def ended(self, limit: int, where: str, since: str | None, labels: Mapping[str, str]) -> list[RunInfo]:
        """At most ``limit`` done or failed runs that fit :func:`run_filter`, the last changed first; no branches."""

        def of(row: RunRow) -> RunInfo | None:
            return RunInfo.of(row) if row.parent is None and row.status in _CASES else None

        return await listed(self._store, run_filter(where, since=since, labels=labels), limit, of, among=_CASES)

    async def suspend(self) -> None:
        """Give up the runs that work here, to be resumed later; none begins here any more. A second call does nothing."""
        self._store.leave()
        await self._runs.aclose()

    async def aclose(self) -> None:
        """Give up the runs that work here, and close the store."""
        try:
            await self.suspend()
        finally:
            if self._watched is not None:
                await asyncio.to_thread(self._watched.close)
            if self._engine.purses is not None:
                await self._engine.purses.leave(self._store.purses)
            await self._store.aclose()


_CASES = frozenset({"done", "failed"})


def _check_portable(bindings: Mapping[str, Any], session: Session | None) -> None:
    """Raise ConfigurationError (``config/where``) for a run that needs something only this process has."""
    kept = [name for name, data in bindings.items() if data is None]
    if kept or session is not None:
        what = f"the binding '{kept[0]}', which is secret or no data" if kept else "a session of this process"
        raise ConfigurationError(
            f"workers cannot do a run that needs {what}",
            code="config/where",
            hint="let a tool of the flow give it" if kept else "leave session= out, or where='workers'",
        )


def _names(spec: RunSpec) -> list[str] | None:
    """The stored form of the names that a run may call."""
    return None if spec.allow is None else sorted(spec.allow)


def _check_inflight(on_inflight: OnInflight | None) -> None:
    if on_inflight not in (None, "retry", "ask", "fail"):
        raise ConfigurationError(
            f"on_inflight is 'retry', 'ask' or 'fail', not {on_inflight!r}",
            code="config/on-inflight",
            hint="'retry' repeats unfinished calls, 'ask' waits for a decision, 'fail' treats them as failed",
        )
