"""Tasks and workflows as Python has them: typed functions whose calls are awaited within a run, or are runs themselves."""

from __future__ import annotations

import asyncio
import functools
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, cast

from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict, Unpack

from agentflow.core.call import CallContext
from agentflow.core.effects import TaskCall
from agentflow.core.errors import ConfigurationError, LimitExceeded, WorkflowError
from agentflow.core.frozen import frozen
from agentflow.core.host_code import executing_call, executing_line
from agentflow.core.messages import ToolSpec
from agentflow.core.names import Template
from agentflow.core.ports import Tool
from agentflow.core.results import TaskResult
from agentflow.core.source import Source, Span
from agentflow.core.templates import ContextManagement, HistoryConfig
from agentflow.lang.environment import SexpEnvironment
from agentflow.lib.signature import Signature
from agentflow.runtime.engine import Engine, budget_of
from agentflow.runtime.line import Line, carried_out
from agentflow.runtime.places import Places
from agentflow.tasks.from_function import Returns, returns_of, template_fields

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class TaskSettings(TypedDict, total=False):
    """The options of a task: ``model`` and ``fallbacks`` by name, ``tools`` that its model may call, the ``system`` prompt,
    ``settings`` native to the model's dialect, ``timeout_s`` seconds for one attempt, ``retries`` further attempts after a
    failure, what ``context`` it is given and how it uses the ``history`` of the conversation, and ``reuse="1d"``, how old
    the result of an equal call may be to be used again.
    """

    model: str
    fallbacks: Sequence[str]
    tools: Sequence[str | Callable[..., Any]]
    system: str
    settings: Mapping[str, Any]
    timeout_s: float
    retries: int
    context: ContextManagement | Mapping[str, Any]
    history: HistoryConfig | Mapping[str, Any]
    reuse: str


class Host(Protocol):
    """The flow as its functions see it."""

    @property
    def engine(self) -> Engine: ...
    @property
    def places(self) -> Places: ...
    async def run_alone(self, call: FlowCall[Any]) -> Any:
        """The value of a call that is a run of its own."""
        ...

    def offer(self, function: Callable[..., Any]) -> str:
        """The name of a function as a tool, which it is made unless it is one."""
        ...


class FlowCall(Generic[R_co]):
    """A call that has not begun: await it, once, or hand it to ``flow.run``, ``flow.stream`` or ``flow.start``.

    In a workflow it is done there, in a tool within the tool's run, elsewhere it is a run of its own. ``name`` is that of
    what is called, ``span`` where in the host's file.
    """

    __slots__ = ("__weakref__", "_begun", "_host", "_line", "_work", "name", "source", "span")

    def __init__(
        self,
        host: Host,
        name: str,
        work: Callable[[Line], Awaitable[R_co]],
        span: Span | None,
        source: Source | None = None,
    ) -> None:
        self._begun = False
        self._line: Line | None = executing_line()
        self._host = host
        self.name = name
        self._work = work
        self.span = span
        self.source = source

    def __await__(self) -> Generator[Any, None, R_co]:
        return self._carry_out().__await__()

    def __str__(self) -> str:
        return f"{self.name}(...)" + (f" at {self.span}" if self.span is not None else "")

    def __repr__(self) -> str:
        return f"<call {self}, {'begun' if self._begun else 'not awaited'}>"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{self!r} has no '{name}': write (await {self.name}(...)).{name}")

    def __del__(self) -> None:
        if self._begun:
            return
        if self._line is not None:
            self._line.forgotten = str(self)
        else:
            warnings.warn(f"{self} was never awaited", RuntimeWarning, stacklevel=2, source=self)

    def close(self) -> None:
        """Give the call up, so that nobody misses an ``await``."""
        self._begun = True

    def begin(self) -> None:
        """Note that it begins. Raises WorkflowError the second time."""
        if self._begun:
            raise WorkflowError(
                f"{self} has begun already, and a call is awaited once",
                code="python/awaited-twice",
                hint="keep what it gave, or call again",
            )
        self._begun = True

    def work(self, line: Line) -> Awaitable[R_co]:
        """Carry it out on a line, once it has begun."""
        return self._work(line)

    async def evaluate(self, call: CallContext) -> R_co:
        """Carry it out, once it has begun, at the place ``call`` of a run, which is its own."""
        value = await carried_out(Line(self._host.engine.strand(call)), self, self.source)
        budget_of(call).check_over()
        return value

    def _carry_out(self) -> Coroutine[Any, Any, R_co]:
        call = executing_call()
        if call is None:
            return self._host.run_alone(self)
        self.begin()
        line: Line | None = executing_line()
        return self._join(call) if line is None or call.run.services is not self._host.engine else line.do(self)

    async def _join(self, call: CallContext) -> R_co:
        """Carry it out within the run of ``call``, that of a tool or of another flow's workflow."""
        engine = self._host.engine
        if call.host is not None and call.host.loop is not asyncio.get_running_loop():
            raise WorkflowError(
                f"{self} was awaited in another thread than its run works in",
                code="python/thread",
                hint="make the tool an async function; it may hand blocking work to asyncio.to_thread",
            )
        async with engine.called_back(call):
            if call.run.services is not engine:
                call = engine.join(call, call.next_path(self.name), session=call.session)[1]
            strand = engine.strand(call)
            try:
                return await self.work(Line(strand))
            except LimitExceeded as error:
                strand.budget.meet(error)
                raise
            finally:
                strand.end()


