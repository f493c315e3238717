# pyright: reportPrivateUsage=false
# The private part of a handle is for the object here that works on its run.
"""Durable runs: started, gone on with after an interruption, given up and listed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from agentflow.core.errors import AgentflowError, ConfigurationError, DataError, JournalError, SessionBusy
from agentflow.core.journal import (
    ENDED,
    EffectRow,
    EffectState,
    NewRun,
    OnInflight,
    OwnedRun,
    RunRow,
    SessionChanges,
)
from agentflow.core.limits import Limits
from agentflow.core.questions import Question
from agentflow.core.results import TaskResult
from agentflow.core.session import Session
from agentflow.core.source import Source
from agentflow.core.store_ports import JournalStore
from agentflow.lang.program import Program
from agentflow.lib.redact import Redactor
from agentflow.runtime.codec import Codec, NotData, fingerprint, read_usage, write_usage
from agentflow.runtime.conversations import Conversations, RunSession
from agentflow.runtime.deriving import Generations, another_run, known_run, overrides_of, successor_of
from agentflow.runtime.durable_run import DurableRun, RunEnd, RunInfo, RunWork
from agentflow.runtime.engine import Engine
from agentflow.runtime.generations import Change
from agentflow.runtime.handle import Recorded, RunResult
from agentflow.runtime.journal import RunJournal
from agentflow.runtime.plan import RunPlan, make_plan
from agentflow.runtime.python_program import PythonProgram, find_target, identity, reference_in
from agentflow.runtime.questions import check_answer, no_such_question
from agentflow.runtime.records import Records, answers, last_failures
from agentflow.runtime.resting import Resting
from agentflow.runtime.run import Approver, check_name, check_priority, new_run_id
from agentflow.runtime.stored_input import StoredInput, limits_data
from agentflow.runtime.waiting import question_of


class DurableRuns:
    """Starts durable runs and goes on with them: those of one flow, in one store.

    ``redactor`` takes secrets out of everything before it is stored; ``on_inflight`` decides what becomes of tools that may
    not be repeated and were at work when their run was interrupted.
    """

    def __init__(
        self,
        engine: Engine,
        store: JournalStore,
        redactor: Redactor | None = None,
        *,
        on_inflight: OnInflight = "retry",
        records: Recorded | None = None,
    ) -> None:
        self._records = records
        self._on_inflight: OnInflight = _checked(on_inflight)
        self._engine = engine
        self._store = store
        self._redactor = redactor
        self._codec = Codec(engine.effects)
        self.sessions = Conversations(store.sessions, self._codec, redactor)
        self._input = StoredInput(self._codec, redactor)
        self._generations = Generations(engine, store, self._input)
        self._live: dict[str, DurableRun] = {}
        self._group: asyncio.TaskGroup | None = None
        self._resting = Resting(self._look, self._spawn)
        self._closing = False

    async def start(
        self,
        program: Program | PythonProgram,
        bindings: Mapping[str, Any],
        *,
        run_id: str | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        labels: Mapping[str, str] | None = None,
        session: Session | None = None,
        priority: int = 0,
    ) -> DurableRun:
        """Start a run, go on with it where it was interrupted, or give the one that ended: once for each ``run_id``.

        Raises JournalError: ``durable/mismatch`` when the id is that of a run of another program, other bindings,
        another ``allow`` or another session, ``durable/owned``, and those of the store; SessionBusy.
        """
        if run_id is not None or labels is not None:
            check_name(run_id, labels)
        if priority:
            check_priority(priority)
        run_id = run_id or new_run_id()
        source = program.source
        names = None if allow is None else sorted(allow)
        digest = fingerprint("run", identity(source.text), dict(bindings), names, *self.sessions.mark(session)).hex()
        opening = self.sessions.opening(session)
        given = {
            "name": source.name,
            "bindings": self._input.write(bindings),
            "allow": names,
            "limits": limits_data(limits),
            "labels": None if labels is None else dict(labels),
            "session": opening,
            "priority": priority,
        }
        new = NewRun(
            program=self._input.text(source), digest=digest, input=given, session=opening["name"] if opening else None
        )
        row, _ = await self._store.create(run_id, new)
        if row.digest != digest:
            mark = self.sessions.mark(session)
            edited = fingerprint("run", identity(row.program), dict(bindings), names, *mark).hex() == row.digest
            raise another_run(row, source.name if edited and reference_in(source.text) is None else None)
        live = self._live.get(run_id)
        if live is not None:
            return live
        if row.status in ENDED:
            end = self._recorded_end(row, source)
            if end is not None:
                self.sessions.ended(row, session)
                return DurableRun(run_id, end)
        return await self._go_on(row, program, bindings, limits, approve, session)

    async def resume(
        self,
        run_id: str,
        *,
        bindings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
        on_inflight: OnInflight | None = None,
    ) -> DurableRun:
        """Go on with a run by what is stored of it. The last failures of a failed one are tried again.

        ``bindings`` are those that are not stored, because they are secret or no data; ``limits`` replace the run's, and
        ``on_inflight`` the flow's.
        Raises JournalError: ``durable/unknown-run``, ``durable/bindings``, ``durable/owned``, and those of the store.
        """
        chosen = _checked(on_inflight or self._on_inflight)
        live = self._live.get(run_id)
        if live is not None and not live._resting:
            return live
        row = await known_run(self._store, run_id)
        if live is not None:
            await self._begin(live, row)
            return live
        source = Source(str(row.input["name"]), row.program)
        if row.status in ("done", "cancelled"):
            end = self._recorded_end(row, source)
            if end is not None:
                return DurableRun(run_id, end)
        values = self._input.read(row, bindings or {})
        program = await self._engine.prepared(source, values, row.input["allow"])
        return await self._go_on(row, program, values, limits, approve, retry=True, on_inflight=chosen)

    async def derive(
        self,
        run_id: str,
        change: Change,
        *,
        source: Source | None = None,
        as_run: str | None = None,
        bindings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
    ) -> DurableRun:
        """Start, or go on with, the generation of a run that ``change`` and the program ``source`` (None: its own) make.

        ``as_run`` is its id. Unless it is a fork the run goes on as its generation: it is cancelled itself if it has not
        ended, and what it goes on as already is the base then. ``bindings`` replace and add to those of the run. Raises as :meth:`resume`, and what compiling raises.
        """
        row, program, values = await self._generations.begin(
            run_id, change, source=source, as_run=as_run, bindings=bindings or {}, limits=limits
        )
        if row.run in self._live:
            return self._live[row.run]
        end = self._recorded_end(row, program.source) if row.status in ("done", "cancelled") else None
        return DurableRun(row.run, end) if end else await self._go_on(row, program, values, limits, approve, retry=True)

    async def plan(
        self,
        run_id: str,
        change: Change | None,
        *,
        source: Source | None = None,
        bindings: Mapping[str, Any] | None = None,
    ) -> RunPlan:
        """What :meth:`derive`, or without ``change`` and ``source`` :meth:`resume`, would do. Stores nothing, and carries nothing out."""
        chosen = change or Change(overrides={})
        row, program, values = await self._generations.changed(run_id, chosen, source, bindings or {})
        rows = await self._store.effects(row.run)
        derives = change is not None or source is not None
        inherited = await self._store.effects(row.base) if row.base is not None and not derives else []
        own = [] if derives else answers(rows, retry=row.status == "failed")
        pool = chosen.pool(rows) if derives else Change.of(row).pool(inherited, own) if inherited else None
        stored = row.input["limits"]
        return await make_plan(
            self._engine,
            self._codec,
            self._store,
            row,
            program,
            values,
            rows=[*rows, *inherited],
            own=own,
            pool=pool,
            overrides=overrides_of(chosen if derives else Change.of(row), self._engine.tasks, program.source),
            session=self.sessions.copy(row),
            limits=None if stored is None else Limits(**stored),
        )

    async def gc(self, older_than_s: float) -> int:
        """Remove runs that ended so many seconds ago, and results for reuse that are older. Gives the number of runs."""
        return await self._store.gc(time.time() - older_than_s)

    async def cancel(self, run_id: str) -> None:
        """Cancel a run for good, whether it works here or was interrupted. Raises JournalError."""
        live = self._live.get(run_id)
        if live is not None and not live._resting:
            await live.cancel()
            return
        owned = await self._store.own(run_id)
        await self._store.finish(run_id, owned.run.epoch, "cancelled")
        if live is not None:
            self._end(live, RunEnd("cancelled"))

    async def questions(self, run_id: str) -> list[Question]:
        """The open questions and approvals of a run. Raises JournalError."""
        live = self._live.get(run_id)
        if live is not None:
            return live.waiting
        return [asked for _, asked in await self._asked(await known_run(self._store, run_id))]

    async def send(self, run_id: str, key: str, answer: Any) -> None:
        """Answer an open question or approval of a run, wherever that works or waits; the first answer counts.

        Raises DataError: ``question/unknown``, also when another answer came first, and ``question/answer`` when it does not
        fit; JournalError.
        """
        rows = await self._asked(await known_run(self._store, run_id))
        known = [(row, asked) for row, asked in rows if asked.key == key]
        if not known:
            raise no_such_question(run_id, key, [asked for _, asked in rows])
        row, question = known[0]
        check_answer(question, answer)
        try:
            data = self._input.clean({**row.value, "ok": self._codec.encode(answer)})
        except NotData as what:
            raise DataError(f"the answer cannot be stored: {what}", code="question/answer") from None
        if not await self._store.deliver(run_id, row.key, EffectState.OK, data):
            raise no_such_question(run_id, key, [])
        live = self._live.get(run_id)
        if live is None:
            return
        if live._resting:
            await self._look(run_id, True)
        elif live._records is not None:
            live._records.parking.answer(row.path, data)

    async def _asked(self, run: RunRow) -> list[tuple[EffectRow, Question]]:
        records = [] if run.status in ENDED else await self._store.effects(run.run)
        rows = [row for row in records if row.state == EffectState.OPEN]
        return [(row, asked) for row in rows if (asked := question_of(run.run, row)) is not None]

    async def find(self, run_id: str) -> RunInfo | None:
        """The run of this id, or None."""
        row = await self._store.find(run_id)
        return None if row is None else RunInfo.of(row)

    async def list(self, limit: int = 100) -> list[RunInfo]:
        """The runs of the store, the last changed first."""
        return [RunInfo.of(row) for row in await self._store.list(limit=limit)]

    async def aclose(self) -> None:
        """Give up the runs that work here, to be gone on with later, and close the store."""
        try:
            self._closing = True
            self._resting.close()
            if self._group is not None:
                await asyncio.sleep(0)
                for live in list(self._live.values()):
                    live._suspend()
                group, self._group = self._group, None
                await group.__aexit__(None, None, None)
        finally:
            await self._store.aclose()

    # -- one run ----------------------------------------------------------------------------------------------------

    async def _go_on(
        self,
        row: RunRow,
        program: Program | PythonProgram,
        bindings: Mapping[str, Any],
        limits: Limits | None,
        approve: Approver | None,
        given: Session | None = None,
        *,
        retry: bool = False,
        on_inflight: OnInflight | None = None,
    ) -> DurableRun:
        stored = row.input["limits"]
        chosen = limits or (None if stored is None else Limits(**stored))
        work = RunWork(
            program, bindings, chosen, approve, given, on_inflight or self._on_inflight, again=row.status in ENDED
        )
        handle = self._live[row.run] = DurableRun(row.run, work=work, cancel=self.cancel)
        try:
            await self._begin(handle, row, retry=retry)
        except BaseException:
            del self._live[row.run]
            raise
        return handle

    async def _begin(self, handle: DurableRun, row: RunRow, *, retry: bool = False) -> None:
        """Own a run and work on it. Raises JournalError, SessionBusy."""
        self._resting.remove(row.run)
        resting, handle._resting = handle._resting, False
        assert handle._work is not None
        session = None
        try:
            session = await self.sessions.begin(row, handle._work.session)
            owned = await self._store.own(row.run)
            if retry and row.status in ENDED:
                failures = last_failures(owned.records)
                await self._store.put(row.run, owned.run.epoch, [], drop=[each.key for each in failures])
                owned = replace(owned, records=[each for each in owned.records if each not in failures])
            if self._group is None and not self._closing:
                group = asyncio.TaskGroup()
                self._group = await group.__aenter__()
        except BaseException:
            if resting:
                handle._resting = True
                self._resting.add(row.run, handle.wake_at)
            if session is not None:
                await session.end(None)
            raise
        if self._group is None:
            await self._store.finish(row.run, owned.run.epoch, "queued")
            if session is not None:
                await session.end(None)
            self._end(handle, RunEnd("queued"))
            return
        handle._still.clear()
        handle._before = (read_usage(owned.usage), owned.cost)
        handle._task = self._group.create_task(
            self._work(handle, handle._work, owned, session), name=f"durable run {row.run}"
        )

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._group is None:
            work.close()
        else:
            self._group.create_task(work)

    async def _look(self, run_id: str, due: bool) -> None:
        """Go on with a run that waits here if it is ``due`` or was answered, unless somebody else does or has done so."""
        live = self._live.get(run_id)
        if live is None or not live._resting:
            return
        try:
            row = await known_run(self._store, run_id)
            if row.status in ENDED:
                end = self._recorded_end(row, Source(str(row.input["name"]), row.program))
                self._end(live, end or RunEnd("queued"))
            elif live._resting and (row.status == "queued" or (due and row.status == "waiting")):
                await self._begin(live, row)
        except SessionBusy:
            pass  # whoever has the session ends some time
        except JournalError as error:
            if error.code != "durable/owned":
                self._end(live, RunEnd("queued", error=error))

    def _end(self, handle: DurableRun, end: RunEnd) -> None:
        self._resting.remove(handle.run_id)
        self._live.pop(handle.run_id, None)
        handle._settle(end)

    async def _work(self, handle: DurableRun, work: RunWork, owned: OwnedRun, session: RunSession | None) -> None:
        """Run it until it ends or waits, which is stored. Raises nothing: whoever holds the handle is told."""
        began = time.monotonic()
        root = cast("asyncio.Task[object] | None", asyncio.current_task())
        assert root is not None
        records = handle._records = Records(self._store, owned, root, work.on_inflight)
        try:
            if owned.run.base is not None:
                change = Change.of(owned.run)
                records.pool = change.pool(await self._store.effects(owned.run.base), owned.records)
                records.overrides = overrides_of(change, self._engine.tasks, work.program.source)
            end = await self._run(records, work, session)
        except asyncio.CancelledError:
            if records.fatal is not None:
                asks = records.fatal.code == "durable/in-flight"
                end = RunEnd("interrupted" if asks else "queued", error=records.fatal)
            elif records.rest is not None and not handle._cancelled:
                end = RunEnd("waiting")
            else:
                end = RunEnd("cancelled" if handle._cancelled else "queued")
        except Exception as error:  # noqa: BLE001 - the program's error, or one of a host's observer: the handle's
            end = RunEnd("failed", error=error)
        changes = session.changes(again=work.again) if session is not None and end.status in ENDED else None
        spent_s = time.monotonic() - began
        try:
            if records.rest is not None and end.status == "waiting":
                answered = not await self._store.park(
                    owned.run.run, owned.run.epoch, records.parking.seq, records.rest.wake_at, spent_s=spent_s
                )
                end = RunEnd("queued") if answered else end
            if end.status != "waiting":
                await self._finish(owned, end, spent_s, changes)
        except JournalError as error:
            end, changes = RunEnd(end.status, error=end.error or error), None
        except asyncio.CancelledError:  # interrupted, or cancelled for good, while that was stored
            end, changes = RunEnd("queued"), None
        finally:
            if session is not None:
                await session.end(changes)
        await self._leave(handle, records, end)

    async def _leave(self, handle: DurableRun, records: Records, end: RunEnd) -> None:
        """Tell whoever holds the handle of what became of the run, or go on with one that was answered meanwhile."""
        if (
            records.rest is None
            or self._closing
            or handle._cancelled
            or end.error
            or end.status not in ("waiting", "queued")
        ):
            self._end(handle, end)
        elif end.status == "waiting":
            handle._rest(records.rest)
            self._resting.add(handle.run_id, records.rest.wake_at)
        else:
            try:
                await self._begin(handle, records.run)
            except (JournalError, SessionBusy) as error:
                self._end(handle, RunEnd("queued", error=error))

    async def _run(self, records: Records, work: RunWork, session: RunSession | None) -> RunEnd:
        row = records.run
        program = work.program
        journal = RunJournal(records, self._codec, self._redactor)
        async with self._engine.open(
            program.source.name,
            session=None if session is None else session.session,
            program=program.source.digest,
            limits=work.limits,
            grants=program.allow,
            approver=work.approve,
            run_id=row.run,
            labels=row.input["labels"],
            journal=journal,
            priority=row.input.get("priority", 0),
        ) as (run, call):
            records.live = run
            call.definitions = records.overrides
            value = await self._engine.carry_out(program, work.bindings, call)
        status = "failed" if isinstance(value, TaskResult) and value.problem() is not None else "done"
        return RunEnd(
            status, RunResult(value, run.usage, run.cost_usd, run.run_id, run.budget.steps_used, self._records)
        )

    async def _finish(self, owned: OwnedRun, end: RunEnd, spent_s: float, changes: SessionChanges | None) -> None:
        result, error = None, None
        if end.result is not None:
            result = {
                "usage": write_usage(end.result.usage),
                "cost": end.result.cost,
                "steps": end.result.steps,
            }
            try:
                result["value"] = self._input.clean(self._codec.encode(end.result.value))
            except NotData:
                result = None  # worked out from the records when somebody asks
        if end.status == "failed" and isinstance(end.error, AgentflowError):
            try:
                error = self._input.clean(self._codec.encode_error(end.error))
            except NotData:
                bare = AgentflowError(end.error.message, code=end.error.code, hint=end.error.hint, span=end.error.span)
                error = self._input.clean(self._codec.encode_error(bare))
        elif end.status == "failed" and end.error is not None:
            shown = AgentflowError(f"{type(end.error).__name__}: {end.error}")
            error = self._input.clean(self._codec.encode_error(shown))
        await self._store.finish(
            owned.run.run,
            owned.run.epoch,
            end.status,
            result=self.sessions.with_changes(result, owned.run, changes),
            error=error,
            spent_s=spent_s,
            session=changes,
        )

    def _recorded_end(self, row: RunRow, source: Source) -> RunEnd | None:
        """The stored end of a run; None if its value is not stored."""
        if row.status == "cancelled":
            return RunEnd("cancelled", successor=successor_of(row))
        if row.error is not None:
            return RunEnd("failed", error=self._codec.decode_error(row.error, source))
        if row.result is None or "value" not in row.result:
            return None
        stored: Mapping[str, Any] = row.result
        value = self._codec.decode(stored["value"], source)
        reference = reference_in(row.program)
        if reference is not None:
            value = find_target(self._engine.functions, reference).restore(value)
        usage = read_usage(stored["usage"])
        return RunEnd(row.status, RunResult(value, usage, stored["cost"], row.run, stored["steps"], self._records))


def _checked(on_inflight: OnInflight) -> OnInflight:
    if on_inflight not in ("retry", "ask", "fail"):
        raise ConfigurationError(
            f"on_inflight={on_inflight!r} is no way to go on",
            code="config/on-inflight",
            hint="'retry' repeats what was at work, 'ask' waits for a decision, 'fail' takes it to have failed",
        )
    return on_inflight
