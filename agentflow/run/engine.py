"""The engine: opens runs, and runs programs, subtasks and procedures in them. It is built after the components it calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from agentflow.core.call.approval import Approver
from agentflow.core.call.call import CallContext, EventScope, JournalPort
from agentflow.core.call.provenance import PolicyInForce, Provenance, left_open, taken_in
from agentflow.core.call.reading import Reading, following
from agentflow.core.data.errors import AgentflowError, ConfigurationError, LimitExceeded, clip
from agentflow.core.data.known_names import CompiledTask, Definitions, Template
from agentflow.core.data.labels import NO_SOURCES, Following, box, stripped
from agentflow.core.data.limits import Limits
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.data.values import plain_result
from agentflow.core.data.walk import LEAVES, in_slices
from agentflow.core.events.events import RunStarted
from agentflow.core.events.questions import Answerer
from agentflow.core.ports.memory_ports import ContextFinder
from agentflow.core.ports.ports import ModelRouter, SolverPort, TemplatePort, ToolPort, WorkflowPort
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.closure import Closure
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.program import Program, ProgramCache, as_source, compile_program, describer
from agentflow.lang.support import apply
from agentflow.lib.event_loop import StartThrottle, running_loop
from agentflow.lib.redact import Redactor
from agentflow.observe.stream import EventRedactor, Fanout, Observer, Subscriber, pacers_of
from agentflow.run.admission import Admission
from agentflow.run.bounds.estimator import LateEstimator
from agentflow.run.run import News, OpenRun, Run, RunPart, check_name, check_priority
from agentflow.run.run_spec import PLAIN, RunSpec
from agentflow.run.strand.budget import Budget, CallBack, MemoryAccounts, budget_of
from agentflow.run.strand.hops import on_fresh_task
from agentflow.run.strand.operations import OPERATIONS
from agentflow.run.strand.perform import EffectRunner, Paced
from agentflow.run.strand.procedure_calls import located_error
from agentflow.run.strand.program_compiler import ProgramCompiler, beside_the_loop
from agentflow.run.strand.recovery import run_of_tool
from agentflow.run.strand.strand import EffectHandler, FlowNames, Publish, Strand, view
from agentflow.tasks.template import request_from_arguments

if TYPE_CHECKING:
    from agentflow.run.dependencies import Dependencies
    from agentflow.run.policy.guard import RulesMet
    from agentflow.run.purses import Purse, Purses
    from agentflow.run.questions import LocalQuestions


def run_program(
    program: Program,
    env: SexpEnvironment,
    *,
    performer: EffectHandler,
    call: CallContext,
    budget: Budget,
    programs: ProgramCache | None = None,
    publish: Publish | None = None,
    fitted: bool = False,
) -> Coroutine[Any, Any, Any]:
    """Run a program in ``env`` at ``call``; the returned coroutine gives its last value.

    A program is compiled again for ``env`` if its free names have changed since it was compiled, unless the caller says that
    it is ``fitted``. ``publish`` is called with each task the program defines. Raises SexpEvaluationError, TaskError and
    LimitExceeded, with their spans and the program calls they went through.
    """
    names = None if fitted else NamesInForce(performer.names, env, view(env, None, call.definitions))
    unfit = names is not None and not program.fits(describer(names))
    other = program.labelled != (call.reading is not None and call.reading.guard.following)
    if unfit or other or (call.grants is not None and program.allow != call.grants):
        return _run_refitted(program, env, performer, call, budget, programs, publish)
    if call.reading is None:  # as strand_at does: here and above, runs without a policy save a call
        return Strand(call, budget, performer, OPERATIONS, programs=programs, env=env, publish=publish).main(
            program, env
        )
    return strand_at(call, budget, performer, programs=programs, env=env, publish=publish).main(program, env)


def strand_at(
    call: CallContext,
    budget: Budget,
    performer: EffectHandler,
    *,
    programs: ProgramCache | None = None,
    env: SexpEnvironment | None = None,
    publish: Publish | None = None,
) -> Strand:
    """A strand for a program at ``call``, which in a run with a policy follows where values came from."""
    if call.reading is None:
        return Strand(call, budget, performer, OPERATIONS, programs=programs, env=env, publish=publish)
    from agentflow.run.policy.strict_operations import followed_strand

    return followed_strand(call, budget, performer, programs=programs, env=env, publish=publish)


def host_strand_at(call: CallContext, budget: Budget, performer: EffectHandler) -> Strand:
    """A strand for code of the host at ``call``, as :func:`strand_at`."""
    if call.reading is None:
        return Strand(call, budget, performer, OPERATIONS)
    from agentflow.run.policy.strict_operations import followed_host_strand

    return followed_host_strand(call, budget, performer)


async def _run_refitted(
    program: Program,
    env: SexpEnvironment,
    performer: EffectHandler,
    call: CallContext,
    budget: Budget,
    programs: ProgramCache | None,
    publish: Publish | None,
) -> Any:
    """Compile a program again for ``env`` and the call's authority, and run it."""
    names = NamesInForce(performer.names, env, view(env, None, call.definitions))

    def compiling(allowance: StepAllowance) -> Program:
        return compile_program(
            program.source,
            names=names,
            limits=program.limits,
            allow=call.grants,
            cache=programs,
            allowance=allowance,
            labelled=following(call.reading),
        )

    fitted = await beside_the_loop(program, compiling, program.limits, budget)
    strand = strand_at(call, budget, performer, programs=programs, env=env, publish=publish)
    return await strand.main(fitted, env)