@frozen
class FlowWork:
    """What a run does: its name, a digest of its text, and ``evaluate``, which does it at a call of the run."""

    name: str
    digest: str
    evaluate: Callable[[CallContext], Awaitable[Any]]


def python_work(call: FlowCall[Any], bindings: object = None, env: object = None) -> FlowWork:
    """The work of a call, which begins by this. Raises WorkflowError, ConfigurationError for what a program alone has."""
    call.begin()
    if bindings is not None or env is not None:
        raise ConfigurationError(
            f"{call} takes no bindings and no environment, which are a program's",
            code="python/bindings",
            hint="pass what it needs as arguments",
        )
    source = call.source or (None if call.span is None else call.span.source)
    return FlowWork(call.name, "" if source is None else source.digest, call.evaluate)


class Task(Generic[R]):
    """A task that Python calls: its template, what it answers with, and how often it is tried."""

    def __init__(self, host: Host, fields: Mapping[str, Any], returns: Returns[R], settings: TaskSettings) -> None:
        self._template: Template = host.engine.tasks.prepare({**fields, **returns.fields, **_fields(host, settings)})
        self._env = _alone(self._template)
        self._returns = returns
        self._attempts = 1 + settings.get("retries", 0)

    @property
    def template(self) -> Template:
        """The template as the task system has it."""
        return self._template

    async def work(self, line: Line, inputs: dict[str, Any], span: Span | None) -> R:
        """Run it on a line. Raises the error of a FAILED result."""
        journal = line.strand.call.run.journal
        template = self._template if journal is None else journal.template(self._template)
        env = self._env if template is self._template else _alone(template)
        effect = TaskCall(template.name, inputs, env)

        async def once() -> R:
            return self._returns.read(await line.perform(effect, span))

        return await (once() if self._attempts == 1 else line.retry(self._attempts, once, span))


