"""The methods of :class:`agentflow.AgentFlow` for durable runs and their workers, sessions and questions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from typing_extensions import Unpack

from agentflow.core.call.approval import Approver
from agentflow.core.call.call import executing_call
from agentflow.core.data.errors import ConfigurationError, JournalError
from agentflow.core.data.event_log import FIRST, EventId
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Surface
from agentflow.core.events.journal_rows import OnInflight, Schedule
from agentflow.core.events.questions import Question
from agentflow.flow.flow_host import FlowHost
from agentflow.flow.program_files import ProgramLike, in_surface, load_program, source_in
from agentflow.flow.program_methods import START, StartOptions, check_run, spec_of
from agentflow.flow.python import FlowCall, no_bindings
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.redact import Redactor
from agentflow.run.engine import Engine
from agentflow.run.handle import RunResult
from agentflow.run.run import check_name
from agentflow.run.run_spec import RunSpec

if TYPE_CHECKING:  # a flow without durable= loads none of it
    from agentflow.durable.conversations import LastingSession
    from agentflow.durable.generations import Overrides
    from agentflow.durable.handle import DurableRun, RunInfo
    from agentflow.durable.plan import RunPlan
    from agentflow.durable.runs import DurableRuns
    from agentflow.durable.stored_input import PythonProgram
    from agentflow.flow.flow_store import FlowStore
    from agentflow.run.purses import Purse
    from agentflow.run.sending import FlowSender

R = TypeVar("R")

DRAIN_S = 30.0
"""Seconds that runs may take to end after a worker was asked to stop."""

DEFAULT_QUEUES: Mapping[str, int] = MappingProxyType({"default": 0})
"""The default queues of a worker."""


class DurableMethods:
    """Starts, resumes, answers, schedules and carries out durable runs.

    A base of :class:`agentflow.AgentFlow`, which builds the parts that the methods use; it has no state.
    """

    engine: Engine
    _host: FlowHost
    redactor: Redactor
    _durable: DurableRuns | None

    @overload
    async def start(self, program: FlowCall[R], **options: Unpack[StartOptions]) -> DurableRun[R]: ...
    @overload
    async def start(
        self, program: ProgramLike, bindings: Mapping[str, Any] | None = None, **options: Unpack[StartOptions]
    ) -> DurableRun[Any]: ...
    async def start(
        self,
        program: ProgramLike | FlowCall[Any],
        bindings: Mapping[str, Any] | None = None,
        **options: Unpack[StartOptions],
    ) -> DurableRun[Any]:
        """Start a durable run: the results of its tasks and tools are stored, and never paid for again.

        With ``where="workers"`` a worker that takes runs of ``queue`` carries it out (:meth:`work`, or the command
        ``agentflow worker``). Of several waiting runs the one of highest ``priority`` goes first, and of equal ones
        that of the ``tenant``, a name, with the fewest running: that of its purse unless it says so. ``overrides`` are those of
        :meth:`resume`, in force whenever the run is resumed. The run, and its
        branches on workers, pay from ``purse`` whenever they are resumed; recorded results are not paid for again.

        ``flow.start(audit(paths), run_id="audit-1")`` starts a Python workflow, which is stored by its module and name.
        Started again under the same ``run_id``, in this process or another, an interrupted run continues, and so does one
        that ended at a limit if ``limits`` allow more; any other ended run returns its recorded end. Options that an
        existing run cannot use (other ``labels``, lower ``limits``, ...) raise JournalError ``durable/argument``. The other
        parameters are those of :meth:`run`; the run has ``session`` until it ends. Raises ConfigurationError
        (``config/durable``) for a flow without ``durable=``, JournalError when the run cannot be stored, belongs to a
        living process, or is one of another program; SessionBusy; and the errors of :meth:`compile`.
        """
        runs = self._durable_runs()
        spec = spec_of("flow.start", START, program, options)
        where, queue = options.get("where", "here"), options.get("queue", "default")
        if where not in ("here", "workers") or not queue:
            raise ConfigurationError(
                f"where={where!r}, queue={queue!r}: no worker executes such runs",
                code="config/where",
                hint="where='here' is this process, where='workers' the workers of queue='default'",
            )
        if executing_call() is not None:
            raise JournalError(
                "a durable run cannot be started inside a call of another run",
                code="durable/nested",
                hint="use flow.run there: its work is part of the outer run, and equally durable",
            )
        spec = replace(spec, bindings=bindings, queue=queue if where == "workers" else None)
        if options.get("overrides"):
            spec = replace(spec, overrides=await _overrides_of(options.get("overrides")))
        return await runs.start(*await self._to_store(in_surface(program, options.get("surface")), spec))

    async def resume(
        self,
        run_id: str,
        *,
        program: ProgramLike | None = None,
        overrides: Overrides | Path | None = None,
        bindings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
        on_inflight: OnInflight | None = None,
        purse: Purse | str | None = None,
        approval_ttl: float | None = None,
        surface: Surface | None = None,
        deps: Any = None,
    ) -> DurableRun:
        """Resume a durable run from its stored state; a failed one tries its last failures again.

        ``bindings`` are those not stored because they are secret or not data; ``limits`` and ``approve`` replace
        the run's, ``on_inflight`` the flow's; ``purse`` pays from now
        on; questions stay open for ``approval_ttl`` seconds (None: as long as the flow's). ``deps`` are its dependencies: a run started with some needs them again (``durable/deps``), unless the flow makes them. With ``program``, the present text (in
        ``surface``), or ``overrides``, fields of tasks by the task's name (``{"review": {"model": "openai:gpt-5"}}``) or the Path of a TOML file of them,
        the run continues as a new generation with its own id: each effect with the content of a recorded one is answered
        from that record, at any position. ``bindings`` may then replace and add to the run's. The same request returns
        the same generation. ``bindings`` and lower ``limits`` for a run that has ended raise JournalError
        ``durable/argument``. Raises the errors of :meth:`start`, and JournalError ``durable/unknown-run``,
        ``durable/bindings`` and ``durable/override``.
        """
        runs = self._durable_runs()
        check_run(None, limits)
        if program is None and surface is not None:
            from agentflow.durable.repeated_calls import unusable

            raise unusable(
                run_id, f"surface={surface!r}", "it is the language of program=, which is not given", "leave it out"
            )
        spec = RunSpec(bindings=bindings, limits=limits, approve=approve, on_inflight=on_inflight, purse=purse)
        spec = replace(spec, approval_ttl=approval_ttl, deps=deps)
        if program is None and not overrides:
            return await runs.resume_here(run_id, spec)
        source = await _source_of(program, surface)
        from agentflow.durable.generations import Change

        return await runs.derive(run_id, Change(overrides=await _overrides_of(overrides)), spec=spec, source=source)

    async def plan(
        self,
        run_id: str,
        *,
        program: ProgramLike | None = None,
        overrides: Overrides | Path | None = None,
        at: str | None = None,
        bindings: Mapping[str, Any] | None = None,
        surface: Surface | None = None,
    ) -> RunPlan:
        """The effects of :meth:`resume` with these arguments, or with ``at`` of :meth:`fork`; nothing is carried out or
        stored.

        The program is replayed from the records, as far as they go. The plan says whether later effects are unknown, because
        they depend on one without a record. Raises the errors of these methods.
        """
        source = await _source_of(program, surface)
        from agentflow.durable.generations import Change

        change = Change(overrides=await _overrides_of(overrides), cut=at) if overrides or at or source else None
        return await self._durable_runs().plan(run_id, change, source=source, bindings=bindings)

    async def fork(
        self,
        run_id: str,
        at: str,
        *,
        as_run: str | None = None,
        overrides: Overrides | Path | None = None,
        bindings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
        purse: Purse | str | None = None,
        deps: Any = None,
    ) -> DurableRun:
        """Repeat a durable run from one of its effects on, as a separate run.

        ``at`` is the path of that effect: it and all effects that started after it had ended are carried out, all others
        are answered from records. ``as_run`` is the id of the fork; the default is the same for the same fork. ``purse`` pays for the fork, else that of the run. The other
        parameters and errors are those of :meth:`resume`; ``durable/path`` for a path without a record.
        """
        check_run(None, limits)
        from agentflow.durable.generations import Change

        change = Change(overrides=await _overrides_of(overrides), cut=at)
        spec = RunSpec(bindings=bindings, limits=limits, approve=approve, purse=purse, deps=deps)
        return await self._durable_runs().derive(run_id, change, spec=spec, as_run=as_run)

    def draw(self, number: int) -> contextlib.AbstractContextManager[None]:
        """A block for tasks with ``reuse=`` to mean the ``number``-th of several independent results, counted from 0. Runs that begin in
        it keep their draw; a generation or fork that does carries its tasks out anew. Raises ConfigurationError (``config/draw``)."""
        from agentflow.durable.stored_input import drawing

        return drawing(number)

    def session(self, name: str, *, wait_s: float = 0.0, keep_partial: bool = False) -> LastingSession:
        """A stored conversation, to pass to runs: ``async with flow.session("user-42") as session``.

        It is loaded from the database of the durable runs, belongs to the block exclusively, across all processes, and is
        stored after each run in it and at the end of the block. An interrupted durable run holds it until it is resumed or
        cancelled. With ``keep_partial`` turns that are stopped are kept (:attr:`Session.keep_partial`). Entering the block raises SessionBusy if the session is still in use elsewhere after ``wait_s`` seconds,
        and JournalError. Raises ConfigurationError: ``config/durable`` for a flow without ``durable=``, ``config/session``
        for an invalid name.
        """
        return self._durable_runs().sessions.session(name, wait_s, keep_partial)

    async def cancel(self, run_id: str) -> None:
        """Cancel a durable run for good, and wait until it has cleaned up: its ``finally`` forms run, as for any cancelled
        run.

        This holds for a run that works here, and for a waiting or interrupted one, which is replayed as far as its records
        go. A run is cancelled without clean-up if its program needs unstored bindings, or no longer fits
        its records. Raises the errors of :meth:`resume`.
        """
        await self._durable_runs().cancel(run_id)

    async def send(self, run_id: str, key: str, answer: Any, *, state: Mapping[str, Any] | None = None) -> None:
        """Answer a question or an approval of a run, and resume the run: the first answer counts.

        ``key`` is that of the :class:`Question`, and of the WaitStarted event. The answer must fit the question's schema. An
        approval is answered as by an approver: ``True`` or ``Approved(arguments=...)`` is a yes, as is its form in JSON,
        ``{"approved": true, "arguments": {...}}``; ``False``, ``Denied("why")`` or the reason as a text is a no, and so is
        anything else. ``state`` replaces the run's ``ctx.state``, if the sender has changed it meanwhile.
        Raises DataError: ``question/answer`` for one that does not fit, ``question/unknown`` if no question is open under
        this key, or no longer; ``state/not-data``; and as :meth:`resume`.
        """
        if self.engine.questions.answer(run_id, key, answer, state):
            return
        if self._durable is None:
            from agentflow.run.questions import no_such_question

            raise no_such_question(run_id, key, self.engine.questions.of(run_id))
        await self._durable.questions.answer(run_id, key, answer, state)

    async def say(self, run_id: str, text: str, *, task: str | None = None) -> None:
        """Say something to a run, a durable one from any process: its outermost loop of a model with tools, or the ``task`` of this
        name, reads it before its next model call. One that is about to end has one more turn for it.

        The conversation has the text as a message of the user. The event TextSaid says that it has come, TextRead that a model call
        has it. Raises DataError: ``run/ended`` for a run that has ended, ``say/task`` for a task that the flow does not have,
        ``say/text``, ``say/full``; JournalError ``durable/unknown-run``.
        """
        await self._sender().say(run_id, text, task=task)

    async def send_signal(self, run_id: str, name: str, value: Any = None) -> None:
        """Send a signal to a run, a durable one from any process: ``flow.signal(name)`` in its workflow waits for it, or will.

        ``value`` is JSON data, a dataclass or pydantic model. Signals of one name are received in the order they were sent, and are
        kept until something waits for them. Raises DataError: ``signal/value`` if the run waits for a signal of this name and
        another type, ``run/ended``, ``signal/name``, ``signal/not-data``, ``signal/too-large``, ``say/full``; JournalError
        ``durable/unknown-run``.
        """
        await self._sender().send_signal(run_id, name, value)

    async def state(self, run_id: str) -> dict[str, Any]:
        """A copy of the state of a run (``ctx.state``, :meth:`publish`): of a durable one in any process, also after its end; of any
        other while it is in progress. Raises DataError (``run/ended``), JournalError ``durable/unknown-run``."""
        return await self._sender().state(run_id)

    def _sender(self) -> FlowSender:
        from agentflow.run.sending import FlowSender  # few runs get any

        return FlowSender(self.engine, self._durable)

    async def questions(self, run_id: str) -> list[Question]:
        """The open questions and approvals of a run, and the signals that it waits for, in the order they were asked. Raises the errors
        of :meth:`resume`."""
        open_here = self.engine.questions.of(run_id)
        if open_here or self._durable is None:
            return open_here
        return await self._durable.questions.of(run_id)

    async def runs(self, limit: int = 100, *, where: str = "", scores: bool = False) -> list[RunInfo]:
        """At most ``limit`` durable runs, the last changed first; with ``where`` those that fit the filter
        (``status=failed cost>0.10 since=7d``), with ``scores`` also those. Raises as :meth:`start`, and ConfigurationError (``config/filter``)."""
        return await self._durable_runs().list(limit, where, scores=scores)

    async def find_run(self, run_id: str) -> RunInfo | None:
        """The durable run of this id, or None. Raises as :meth:`start`."""
        return await self._durable_runs().find(run_id)

    async def recorded_result(self, run_id: str) -> RunResult[Any] | None:
        """The result of an ended durable run, in any process; None for a running, waiting or unknown one.

        Raises its error if it failed, JournalError (``durable/cancelled``, ``durable/superseded``,
        ``durable/no-value`` for a value other than data), and the errors of :meth:`start`.
        """
        return await self._durable_runs().recorded_result(run_id)

    @property
    def is_durable(self) -> bool:
        """Whether the flow stores runs."""
        return self._durable is not None

    async def work(
        self,
        queues: Mapping[str, int] = DEFAULT_QUEUES,
        *,
        slots: int = 100,
        stop: asyncio.Event | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        """Carry out runs started with ``where="workers"``, at most ``slots`` at a time, until ``stop`` is set.

        ``queues`` are the queues it takes runs from; the number of a queue is the largest number of its runs that all
        workers together carry out at a time (0: any number). After the stop no run is begun, and runs that neither end nor
        wait within ``drain_s`` seconds continue elsewhere. Within the flow's ``async with``, runs of workers that died are
        taken over. Raises ConfigurationError (``config/worker``, ``config/where``, ``config/extra``), and the errors of
        :meth:`start`.
        """
        from agentflow.durable.worker import work_on

        await work_on(self._durable_runs(), queues, slots, stop or asyncio.Event(), drain_s)

    async def schedule(
        self,
        cron: str,
        program: ProgramLike | FlowCall[Any],
        bindings: Mapping[str, Any] | None = None,
        *,
        name: str,
        zone: str = "UTC",
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        labels: Mapping[str, str] | None = None,
        queue: str = "default",
        priority: int = 0,
        tenant: str = "",
        purse: str | None = None,
    ) -> Schedule:
        """Have workers run a program at certain times: ``cron`` is a cron expression, ``0 7 * * *``, in the time zone
        ``zone``.

        A run is called ``name@time``, for example ``daily@20261124T0700Z``, in UTC; it begins once, no matter how many
        workers there are, and late if there is none. Of several missed times only the first counts. A schedule of the same
        ``name`` is replaced. The other parameters are those of :meth:`start`. Raises ConfigurationError
        (``config/schedule``, ``config/where``, ``config/extra``, ``config/run-id`` for an invalid name or one that contains
        a secret), and the errors of :meth:`start`.
        """
        runs = self._durable_runs()
        check_name(f"{name}@20261124T0700Z", None, self.redactor)
        check_run(program, limits)
        spec = RunSpec(
            bindings=bindings,
            limits=limits,
            allow=None if allow is None else tuple(allow),
            labels=labels,
            priority=priority,
            tenant=tenant,
            purse=purse,
            queue=queue,
        )
        compiled, spec = await self._to_store(program, spec)
        new = await runs.new_run(compiled, replace(spec, bindings=await self.engine.given(spec.bindings or {})))
        return await runs.jobs.schedule(name, cron, zone, new)

    async def watch(self, run_id: str, after: EventId = FIRST) -> AsyncGenerator[dict[str, Any]]:
        """The events of a durable run as they are recorded, in any process that works on it, until it has ended.

        Each is the JSON data of an event; with ``after``, the ``(slice, seq)`` of one, only later events. Runs are recorded
        by flows with ``record=True``; deltas are not stored while a run works, so text arrives whole. Raises the errors of
        :meth:`resume`.
        """
        async with contextlib.aclosing(self._durable_runs().events(run_id, after)) as events:
            async for event in events:
                yield event

    @property
    def store(self) -> FlowStore:
        """The administration of stored data: removed runs, sessions, schedules, queues, workers. Raises the errors of
        :meth:`start`."""
        from agentflow.flow.flow_store import FlowStore

        return FlowStore(self._durable_runs())

    async def _to_store(
        self, program: ProgramLike | FlowCall[Any], spec: RunSpec
    ) -> tuple[Program | PythonProgram, RunSpec]:
        """A program, compiled where it is one of the language, and the spec with all of its bindings."""
        if isinstance(program, FlowCall):
            if spec.bindings is not None:
                raise no_bindings(program)
            program.bind(self._host)
            from agentflow.durable.stored_input import PythonProgram

            target, values = program.stored()
            names = None if spec.allow is None else frozenset(spec.allow)
            return PythonProgram(target, names), replace(spec, bindings=values)
        values = dict(spec.bindings or {})
        source, environment, compiler = await load_program(program), SexpEnvironment(values), self.engine.compiler
        grants = await compiler.granted(spec.allow, source, environment)
        compiled = await compiler.compiled(source, env=environment, grants=grants, limits=spec.limits)
        return compiled, replace(spec, bindings=values)

    def _durable_runs(self) -> DurableRuns:
        if self._durable is None:
            raise ConfigurationError(
                "this flow stores no runs", code="config/durable", hint="AgentFlow(durable='sqlite:///runs.db')"
            )
        return self._durable


async def _overrides_of(overrides: Overrides | Path | None) -> Overrides:
    """The overrides, read from a file if they are one. Raises JournalError (``durable/override``)."""
    if not overrides:
        return {}
    from agentflow.durable.override_files import read_overrides

    return (
        await asyncio.to_thread(read_overrides, overrides) if isinstance(overrides, Path) else read_overrides(overrides)
    )


async def _source_of(program: ProgramLike | None, surface: Surface | None) -> Source | None:
    """The text of a program that replaces that of a run, read where it is a file."""
    return None if program is None else source_in(await load_program(in_surface(program, surface)))
