"""The methods of :class:`agentflow.AgentFlow` that run programs and Python functions, and their options as type checkers and the engine see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, TypeAlias, TypeVar, cast, overload

from typing_extensions import TypedDict, Unpack

from agentflow.core.call.approval import Approver
from agentflow.core.call.call import executing, executing_call, executing_line
from agentflow.core.call.host_threads import as_async
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.limits import Limits, OnLimit
from agentflow.core.data.media import PromptParts, load_parts
from agentflow.core.data.messages import Batching, TextPart
from agentflow.core.data.session import Session
from agentflow.core.data.source import Surface
from agentflow.core.events.effects import (
    AskHuman,
    AwaitSignal,
    CallTool,
    Draw,
    Effect,
    Endorse,
    GetContext,
    Publish,
    Solve,
    Step,
    Timer,
)
from agentflow.core.ports.ports import ModelMiddleware, ToolMiddleware
from agentflow.core.ports.toolbox import NO_TOOLBOX
from agentflow.flow.flow_host import FlowHost
from agentflow.flow.line import Line, close, taking_turn
from agentflow.flow.program_files import ProgramLike, check_surface, in_surface, load_program, source_of
from agentflow.flow.python import FlowCall, SingleEffect, WorkCall, check_arguments, in_run
from agentflow.flow.task_options import (
    AROUND,
    SETTLED,
    AskSettings,
    TaskSettings,
    check_options,
    chooses_tools,
    tools_of,
)
from agentflow.lang.builtins.results import value_of
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program
from agentflow.lib.option_table import wrong_value
from agentflow.run.engine import Engine
from agentflow.run.handle import Recorded, RunResult
from agentflow.run.run import new_run_id
from agentflow.run.run_spec import PLAIN, RunSpec
from agentflow.run.strand import branches
from agentflow.tasks.from_function import adapter_of

if TYPE_CHECKING:
    from agentflow.flow.python_functions import ProgramFunction, TaskFunction, WorkflowFunction
    from agentflow.run.bounds.estimate import Bounds
    from agentflow.run.purses import Purse
    from agentflow.run.run_stream import OwnReader, RunSender, RunStream


Where: TypeAlias = Literal["here", "workers"]
"""Who carries out a durable run: the process that starts it, or any worker."""


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
    purse: Purse | str | None
    approval_ttl: float | None
    surface: Surface | None
    deps: Any
    state: Mapping[str, Any] | None
    on_limit: OnLimit
    warn_at: float
    wrap_up: bool
    batch: Batching
    around_tool: Sequence[ToolMiddleware]
    around_model: Sequence[ModelMiddleware]


class StartOptions(TypedDict, total=False):
    """The options of ``flow.start``."""

    run_id: str | None
    limits: Limits | None
    allow: Iterable[str] | None
    approve: Approver | None
    labels: Mapping[str, str] | None
    session: Session | None
    priority: int
    purse: Purse | str | None
    approval_ttl: float | None
    tenant: str | None
    overrides: Mapping[str, Mapping[str, Any]] | Path | None
    where: Where
    queue: str
    surface: Surface | None
    deps: Any
    state: Mapping[str, Any] | None
    on_limit: OnLimit
    warn_at: float
    wrap_up: bool
    batch: Batching


RUN = RunOptions.__optional_keys__
START = StartOptions.__optional_keys__
_AT_LIMIT = ("on_limit", "warn_at", "wrap_up")
_SPEC = frozenset([each.name for each in fields(RunSpec)]) - {"queue", "at_limit"}


def spec_of(where: str, names: Collection[str], program: object, options: Mapping[str, Any]) -> RunSpec:
    """The spec of a run of ``program`` from the ``options`` of the method ``where``, which accepts those in ``names``.

    Raises ConfigurationError (``config/option``) for an unknown option, and for limits or a session of another type.
    """
    if not options:
        return PLAIN
    for name in options:
        if name not in names:
            if isinstance(program, FlowCall):
                program.close()  # it is never awaited
            from agentflow.lib.option_hints import unknown_field

            raise unknown_field(name, where, names)
    check_run(program, options.get("limits"), options.get("session"), options.get("batch", False))
    state: object = options.get("state")
    if state is not None and not isinstance(state, Mapping):
        if isinstance(program, FlowCall):
            program.close()
        raise wrong_value(where, "state", state, "is not a mapping", "write state={'steps': []}")
    chosen = {name: value for name, value in options.items() if name in _SPEC}
    allow = chosen.get("allow")
    if not (allow is None or isinstance(allow, Collection)):
        chosen["allow"] = tuple(allow)
    if not AROUND.isdisjoint(chosen):
        _read_middleware(where, chosen, program)
    if not options.keys().isdisjoint(_AT_LIMIT):
        try:
            chosen["at_limit"] = at_limit_in(options)
        except ConfigurationError:
            if isinstance(program, FlowCall):
                program.close()
            raise
    return RunSpec(**chosen)


def at_limit_in(options: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the ``options`` of a run, or of all runs of a flow, that say what it does at its limits. Raises ConfigurationError
    (``config/option``)."""
    own = {name: value for name in _AT_LIMIT if (value := options.get(name)) is not None}
    if own:
        from agentflow.core.data.at_limit import AtLimit  # few runs have such options

        AtLimit(**own)  # which checks them
    return own