class TaskFunction(Generic[P, R]):
    """A function that ``@flow.task`` made a task. Its call validates the arguments, then asks the model."""

    def __init__(self, host: Host, function: Callable[P, Awaitable[R]], settings: TaskSettings) -> None:
        functools.update_wrapper(cast(Any, self), function)
        self.name = _name(function)
        self._host = host
        self._function = function
        self._settings = settings
        self._signature = Signature(function, self.name, None, "task")
        returns: Returns[R] = Returns(
            returns_of(function, self._signature, f"task '{self.name}'"), f"task '{self.name}'"
        )
        self._task = Task(host, template_fields(function, self.name, self._signature), returns, settings)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        check_arguments(self.name, arguments, named)
        span = self._host.places.here()

        async def work(line: Line) -> R:
            return await self._task.work(line, self._signature.data(arguments, named), span)

        return FlowCall(self._host, self.name, work, span)

    @property
    def template(self) -> Template:
        """The template as the task system has it."""
        return self._task.template

    def with_options(self, **settings: Unpack[TaskSettings]) -> TaskFunction[P, R]:
        """A copy with other options, for Python alone: programs go on to call the first. Raises as ``@flow.task``."""
        return TaskFunction(self._host, self._function, cast(TaskSettings, {**self._settings, **settings}))


class WorkflowFunction(Generic[P, R]):
    """A function that ``@flow.workflow`` made a workflow: what it calls are the effects of one run."""

    def __init__(self, host: Host, function: Callable[P, Awaitable[R]]) -> None:
        functools.update_wrapper(cast(Any, self), function)
        self.name = _name(function)
        self._host = host
        self._function = function
        self._signature = Signature(function, self.name, None, "workflow")
        returns_of(function, self._signature, f"workflow '{self.name}'")

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        check_arguments(self.name, arguments, named)

        async def work(line: Line) -> R:
            if line.entered:
                return await line.body(lambda: self._function(*arguments, **named))
            call = line.strand.call
            place = call.at(call.next_path("workflow", self.name, arguments, named))
            return await self._on_a_line(place, arguments, named)

        return FlowCall(self._host, self.name, work, self._host.places.here(), self._source)

    @property
    def tool(self) -> Tool:
        """The workflow as programs call it, and models that are given it by name."""

        async def execute(arguments: dict[str, Any], call: CallContext) -> Any:
            named = self._signature.bind(arguments, call)
            async with self._host.engine.called_back(call):
                value = await self._on_a_line(call.at(call.path), (), named)
            return value if isinstance(value, str | TaskResult) else to_jsonable_python(value)

        spec = ToolSpec(self.name, self._signature.description, self._signature.schema)
        return Tool(spec=spec, call=execute, validates=True, builtin=True)

    @property
    def _source(self) -> Source:
        code = self._function.__code__  # pyright: ignore[reportFunctionMemberAccess]
        return self._host.places.source(code.co_filename)

    async def _on_a_line(self, call: CallContext, arguments: Sequence[Any], named: Mapping[str, Any]) -> R:
        strand = self._host.engine.strand(call)
        function = cast(Callable[..., Awaitable[R]], self._function)
        try:
            return await Line(strand).run(lambda: function(*arguments, **named), source=self._source)
        finally:
            strand.end()


def check_arguments(name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Raise WorkflowError for an argument that is a call whose ``await`` was forgotten."""
    for value in (*arguments, *named.values()):
        if isinstance(value, FlowCall):
            call = cast("FlowCall[Any]", value)
            call.close()
            raise WorkflowError(
                f"'{name}' is given {call} itself, not what it gives",
                code="python/not-awaited",
                hint=f"write await: {name}(await {call.name}(...))",
            )


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _alone(template: Template) -> SexpEnvironment:
    """Definitions of this task alone: what Python calls is its own, whatever programs around it call so."""
    env = SexpEnvironment()
    env.define_task(template)
    return env


_NAMES: Mapping[str, str] = {"context": "context_management", "history": "history_config"}


def _fields(host: Host, settings: TaskSettings) -> dict[str, Any]:
    """The fields of a template for the options of a task."""
    fields: dict[str, Any] = {_NAMES.get(name, name): value for name, value in settings.items() if name != "retries"}
    if "tools" in fields:
        fields["tools"] = [each if isinstance(each, str) else host.offer(each) for each in fields["tools"]]
    return fields
