"""Durable runs: started, gone on with after an interruption, given up and listed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from agentflow.core.errors import AgentflowError, ConfigurationError, JournalError
from agentflow.core.journal import ENDED, NewRun, OnInflight, OwnedRun, RunRow, RunStatus, SessionChanges
from agentflow.core.limits import Limits
from agentflow.core.messages import Usage
from agentflow.core.ports import JournalStore
from agentflow.core.results import NO_USAGE, TaskResult
from agentflow.core.session import Session
from agentflow.core.source import Source
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.redact import Redactor
from agentflow.runtime.codec import Codec, NotData, fingerprint, read_usage, write_usage
from agentflow.runtime.conversations import Conversations, RunSession
from agentflow.runtime.deriving import Generations, another_run, known_run, overrides_of, successor_of
from agentflow.runtime.engine import Engine
from agentflow.runtime.generations import Change
from agentflow.runtime.handle import Account, RunResult, account_of
from agentflow.runtime.journal import RunJournal
from agentflow.runtime.records import Records, last_failures
from agentflow.runtime.run import Approver, check_name, new_run_id
from agentflow.runtime.stored_input import StoredInput, limits_data


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """A durable run as it is listed.

    ``status`` is queued (to be gone on with), running, interrupted (a decision is wanted), done, failed or cancelled;
    ``name`` its program's name; ``slices`` the number of stretches it was worked on; ``error`` the message of a failed one. ``base`` is the run whose records it
    may reuse, ``successor`` the one that it goes on as; ``program`` the digest of its text. Times are unix seconds.
    """

    run_id: str
    status: RunStatus
    name: str
    slices: int
    created: float
    updated: float
    error: str | None = None
    base: str | None = None
    successor: str | None = None
    program: str = ""

    @classmethod
    def of(cls, row: RunRow) -> RunInfo:
        """What is listed of a stored run."""
        return cls(
            run_id=row.run,
            status=row.status,
            name=str(row.input.get("name", "")),
            slices=row.slice,
            created=row.created,
            updated=row.updated,
            error=row.error[1].get("message") if row.error else None,
            base=row.base,
            successor=successor_of(row),
            program=Source("", row.program).digest,
        )


class _End(NamedTuple):
    """How a run ended here."""

    status: RunStatus
    result: RunResult | None = None
    error: Exception | None = None
    successor: str | None = None


class DurableRun:
    """A durable run that was started or gone on with here, or that had ended before.

    ``run_id`` is its id. ``replayed`` is the number of its effects that were answered from records, ``saved`` and
    ``saved_cost`` the tokens and USD that it had used before this process took it up, and those of the records that it took
    over from the run it is based on.
    """

    def __init__(self, run_id: str, end: _End | None = None) -> None:
        self.run_id = run_id
        self._before: tuple[Usage, float | None] = (NO_USAGE, 0.0)
        self._end = end
        self._records: Records | None = None
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self._on_inflight: OnInflight = "retry"

    @property
    def status(self) -> RunStatus:
        """``running`` until it ends: ``done``, ``failed``, ``cancelled``, or ``queued`` when it was interrupted."""
        return "running" if self._end is None else self._end.status

    @property
    def replayed(self) -> int:
        """The number of effects answered from records so far."""
        return 0 if self._records is None else self._records.replayed

    @property
    def saved(self) -> Usage:
        """The tokens that did not have to be used again."""
        return self._before[0] if self._records is None else self._before[0] + self._records.adopted_usage

    @property
    def saved_cost(self) -> float | None:
        """The USD that did not have to be paid again; None if a price is unknown."""
        before, adopted = self._before[1], 0.0 if self._records is None else self._records.adopted_cost
        return None if before is None or adopted is None else before + adopted

    @property
    def account(self) -> Account:
        """What the run has used so far, whatever process it arose in."""
        end = self._end
        if end is not None and end.result is not None:
            return Account(self.run_id, end.result.usage, end.result.cost, end.result.steps)
        run = None if self._records is None else self._records.live
        return Account(self.run_id, *self._before) if run is None else account_of(run)

    async def result(self) -> RunResult:
        """Wait for the end. Raises the program's error, and JournalError: ``durable/cancelled``, ``durable/interrupted``.

        Usage and cost of the result are those of the whole run, whatever process they arose in.
        """
        if self._end is None:
            assert self._task is not None
            await asyncio.wait([self._task])
        assert self._end is not None
        if self._end.error is not None:
            raise self._end.error
        if self._end.result is None:
            raise _no_result(self.run_id, self._end)
        return self._end.result

    async def cancel(self) -> None:
        """Cancel the run for good, and wait until it has cleaned up. It cannot be gone on with afterwards."""
        if self._task is not None and not self._task.done():
            self._cancelled = True
            await asyncio.sleep(0)  # a task that is cancelled before its first step would never know
            self._task.cancel()
            await asyncio.wait([self._task])

    def _suspend(self) -> None:
        if self._records is not None:
            self._records.suspending = True
        if self._task is not None:
            self._task.cancel()


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
    ) -> None:
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

    async def start(
        self,
        program: Program,
        bindings: Mapping[str, Any],
        *,
        run_id: str | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        labels: Mapping[str, str] | None = None,
        session: Session | None = None,
    ) -> DurableRun:
        """Start a run, go on with it where it was interrupted, or give the one that ended: once for each ``run_id``.

        Raises JournalError: ``durable/mismatch`` when the id is that of a run of another program, other bindings,
        another ``allow`` or another session, ``durable/owned``, and those of the store; SessionBusy.
        """
        if run_id is not None or labels is not None:
            check_name(run_id, labels)
        run_id = run_id or new_run_id()
        source = program.source
        names = None if allow is None else sorted(allow)
        digest = fingerprint("run", source.text, dict(bindings), names, *self.sessions.mark(session)).hex()
        opening = self.sessions.opening(session)
        given = {
            "name": source.name,
            "bindings": self._input.write(bindings),
            "allow": names,
            "limits": limits_data(limits),
            "labels": None if labels is None else dict(labels),
            "session": opening,
        }
        new = NewRun(
            program=self._input.text(source), digest=digest, input=given, session=opening["name"] if opening else None
        )
        row, _ = await self._store.create(run_id, new)
        if row.digest != digest:
            mark = self.sessions.mark(session)
            edited = fingerprint("run", row.program, dict(bindings), names, *mark).hex() == row.digest
            raise another_run(row, source.name if edited else None)
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
        if live is not None:
            return live
        row = await known_run(self._store, run_id)
        source = Source(str(row.input["name"]), row.program)
        if row.status in ("done", "cancelled"):
            end = self._recorded_end(row, source)
            if end is not None:
                return DurableRun(run_id, end)
        values = self._input.read(row, bindings or {})
        allow = row.input["allow"]
        program = await asyncio.to_thread(
            self._engine.compile, source, bindings=values, grants=None if allow is None else frozenset(allow)
        )
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

    async def cancel(self, run_id: str) -> None:
        """Cancel a run for good, whether it works here or was interrupted. Raises JournalError."""
        live = self._live.get(run_id)
        if live is not None:
            await live.cancel()
            return
        owned = await self._store.own(run_id)
        await self._store.finish(run_id, owned.run.epoch, "cancelled")

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
            if self._group is not None:
                await asyncio.sleep(0)
                for live in self._live.values():
                    live._suspend()  # pyright: ignore[reportPrivateUsage]
                group, self._group = self._group, None
                await group.__aexit__(None, None, None)
        finally:
            await self._store.aclose()

    # -- one run ----------------------------------------------------------------------------------------------------

    async def _go_on(
        self,
        row: RunRow,
        program: Program,
        bindings: Mapping[str, Any],
        limits: Limits | None,
        approve: Approver | None,
        given: Session | None = None,
        *,
        retry: bool = False,
        on_inflight: OnInflight | None = None,
    ) -> DurableRun:
        handle = self._live[row.run] = DurableRun(row.run)
        handle._on_inflight = on_inflight or self._on_inflight  # pyright: ignore[reportPrivateUsage]
        session = None
        try:
            session = await self.sessions.begin(row, given)
            owned = await self._store.own(row.run)
            if retry and row.status in ENDED:
                failures = last_failures(owned.records)
                await self._store.put(row.run, owned.run.epoch, [], drop=[each.key for each in failures])
                owned = replace(owned, records=[each for each in owned.records if each not in failures])
            if self._group is None:
                group = asyncio.TaskGroup()
                self._group = await group.__aenter__()
        except BaseException:
            del self._live[row.run]
            if session is not None:
                await session.end(None)
            raise
        stored = row.input["limits"]
        chosen = limits or (None if stored is None else Limits(**stored))
        handle._before = (read_usage(owned.usage), owned.cost)  # pyright: ignore[reportPrivateUsage]
        handle._task = self._group.create_task(  # pyright: ignore[reportPrivateUsage]
            self._work(handle, owned, program, bindings, chosen, approve, session, again=row.status in ENDED),
            name=f"durable run {row.run}",
        )
        return handle

    async def _work(
        self,
        handle: DurableRun,
        owned: OwnedRun,
        program: Program,
        bindings: Mapping[str, Any],
        limits: Limits | None,
        approve: Approver | None,
        session: RunSession | None,
        *,
        again: bool,
    ) -> None:
        """Run it to its end, which is stored. Raises nothing: whoever holds the handle is told."""
        began = time.monotonic()
        root = cast("asyncio.Task[object] | None", asyncio.current_task())
        assert root is not None
        records = Records(self._store, owned, root, handle._on_inflight)  # pyright: ignore[reportPrivateUsage]
        handle._records = records  # pyright: ignore[reportPrivateUsage]
        try:
            if owned.run.base is not None:
                change = Change.of(owned.run)
                records.pool = change.pool(await self._store.effects(owned.run.base), owned.records)
                records.overrides = overrides_of(change, self._engine.tasks, program.source)
            end = await self._run(records, program, bindings, limits, approve, session)
        except asyncio.CancelledError:
            if records.fatal is not None:
                asks = records.fatal.code == "durable/in-flight"
                end = _End("interrupted" if asks else "queued", error=records.fatal)
            else:
                end = _End("cancelled" if handle._cancelled else "queued")  # pyright: ignore[reportPrivateUsage]
        except Exception as error:  # noqa: BLE001 - the program's error, or one of a host's observer: the handle's
            end = _End("failed", error=error)
        changes = session.changes(again=again) if session is not None and end.status in ENDED else None
        try:
            await self._finish(owned, end, time.monotonic() - began, changes)
        except JournalError as error:
            end, changes = _End(end.status, error=end.error or error), None
        finally:
            if session is not None:
                await session.end(changes)
            handle._end = end  # pyright: ignore[reportPrivateUsage]
            del self._live[handle.run_id]

    async def _run(
        self,
        records: Records,
        program: Program,
        bindings: Mapping[str, Any],
        limits: Limits | None,
        approve: Approver | None,
        session: RunSession | None,
    ) -> _End:
        row = records.run
        env = SexpEnvironment(dict(bindings))
        journal = RunJournal(records, self._codec, self._redactor)
        async with self._engine.open(
            program.source.name,
            session=None if session is None else session.session,
            program=program.source.digest,
            limits=limits,
            grants=program.allow,
            approver=approve,
            run_id=row.run,
            labels=row.input["labels"],
            journal=journal,
        ) as (run, call):
            records.live = run
            call.definitions = records.overrides
            value = await self._engine.evaluate(program, env, call)
        status = "failed" if isinstance(value, TaskResult) and value.problem() is not None else "done"
        return _End(status, RunResult(value, run.usage, run.cost_usd, run.run_id, run.budget.steps_used))

    async def _finish(self, owned: OwnedRun, end: _End, spent_s: float, changes: SessionChanges | None) -> None:
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

    def _recorded_end(self, row: RunRow, source: Source) -> _End | None:
        """The stored end of a run; None if its value is not stored."""
        if row.status == "cancelled":
            return _End("cancelled", successor=successor_of(row))
        if row.error is not None:
            return _End("failed", error=self._codec.decode_error(row.error, source))
        if row.result is None or "value" not in row.result:
            return None
        stored: Mapping[str, Any] = row.result
        value = self._codec.decode(stored["value"], source)
        usage = read_usage(stored["usage"])
        return _End(row.status, RunResult(value, usage, stored["cost"], row.run, stored["steps"]))


def _checked(on_inflight: OnInflight) -> OnInflight:
    if on_inflight not in ("retry", "ask", "fail"):
        raise ConfigurationError(
            f"on_inflight={on_inflight!r} is no way to go on",
            code="config/on-inflight",
            hint="'retry' repeats what was at work, 'ask' waits for a decision, 'fail' takes it to have failed",
        )
    return on_inflight


def _no_result(run_id: str, end: _End) -> JournalError:
    if end.successor is not None:
        return JournalError(
            f"the run '{run_id}' goes on as '{end.successor}'",
            code="durable/superseded",
            hint=f"flow.resume('{end.successor}')",
            details={"successor": end.successor},
        )
    if end.status == "cancelled":
        return JournalError(f"the run '{run_id}' was cancelled", code="durable/cancelled", hint="start another")
    return JournalError(
        f"the run '{run_id}' was interrupted",
        code="durable/interrupted",
        hint=f"flow.resume('{run_id}') goes on with it",
    )
