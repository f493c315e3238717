"""The methods of :class:`agentflow.AgentFlow` for durable runs, and for what lasts beside them: sessions and questions."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

from typing_extensions import TypedDict, Unpack

from agentflow.arguments import check_run, load_source
from agentflow.core.call.host_code import executing_call
from agentflow.core.data.errors import ConfigurationError, JournalError
from agentflow.core.data.event_log import LogBounds
from agentflow.core.data.limits import Limits
from agentflow.core.data.reuse import seconds_of
from agentflow.core.data.session import Session
from agentflow.core.data.source import Surface
from agentflow.core.events.journal import OnInflight, SessionInfo
from agentflow.core.events.questions import Question
from agentflow.core.ports.store_ports import ResultStore
from agentflow.flow.program_files import ProgramLike, in_surface, load_program
from agentflow.flow.python import FlowCall, no_bindings
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.redact import Redactor
from agentflow.run.asking import Approver
from agentflow.run.engine import Engine
from agentflow.run.handle import RunResult
from agentflow.run.questions import no_such_question
from agentflow.run.tenant import Tenant

if TYPE_CHECKING:  # a flow without durable= loads none of it
    from agentflow.durable.conversations import LastingSession
    from agentflow.durable.generations import Overrides
    from agentflow.durable.handle import DurableRun, PastRun, RunInfo
    from agentflow.durable.plan import RunPlan
    from agentflow.durable.python_program import PythonProgram
    from agentflow.durable.runs import DurableRuns

R = TypeVar("R")


class StartOptions(TypedDict, total=False):
    """The options of ``flow.start``."""

    run_id: str | None
    limits: Limits | None
    allow: Iterable[str] | None
    approve: Approver | None
    labels: Mapping[str, str] | None
    session: Session | None
    priority: int
    tenant: Tenant | str | None
    where: Where
    queue: str
    surface: Surface | None


Where: TypeAlias = Literal["here", "workers"]
"""Who does a run: the process that starts it, or whatever worker gets it."""


class DurableMethods:
    """Starts, resumes and answers durable runs. A base of :class:`agentflow.AgentFlow`, which builds what the methods use."""

    engine: Engine
    redactor: Redactor
    database: str | None
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
        *,
        run_id: str | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        labels: Mapping[str, str] | None = None,
        session: Session | None = None,
        priority: int = 0,
        tenant: Tenant | str | None = None,
        where: Where = "here",
        queue: str = "default",
        surface: Surface | None = None,
    ) -> DurableRun[Any]:
        """Start a durable run: what its tasks and tools gave is stored, and never paid for again.

        With ``where="workers"`` a worker does it (:meth:`work`, or the command ``agentflow worker``): one of those that take
        runs of ``queue``; of several that wait the one of highest ``priority`` goes first, and of equal ones that of the
        ``tenant``, a name, who has the fewest.

        ``flow.start(audit(paths), run_id="audit-1")`` starts a Python workflow, which is stored by its module and name.
        Started again under the same ``run_id``, in this process or another, a run that was interrupted goes on, and so does
        one that ended at a limit when ``limits`` allow more; any other that has ended gives its recorded end. What an existing
        run cannot use (other ``labels``, lower ``limits``, ...) is JournalError ``durable/argument``. The other parameters are as for :meth:`run`; the run has ``session`` until
        it ends. Raises ConfigurationError
        (``config/durable``) for a flow without ``durable=``, JournalError when the run cannot be stored, belongs to a
        living process, or is one of another program; SessionBusy; and what :meth:`compile` raises.
        """
        runs = self._durable_runs()
        check_run(program, limits, session)
        if where not in ("here", "workers") or not queue:
            raise ConfigurationError(
                f"where={where!r}, queue={queue!r}: nobody does such runs",
                code="config/where",
                hint="where='here' is this process, where='workers' the workers of queue='default'",
            )
        if executing_call() is not None:
            raise JournalError(
                "a durable run cannot be started inside a call of another run",
                code="durable/nested",
                hint="use flow.run there: what it does is part of the run around it, and as durable as that",
            )
        compiled, values = await self._to_store(in_surface(program, surface), bindings, allow, limits)
        return await runs.start(
            compiled,
            values,
            run_id=run_id,
            limits=limits,
            allow=allow,
            approve=approve,
            labels=labels,
            session=session,
            priority=priority,
            tenant=tenant,
            queue=queue if where == "workers" else None,
        )

    async def resume(
        self,
        run_id: str,
        *,
        program: ProgramLike | None = None,
        overrides: Overrides | None = None,
        bindings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
        on_inflight: OnInflight | None = None,
        tenant: Tenant | None = None,
        surface: Surface | None = None,
    ) -> DurableRun:
        """Resume a durable run by what is stored of it; a failed one tries its last failures again.

        ``bindings`` are those that are not stored, because they are secret or no data; ``limits`` and ``approve`` replace
        the run's, ``on_inflight`` the flow's; ``tenant`` is whom it is done for. With ``program``, the text as it is now (in ``surface``), or ``overrides``, fields of tasks by the task's name
        (``{"review": {"model": "openai:gpt-5"}}``), the run goes on as a new generation with an id of its own: each effect
        that asks for what a recorded one asked for is answered from that record, wherever it stands. ``bindings`` may
        then replace and add to the run's. Asked for again it is the same generation. ``bindings`` and lower ``limits`` of a
        run that has ended are JournalError ``durable/argument``. Raises as :meth:`start`, and
        JournalError ``durable/unknown-run``, ``durable/bindings`` and ``durable/override``.
        """
        runs = self._durable_runs()
        check_run(None, limits)
        if program is None and surface is not None:
            from agentflow.durable.repeated import unusable

            raise unusable(
                run_id, f"surface={surface!r}", "it is the language of program=, which is not given", "leave it out"
            )
        if program is None and not overrides:
            return await runs.resume(
                run_id, bindings=bindings, limits=limits, approve=approve, on_inflight=on_inflight, tenant=tenant
            )
        source = None if program is None else await load_source(in_surface(program, surface))
        from agentflow.durable.generations import Change

        change = Change(overrides=overrides or {})
        return await runs.derive(
            run_id,
            change,
            source=source,
            bindings=bindings,
            limits=limits,
            approve=approve,
            on_inflight=on_inflight,
            tenant=tenant,
        )

    async def plan(
        self,
        run_id: str,
        *,
        program: ProgramLike | None = None,
        overrides: Overrides | None = None,
        at: str | None = None,
        bindings: Mapping[str, Any] | None = None,
        surface: Surface | None = None,
    ) -> RunPlan:
        """What :meth:`resume` with these arguments, or with ``at`` :meth:`fork`, would do; nothing is carried out or stored.

        The program is replayed from the records, as far as they go. What follows from an effect that has none cannot be
        known, and the plan says so. Raises as these do.
        """
        source = None if program is None else await load_source(in_surface(program, surface))
        from agentflow.durable.generations import Change

        change = Change(overrides=overrides or {}, cut=at) if overrides or at or source else None
        return await self._durable_runs().plan(run_id, change, source=source, bindings=bindings)

    async def remove_runs(
        self,
        older_than: str | None = None,
        *,
        keep: int | None = None,
        megabytes: float | None = None,
        forget: str | None = None,
    ) -> int:
        """Remove durable runs that ended longer ago than ``older_than`` (``30d``), and results for reuse that are older.

        Of what is left the oldest go until there are at most ``keep`` runs, and all that is stored takes at most so many
        ``megabytes``. None that waits, works or is to go on is removed, nor one whose records such a run may need. Gives the
        number of runs. Of each that goes a summary is kept (:meth:`past_runs`), until it ended longer ago than ``forget``. Raises
        ValueError for what is no length of time, and as :meth:`start`.
        """
        bounds = None
        if keep is not None or megabytes is not None:
            size = sys.maxsize if megabytes is None else round(megabytes * 1_000_000)
            bounds = LogBounds(bytes=size, runs=sys.maxsize if keep is None else keep)
        before, past = [None if each is None else seconds_of(each) for each in (older_than, forget)]
        return await self._durable_runs().gc(before, bounds, past)

    async def past_runs(self, limit: int = 100) -> list[PastRun]:
        """What is kept of the durable runs that were removed, the last changed first: what they were and what they cost.

        Their ids are free for other runs. Raises as :meth:`start`.
        """
        return await self._durable_runs().past(limit)

    async def fork(
        self,
        run_id: str,
        at: str,
        *,
        as_run: str | None = None,
        overrides: Overrides | None = None,
        bindings: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        approve: Approver | None = None,
    ) -> DurableRun:
        """Run a durable run again from one of its effects on, beside it, as another run.

        ``at`` is the path of that effect: it and what started after it had ended are carried out, everything else is
        answered from records. ``as_run`` is the id of the fork, which else gets one that is the same for the same fork.
        The other parameters and errors are those of :meth:`resume`; ``durable/path`` for a path without a record.
        """
        check_run(None, limits)
        from agentflow.durable.generations import Change

        change = Change(overrides=overrides or {}, cut=at)
        return await self._durable_runs().derive(
            run_id, change, as_run=as_run, bindings=bindings, limits=limits, approve=approve
        )

    def session(self, name: str, *, wait_s: float = 0.0) -> LastingSession:
        """A conversation that lasts: ``async with flow.session("user-42") as session``, to be passed to runs.

        It is loaded from the database of the durable runs, belongs to the block alone, in all processes, and is stored
        after each run in it and at the end of the block. A durable run that was interrupted keeps it, until it is gone on
        with or cancelled. Entering the block raises SessionBusy when somebody else has had the session for ``wait_s``
        seconds, and JournalError. Raises ConfigurationError: ``config/durable`` for a flow without ``durable=``,
        ``config/session`` for what is no name.
        """
        return self._durable_runs().sessions.session(name, wait_s)

    async def sessions(self, limit: int = 100) -> list[SessionInfo]:
        """The conversations that last, the last changed first. Raises as :meth:`start`."""
        return await self._durable_runs().sessions.list(limit)

    async def delete_session(self, name: str, *, wait_s: float = 0.0) -> bool:
        """Delete a conversation that lasts, with all that was said in it. False if there is none of this name.

        Raises SessionBusy when somebody has had it for ``wait_s`` seconds, or a run that has not ended holds it; the rest as
        :meth:`session`.
        """
        return await self._durable_runs().sessions.remove(name, wait_s)

    async def cancel(self, run_id: str) -> None:
        """Cancel a durable run for good, and wait until it has cleaned up: its ``finally`` forms run, as for any run that is cancelled.

        That goes for a run that works here, and for one that waits or was interrupted: it is replayed as far as its records
        go. One whose program needs bindings that are not stored, or does not fit its records any more, is cancelled as it
        is. Raises as :meth:`resume`.
        """
        await self._durable_runs().cancel(run_id)

    async def send(self, run_id: str, key: str, answer: Any) -> None:
        """Answer a question or an approval of a run, which it then resumes: the first answer counts.

        ``key`` is that of the :class:`Question`, and of the WaitStarted event. The answer must fit the question's schema. An
        approval is answered as by an approver: ``True`` or ``Approved(arguments=...)`` is a yes, as is its form in JSON,
        ``{"approved": true, "arguments": {...}}``; ``False``, ``Denied("why")`` or the reason as a text is a no, and so is
        anything else. Raises DataError: ``question/answer`` for one that does not fit, ``question/unknown``
        when nothing is open under this key, or no more; and as :meth:`resume`.
        """
        if self.engine.questions.answer(run_id, key, answer):
            return
        if self._durable is None:
            raise no_such_question(run_id, key, self.engine.questions.of(run_id))
        await self._durable.questions.answer(run_id, key, answer)

    async def questions(self, run_id: str) -> list[Question]:
        """The open questions and approvals of a run, in the order in which they were asked. Raises as :meth:`resume`."""
        open_here = self.engine.questions.of(run_id)
        if open_here or self._durable is None:
            return open_here
        return await self._durable.questions.of(run_id)

    async def runs(self, limit: int = 100) -> list[RunInfo]:
        """The durable runs, the last changed first. Raises as :meth:`start`."""
        return await self._durable_runs().list(limit)

    async def find_run(self, run_id: str) -> RunInfo | None:
        """The durable run of this id, or None. Raises as :meth:`start`."""
        return await self._durable_runs().find(run_id)

    async def recorded_result(self, run_id: str) -> RunResult[Any] | None:
        """The result of a durable run that has ended, in whatever process; None for one that goes on, waits or is not known.

        Raises the error with which it failed, JournalError (``durable/cancelled``, ``durable/superseded``, ``durable/no-value``
        for a value that is no data), and as :meth:`start`.
        """
        return await self._durable_runs().recorded_result(run_id)

    async def check_store(self, within_s: float) -> None:
        """Ask the store of durable runs, if there is one, whether it can be written to, and wait for at most ``within_s`` seconds.

        Raises JournalError: ``durable/database`` for one that cannot, ``durable/other-loop`` where runs are at work on another loop.
        """
        if self._durable is not None:
            await self._durable.check(within_s)

    @property
    def is_durable(self) -> bool:
        """Whether the flow stores runs."""
        return self._durable is not None

    @property
    def stored_results(self) -> ResultStore | None:
        """The results that are stored beside durable runs; None for a flow that stores no runs."""
        return None if self._durable is None else self._durable.results

    async def _to_store(
        self,
        program: ProgramLike | FlowCall[Any],
        bindings: Mapping[str, Any] | None,
        allow: Iterable[str] | None,
        limits: Limits | None,
    ) -> tuple[Program | PythonProgram, dict[str, Any]]:
        """A program, compiled where it is one of the language, and its bindings."""
        if isinstance(program, FlowCall):
            if bindings is not None:
                raise no_bindings(program)
            from agentflow.durable.python_program import PythonProgram

            target, values = program.stored()
            return PythonProgram(target, None if allow is None else frozenset(allow)), values
        values = dict(bindings or {})
        source = await load_program(program)
        environment = SexpEnvironment(values)
        grants = await self.engine.compiler.granted(allow, source, environment)
        return await self.engine.compiler.compiled(source, env=environment, grants=grants, limits=limits), values

    def _durable_runs(self) -> DurableRuns:
        if self._durable is None:
            raise ConfigurationError(
                "this flow stores no runs", code="config/durable", hint="AgentFlow(durable='sqlite:///runs.db')"
            )
        return self._durable