def _read_middleware(where: str, options: dict[str, Any], program: object) -> None:
    """Put tuples in place of the middleware among ``options``. Raises ConfigurationError (``config/middleware``)."""
    from agentflow.core.ports.around import middleware_in

    try:
        for name in AROUND.intersection(options):
            options[name] = middleware_in(name, options[name], where)
    except ConfigurationError:
        if isinstance(program, FlowCall):
            program.close()
        raise


def check_run(program: object, limits: object, session: object = None, batch: object = False) -> None:
    """Check the ``limits``, the ``session`` and ``batch`` of a run. Raises ConfigurationError (``config/option``) unless they have
    these types or are None."""
    problem: ConfigurationError | None = None
    if limits is not None and not isinstance(limits, Limits):
        entries = cast("Mapping[object, object]", limits) if isinstance(limits, Mapping) else {"usd": 1.0}
        shown = ", ".join([f"{name}={value!r}" for name, value in entries.items()])
        hint = f"write limits=Limits({clip(shown, 200)})"
        problem = wrong_value("a run", "limits", cast(object, limits), "must be a Limits object", hint)
    elif session is not None and not isinstance(session, Session):
        name = repr(session) if isinstance(session, str) else "'user-42'"
        hint = f"async with flow.session({clip(name, 80)}) as session: ... session=session; or agentflow.Session()"
        problem = wrong_value("a run", "session", session, "is not a session", hint)
    elif batch is not False:
        from agentflow.core.data.batches import wrong_batch  # few runs are batched

        problem = wrong_batch("a run", batch)
    if problem is not None:
        if isinstance(program, FlowCall):
            program.close()
        raise problem


