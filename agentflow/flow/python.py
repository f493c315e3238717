"""Calls from Python: awaited within a run, or as runs of their own."""

from __future__ import annotations

import asyncio
import contextlib
import warnings
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from agentflow.core.call.call import CallContext, LineCall, calling, executing, executing_call
from agentflow.core.data.errors import ConfigurationError, LimitExceeded, WorkflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.session import Session
from agentflow.core.data.source import Source, Span
from agentflow.core.events.effects import Effect
from agentflow.core.ports.ports import Tool
from agentflow.core.ports.toolbox import Toolbox
from agentflow.flow.host_spans import HostSpans
from agentflow.flow.line import Line, carried_out, close, taking_turn
from agentflow.flow.program_files import ProgramLike
from agentflow.lang.program import Program
from agentflow.run.engine import Engine, PythonTarget
from agentflow.run.run_spec import RunSpec
from agentflow.run.strand.budget import budget_of
from agentflow.run.strand.unawaited import Unawaited

if TYPE_CHECKING:
    from agentflow.run.bounds.estimate import Bounds
    from agentflow.run.run_stream import OwnReader

R_co = TypeVar("R_co", covariant=True)


class Host(Protocol):
    """The parts of the flow that tasks, workflows and calls need: its engine, and the ``spans`` of host code."""

    @property
    def engine(self) -> Engine: ...
    @property
    def spans(self) -> HostSpans: ...
    async def run_alone(self, call: FlowCall[Any]) -> Any:
        """The value of a call run on its own."""
        ...

    async def bounds(self, program: ProgramLike, *, bindings: Mapping[str, Any] | None = None) -> Bounds:
        """The most that a program may do and cost."""
        ...

    def read_tools(self, tools: object, where: str) -> tuple[list[str] | None, Toolbox]:
        """The names that a list of tools offers, None for all ordinary ones of the flow, and the objects among them."""
        ...

    @property
    def skills(self) -> Tool | None:
        """The tool that reads the skills of the flow; None without any."""
        ...

    def read_skills(self, directories: object, where: str) -> Tool | None:
        """The tool that reads the skills of ``directories``; None without any."""
        ...

    def bound(self, declared: Any) -> Any:
        """A task or workflow as one of the flow, which it may have been declared without; anything else unchanged."""
        ...

    def all_bound(self, listed: Any) -> Any:
        """A list of tasks, workflows and other objects, each as :meth:`bound` gives it; anything else unchanged."""
        ...

    def add_workflow(self, tool: Tool) -> None:
        """Have programs find a workflow, in place of the one of that name that there was."""
        ...


class AsCoroutine(Coroutine[Any, Any, R_co]):
    """An awaitable that also acts as a coroutine, since ``asyncio.run`` and ``create_task`` accept nothing else.

    Subclasses set ``_steps`` to None.
    """

    __slots__ = ("_steps",)

    _steps: Generator[Any, None, R_co] | None

    def send(self, value: Any, /) -> Any:
        """Continue to the next wait."""
        return self._begun_steps().send(value)

    def throw(self, *error: Any) -> Any:
        """Raise an exception where it waits; before it has begun, that ends it."""
        if self._steps is None:
            self.close()
        return self._begun_steps().throw(*error)

    def close(self) -> None:
        """End it where it waits, if it was begun as a coroutine."""
        if self._steps is not None:
            self._steps.close()

    def _begun_steps(self) -> Generator[Any, None, R_co]:
        if self._steps is None:
            self._steps = cast("Generator[Any, None, R_co]", self.__await__())
        return self._steps


