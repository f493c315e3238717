"""The methods of :class:`agentflow.AgentFlow` that compile and run programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar, overload

from typing_extensions import TypedDict, Unpack

from agentflow.arguments import check_run
from agentflow.core.call.call import CallContext
from agentflow.core.call.host_code import executing, executing_call, executing_line
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.labels import NO_SOURCES
from agentflow.core.data.limits import Limits
from agentflow.core.data.names import narrowed
from agentflow.core.data.session import Session
from agentflow.core.data.source import Surface
from agentflow.flow.line import in_turn
from agentflow.flow.program_files import ProgramLike, in_surface, load_program, source_of
from agentflow.flow.python import FlowCall, FlowWork, python_work
from agentflow.lang.allowance import Allowance
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program, as_source
from agentflow.run.asking import Approver
from agentflow.run.bounds.estimator import Estimator
from agentflow.run.engine import Engine
from agentflow.run.handle import OwnReader, Recorded, RunResult, RunStream
from agentflow.run.strand.compiling import beside_the_loop
from agentflow.run.tenant import Tenant

if TYPE_CHECKING:
    from agentflow.run.bounds.estimate import Bounds
    from agentflow.spec.handler import BaseHandler

R = TypeVar("R")


class RunOptions(TypedDict, total=False):
    """The options of ``flow.run`` and ``flow.stream``."""

    bindings: Mapping[str, Any] | None
    env: SexpEnvironment | None
    session: Session | None
    limits: Limits | None
    allow: Iterable[str] | None
    approve: Approver | None
    run_id: str | None
    labels: Mapping[str, str] | None
    max_cost: float | None
    max_tokens: int | None
    priority: int
    tenant: Tenant | None
    surface: Surface | None


class ProgramMethods:
    """Compiles and runs programs. A base of :class:`agentflow.AgentFlow`, which builds what the methods use."""

    limits: Limits
    engine: Engine
    estimator: Estimator
    handler: cached_property[BaseHandler]
    _records: Recorded | None

    @property
    def records(self) -> Recorded | None:
        """Where the events of runs are kept; None without ``record=``."""
        return self._records

    def compile(
        self,
        program: ProgramLike,
        *,
        bindings: Mapping[str, Any] | None = None,
        allow: Iterable[str] | None = None,
        surface: Surface | None = None,
    ) -> Program:
        """Check and compile a program (text, a Path to a file, a Source). The result is cached and reusable.

        This is start-up code: it works on the spot, some milliseconds for a thousand characters, and longer for macros.
        :meth:`run` and :meth:`stream` compile what is long beside the event loop.

        ``bindings`` are the names it will find bound, ``allow`` the only tasks and tools it may name; ``surface`` is the
        language of a text (``"sexp"`` or ``"python"``). Raises SexpSyntaxError and SexpEvaluationError with the span.
        """
        return self.engine.compiler.compile(
            source_of(in_surface(program, surface)),
            bindings=bindings or (),
            grants=None if allow is None else frozenset(allow),
        )

    async def bounds(
        self,
        program: ProgramLike,
        *,
        bindings: Mapping[str, Any] | None = None,
        allow: Iterable[str] | None = None,
        surface: Surface | None = None,
        limits: Limits | None = None,
    ) -> Bounds:
        """The most that a program may do and cost, worked out from its text: nothing of it runs.

        ``bindings`` are values that it is given; the lengths of those that are not given, and of lists in models' answers,
        are sizes by name (``len(files)``, ``len(plan.steps)``), and :meth:`Bounds.at` fills them in. ``allow`` are the only
        tasks and tools it may name, ``surface`` is the language of a text (``"sexp"`` or ``"python"``), ``limits`` are those of
        the run (None: the flow's). What a tool of the host does itself is not counted; attempts that a provider retries
        are one call. Raises SexpSyntaxError and SexpEvaluationError with the span, ConfigurationError for a policy with a rule that
        would never apply.
        """
        check_run(program, limits)
        loaded = await load_program(in_surface(program, surface))
        source = loaded.source if isinstance(loaded, Program) else as_source(loaded)
        own = loaded.allow if isinstance(loaded, Program) else None
        granted = own if allow is None else frozenset(allow)
        estimator = await self.estimator.ready()
        names, in_force = self.engine.names(), limits or self.limits

        def work(allowance: Allowance) -> Bounds:
            return estimator.bounds(
                source, names, bindings=bindings, allow=granted, allowance=allowance, limits=in_force
            )

        bounds = await beside_the_loop(source, work, self.limits, at_once=False)
        unmet = await self.engine.unmet_rules(source, bindings or {})
        return replace(bounds, notes=(*bounds.notes, *unmet)) if unmet else bounds

    @overload
    async def run(self, program: FlowCall[R], **options: Unpack[RunOptions]) -> RunResult[R]: ...
    @overload
    async def run(self, program: ProgramLike, **options: Unpack[RunOptions]) -> RunResult[Any]: ...
    async def run(
        self,
        program: ProgramLike | FlowCall[Any],
        *,
        bindings: Mapping[str, Any] | None = None,
        env: SexpEnvironment | None = None,
        session: Session | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        priority: int = 0,
        tenant: Tenant | None = None,
        surface: Surface | None = None,
    ) -> RunResult[Any]:
        """Run a program, or a call of a Python workflow or task as ``flow.run(audit(paths))``, to its end.

        ``bindings`` are variables it finds; ``env`` an environment whose variables and tasks it shares; ``session`` a
        conversation to go on with; ``allow`` runs it as an untrusted program that may call only the tasks and tools
        named; ``limits`` and ``approve`` replace the flow's for this run. ``run_id`` names the run, which else gets an id
        of its own, and ``labels`` say what it belongs to (a user, a thread); its events carry both. ``max_cost`` (USD) and
        ``max_tokens`` lower the limits in force, and never raise them; where
        calls wait, for rates or connections, that of the highest ``priority`` (-1000 to 1000) goes first; ``tenant`` is whom
        the run is done for, who may pay for others too; ``surface`` the language of a text (``"sexp"``, which is the default, or
        ``"python"``; a file's name says it). Called from inside a
        tool, the program runs within that tool's run, under its name: ``limits`` can only narrow that run's, and the
        result's usage is the program's own. Raises the program's error: SexpSyntaxError, SexpEvaluationError, TaskError,
        LimitExceeded, SessionBusy; ConfigurationError for a ``run_id`` or ``labels`` that cannot be, and for names in
        ``allow`` that mean nothing.
        """
        if limits is not None or session is not None:
            check_run(program, limits, session)
        if max_cost is not None or max_tokens is not None:
            limits = self._lowered(limits, max_cost, max_tokens)
        with await in_turn(executing_line(), "flow.run"):
            return await self._main(
                in_surface(program, surface),
                bindings,
                env,
                session,
                limits,
                allow,
                approve,
                run_id,
                labels,
                None,
                priority,
                tenant,
            )

    @overload
    def stream(self, program: FlowCall[R], **options: Unpack[RunOptions]) -> RunStream[R]: ...
    @overload
    def stream(self, program: ProgramLike, **options: Unpack[RunOptions]) -> RunStream[Any]: ...
    def stream(
        self,
        program: ProgramLike | FlowCall[Any],
        *,
        bindings: Mapping[str, Any] | None = None,
        env: SexpEnvironment | None = None,
        session: Session | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        max_cost: float | None = None,
        max_tokens: int | None = None,
        priority: int = 0,
        tenant: Tenant | None = None,
        surface: Surface | None = None,
    ) -> RunStream[Any]:
        """Run a program and watch it: ``async with flow.stream(text) as run: async for event in run: ...``.

        Parameters as for :meth:`run`. ``await run.value()`` gives the value or raises the program's error.
        """
        check_run(program, limits, session)
        if max_cost is not None or max_tokens is not None:
            limits = self._lowered(limits, max_cost, max_tokens)
        return RunStream(
            lambda own: self._main(
                in_surface(program, surface),
                bindings,
                env,
                session,
                limits,
                allow,
                approve,
                run_id,
                labels,
                own,
                priority,
                tenant,
            ),
            lambda: in_turn(executing_line(), "flow.stream"),
        )

    async def eval(self, program: ProgramLike, **options: Any) -> Any:
        """The value of a program; :meth:`run` without the rest of its result."""
        return (await self.run(program, **options)).value

    async def define(self, program: ProgramLike, bindings: Mapping[str, Any] | None = None) -> list[str]:
        """Run a program with the host's authority and make the tasks it defines the flow's: all, or none when it fails.

        Every later run finds them. Gives their names. Raises the program's error.
        """
        from agentflow.spec.joining import in_run

        source = await load_program(program)
        async with in_run(self.engine, "define", self.handler.session) as call:
            return await self.engine.define(source, bindings, call)

    async def run_alone(self, call: FlowCall[R]) -> R:
        """The value of a call that is a run of its own."""
        return (await self._main(call)).value

    async def call(self, function: Any, *arguments: Any) -> Any:
        """Call a Closure (or Python callable) from the host; inside a tool, within that tool's run."""
        outer, line = executing()
        if outer is not None and outer.run.services is self.engine:
            with await in_turn(line, "flow.call"):
                outer = executing_call() or outer
                return await outer.call(function, *arguments)
        from agentflow.spec.joining import in_run

        async with in_run(self.engine, "call", self.handler.session) as call:
            return await call.call(function, *arguments)

    def _lowered(self, limits: Limits | None, usd: float | None, tokens: int | None) -> Limits | None:
        """``limits``, or those in force where this is called, with no more money and tokens than this."""
        outer = executing_call()
        return (limits or (self.limits if outer is None else outer.run.limits)).lowered(usd, tokens)

    async def _main(
        self,
        program: ProgramLike | FlowCall[Any],
        bindings: Mapping[str, Any] | None = None,
        env: SexpEnvironment | None = None,
        session: Session | None = None,
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        approve: Approver | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        own: OwnReader | None = None,
        priority: int = 0,
        tenant: Tenant | None = None,
    ) -> RunResult[Any]:
        outer = executing_call()
        if outer is not None and limits is not None:
            limits = limits.within(outer.run.limits)
        if isinstance(program, FlowCall):
            session = _session_of(program, session)
            work = python_work(program, bindings, env)
            grants = None if allow is None else frozenset(allow)
            if outer is None:
                await self.engine.turn()
            else:
                grants = narrowed(outer.grants, grants)
        else:
            work, grants = await self._compiled(program, bindings, env, limits, allow, outer)
        if outer is not None:
            path = outer.next_path("program", work.digest, bindings or {})
            async with nullcontext(Session()) if session is None else session.used() as copy:
                part, call = self.engine.join(
                    outer,
                    path,
                    session=copy,
                    limits=limits,
                    grants=grants,
                    own=own,
                    approver=approve,
                    priority=priority,
                )
                if own is not None:
                    own.run = part
                async with self.engine.called_back(outer, call), part.clock():
                    value = await work.evaluate(call)
            return RunResult(
                value,
                part.usage,
                part.cost_usd,
                part.run_id,
                part.budget.steps_used,
                sources=NO_SOURCES if call.reading is None else call.reading.sources,
            )
        async with self.engine.open(
            work.name,
            session=session,
            program=work.digest,
            limits=limits,
            grants=grants,
            own=own,
            approver=approve,
            run_id=run_id,
            labels=labels,
            priority=priority,
            tenant=tenant,
        ) as (run, call):
            if own is not None:
                own.run = run
            if work.program is not None and self.engine.shows_bounds:
                await self.engine.admission.announce(work.program, bindings, grants, call)
            value = await work.evaluate(call)
        return RunResult(
            value,
            run.usage,
            run.cost_usd,
            run.run_id,
            run.budget.steps_used,
            self._records,
            sources=NO_SOURCES if call.reading is None else call.reading.sources,
        )

    async def _compiled(
        self,
        program: ProgramLike,
        bindings: Mapping[str, Any] | None,
        env: SexpEnvironment | None,
        limits: Limits | None,
        allow: Iterable[str] | None,
        outer: CallContext | None,
    ) -> tuple[FlowWork, frozenset[str] | None]:
        """A program ready to run, and what it is granted."""
        if outer is None:  # compiling is most of what it takes to begin
            await self.engine.turn()
        source = await load_program(program)
        bindings = await self.engine.given(bindings) if bindings else None
        if env is not None:
            environment = env.with_bindings(bindings) if bindings else env
        else:
            environment = SexpEnvironment(dict(bindings or {}))
        defined = outer.definitions if outer is not None else None
        grants = None if allow is None else await self.engine.compiler.granted(allow, source, environment, defined)
        if outer is not None:
            grants = narrowed(outer.grants, outer.held if allow is None else grants)
        compiled = await self.engine.compiler.compiled(
            source, env=environment, grants=grants, limits=limits, defined=defined
        )
        evaluate = partial(self.engine.evaluate, compiled, environment, fitted=True)
        return FlowWork(compiled.source.name, compiled.source.digest, evaluate, compiled), grants


def _session_of(call: FlowCall[Any], session: Session | None) -> Session | None:
    """The conversation of a run that is one call, which may name it itself. Raises ConfigurationError where both do."""
    if session is not None and call.session is not None:
        call.close()
        raise ConfigurationError(
            f"{call.label} goes on with a session of its own, and its run is given another one",
            code="config/session",
            hint="pass session= once",
        )
    return session if call.session is None else call.session