async def call_closure(
    function: Any,
    arguments: Sequence[Any],
    *,
    performer: EffectHandler,
    call: CallContext,
    budget: Budget,
    programs: ProgramCache | None = None,
) -> Any:
    """Call a procedure value from the host. Its effects are numbered below ``call``, since a host may call several at once."""
    inner = call.for_text(call.next_path("call", function, arguments))
    env = function.env if isinstance(function, Closure) else None
    strand = strand_at(inner, budget, performer, programs=programs, env=env)
    if isinstance(function, Closure):
        call.program_loaded(function.info.source, function.info.source.surface)
    try:
        return await apply(strand, strand.host_procedure(function), arguments, strand.first_depth)
    except Exception as error:  # noqa: BLE001 - the outermost frame of the program: foreign exceptions get a span
        final = located_error(error)
        if isinstance(final, LimitExceeded):
            budget.meet(final)
        raise final from final.__cause__
    finally:
        strand.end()


class ProgramCheck:
    """Checks program texts against the existing tasks and tools, for a library of workflows."""

    def __init__(self, tasks: TemplatePort, tools: ToolPort, limits: Limits) -> None:
        self._names = FlowNames(tasks, tools)
        self._limits = limits

    async def check(
        self, program: str | Source, allow: frozenset[str], names: frozenset[str]
    ) -> Sequence[AgentflowError]:
        """Everything wrong with a program that may call the names in ``allow`` only; empty when it may run."""
        here, source = NamesInForce(self._names), as_source(program)

        def check(allowance: StepAllowance) -> Sequence[AgentflowError]:
            from agentflow.lang.diagnosis import check_program  # most flows check no program before they run it

            return check_program(
                source, names=here, limits=self._limits, allow=allow, env_names=names, allowance=allowance
            )

        return await beside_the_loop(source, check, self._limits)

    def declaration(self, source: Source, *, undecorated: bool = False) -> Mapping[str, Any] | None:
        """The declaration of a Python text by ``@workflow`` above ``main``, or with ``undecorated`` by ``main`` alone; None
        for every other text."""
        if source.surface != "python":
            return None
        from agentflow.lang.python.compiling import declared  # Most processes never see such a text.

        return declared(source, self._limits, undecorated=undecorated)