class FlowCall(Unawaited, AsCoroutine[R_co]):
    """An unstarted call: await it, once, or hand it to ``flow.run``, ``flow.stream`` or ``flow.start``.

    In a workflow it is part of its run, in a tool part of the tool's run, elsewhere a separate run. ``name`` is the name of
    the callee, ``span`` the call in the host's file. Using the call as if it were its value raises WorkflowError
    (``python/not-awaited``).
    """

    __slots__ = ("_begun", "_host", "_made_in", "name", "span")

    source: Source | None = None
    """The file of the called function, if the call can be the whole of a run."""
    session: Session | None = None
    """The conversation of the call, if it names one itself."""
    purse: str | None = None
    """The purse that pays where the call is a run of its own, if it names one itself."""
    deps: Any = None
    """The dependencies of the call, if it is given its own."""

    def __init__(self, host: Host, name: str, span: Span | None) -> None:
        self._steps = None
        self._begun = False
        self._made_in = calling()
        self._host = host
        self.name = name
        self.span = span

    def work(self, line: Line, /) -> Awaitable[Any]:
        """Carry the call out on a line, once it has begun."""
        raise NotImplementedError

    def read(self, result: Any, /) -> R_co:
        """The call's value, converted from the result of :meth:`work`."""
        return result

    def __await__(self) -> Generator[Any, None, R_co]:
        call = calling()
        if call is None:
            return self._host.run_alone(self).__await__()
        if self._begun:
            raise self._begun_before()
        self._begun = True
        line: Line | None = call.line.here() if type(call) is LineCall else None
        if line is not None and call.run.services is self._host.engine:
            return line.do(self).__await__()
        return self._join(call if line is None else line.strand.call, line).__await__()

    def bind(self, host: Host) -> None:
        """Let a call of a function without a flow belong to the flow of ``host``; any other stays with its own."""

    @property
    def label(self) -> str:
        """The name of the callee, and the span of the call."""
        return f"{self.name}(...)" + (f" at {self.span}" if self.span is not None else "")

    @property
    def content(self) -> tuple[Any, ...]:
        """The known arguments of the call."""
        return ()

    def __repr__(self) -> str:
        return f"<call {self.label}, {'begun' if self._begun else 'not awaited'}>"

    def __del__(self) -> None:
        if self._begun:
            return
        self.close()
        if type(self._made_in) is LineCall:
            self._made_in.line.forgotten = self.label
        else:
            warnings.warn(f"{self.label} was never awaited", RuntimeWarning, stacklevel=2, source=self)

    def close(self) -> None:
        """Discard the call, without a warning that it was not awaited."""
        super().close()
        self._begun = True

    def drop(self) -> None:
        if not self._begun:
            self.close()

    def begin(self) -> None:
        """Mark the call as begun. Raises WorkflowError the second time."""
        if self._begun:
            raise self._begun_before()
        self._begun = True

    def _begun_before(self) -> WorkflowError:
        return WorkflowError(
            f"{self.label} has begun already, and a call is awaited once",
            code="python/awaited-twice",
            hint="keep its value, or call again",
        )

    def stored(self) -> tuple[PythonTarget, dict[str, Any]]:
        """Begin the call as a durable run. Returns its stored form: the function, and its arguments as JSON data.

        Raises ConfigurationError (``python/not-durable``) for anything but a call of a task or workflow.
        """
        self.begin()
        raise ConfigurationError(
            f"{self.label} is not a call of a task or workflow, so it could not be resumed after a crash",
            code="python/not-durable",
            hint="start a function declared with @flow.workflow or @flow.task",
        )

    async def evaluate(self, call: CallContext) -> R_co:
        """Carry the call out, once it has begun, as the whole of the run of ``call``: a task takes part in a session that
        the run was given."""
        line = Line(self._host.engine.strand(call))
        line.converses = call.session.given
        value = await carried_out(line, self, self.source)
        budget_of(call).check_over()
        return value

    async def _join(self, call: CallContext, line: Line | None) -> R_co:
        """Carry the call out within the run of ``call``: that of a tool, or of another flow's workflow on its ``line``."""
        engine = self._host.engine
        if call.host is not None and call.host.loop is not asyncio.get_running_loop():
            raise WorkflowError(
                f"{self.label} was awaited in another thread than its run works in",
                code="python/thread",
                hint="make the tool an async function; it may hand blocking work to asyncio.to_thread",
            )
        async with taking_turn(line, self.name):
            call = call if line is None else line.strand.call
            async with engine.called_back(call):
                if call.run.services is not engine:
                    call = engine.join(call, call.next_path(self.name), session=call.session)[1]
                strand = engine.strand(call)
                try:
                    return self.read(await self.work(Line(strand)))
                except LimitExceeded as error:
                    strand.budget.meet(error)
                    raise
                finally:
                    strand.end()


class SingleEffect(FlowCall[R_co]):
    """A call of one effect. ``read`` converts the effect's result to the call's value."""

    __slots__ = ("effect", "read")

    def __init__(self, host: Host, name: str, span: Span | None, effect: Effect, read: Callable[[Any], R_co]) -> None:
        self._steps = None  # as the base does: workflows may make many of these
        self._begun = False
        self._made_in = calling()
        self._host = host
        self.name = name
        self.span = span
        self.effect = effect
        self.read = read

    def __await__(self) -> Generator[Any, None, R_co]:
        # The fast path of nearly all calls, a few microseconds long: the call was created on a free line, which has
        # everything needed. All other calls take the path of the base class.
        call, task = self._made_in, asyncio.current_task()
        if type(call) is not LineCall or call.run.services is not self._host.engine:
            return (yield from super().__await__())
        line: Line = call.line
        if line.at_work is not task or line.in_flight is not None or line.forgotten is not None or self._begun:
            return (yield from super().__await__())
        if line.code is None or line.code.stopped or line.strand.budget.met is not None:
            return (yield from super().__await__())
        if line.tasks is not None or line.cut is not None:
            return (yield from super().__await__())
        self._begun = True
        line.calls += 1
        line.in_flight, line.flying = self, task
        try:
            if call.run.watched or self.span is None:
                return self.read((yield from line.perform(self.effect, self.span).__await__()))
            return self.read((yield from line.strand.perform(self.effect, self.span).__await__()))
        except LimitExceeded as error:
            line.strand.budget.meet(error)
            raise
        except asyncio.CancelledError:
            line.lose(line.calls)
            raise
        finally:
            line.in_flight = None

    @property
    def content(self) -> tuple[Any, ...]:
        return self.effect.asked or ()

    def work(self, line: Line, /) -> Awaitable[Any]:
        return line.perform(self.effect, self.span)


