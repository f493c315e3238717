"""Tasks, workflows and programs as typed functions that Python calls."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import Unpack

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ConfigurationError, TaskError, clip
from agentflow.core.data.known_names import CompiledTask, narrowed
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.models import validation_messages
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Span
from agentflow.core.data.templates import HistoryConfig
from agentflow.core.ports.ports import Tool
from agentflow.flow.line import Line, own_code
from agentflow.flow.program_files import ProgramLike, load_program
from agentflow.flow.python import FlowCall, Host, WorkCall, check_arguments
from agentflow.flow.task_options import HOLDS_VALUES, READS_DEPS, Task, TaskSettings, check_options
from agentflow.handler.tools import declares_data, holds_values, no_reuse_key, task_tool
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program, as_source
from agentflow.lib.option_table import wrong_value
from agentflow.lib.signature import FunctionKind, is_method, plain_arguments, signature_of
from agentflow.run.engine import PythonTarget
from agentflow.run.strand.strand import Strand
from agentflow.tasks.from_function import Returns, check_used, returns_of, template_fields

if TYPE_CHECKING:  # how values are stored is loaded where there are durable runs
    from agentflow.durable.values.data_adapter import DataAdapter
    from agentflow.run.bounds.estimate import Bounds

Owner = TypeVar("Owner")
P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
T = TypeVar("T")


class Declared(ABC, Generic[P, R]):
    """A function declared with a decorator: Python calls it, and a durable run refers to it.

    One written in a class is called on an object of that class; ``of_class`` says that it has none yet.
    """

    def __init__(
        self, host: Host, function: Callable[P, Awaitable[R]], kind: FunctionKind, name: str | None = None
    ) -> None:
        if hasattr(function, "bound_to"):
            raise wrong_value(
                f"@{kind}", "function", function, f"is a {kind} already", "give it: AgentFlow(tasks=[...])"
            )
        functools.update_wrapper(cast(Any, self), function)
        self.name = name or _name(function)
        self._host = host
        self._function = function
        self.of_class = is_method(function)
        if self.of_class:
            from agentflow.flow.methods import NOBODY

            function = MethodType(function, NOBODY)
        self._checked: Callable[..., Awaitable[R]] = function
        self._signature = signature_of(function, self.name, kind=kind)

    @abstractmethod
    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        """Validate the arguments; await the returned call, or pass it to the flow."""

    @property
    def source(self) -> Source | None:
        """The file shown by a run that only calls the function."""
        return None

    @abstractmethod
    def work(self, arguments: tuple[Any, ...], named: dict[str, Any], span: Span | None, line: Line) -> Awaitable[R]:
        """Carry out a call with these arguments, at a span, on a line."""

    @abstractmethod
    def on(self, owner: object) -> Any:
        """The function as a method of the object ``owner``."""

    def bound_to(self, host: Host) -> Declared[P, R]:
        """The function as one of the flow of ``host``: this one, unless it was declared without a flow."""
        return self

    def called_on_class(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> FlowCall[R]:
        """A call of a method through its class. Raises ConfigurationError (``python/method``) without an object of that class."""
        from agentflow.flow.methods import first_of

        return self.on(first_of(arguments, self._function))(*arguments[1:], **named)

    @functools.cached_property
    def _value(self) -> DataAdapter[R] | None:
        """The adapter of its return value. Raises ConfigurationError (``durable/no-value``, ``durable/secret``)."""
        from agentflow.durable.values.data_adapter import adapter_for, checked

        return checked(adapter_for, self._signature.returns, f"'{self.name}'", checks=True)

    def store(self, value: Any) -> Any:
        return value if self._value is None else self._value.write(value)

    def restore(self, value: Any) -> Any:
        """Its return value, from the stored data. Raises JournalError (``durable/mismatch``)."""
        if self._value is None:
            return value
        try:
            return self._value.read(value)
        except ValueError as error:
            from agentflow.durable.values.data_adapter import unfit

            raise unfit(f"the value of '{self.name}'", "its end", error) from None

    @property
    def reference(self) -> str:
        """Its module and qualified name, used by durable runs to refer to it."""
        return reference_of(self._function)

    @property
    def digest(self) -> str:
        """A digest of the file that defines it."""
        return source_of(self._host, self._function).digest

    async def carry_out(self, bindings: Mapping[str, Any], call: CallContext) -> Any:
        arguments = {name: self._argument(name, value) for name, value in bindings.items()}
        work = cast(Callable[..., FlowCall[R]], self)(**self._signature.bind(arguments, call))
        work.begin()
        return await work.evaluate(call)

    def stored(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[PythonTarget, dict[str, Any]]:
        """The stored form of a call in a durable run: the function, and its arguments as data; secret arguments, or those not
        data, stay unchanged, and are not stored.

        Raises ConfigurationError for a function with a value that cannot be stored, or that another process could not find.
        """
        target: Any = self._host.engine.functions.get(self.reference)
        if target is not self and (target is None or not self._is(target)):
            raise self._not_found(target)
        _ = self._value
        values = self._signature.given(arguments, named)
        return self, {name: _storable(self._signature.kinds[name], value) for name, value in values.items()}

    def _is(self, other: Any) -> bool:
        """Whether ``other`` was declared as this was: methods of one object are made again whenever they are named."""
        return type(other) is type(self) and other._function == self._function

    def _not_found(self, other: object) -> ConfigurationError:
        """The error for a durable run of a function that its reference does not name in the flow; ``other`` is the value it names."""
        shown = clip(self._function.__qualname__, 160)
        if other is not None:
            return ConfigurationError(
                f"the flow has another '{shown}' of the same module, which another process would find in place of this one",
                code="python/not-durable",
                hint=f"give one of them a name of its own: with_options(name='{clip(self.name, 80)}-2')",
            )
        return ConfigurationError(
            f"'{shown}' was not given to the flow, so another process could not find it",
            code="python/not-durable",
            hint=f"give it where the flow is made: AgentFlow(tasks=[{self.name}])",
        )

    def _argument(self, name: str, value: Any) -> Any:
        """An argument from its stored form. Raises JournalError (``durable/mismatch``)."""
        from agentflow.durable.values.codec import Shaped
        from agentflow.durable.values.data_adapter import adapter_for, unfit

        if type(value) is not Shaped:
            return value
        adapter = adapter_for(self._signature.kinds.get(name, Any))
        try:
            return value.data if adapter is None else adapter.read(value)
        except ValueError as error:
            raise unfit(f"the argument '{name}' of '{self.name}'", "its beginning", error) from None


def _storable(kind: Any, value: Any) -> Any:
    """An argument as data; itself where it is secret or no data."""
    from agentflow.durable.values.codec import NotData
    from agentflow.durable.values.data_adapter import adapter_for

    try:
        adapter = adapter_for(kind)
        return value if adapter is None or adapter.secret is not None else adapter.write(value)
    except (ConfigurationError, NotData):
        return value


class TaskFunction(Declared[P, R]):
    """A task declared with ``@flow.task``. A call validates the arguments, then asks the model.

    ``copied`` is a copy by :meth:`with_options`, which durable runs find by its own ``name`` only.
    """

    def __init__(
        self, host: Host, function: Callable[P, Awaitable[R]], settings: TaskSettings, *, copied: bool = False
    ) -> None:
        check_options(settings, "task")
        super().__init__(host, function, "task", settings.get("name"))
        self._settings = settings
        self._copied = copied
        label = f"task '{self.name}'"
        self._returns: Returns[R] = Returns(returns_of(self._checked, self._signature, label), label)
        fields = template_fields(self._checked, self.name, self._signature)
        if "prompt_function" in fields and settings.get("reuse") is not None and settings.get("reuse_key") is None:
            why = (
                HOLDS_VALUES if holds_values(self._checked) else READS_DEPS if self._signature.deps is not None else ""
            )
            if why:
                raise no_reuse_key(label, "its function, which gives the prompt,", why)
        if isinstance(self._checked, MethodType):
            from agentflow.flow.methods import settings_on

            settings = cast(TaskSettings, settings_on(settings, self._checked))
        self._task = Task(host, fields, self._returns, settings)
        if not copied:
            check_used(function, self.template.template)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        if self.of_class:
            return self.called_on_class(arguments, named)
        check_arguments(self.name, arguments, named)
        work = partial(self.work, arguments, named, self._host.spans.here())
        return WorkCall(self._host, self.name, work.args[2], work, stored=partial(self.stored, arguments, named))

    @overload
    def __get__(self, owner: None, kind: Any, /) -> Self: ...
    @overload
    def __get__(
        self: TaskFunction[Concatenate[Owner, Q], R], owner: Owner, kind: Any = None, /
    ) -> TaskFunction[Q, R]: ...
    @overload
    def __get__(self, owner: object, kind: Any = None, /) -> Self: ...
    def __get__(self, owner: Any, kind: Any = None, /) -> Any:
        """The task as a method of ``owner``, where it is written in a class."""
        return self.on(owner) if self.of_class and owner is not None else self

    def work(self, arguments: tuple[Any, ...], named: dict[str, Any], span: Span | None, line: Line) -> Awaitable[R]:
        return self._task.work(line, self._signature.data(arguments, named), span)

    def on(self, owner: object) -> TaskFunction[..., R]:
        return self.made(MethodType(self._function, owner), self._settings, self._copied)

    def made(self, function: Callable[Q, Awaitable[T]], settings: TaskSettings, copied: bool) -> TaskFunction[Q, T]:
        """A task of the same flow."""
        return TaskFunction(self._host, function, settings, copied=copied)

    @property
    def template(self) -> CompiledTask:
        """The template as the task system has it."""
        return self._task.template

    def template_in(self, services: object) -> CompiledTask:
        """The template of the task in runs of ``services``."""
        return self.template

    @functools.cached_property
    def tool(self) -> Tool:
        """The task as a tool: a model given it calls this task, even if another has its name."""
        signature, template = self._signature, self.template
        told = template.template.description or signature.description
        return task_tool(template, told, signature.schema, self._function)

    def with_options(self, **settings: Unpack[TaskSettings]) -> TaskFunction[P, R]:
        """A copy with other options, for calls from Python: programs still call the original. Settings of the history
        adjust those of the original one by one.

        With its own ``name`` the copy is a separate task, which programs and durable runs find by that name; ``flow.start``
        refuses a copy without one. Raises the errors of ``@flow.task``.
        """
        merged = cast(TaskSettings, {**self._settings, **settings})
        if "history" in settings and "history" in self._settings:
            merged["history"] = HistoryConfig.of(settings["history"]).over(HistoryConfig.of(self._settings["history"]))
        copy = self.made(self._function, merged, True)
        if "name" in settings:
            copy.declare()
        return copy

    def declare(self) -> None:
        """Let programs and durable runs find the task. A method without an object is not registered."""
        if not self.of_class:
            engine = self._host.engine
            engine.tasks.publish([self.template])
            engine.functions[self.reference] = self

    @property
    def reference(self) -> str:
        return f"{super().reference}@{self.name}" if self._copied else super().reference

    def _is(self, other: Any) -> bool:
        return super()._is(other) and other._settings == self._settings

    def _not_found(self, other: object) -> ConfigurationError:
        if not self._copied:
            return super()._not_found(other)
        return ConfigurationError(
            f"this is a copy of the task '{self.name}' with other options, which another process could not find",
            code="python/not-durable",
            hint=f"give the copy a name where it is made: with_options(name='{self.name}-2', ...)",
        )


class WorkflowFunction(Declared[P, R]):
    """A workflow declared with ``@flow.workflow``: the calls it awaits are the effects of one run."""

    def __init__(self, host: Host, function: Callable[P, Awaitable[R]]) -> None:
        super().__init__(host, function, "workflow")
        returns = returns_of(self._checked, self._signature, f"workflow '{self.name}'")
        self._returns: TypeAdapter[R] | None = _validator_of(returns)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        if self.of_class:
            return self.called_on_class(arguments, named)
        check_arguments(self.name, arguments, named)
        span, source = self._host.spans.here(), self.source
        work, stored = partial(self.work, arguments, named, span), partial(self.stored, arguments, named)
        return WorkCall(self._host, self.name, span, work, source=source, stored=stored)

    @overload
    def __get__(self, owner: None, kind: Any, /) -> Self: ...
    @overload
    def __get__(
        self: WorkflowFunction[Concatenate[Owner, Q], R], owner: Owner, kind: Any = None, /
    ) -> WorkflowFunction[Q, R]: ...
    @overload
    def __get__(self, owner: object, kind: Any = None, /) -> Self: ...
    def __get__(self, owner: Any, kind: Any = None, /) -> Any:
        """The workflow as a method of ``owner``, where it is written in a class."""
        return self.on(owner) if self.of_class and owner is not None else self

    @property
    def source(self) -> Source | None:
        return source_of(self._host, self._function)

    async def work(self, arguments: tuple[Any, ...], named: dict[str, Any], span: Span | None, line: Line) -> R:
        whole = self._signature.completed(arguments, named)
        line.converses = False  # the session is for those of its tasks that ask for it
        if line.entered:
            function = cast(Callable[..., Awaitable[R]], self._function)
            return await own_code(line, lambda: function(*arguments, **whole))
        call = line.strand.call
        inner = call.at(call.next_path("workflow", self.name, arguments, named))
        return await self._on_a_line(inner, arguments, whole)

    def on(self, owner: object) -> WorkflowFunction[..., R]:
        return self.made(MethodType(self._function, owner))

    def made(self, function: Callable[Q, Awaitable[T]]) -> WorkflowFunction[Q, T]:
        """A workflow of the same flow."""
        return WorkflowFunction(self._host, function)

    def declare(self) -> None:
        """Let programs, models and durable runs find the workflow. A method without an object is not registered."""
        if not self.of_class:
            self._host.add_workflow(self.tool)
            self._host.engine.functions[self.reference] = self

    @functools.cached_property
    def tool(self) -> Tool:
        """The workflow as a tool: programs call it by its name, and a model given it calls this workflow."""

        async def execute(arguments: dict[str, Any], call: CallContext) -> Any:
            named = self._signature.bind(await plain_arguments(arguments), call)
            inner = call.for_host()
            async with self._host.engine.called_back(inner):
                value = await self._on_a_line(inner.at(inner.path), (), named)
            return value if isinstance(value, str | TaskResult) else to_jsonable_python(value, bytes_mode="base64")

        spec = ToolSpec(self.name, self._signature.description, self._signature.schema)
        returns = None if self._returns is None else functools.cache(self._returns.json_schema)
        return Tool(
            spec=spec,
            call=execute,
            validates=True,
            builtin=True,
            calls_models=True,
            returns=returns,
            declares_data=declares_data(self._signature.returns),
            function=self._function,
        )

    async def _on_a_line(self, call: CallContext, arguments: Sequence[Any], named: Mapping[str, Any]) -> R:
        strand = self._host.engine.strand(call)
        function = cast(Callable[..., Awaitable[R]], self._function)
        try:
            return await own_code(
                Line(strand), lambda: function(*arguments, **named), source=source_of(self._host, self._function)
            )
        finally:
            strand.end()


class ProgramFunction(Generic[R]):
    """A program called from Python with its bindings as keywords, each validated as the type in ``parameters``."""

    def __init__(
        self, host: Host, program: ProgramLike, parameters: Mapping[str, Any] | None, returns: Any = None
    ) -> None:
        self.name = _program_name(program)
        self._host = host
        self._program = program
        self._types: dict[str, TypeAdapter[Any]] | None = None
        if parameters is not None:
            self._types = {name: TypeAdapter(kind) for name, kind in parameters.items()}
        self._returns: Returns[R] | None = None if returns is None else Returns(returns, f"program '{self.name}'")

    def __call__(self, **bindings: Any) -> FlowCall[R]:
        check_arguments(self.name, (), bindings)

        async def work(line: Line) -> R:
            value = await self._evaluate(line.strand, self._checked(bindings))
            return value if self._returns is None else self._returns.read(TaskResult.of(value, guess=False))

        return WorkCall(self._host, self.name, self._host.spans.here(), work)

    async def bounds(self, **bindings: Any) -> Bounds:
        """The largest work and cost of a call with these ``bindings``; the sizes of omitted ones stay open.

        Raises as ``flow.bounds``, and TaskError for a binding of the wrong type.
        """
        return await self._host.bounds(self._program, bindings=self._checked(bindings, some=True))

    async def _evaluate(self, strand: Strand, bindings: dict[str, Any]) -> Any:
        engine, env = self._host.engine, SexpEnvironment(bindings)
        source = await load_program(self._program)
        grants = narrowed(strand.grants, strand.call.held)
        program = await engine.compiler.compiled(
            source, env=env, grants=grants, defined=strand.definitions(), budget=strand.budget
        )
        call = strand.call.at(strand.call.next_path("program", program.source.digest, bindings), grants=grants)
        return await engine.evaluate(program, env, call, fitted=True)

    def _checked(self, bindings: Mapping[str, Any], *, some: bool = False) -> dict[str, Any]:
        """The validated bindings: all of them, or with ``some`` a part."""
        types = self._types
        if types is None:
            return dict(bindings)
        wrong = sorted(bindings.keys() - types.keys() if some else bindings.keys() ^ types.keys())
        if wrong:
            raise TypeError(
                f"program '{self.name}' takes {', '.join(types)}: {', '.join(wrong)} is missing or not expected"
            )
        checked: dict[str, Any] = {}
        for name, value in bindings.items():
            try:
                checked[name] = types[name].validate_python(value)
            except ValidationError as error:
                raise TaskError(
                    f"program '{self.name}' cannot take '{name}': {'; '.join(validation_messages(error)[:5])}",
                    code="tasks/bad-parameter",
                    reason="input_validation_failure",
                ) from error
        return checked


def source_of(host: Host, function: Callable[..., Any]) -> Source:
    """The Python file that defines a function."""
    inner = inspect.unwrap(function)
    return host.spans.source(inner.__code__, inner.__globals__)


def reference_of(function: Callable[..., Any]) -> str:
    """The module and the qualified name of a function."""
    return f"{function.__module__}:{function.__qualname__}"


def _validator_of(kind: Any) -> TypeAdapter[Any] | None:
    """A validator for ``kind``; None for a type that pydantic does not support."""
    try:
        return TypeAdapter(kind)
    except PydanticUserError:
        return None


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _program_name(program: ProgramLike) -> str:
    if isinstance(program, Path):
        return str(program)
    return program.source.name if isinstance(program, Program) else as_source(program).name