A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class ProgramMethods:
    """Runs programs and Python functions. A base of :class:`agentflow.AgentFlow`, which builds the parts it uses; it has no
    state.

    The methods from ``map`` on return calls for you to await: in a workflow, where they are numbered; in a tool; or
    elsewhere, as separate runs.
    """

    limits: Limits
    engine: Engine
    _host: FlowHost
    _session: Session
    """The conversation of the flow: that of calls outside of a run, and of ``flow.handler``."""

    # -- programs ---------------------------------------------------------------------------------------------------

    @property
    def records(self) -> Recorded | None:
        """The recorded events of runs; None without ``record=``."""
        return self._host.records

    def compile(
        self,
        program: ProgramLike,
        *,
        bindings: Mapping[str, Any] | None = None,
        allow: Iterable[str] | None = None,
        surface: Surface | None = None,
    ) -> Program:
        """Check and compile a program (text, a Path to a file, a Source). The result is cached and reusable.

        Call it at start-up: it blocks, some milliseconds for a thousand characters, and longer for macros.
        :meth:`run` and :meth:`stream` compile long programs off the event loop.

        ``bindings`` are the names of its variables, ``allow`` are the only tasks and tools it may name; ``surface`` is the
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
        """Upper bounds of a program's effects and cost, computed from its text without running it.

        ``bindings`` are values of its variables; the lengths of missing ones, and of lists in models' answers, are named
        sizes (``len(files)``, ``len(plan.steps)``), and :meth:`Bounds.at` fills them in. ``allow`` are the only tasks and
        tools it may name, ``surface`` is the language of a text (``"sexp"`` or ``"python"``), ``limits`` are those of the
        run (None: the flow's). The inner work of host tools is not counted; attempts that a provider retries are one call.
        Raises SexpSyntaxError and SexpEvaluationError with the span, ConfigurationError for a policy with a rule that can
        never apply.
        """
        check_run(program, limits)
        grants = None if allow is None else frozenset(allow)
        return await self._host.bounds(in_surface(program, surface), bindings=bindings, allow=grants, limits=limits)

    @overload
    async def run(self, program: FlowCall[R], **options: Unpack[RunOptions]) -> RunResult[R]: ...
    @overload
    async def run(self, program: ProgramLike, **options: Unpack[RunOptions]) -> RunResult[Any]: ...
    async def run(self, program: ProgramLike | FlowCall[Any], **options: Unpack[RunOptions]) -> RunResult[Any]:
        """Run a program, or a call of a Python workflow or task as ``flow.run(audit(paths))``, to its end.

        ``bindings`` are its variables; ``env`` an environment to share variables and tasks with; ``session`` a
        conversation to continue; ``allow`` runs it as an untrusted program that may call only these tasks and tools;
        ``limits`` and ``approve`` replace the flow's for this run. ``run_id`` is the id of the run (default: a new one),
        and ``labels`` say where it belongs (a user, a thread); its events carry both. ``max_cost`` (USD) and
        ``max_tokens`` lower the limits in force, and never raise them; of calls that wait for rates or connections, the one
        with the highest ``priority`` (-1000 to 1000) goes first; ``purse`` is the name of the purse that pays
        (:class:`~agentflow.Purses`), in addition to the limits; if it lacks the money for a call, the run ends with PurseEmpty; questions of the run stay open for ``approval_ttl`` seconds (None: as long as the flow's); ``deps`` are its dependencies, ``ctx.deps`` of its tools and checks and :meth:`deps` of its workflows, in place of those that ``AgentFlow(deps=...)`` makes; ``state`` is the beginning of ``ctx.state`` in its tools; ``around_tool`` and ``around_model`` are its middleware, within the flow's; ``on_limit``, ``warn_at`` and ``wrap_up`` say what the run does at its limits, as those of the flow do; ``surface`` is the language of a text (``"sexp"``, the default, or ``"python"``; a file's name implies it).
        Called from inside a tool, the program runs within that tool's run, under its name: ``limits`` can only narrow that
        run's, and the result's usage is the program's own. Raises the program's error: SexpSyntaxError,
        SexpEvaluationError, TaskError, LimitExceeded, SessionBusy; ConfigurationError for an invalid ``run_id`` or
        ``labels``, for a purse without an allowance or another one than that of the run around it, and for unknown names in
        ``allow``.
        """
        spec = self._spec("flow.run", program, options) if options else PLAIN
        async with taking_turn(executing_line(), "flow.run"):
            return await self._host.run(in_surface(program, options.get("surface")), spec)

    @overload
    def stream(self, program: FlowCall[R], **options: Unpack[RunOptions]) -> RunStream[R]: ...
    @overload
    def stream(self, program: ProgramLike, **options: Unpack[RunOptions]) -> RunStream[Any]: ...
    def stream(self, program: ProgramLike | FlowCall[Any], **options: Unpack[RunOptions]) -> RunStream[Any]:
        """Run a program and observe it: ``async with flow.stream(text) as run: async for event in run: ...``.

        Parameters as for :meth:`run`. ``await run.value()`` gives the value or raises the program's error.
        """
        spec = self._spec("flow.stream", program, options) if options else PLAIN
        if spec.run_id is None:
            spec = replace(spec, run_id=new_run_id())
        lines: list[Line] = []

        @asynccontextmanager
        async def in_turn() -> AsyncGenerator[None]:
            if (line := executing_line()) is not None:
                lines.append(line)
            try:
                async with taking_turn(line, "flow.stream"):
                    yield
            finally:
                close(program)  # a call left before it began was not forgotten

        def main(own: OwnReader) -> Awaitable[RunResult[Any]]:
            for line in lines:
                line.carry()
            return self._host.run(in_surface(program, options.get("surface")), spec, own)

        from agentflow.run.run_stream import RunStream  # most runs are not watched

        return RunStream(main, in_turn, run_id=spec.run_id or "", sender=cast("RunSender", self))

    async def define(self, program: ProgramLike, bindings: Mapping[str, Any] | None = None) -> list[str]:
        """Run a program with the host's authority and add the tasks it defines to the flow: all, or none if it fails.

        Every later run finds them. Returns their names. Raises the program's error.
        """
        source = await load_program(program)
        async with in_run(self.engine, "define", self._session) as call:
            return await self.engine.define(source, bindings, call)

    @overload
    def deps(self) -> Any: ...
    @overload
    def deps(self, kind: type[T]) -> T: ...
    def deps(self, kind: Any = None) -> Any:
        """The dependencies of the current run, in the body of a workflow, a tool or a branch: those that its
        ``deps=`` gave, or that the flow's made. None in a run without any.

        ``flow.deps(Bank)`` checks their class. Raises ConfigurationError (``config/deps``) outside of a run, and for
        dependencies of another class.
        """
        call = executing_call()
        if call is None:
            raise ConfigurationError(
                "flow.deps() was called outside of a run",
                code="config/deps",
                hint="call it in a workflow, a tool or a check; deps=... gives a run its dependencies",
            )
        if kind is not None:
            call.require_deps(kind, "the workflow")
        return call.deps

    async def call(self, function: Any, *arguments: Any) -> Any:
        """Call a Closure (or Python callable) from the host; inside a tool, within that tool's run."""
        outer, line = executing()
        if outer is not None and outer.run.services is self.engine:
            async with taking_turn(line, "flow.call"):
                outer = executing_call() or outer
                return await outer.call(function, *arguments)
        async with in_run(self.engine, "call", self._session) as call:
            return await call.call(function, *arguments)

    def _spec(self, where: str, program: object, options: RunOptions) -> RunSpec:
        """The spec of a run with these options. ``max_cost`` and ``max_tokens`` lower the limits in force where this is called."""
        spec = spec_of(where, RUN, program, options)
        usd, tokens = options.get("max_cost"), options.get("max_tokens")
        if usd is None and tokens is None:
            return spec
        outer = executing_call()
        limits = spec.limits or (self.limits if outer is None else outer.run.limits)
        return replace(spec, limits=limits.lowered(usd, tokens))

    # -- tasks and workflows ----------------------------------------------------------------------------------------

    @overload
    def task(self, function: Callable[P, Awaitable[R]], /) -> TaskFunction[P, R]: ...
    @overload
    def task(self, **settings: Unpack[TaskSettings]) -> Callable[[Callable[P, Awaitable[R]]], TaskFunction[P, R]]: ...
    def task(self, function: Callable[..., Any] | None = None, **settings: Any) -> Any:
        """Make an async function a task of this flow: ``@flow.task`` or ``@flow.task(model=..., tools=[...])``.

        Its docstring is the prompt, with the parameters as ``{{slots}}``, and its body ``...``; text that the body returns
        is the prompt instead. Arguments are validated before a model is called, and the answer is validated as the return
        type: ``str`` is text, ``TaskResult`` the whole result, without raising. Programs call it by its name, ``(review
        (path "a.py"))``. The options are those of :class:`TaskSettings`. Raises ConfigurationError: ``python/annotation``,
        ``python/returns``, ``python/no-prompt``, ``python/not-async``, ``tool/signature``, ``config/option`` for an unknown
        option; DataError ``tasks/undeclared-parameter`` for a slot without a parameter, and the other errors of templates.
        """
        from agentflow.flow.python_functions import TaskFunction  # many flows have none

        def register(function: Callable[..., Any]) -> TaskFunction[..., Any]:
            task = TaskFunction(self._host, function, cast(TaskSettings, settings))
            task.declare()
            return task

        return register if function is None else register(function)

    @overload
    def ask(
        self,
        prompt: PromptParts,
        *,
        session: Session | None = None,
        purse: str | None = None,
        deps: Any = None,
        **settings: Unpack[AskSettings],
    ) -> FlowCall[str]: ...
    @overload
    def ask(
        self,
        prompt: PromptParts,
        *,
        output: type[R],
        session: Session | None = None,
        purse: str | None = None,
        deps: Any = None,
        **settings: Unpack[AskSettings],
    ) -> FlowCall[R]: ...
    @overload
    def ask(
        self,
        prompt: PromptParts,
        *,
        output: Any,
        session: Session | None = None,
        purse: str | None = None,
        deps: Any = None,
        **settings: Unpack[AskSettings],
    ) -> FlowCall[Any]: ...
    def ask(
        self,
        prompt: PromptParts,
        *,
        output: Any = str,
        session: Session | None = None,
        purse: str | None = None,
        deps: Any = None,
        **settings: Any,
    ) -> FlowCall[Any]:
        """Ask the model once: a task without a function. ``output`` is the type of the answer, text by default.

        ``prompt`` is text, or a list of texts, paths of files and parts: ``["What is this?", Path("photo.png")]``, see
        :func:`agentflow.media.attachment`. ``session`` is a conversation to continue; without one the model is sent only
        the prompt. ``purse`` is the purse that pays, where this is a run of its own. ``deps`` are the dependencies of its tools. The other options are those of :class:`~agentflow.flow.task_options.AskSettings`. Raises ConfigurationError
        (``config/option``) for an unknown one, the error of a failed task, InvalidOutput for an answer of another type.
        """
        check_arguments("ask", (prompt,), {})
        own = NO_TOOLBOX
        if settings:
            check_options(settings, "ask")
            if not SETTLED.isdisjoint(settings):
                names, own = tools_of(self._host, cast(TaskSettings, settings), "flow.ask")
                chosen = chooses_tools(settings.get("tools"))
                offers = not chosen and not settings.keys().isdisjoint(("tools", "handoffs", "skills"))
                offered = {"tools": self._host.tools if names is None else tuple(names), "skills": ()} if offers else {}
                gone = SETTLED if offers else AROUND  # handoffs and skills are among the tools now
                settings = {**{each: settings[each] for each in settings.keys() - gone}, **offered}
        if session is not None:
            check_run(None, None, session)
        span = self._host.spans.here()

        async def work(line: Line) -> Any:
            if purse is not None:
                self.engine.check_payer(line.strand.call, purse)
            if "tools" not in settings and line.strand.call.run.watched:
                self._host.tell_not_offered(line.strand.call)
            inputs = {"prompt": prompt} if isinstance(prompt, str) else await _with_media(prompt)
            task = self._host.asking(output, settings, len(inputs) > 1)
            task = task.given(own) if own else task
            with line.depending(deps):
                if session is None or line.strand.call.session.goes_on_with(session):  # the run's
                    return await task.work(line, inputs, span)
                async with line.conversing(session):
                    return await task.work(line, inputs, span)

        return WorkCall(self._host, "ask", span, work, session=session, purse=purse, deps=deps)

    @overload
    def program(
        self, program: ProgramLike, parameters: Mapping[str, Any] | None = None, *, returns: type[R]
    ) -> ProgramFunction[R]: ...
    @overload
    def program(
        self, program: ProgramLike, parameters: Mapping[str, Any] | None = None, *, returns: Any = None
    ) -> ProgramFunction[Any]: ...
    def program(
        self, program: ProgramLike, parameters: Mapping[str, Any] | None = None, *, returns: Any = None
    ) -> ProgramFunction[Any]:
        """A program as a function: ``flow.program(Path("review.sexp"), {"path": str}, returns=Review)``.

        You call it with the program's bindings by name, ``await review(path="a.py")``, each validated as its type in
        ``parameters``; without these it accepts any. The program's value is validated as the type ``returns``, or
        returned unchanged. Raises ConfigurationError (``python/returns``) for a type without a JSON Schema.
        """
        from agentflow.flow.python_functions import ProgramFunction

        return ProgramFunction(self._host, program, parameters, returns)

    def workflow(self, function: Callable[P, Awaitable[R]], /) -> WorkflowFunction[P, R]:
        """Make an async function a workflow of this flow.

        Its calls belong to one run: ``await audit(paths)`` starts one; ``flow.run(audit(paths), limits=...)``,
        ``flow.stream`` and ``flow.start`` take its options. Programs call it by its name, and so do models given
        it as a tool. Raises ConfigurationError for missing annotations, like :meth:`task`.
        """
        from agentflow.flow.python_functions import WorkflowFunction

        workflow = WorkflowFunction(self._host, function)
        workflow.declare()
        return workflow

    # -- branches ---------------------------------------------------------------------------------------------------

    def map(
        self, function: Callable[[A], Awaitable[B]], items: Iterable[A], *, limit: int | None = None
    ) -> FlowCall[list[B]]:
        """The results of ``function`` for all items, in order: one branch per item, at most ``limit`` at once.

        ``function`` is a task, a workflow or any async function. The first failure cancels the other branches, and is
        raised when all have ended.
        """
        span = self._host.spans.here()
        return WorkCall(self._host, "flow.map", span, lambda line: line.map(function, items, limit, span))

    @overload
    def parallel(self, a: Awaitable[A], b: Awaitable[B], /) -> FlowCall[tuple[A, B]]: ...
    @overload
    def parallel(self, a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> FlowCall[tuple[A, B, C]]: ...
    @overload
    def parallel(
        self, a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
    ) -> FlowCall[tuple[A, B, C, D]]: ...
    @overload
    def parallel(self, *parts: Awaitable[T]) -> FlowCall[tuple[T, ...]]: ...
    def parallel(self, *parts: Awaitable[Any]) -> FlowCall[tuple[Any, ...]]:
        """The results of all ``parts``, unstarted calls or coroutines: one branch each.

        The first failure cancels the other branches, and is raised when all have ended.
        """
        span = self._host.spans.here()

        async def work(line: Line) -> tuple[Any, ...]:
            return tuple(await line.fork(branches.parallel, parts, span))

        return WorkCall(self._host, "flow.parallel", span, work, parts=parts)

    def race(self, *parts: Awaitable[T]) -> FlowCall[T]:
        """The result of the first of ``parts`` that succeeds; the others are cancelled and have ended.

        Raises SexpEvaluationError (``race/all-failed``) if none does.
        """
        span = self._host.spans.here()
        return WorkCall(self._host, "flow.race", span, lambda line: line.fork(branches.race, parts, span), parts=parts)

    # -- recovery ---------------------------------------------------------------------------------------------------

    def timeout(self, seconds: float, part: Awaitable[T]) -> FlowCall[T]:
        """The result of ``part`` within that many seconds. Raises TaskError (``timeout/elapsed``) after them."""
        span = self._host.spans.here()
        return WorkCall(self._host, "flow.timeout", span, lambda line: line.timeout(seconds, part, span), parts=(part,))

    def retry(self, times: int, function: Callable[[], Awaitable[T]]) -> FlowCall[T]:
        """The result of ``function()``, called again after a growing pause if a task, tool or step fails in it.

        ``times`` is the total number of calls; the error of the last one is raised. Errors that your workflow raises itself end it at once.
        """
        span = self._host.spans.here()
        return WorkCall(self._host, "flow.retry", span, lambda line: line.retry(times, function, span))

    # -- single effects ---------------------------------------------------------------------------------------------

    def call_tool(self, name: str, /, **arguments: Any) -> FlowCall[Any]:
        """The result of the tool with this name. Raises the error of a FAILED result."""
        if arguments:
            check_arguments(name, (), arguments)
        return SingleEffect(self._host, name, self._host.spans.here(), CallTool(name, arguments), value_of)

    def context(self, query: str, **options: Any) -> FlowCall[list[str]]:
        """The paths of the files relevant to ``query``, best first. The options are those of ``get_context``."""
        return self._effect("flow.context", GetContext({"query": query, **options}), list[str])

    def solve(
        self,
        goal: str,
        *,
        allow: Iterable[str] = (),
        inputs: Mapping[str, Any] | None = None,
        max_rounds: int = 3,
        explore: bool = False,
        surface: Surface | None = None,
        max_model_calls: int | None = None,
        purse: str | None = None,
        deps: Any = None,
    ) -> FlowCall[Any]:
        """The value of a program that a model writes for ``goal``; it may call only the tasks and tools in ``allow``.

        ``inputs`` are its variables; ``max_rounds`` is the number of attempts of the model. With ``explore`` a program is
        first explored, without calling anything, and errors it may reach go back to the model. ``surface`` is the language
        it writes in, ``"sexp"`` or ``"python"`` (None: the flow's); ``max_model_calls`` bounds the model calls of writing
        and running programs together; ``purse`` is the purse that pays, where this is a run of its own; ``deps`` are the
        dependencies of the tools. Raises the error of a FAILED result.
        """
        effect = Solve(
            goal,
            tuple(allow),
            max_rounds,
            dict(inputs or {}),
            explore=explore,
            surface=check_surface(surface),
            max_model_calls=max_model_calls,
        )
        span = self._host.spans.here()

        async def work(line: Line) -> Any:
            if purse is not None:
                self.engine.check_payer(line.strand.call, purse)
            with line.depending(deps):
                return value_of(await line.perform(effect, span))

        return WorkCall(self._host, "flow.solve", span, work, purse=purse, deps=deps)

    @overload
    def step(self, function: Callable[P, Awaitable[T]], /, *arguments: P.args, **named: P.kwargs) -> FlowCall[T]: ...
    @overload
    def step(self, function: Callable[P, T], /, *arguments: P.args, **named: P.kwargs) -> FlowCall[T]: ...
    def step(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> FlowCall[Any]:
        """The recorded result of your own function: a resumed durable run does not call it again.

        The function is async, or plain and then runs in a thread. Its result must be data, or be annotated with a type that
        pydantic writes and reads; otherwise a durable run raises ConfigurationError before the call, or DataError after it
        (``durable/no-value``). Raises SexpEvaluationError (``host/raised``) with the function's exception as its cause. A
        function interrupted by the end of the process is called again.
        """
        name = getattr(function, "__qualname__", type(function).__name__)
        check_arguments(name, arguments, named)
        run, span = as_async(function), self._host.spans.here()

        async def with_names(*values: Any) -> Any:
            return await run(*values[:-1], **values[-1])

        effect = (
            Step(with_names, (*arguments, named), name, function) if named else Step(run, arguments, name, function)
        )
        return WorkCall(self._host, name, span, lambda line: line.perform(effect, span))

    @overload
    def ask_human(self, question: str) -> FlowCall[Any]: ...
    @overload
    def ask_human(self, question: str, output: type[T]) -> FlowCall[T]: ...
    @overload
    def ask_human(self, question: str, output: Any) -> FlowCall[Any]: ...
    def ask_human(self, question: str, output: Any = None) -> FlowCall[Any]:
        """A person's answer, of the type ``output``, or any data: ``await flow.ask_human("Pay 20 EUR?", bool)``.

        A durable run with nothing else to do leaves memory until the answer arrives, see ``flow.send``; any other run asks
        the flow's ``answer=``. Raises SexpEvaluationError (``question/unanswered``), ConfigurationError
        (``python/returns``) for a type without a JSON Schema.
        """
        if output is None:
            return self._effect("flow.ask_human", AskHuman(question), lambda answer: answer)
        adapter, schema = adapter_of(output, "flow.ask_human")
        return self._effect("flow.ask_human", AskHuman(question, schema), adapter.validate_python)

    @overload
    def signal(self, name: str) -> FlowCall[Any]: ...
    @overload
    def signal(self, name: str, output: type[T]) -> FlowCall[T]: ...
    @overload
    def signal(self, name: str, output: Any) -> FlowCall[Any]: ...
    def signal(self, name: str, output: Any = None) -> FlowCall[Any]:
        """The value of the next signal of this name, of the type ``output`` or any data: ``await flow.signal("paid", Payment)``.

        A signal that was sent before is received at once; signals of one name come in the order they were sent
        (:meth:`send_signal`, ``run.signal``). A durable run with nothing else to do leaves memory until it comes. One of another type
        is refused where it is sent, if the run waits for it by then, and is else passed over with a Warning (``signal/dropped``).
        Raises ConfigurationError (``python/returns``) for a type without a JSON Schema, DataError (``signal/name``).
        """
        from agentflow.run.sending import check_signal_name  # few workflows wait for one

        check_signal_name(name)
        if output is None:
            return self._effect("flow.signal", AwaitSignal(name), lambda value: value)
        adapter, schema = adapter_of(output, "flow.signal")
        return self._effect("flow.signal", AwaitSignal(name, schema), adapter.validate_python)

    def publish(self, key: str, value: Any) -> FlowCall[None]:
        """Set ``key`` of the run's state to ``value``, JSON data, a dataclass or pydantic model: ``await flow.publish("done", 3)``.

        Readers see it: ``run.state()``, :meth:`state`, ``GET /runs/ID/state``, and the events StateChanged. The last value counts, in a
        durable run after its end too; tools change the same state by ``ctx.state``. Raises DataError (``state/not-data``,
        ``state/too-large``).
        """
        from agentflow.core.call.run_state import published  # few runs have a state

        return self._effect("flow.publish", Publish((key, published(key, value))), lambda _: None)

    def emit(self, event: object, *, name: str | None = None) -> None:
        """Put data of your own on the event stream of the current run: ``flow.emit(Found(path="a.py"))``, a pydantic model, dataclass or
        JSON data, as the event :class:`~agentflow.events.HostData`.

        ``name`` names the event; without it the class of the data does. Tools have the same as ``ctx.emit``. Raises DataError
        (``event/not-data``, ``event/too-large``, ``event/name``), ConfigurationError (``config/emit``) outside of a run, and the error
        of a policy that does not let people see what the code has read.
        """
        call = executing_call()
        if call is None:
            raise ConfigurationError(
                "flow.emit() was called outside of a run",
                code="config/emit",
                hint="call it in a workflow, a tool or a check: its event belongs to the run",
            )
        call.emit(event, name=name)

    def endorse(self, value: T, reason: str) -> FlowCall[T]:
        """``value``, vouched for by you from now on: ``to = await flow.endorse(address, "looked up by hand")``.

        In a flow with a policy it may then be passed, as a whole, to any argument of a call in this workflow or tool, like
        a value of the user; values derived from it may not, nor may other values that the code has read. It is recorded,
        and published as the event ``Endorsed``; code with fewer rights than the host needs the grant ``endorse`` and an
        approval (``provenance/not-endorsed``).
        """
        check_arguments("flow.endorse", (value,), {})
        span = self._host.spans.here()

        async def work(line: Line) -> T:
            await line.perform(Endorse((value, reason)), span)
            return value

        return WorkCall(self._host, "flow.endorse", span, work)

    def sleep(self, seconds: float) -> FlowCall[None]:
        """Wait. A durable run interrupted meanwhile waits for the rest of the time."""
        return self._effect("flow.sleep", Timer(seconds), lambda _: None)

    def now(self) -> FlowCall[float]:
        """The time, in unix seconds; a resumed durable run reads the same again."""
        return self._effect("flow.now", Draw("now"), float)

    @overload
    def random(self) -> FlowCall[float]: ...
    @overload
    def random(self, below: int) -> FlowCall[int]: ...
    def random(self, below: int | None = None) -> FlowCall[Any]:
        """A random number from 0 to 1, or an integer from 0 to less than ``below``; recorded as :meth:`now`."""
        return self._effect("flow.random", Draw("random", below), lambda drawn: drawn)

    def uuid(self) -> FlowCall[str]:
        """A random UUID as text; recorded as :meth:`now`."""
        return self._effect("flow.uuid", Draw("uuid"), str)

    def _effect(self, name: str, effect: Effect, read: Callable[[Any], T]) -> FlowCall[T]:
        return SingleEffect(self._host, name, self._host.spans.here(2), effect, read)


async def _with_media(prompt: PromptParts) -> dict[str, Any]:
    """The arguments of :meth:`ProgramMethods.ask` for a list: its texts as the prompt, the rest attached."""
    parts = await load_parts(prompt)
    text = "\n\n".join([part.text for part in parts if isinstance(part, TextPart)])
    attached = [part for part in parts if not isinstance(part, TextPart)]
    return {"prompt": text, "attached": attached} if attached else {"prompt": text}