class WorkCall(FlowCall[R_co]):
    """A call carried out by ``work`` on a line.

    ``parts`` are awaited in it, and closed with it; ``source`` is the file of the called function, ``session`` the
    conversation and ``purse`` the purse that the call names, ``deps`` the dependencies that it is given, and ``stored`` returns the stored form of the call, if it can be a whole durable run.
    """

    __slots__ = ("_parts", "_stored", "deps", "purse", "session", "source", "work")

    def __init__(
        self,
        host: Host,
        name: str,
        span: Span | None,
        work: Callable[[Line], Awaitable[R_co]],
        *,
        parts: Sequence[Awaitable[Any]] = (),
        source: Source | None = None,
        session: Session | None = None,
        purse: str | None = None,
        deps: Any = None,
        stored: Callable[[], tuple[PythonTarget, dict[str, Any]]] | None = None,
    ) -> None:
        super().__init__(host, name, span)
        self.work = work
        self.source = source
        self.session = session
        self.purse = purse
        self.deps = deps
        self._parts = parts
        self._stored = stored

    def close(self) -> None:
        super().close()
        for part in self._parts:
            close(part)

    @property
    def content(self) -> tuple[Any, ...]:
        return getattr(self._stored, "args", ())  # of a partial of the function that stores it

    def stored(self) -> tuple[PythonTarget, dict[str, Any]]:
        if self._stored is None:
            return super().stored()
        self.begin()
        return self._stored()


@contextlib.asynccontextmanager
async def in_run(
    engine: Engine, name: str, session: Session | None = None, own: OwnReader | None = None
) -> AsyncGenerator[CallContext, None]:
    """Yield the executing call, if there is one; otherwise open a run in ``session`` for the block.

    In a run of another engine (one flow used by a tool of another) the block is a part of that run, executed by this
    engine. In the code of a Python workflow it is one of its calls. ``own`` reads the events of the run, or of that part. Raises SessionBusy if a new run finds ``session`` in
    use, PythonOverlap.
    """
    call, line = executing()
    if call is None:
        await engine.turn()
        async with engine.open(name, RunSpec(session=session), own=own) as (run, call):
            if own is not None:
                own.run = run
            yield call
    else:
        async with taking_turn(line, name):
            call = executing_call() or call
            async with engine.called_back(call):
                if call.run.services is engine and own is None:
                    yield call
                else:
                    part, call = engine.join(call, call.next_path(name), session=call.session, own=own)
                    if own is not None:
                        own.run = part
                    yield call


@frozen
class FlowWork:
    """The work of a run: its name, a digest of its text, and ``evaluate``, which does it at a call of the run.

    ``program`` is the compiled program, if it is one."""

    name: str
    digest: str
    evaluate: Callable[[CallContext], Awaitable[Any]]
    program: Program | None = None


def no_bindings(call: FlowCall[Any]) -> ConfigurationError:
    """The error for passing bindings or an environment with a call, since only programs have them."""
    call.close()
    return ConfigurationError(
        f"{call.label} takes no bindings and no environment, which are a program's",
        code="python/bindings",
        hint="pass its inputs as arguments",
    )


def python_work(call: FlowCall[Any], bindings: object = None, env: object = None) -> FlowWork:
    """Begin a call, and return its work. Raises WorkflowError if it has begun before, ConfigurationError for bindings or an
    environment."""
    call.begin()
    if bindings is not None or env is not None:
        raise no_bindings(call)
    source = call.source or (None if call.span is None else call.span.source)
    return FlowWork(call.name, "" if source is None else source.digest, call.evaluate)


def check_arguments(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise WorkflowError for a call used as an argument without ``await``."""
    for value in (*arguments, *named.values()):
        if isinstance(value, FlowCall):
            call = cast("FlowCall[Any]", value)
            call.close()
            raise WorkflowError(
                f"'{name}' was passed the call {call.label} itself, instead of its value",
                code="python/not-awaited",
                hint=f"write await: {name}(await {call.name}(...))",
            )
