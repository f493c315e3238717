"""Tasks and workflows declared without a flow, and methods: they belong to a flow, and to an object, when they are called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Never, ParamSpec, TypeVar, cast, overload

from typing_extensions import Unpack

from agentflow.core.call.call import calling
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.known_names import CompiledTask
from agentflow.core.ports.ports import Tool
from agentflow.core.ports.toolbox import Toolbox
from agentflow.flow.host_spans import HostSpans
from agentflow.flow.python import FlowCall, Host, WorkCall
from agentflow.flow.python_functions import Declared, TaskFunction, WorkflowFunction
from agentflow.flow.task_options import TaskSettings
from agentflow.handler.tool_lists import read_tools

if TYPE_CHECKING:
    from agentflow.run.bounds.estimate import Bounds
    from agentflow.run.engine import Engine

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


class NoFlow:
    """The host of functions declared without a flow: it checks their lists of tools, and runs nothing.

    Implements :class:`~agentflow.flow.python.Host`, and the table of tools of a flow without any.
    """

    def __init__(self) -> None:
        self.words: Container[str] = ()
        self.spans = HostSpans()

    @property
    def engine(self) -> Engine:
        raise no_flow("this workflow")

    async def run_alone(self, call: FlowCall[Any]) -> Never:
        call.close()
        raise no_flow(call.label, call.name)

    async def bounds(self, program: Any, *, bindings: Mapping[str, Any] | None = None) -> Bounds:
        raise no_flow("this program")

    def add_workflow(self, tool: Tool) -> None:
        raise no_flow(f"the workflow '{tool.name}'")

    def bound(self, declared: Any) -> Any:
        return declared

    def all_bound(self, listed: Any) -> Any:
        return listed

    def read_tools(self, tools: object, where: str) -> tuple[list[str] | None, Toolbox]:
        return read_tools(tools, self, where)

    skills: Tool | None = None

    def read_skills(self, directories: object, where: str) -> Tool | None:
        from agentflow.flow.skills import SkillReader

        return SkillReader(()).tool(directories, where)

    def find(self, name: str) -> Tool | None:
        """No tool: a flow has them."""
        return None

    def offers(self, name: str) -> bool:
        """Whether a list may hold ``name``: any flow that the task is called in may have that server."""
        return True


NO_FLOW = NoFlow()


def no_flow(label: str, name: str = "review") -> ConfigurationError:
    """The error for something declared without a flow and used outside any."""
    return ConfigurationError(
        f"{label} was declared without a flow, and is used outside of a run",
        code="python/no-flow",
        hint=f"write flow.run({name}(...)), or await it in a workflow or a tool, which belong to a flow",
    )


def host_of(services: object, label: str, name: str) -> Host:
    """The host of the flow that ``services`` opens runs for. Raises ConfigurationError (``python/no-flow``)."""
    host: Host | None = getattr(services, "host", None)
    if host is None:
        raise no_flow(label, name)
    return host


class UnboundCall(WorkCall[R]):
    """A call of a function without a flow: it belongs to the flow that runs or awaits it."""

    __slots__ = ("_arguments", "_declared", "_named")

    def __init__(self, declared: Declared[..., R], arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        super().__init__(NO_FLOW, declared.name, NO_FLOW.spans.here(2), self._unbound)
        self._declared = declared
        self._arguments = arguments
        self._named = named

    @property
    def content(self) -> tuple[Any, ...]:
        return self._arguments, self._named

    def _unbound(self, line: object) -> Never:
        raise no_flow(self.label, self.name)

    def bind(self, host: Host) -> None:
        if self._host is not NO_FLOW:
            return
        bound = host.bound(self._declared)
        self._host = host
        self.source = bound.source
        self.work = partial(bound.work, self._arguments, self._named, self.span)
        self._stored = partial(bound.stored, self._arguments, self._named)

    def __await__(self) -> Generator[Any, None, R]:
        call = calling()
        if call is not None:
            self.bind(host_of(call.run.services, self.label, self.name))
        return super().__await__()


class UnboundTask(TaskFunction[P, R]):
    """A task declared with ``@agentflow.task``, without a flow. Each flow that calls it has one of its own."""

    def __init__(self, function: Callable[P, Awaitable[R]], settings: TaskSettings, *, copied: bool = False) -> None:
        super().__init__(NO_FLOW, function, settings, copied=copied)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        return self.called_on_class(arguments, named) if self.of_class else UnboundCall(self, arguments, named)

    def bound_to(self, host: Host) -> TaskFunction[P, R]:
        return TaskFunction(host, self._function, self._settings, copied=self._copied)

    def made(self, function: Callable[Q, Awaitable[T]], settings: TaskSettings, copied: bool) -> UnboundTask[Q, T]:
        return UnboundTask(function, settings, copied=copied)

    def template_in(self, services: object) -> CompiledTask:
        bound = host_of(services, f"task '{self.name}'", self.name).bound(self)
        return cast("TaskFunction[P, R]", bound).template

    def declare(self) -> None:
        """Do nothing: the flow given the task declares it."""


class UnboundWorkflow(WorkflowFunction[P, R]):
    """A workflow declared with ``@agentflow.workflow``, without a flow. Each flow that calls it has one of its own."""

    def __init__(self, function: Callable[P, Awaitable[R]]) -> None:
        super().__init__(NO_FLOW, function)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        return self.called_on_class(arguments, named) if self.of_class else UnboundCall(self, arguments, named)

    def bound_to(self, host: Host) -> WorkflowFunction[P, R]:
        return WorkflowFunction(host, self._function)

    def made(self, function: Callable[Q, Awaitable[T]]) -> UnboundWorkflow[Q, T]:
        return UnboundWorkflow(function)


@overload
def task(function: Callable[P, Awaitable[R]], /) -> UnboundTask[P, R]: ...
@overload
def task(**settings: Unpack[TaskSettings]) -> Callable[[Callable[P, Awaitable[R]]], UnboundTask[P, R]]: ...
def task(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Make an async function, or a method, a task without a flow: ``@agentflow.task`` or ``@agentflow.task(model=...)``.

    A flow that runs it, ``flow.run(review("a.py"))``, or has a workflow or tool that awaits it, runs it with its own models
    and tools. Programs, durable runs and workers find it if you pass it to the flow: ``AgentFlow(tasks=[review])``.
    Otherwise it behaves like a task of :meth:`AgentFlow.task`, with the same options and errors. Awaited outside a run it raises
    ConfigurationError (``python/no-flow``).
    """

    def register(function: Callable[..., Any]) -> UnboundTask[..., Any]:
        return UnboundTask(function, cast(TaskSettings, settings))

    return register if function is None else register(function)


def workflow(function: Callable[P, Awaitable[R]], /) -> UnboundWorkflow[P, R]:
    """Make an async function, or a method, a workflow without a flow, as :func:`agentflow.task` does for tasks."""
    return UnboundWorkflow(function)