class PythonTarget(Protocol):
    """A function that can be the program of a run.

    ``reference`` is its module and qualified name, ``digest`` that of its file's text."""

    @property
    def name(self) -> str: ...
    @property
    def reference(self) -> str: ...
    @property
    def digest(self) -> str: ...
    async def carry_out(self, bindings: Mapping[str, Any], call: CallContext) -> Any:
        """Run it with ``bindings``, its stored arguments by name, at the outermost call of a run."""
        ...

    def store(self, value: Any) -> Any:
        """Its return value as data to be stored. Raises NotData."""
        ...

    def restore(self, value: Any) -> Any:
        """Its return value, from the stored data. Raises JournalError."""
        ...


class Engine:
    """Opens runs and serves the code inside them; implements :class:`~agentflow.run.run.RunServices`.

    Parameters: ``tasks``, ``tools`` and ``memory`` carry out the effects of programs; ``solver`` and ``workflows`` carry
    out ``solve`` and ``call-workflow``; ``limits`` are the defaults of a run; ``approver`` answers approval requests,
    ``answerer`` the questions of programs; those of other than durable runs stay open for ``approval_ttl`` seconds;
    ``redactor`` removes secrets from events and errors. ``observers`` get the events of every run. Once ``closed`` it
    opens no run. ``news`` returns the codes and texts of warnings for the next run. ``functions`` are the Python functions
    that may be programs of durable runs, by reference. ``estimator`` bounds a written program before it runs;
    ``effects`` carries out effects in another way than with those ports; ``in_force`` has the policy of where values may go; it names files beneath
    ``roots`` relative to them; ``dependencies`` makes those of runs without their own. ``compiler`` compiles programs, ``admission``
    judges those that models wrote. ``around_tool`` and ``around_model`` are the middleware of every run.
    """

    def __init__(
        self,
        tasks: TemplatePort,
        tools: ToolPort,
        memory: ContextFinder | None = None,
        *,
        solver: SolverPort | None = None,
        workflows: WorkflowPort | None = None,
        limits: Limits | None = None,
        at_limit: Mapping[str, Any] | None = None,
        approver: Approver | None = None,
        answerer: Answerer | None = None,
        approval_ttl: float = 0.0,
        redactor: Redactor | None = None,
        estimator: LateEstimator | None = None,
        effects: EffectRunner | None = None,
        in_force: PolicyInForce | None = None,
        roots: Sequence[str] = (),
        dependencies: Dependencies | None = None,
        around_tool: tuple[Any, ...] = (),
        around_model: tuple[Any, ...] = (),
    ) -> None:
        self.tasks = tasks
        self.around_tool = around_tool
        self.around_model = around_model
        self.tools = tools
        self.limits = limits or Limits()
        self.at_limit = at_limit
        self.observers: list[Observer] = []
        self.shows_bounds = False
        """Whether an observer wants the bounds of programs: it has a true attribute ``bounds``."""
        self.effects = effects or EffectRunner(
            tasks=tasks,
            tools=tools,
            memory=memory,
            request_from_arguments=request_from_arguments,
            solver=solver,
            workflows=workflows,
            redactor=redactor,
        )
        self._solver = solver
        self.roots = roots
        self._workflows = workflows
        self._in_force = in_force or PolicyInForce()
        self.compiler = ProgramCompiler(self.effects, self.limits, self._in_force)
        self.admission = Admission(self.compiler, tools, estimator)
        self._approver = self.approve = approver
        self._answerer = answerer
        self._approval_ttl = approval_ttl
        self._redactor = redactor
        self._accounts: MemoryAccounts = MemoryAccounts()
        self.live: dict[str, Run] = {}
        """The runs in progress, by id, without their parts."""
        self.closed = False
        self.purses: Purses | None = None
        """The purses of the flow; None for a flow without."""
        self.news: News | None = None
        self.dependencies = dependencies
        self.functions: dict[str, PythonTarget] = {}
        self.host: Any = None
        """Binds functions without a flow to the flow of the engine; set by the room of flows."""
        self.router: ModelRouter | None = None
        """Finds the providers of models, for batches; set by the flow."""
        self.recorded: EffectHandler | None = None
        """Carries out the effects of durable runs; set by the room of durable runs."""
        self._throttle: tuple[asyncio.AbstractEventLoop, StartThrottle] | None = None

    # -- runs -----------------------------------------------------------------------------------------------------

    @cached_property
    def questions(self) -> LocalQuestions:
        """The open questions of runs that are not durable."""
        from agentflow.run.questions import LocalQuestions  # few runs ask

        return LocalQuestions(self._approval_ttl)

    def _local_questions(self) -> LocalQuestions:
        return self.questions

    def attend(self, approver: Approver | None, answerer: Answerer | None) -> None:
        """Set the approver and the answerer of runs where the flow names none."""
        self._approver = self._approver or approver
        self._answerer = self._answerer or answerer

    def subscribe(self, observer: Observer) -> Callable[[], None]:
        """Send the events of all later runs to ``observer``. Returns a function that ends the subscription."""
        self.observers.append(observer)
        self.shows_bounds = self.shows_bounds or getattr(observer, "bounds", False)

        def unsubscribe() -> None:
            self._drop(observer)

        return unsubscribe

    def _drop(self, observer: Observer) -> None:
        self.observers = [other for other in self.observers if other is not observer]
        self.shows_bounds = any([getattr(other, "bounds", False) for other in self.observers])

    def follow(self, policy: Provenance | None) -> None:
        """Have later runs judged by ``policy``, and their values followed as it says."""
        self._in_force.put(policy)

    @property
    def provenance(self) -> Provenance | None:
        """The policy that later runs are judged by; None: values are not followed."""
        return self._in_force.policy

    @cached_property
    def _rules(self) -> RulesMet:
        """Puts a policy in force. Few flows have one, and the others do not import the code that tracks values."""
        from agentflow.run.policy.guard import RulesMet

        return RulesMet(self.tools, self.tasks, self._workflows, self.roots)

    def following(self) -> Following:
        """How values of later runs are followed."""
        return self._in_force.following

    def open(
        self,
        name: str,
        spec: RunSpec = PLAIN,
        *,
        program: str | None = None,
        grants: frozenset[str] | None = None,
        own: Subscriber | None = None,
        journal: JournalPort | None = None,
        quiet: bool = False,
    ) -> OpenRun:
        """Open a run around a block. The block's outcome becomes the run's; RunFinished is always the last event.

        Yields the run and its outermost call. ``program`` is the digest of its text, ``grants`` its authority, ``own`` reads
        its events; ``journal`` makes it a durable run; a ``quiet`` run has no observers. The caller has awaited :meth:`turn`.
        Raises SessionBusy while a durable run has the stored session, LimitExceeded when the wall time is up,
        ConfigurationError for an invalid run id, labels or priority, and for a policy with a rule that names an unknown argument.
        """
        if self.closed:
            raise ConfigurationError(
                f"this flow is closed, so '{clip(name, 80)}' cannot run in it",
                code="flow/closed",
                hint="call within its async with block, before aclose",
            )
        labels, priority = spec.labels, spec.priority
        if spec.run_id is not None or labels is not None:
            check_name(spec.run_id, labels, self._redactor)
        if priority:
            check_priority(priority)
        fanout = Fanout(() if quiet else tuple(self.observers), own, self._drop)
        run = Run(
            limits=spec.limits or self.limits,
            services=self,
            fanout=fanout,
            approver=spec.approve or (self._approver if spec.attended else None),
            answerer=spec.answer or (self._answerer if spec.attended else None),
            open_questions=self._local_questions,
            run_id=spec.run_id,
            redactor=self._redactor,
            journal=journal,
            beside=self._accounts,
            purse=None if spec.purse is None else self.payer(spec.purse),
            approval_ttl=spec.approval_ttl,
            tools=self.tools.edition,
            deps=spec.deps,
            around_tool=self.around_tool + spec.around_tool if spec.around_tool else self.around_tool,
            around_model=self.around_model + spec.around_model if spec.around_model else self.around_model,
            at_limit={**(self.at_limit or {}), **spec.at_limit} if spec.at_limit else self.at_limit,
        )
        run.batches = spec.batch
        if spec.state is not None:
            from agentflow.core.call.run_state import RunState  # few runs have one

            run.shared.state = RunState(spec.state)
        root = run.root = CallContext(run, grants=grants, priority=priority)
        policy = self._in_force.policy
        if policy is not None:
            root.reading = Reading(self._rules.guard(policy))
        scope = EventScope(
            root, RunStarted, {"name": name, "program": program, "labels": dict(labels) if labels else None}
        )
        deps = None
        if self.dependencies is not None and spec.deps is None:
            deps = self.dependencies.of_run(run.run_id, spec.session or root.session, spec)
        return OpenRun(run, root, scope, fanout, self._redactor, self.news, spec.session, deps, self.live)

    def join(
        self,
        outer: CallContext,
        path: str,
        spec: RunSpec = PLAIN,
        *,
        session: Session | None = None,
        grants: frozenset[str] | None = None,
        own: Subscriber | None = None,
    ) -> tuple[RunPart, CallContext]:
        """A part of the run that ``outer`` belongs to, and its outermost call, at ``path``.

        ``session`` is the copy of the spec's session that the part uses; ``grants`` is its authority, which cannot exceed that
        of ``outer``; a priority of 0 means that of ``outer``; the other parameters are those of :meth:`open`.
        """
        if spec.priority:
            check_priority(spec.priority)
        if spec.purse is not None:
            self.check_payer(outer, spec.purse)
        if spec.state is not None:
            raise ConfigurationError(
                "state= belongs to a run, and this call is a part of one",
                code="config/option",
                hint="change that of the run: ctx.state['key'] = value",
            )
        if spec.batch:
            raise ConfigurationError(
                "batch= belongs to a run, and this call is a part of one",
                code="config/option",
                hint="pass it to the outermost flow.start, or to the task: @flow.task(batch=True)",
            )
        if spec.at_limit:
            raise ConfigurationError(
                "on_limit=, warn_at= and wrap_up= belong to a run, and this call is a part of one",
                code="config/option",
                hint="pass them to the outermost flow.run, or to AgentFlow",
            )
        part = RunPart(
            run_of_tool(outer),
            self,
            limits=spec.limits,
            own=own,
            approver=spec.approve,
            redactor=self._redactor,
            deps=spec.deps,
            around_tool=spec.around_tool,
            around_model=spec.around_model,
        )
        call = outer.at(path, run=part, grants=grants)
        call.session = session if session is not None else Session()
        call.priority = spec.priority or outer.priority
        return part, call

    def payer(self, purse: Purse | str) -> Purse:
        """The purse that pays for a new run. Raises ConfigurationError (``config/purse``)."""
        from agentflow.run.purses import Purse, Purses  # few runs have one

        return purse if isinstance(purse, Purse) else (self.purses or Purses({})).find(purse)

    def check_payer(self, call: CallContext, purse: Purse | str) -> None:
        """Raise ConfigurationError unless ``purse`` pays for the run of ``call``, and so for its parts."""
        from agentflow.run.purses import check_payer

        check_payer(purse, call.run.funds)

    async def given(self, bindings: Mapping[str, Any]) -> dict[str, Any]:
        """Bindings of the host in the form for programs: ``Labelled`` values are in boxes, or unwrapped without a policy."""
        take = left_open if self._in_force.policy is None else taken_in
        return {
            name: value if type(value) in LEAVES else await in_slices(take(value)) for name, value in bindings.items()
        }

    def called_back(self, call: CallContext, inner: CallContext | None = None) -> CallBack:
        call.run = run_of_tool(call)
        return CallBack(budget_of(call).permits, call, inner or call)

    def redaction(self) -> EventRedactor | None:
        """A redactor for the events of one stream with a reader outside the run; None if nothing is redacted."""
        return None if self._redactor is None else EventRedactor(self._redactor)

    def turn(self) -> Coroutine[Any, Any, None]:
        """Wait until a run may begin: a few do in each iteration of the event loop, and nothing is prepared for the others before."""
        loop = running_loop()
        cached = self._throttle
        if cached is None or cached[0] is not loop:
            cached = self._throttle = (loop, StartThrottle(loop))
        return cached[1].take()

    # -- programs -------------------------------------------------------------------------------------------------

    def names(self, env: SexpEnvironment | None = None, defined: Definitions | None = None) -> NamesInForce:
        """The names of a program in ``env``, where ``defined`` are the tasks of the programs around it."""
        return self.compiler.names(env, defined)

    async def evaluate(
        self,
        program: Program,
        env: SexpEnvironment,
        call: CallContext,
        *,
        publish: Publish | None = None,
        fitted: bool = False,
    ) -> Any:
        """Run a compiled program in ``env`` at ``call`` and return its value; ``publish`` gets the tasks it defines.

        ``fitted``: it was compiled for this environment just now, so its names are not checked again.
        """
        budget = budget_of(call)
        if call.reading is not None:
            await self._rules.check_names(program, env, call)
        for doubt in program.doubts:
            call.warn(doubt.code, doubt.message, hint=doubt.hint, at=str(doubt.span))
        value = await run_program(
            program,
            env,
            performer=self._performer(call),
            call=call,
            budget=budget,
            programs=self.compiler.cache,
            publish=publish,
            fitted=fitted,
        )
        value = await plain_result(value if call.reading is None else await opened(value, call))
        budget.check_over()
        return value

    async def unmet_rules(self, source: Source, bindings: Mapping[str, Any]) -> list[str]:
        """Messages about rules of the policy that do not apply to a program. Raises ConfigurationError for a rule that can
        never apply."""
        policy = self._in_force.policy
        if policy is None:
            return []
        self._rules.check_arguments(policy)
        return list((await self._rules.unmet(policy, source.text, lambda: bindings)).values())

    async def define(
        self, program: str | Source | Program, bindings: Mapping[str, Any] | None, call: CallContext
    ) -> list[str]:
        """Run a program with the host's authority and register the tasks it defines with the task system.

        Returns their names in the order of definition. If the program fails, none is registered and its error is raised.
        """
        env = SexpEnvironment(bindings)
        defined: dict[str, Template] = {}

        def note(template: Template) -> None:
            defined.pop(template.name, None)
            defined[template.name] = template

        compiled = await self.compiler.compiled(program, env=env, defined=call.definitions, budget=budget_of(call))
        host = call.at(call.next_path("define", compiled.source.digest))
        host.grants = None
        await self.evaluate(compiled, env, host, publish=note)
        return self.effects.publish([*defined.values()], call)

    def _performer(self, call: CallContext) -> EffectHandler:
        """The handler of effects at ``call``: with the records in a durable run, and paced by recorders if there are any."""
        handler = self.effects if call.run.journal is None else self.recorded
        assert handler is not None, "a run has a journal where there are durable runs"
        pacers = pacers_of(self.observers) if self.observers else ()
        return Paced(handler, pacers) if pacers else handler

    def strand(self, call: CallContext) -> Strand:
        """A strand at ``call`` for host code that performs effects as programs do. The caller must end it."""
        return host_strand_at(call, budget_of(call), self._performer(call))

    # -- requests of the parts inside a run ---------------------------------------------------------------------------

    def task(self, name: str, call: CallContext) -> CompiledTask | None:
        return self.tasks.find_compiled(name, call.definitions)

    async def run_subtask(self, request: SubtaskRequest, call: CallContext, task: Any = None) -> TaskResult:
        """Run the subtask that a CONTINUATION asks for, on an empty Python stack, since it may ask for the next one.

        ``task`` is the compiled template to run, in place of one that the request names.
        """
        return await on_fresh_task(self.tasks.run_subtask(request, call, task))  # pyright: ignore

    async def call_value(self, function: Any, arguments: tuple[Any, ...], call: CallContext) -> Any:
        """Call a Closure or Python callable with ``arguments``; its effects are numbered below ``call``."""
        budget = budget_of(call)
        if call.reading is not None:
            arguments = tuple([await in_slices(taken_in(each)) for each in arguments])
        async with self.called_back(call):
            performer = self._performer(call)
            value = await call_closure(
                function, arguments, performer=performer, call=call, budget=budget, programs=self.compiler.cache
            )
        return await plain_result(await opened(value, call))

    async def take_over(
        self,
        template: TaskTemplate,
        request: SubtaskRequest,
        goal: str,
        failed: TaskResult,
        call: CallContext,
        *,
        rounds: int,
    ) -> TaskResult | None:
        """Let the solver write a program for a task that ran out of context or output; None without a solver."""
        if self._solver is None:
            return None
        return await self._solver.decompose(template, request, goal, failed, call, rounds=rounds)

    async def guide(self, allow: frozenset[str], surface: Surface, call: CallContext) -> tuple[str, Mapping[str, str]]:
        if self._solver is None:
            raise ConfigurationError(
                "models write no programs here: the engine was built without a solver",
                code="config/option",
                hint="build the flow with AgentFlow(...)",
            )
        return await self._solver.guide(allow, surface, call)

    def limited(self, model_calls: int, call: CallContext) -> RunPart:
        limits = replace(call.run.limits, model_calls=model_calls)
        return RunPart(call.run, self, limits=limits, redactor=self._redactor)

    async def run_program(
        self,
        program: str | Source,
        allow: frozenset[str] | None,
        inputs: Mapping[str, Any],
        call: CallContext,
        *,
        steps: int | None = None,
        written: bool = False,
    ) -> Any:
        """Run a program and return its value; its effects are numbered below ``call``.

        ``inputs`` are its variables; ``allow`` None means the call's authority; ``steps`` limits it below the rest of the
        run's limit. ``written``: a model wrote it, so it is admitted by :class:`~agentflow.run.admission.Admission`. Raises
        the program's errors.
        """
        source = as_source(program)
        path = call.next_path("program", source.text, inputs)
        inner = call.for_text(path) if allow is None else call.at(path, grants=allow)
        if inner.run.journal is not None:
            inner.run = inner.run.journal.within(inner)
        if written:
            inner.grants = await self.admission.granted(source, inputs, inner)
        elif inner.grants is not None:
            inner.run.cover(inner.path, {})  # the text of this program was never approved
        labels = None if call.reading is None else call.reading.inputs
        held = (
            inputs if not labels else {name: box(value, labels.get(name, NO_SOURCES)) for name, value in inputs.items()}
        )
        env = SexpEnvironment(dict(held))
        budget = budget_of(inner)
        if steps is not None:
            budget = Budget(budget.limits, parent=budget, steps=steps)
        compiled = await self.compiler.compiled(
            source, env=env, grants=inner.grants, defined=inner.definitions, budget=budget
        )
        # Programs start programs (workflows that call workflows): each begins on an empty Python stack.
        value = await on_fresh_task(
            run_program(
                compiled,
                env,
                performer=self._performer(inner),
                call=inner,
                budget=budget,
                programs=self.compiler.cache,
            )
        )
        return await plain_result(await opened(value, call))


async def opened(value: Any, call: CallContext) -> Any:
    """A value in the form for anything except programs; ``call`` has read its sources."""
    if call.reading is None:
        return value
    value, sources = await in_slices(stripped(value))
    call.reading.add(sources)
    return value
