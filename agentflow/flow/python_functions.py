"""Tasks, workflows and programs as typed functions that Python calls."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from pydantic import PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python
from typing_extensions import TypedDict, Unpack

from agentflow.core.call.call import CallContext
from agentflow.core.call.endings import called_by_host
from agentflow.core.data.errors import ConfigurationError, TaskError
from agentflow.core.data.known_names import CompiledTask, Template, narrowed
from agentflow.core.data.messages import Effort, PromptCache, ToolSpec
from agentflow.core.data.models import validation_messages
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Span
from agentflow.core.data.templates import ContextManagement, HistoryConfig
from agentflow.core.events.effects import TaskCall
from agentflow.core.ports.ports import USUAL_RULES, ModelMiddleware, Tool, ToolChooser, ToolMiddleware, TurnRules
from agentflow.core.ports.toolbox import NO_TOOLBOX, Toolbox
from agentflow.flow.line import Line
from agentflow.flow.program_files import ProgramLike, load_program
from agentflow.flow.python import FlowCall, Host, WorkCall, check_arguments
from agentflow.handler.tool_lists import entry_of, read_handoffs
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.tools import declares_data, holds_values, no_reuse_key, task_tool
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.program import Program, as_source
from agentflow.lib.option_table import CALLED, FIELDS, NAMES, Place, unknown_option, wrong_value
from agentflow.lib.signature import FunctionKind, annotated, context_in, plain_arguments, signature_of
from agentflow.run.engine import PythonTarget
from agentflow.run.strand.strand import Strand
from agentflow.tasks.from_function import Returns, check_by, check_used, deps_of, returns_of, system_by, template_fields
from agentflow.tasks.handoffs import check_handoffs

if TYPE_CHECKING:  # how values are stored is loaded where there are durable runs
    from agentflow.durable.values.data_adapter import DataAdapter
    from agentflow.run.bounds.estimate import Bounds

P = ParamSpec("P")
R = TypeVar("R")
Check: TypeAlias = Callable[[Any, CallContext[Any]], Any]
"""Judges the answer of a task: of the value and the call, async or plain. Returns the value, changed or not, or raises Retry."""
ToolsFunction: TypeAlias = Callable[[CallContext[Any]], "Sequence[Any] | Awaitable[Sequence[Any]]"]
"""Returns the tools of the next turn for a call; async or plain."""
SystemFunction: TypeAlias = Callable[[CallContext[Any]], "str | Awaitable[str]"]
"""Returns the system prompt for a call; async or plain."""


class AskSettings(TypedDict, total=False):
    """The options that ``flow.ask`` and ``@flow.task`` share.

    ``model`` and ``fallbacks`` are names of models; ``system`` is the system prompt, which follows the flow's own: a text with
    ``{{slots}}``, or a function of the :class:`CallContext`, async or plain;
    ``tools`` are the tools that the model may call: functions, tasks, workflows, Tools, MCP servers, names of the flow's
    tools, or ``flow.tools`` for all of these; the default is none. A function of ``ctx`` that returns such a list is called
    before each turn. ``handoffs`` are the tasks, as functions, names or :class:`~agentflow.Handoff`,
    that it may hand the conversation over to. ``provider_tools`` are tools of the provider itself, for
    example a web search. ``tool_choice`` is ``auto``, ``required``, ``none`` or the name of a tool, for the first turn, or with
    ``tool_choice_each`` for every one. ``check`` is called with each answer and the :class:`CallContext`: it returns the value,
    changed or not, or raises :class:`~agentflow.Retry`, upon which the model repairs its answer, ``rounds`` times at most
    (default 1), those of a wrong type included. ``max_turns`` bounds the model calls of the tool loop, ``max_output_tokens`` one answer;
    ``effort`` says how hard the model thinks, ``settings`` are request fields native to its dialect. ``timeout_s`` are the
    seconds for one attempt, ``retries`` the further attempts after a temporary failure: of a rate, a server or a
    connection, or an answer of the wrong form. ``history`` says whether the task takes part in the conversation (True: it
    sends earlier messages and adds its own; otherwise only if the call names a session), or states its settings one by one;
    ``context`` controls its reading material, ``file_paths`` are files that it always reads. ``reuse="1d"`` is the maximum
    age of an equal call's result that is used again, ``reuse_key`` identifies the state of tools that are closures or bound
    methods, ``prompt_cache`` is how long the provider caches the prompt, ``priority`` (-1000 to 1000) the place of its
    calls among waiting ones, ``decompose`` the number of rounds in which a model may split the task by a program once it
    ran out of room. ``around_tool`` and ``around_model`` are async functions around the calls of its tools and of its model,
    within those of the flow and the run.
    """

    model: str
    fallbacks: Sequence[str]
    system: str | SystemFunction
    tools: Sequence[Any] | ToolRegistry | ToolsFunction
    handoffs: Sequence[Any]
    provider_tools: Sequence[Mapping[str, Any]]
    tool_choice: str
    tool_choice_each: bool
    check: Check
    rounds: int
    max_turns: int
    max_output_tokens: int
    effort: Effort
    settings: Mapping[str, Any]
    timeout_s: float
    retries: int
    history: HistoryConfig | Mapping[str, Any] | bool
    context: ContextManagement | Mapping[str, Any]
    file_paths: Sequence[str]
    reuse: str
    reuse_key: str
    prompt_cache: PromptCache
    priority: int
    decompose: int
    around_tool: Sequence[ToolMiddleware]
    around_model: Sequence[ModelMiddleware]


class TaskSettings(AskSettings, total=False):
    """The options of a task: those of :class:`AskSettings`, and those of named tasks.

    ``name`` is the name of the task in programs, models and records, in place of the function's; ``description`` states its
    purpose, and ``subtype`` groups it: ``atomic:SUBTYPE`` finds the last one of it.
    """

    name: str
    description: str
    subtype: str


class Task(Generic[R]):
    """A task called from Python: its template, the type of its answer, and the number of attempts."""

    def __init__(self, host: Host, fields: Mapping[str, Any], returns: Returns[R], settings: TaskSettings) -> None:
        names, toolbox = tools_of(host, settings, f"task '{fields['name']}'")
        chosen = {
            "stateless": True,
            **fields,
            **returns.fields,
            **_fields(settings, fields["name"], returns, host),
            "tools": names,
        }
        self._template: CompiledTask = host.engine.tasks.prepare(chosen)
        if toolbox:
            self._template = self._template.with_tools(toolbox)
            check_handoffs(self._template)
        self._env = _alone(self._template)
        self._returns = returns
        self._attempts = 1 + settings.get("retries", 0)

    @property
    def template(self) -> CompiledTask:
        """The template as the task system has it."""
        return self._template

    def given(self, toolbox: Toolbox) -> Task[R]:
        """This task with other tool objects of the same names."""
        task = cast("Task[R]", object.__new__(Task))
        task.__dict__.update(self.__dict__)
        task._template = self._template.with_tools(toolbox)
        task._env = _alone(task._template)
        return task

    async def work(self, line: Line, inputs: dict[str, Any], span: Span | None) -> R:
        """Run the task on a line and return its value. Raises the error of a FAILED result."""
        journal = line.strand.call.run.journal
        template: Template = self._template.conversing() if line.converses else self._template
        if journal is not None:
            template = journal.template(template)
        env = self._env if template is self._template else _alone(template)
        effect = TaskCall(template.name, inputs, env)

        async def once() -> R:
            return self._returns.read(await line.perform(effect, span))

        return await (once() if self._attempts == 1 else line.retry(self._attempts, once, span, _may_pass))


class _Declared(ABC, Generic[P, R]):
    """A function that was declared with a decorator of a flow: Python calls it, and a durable run refers to it."""

    def __init__(
        self, host: Host, function: Callable[P, Awaitable[R]], kind: FunctionKind, name: str | None = None
    ) -> None:
        functools.update_wrapper(cast(Any, self), function)
        self.name = name or _name(function)
        self._host = host
        self._function = function
        self._signature = signature_of(function, self.name, kind=kind)

    @abstractmethod
    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        """Validate the arguments; await the returned call, or pass it to the flow."""

    @functools.cached_property
    def _value(self) -> DataAdapter[R] | None:
        """The adapter of its return value. Raises ConfigurationError (``durable/no-value``, ``durable/secret``)."""
        from agentflow.durable.values.data_adapter import adapter_for, checked

        return checked(adapter_for, self._signature.returns, f"'{self.name}'", checks=True)

    def store(self, value: Any) -> Any:
        return value if self._value is None else self._value.write(value)

    def restore(self, value: Any) -> Any:
        """Its return value, from the data that was stored. Raises JournalError (``durable/mismatch``)."""
        if self._value is None:
            return value
        try:
            return self._value.read(value)
        except ValueError as error:
            from agentflow.durable.values.data_adapter import unfit

            raise unfit(f"the value of '{self.name}'", "its end", error) from None

    @property
    def reference(self) -> str:
        """Its module and qualified name, by which durable runs refer to it."""
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

    def _stored(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[PythonTarget, dict[str, Any]]:
        """The stored form of a call in a durable run: the function, and its arguments as data; arguments that are secret or
        not data stay unchanged, and are not stored.

        Raises ConfigurationError for a function whose value could not be stored.
        """
        _ = self._value
        values = self._signature.given(arguments, named)
        return self, {name: _storable(self._signature.kinds[name], value) for name, value in values.items()}

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


class TaskFunction(_Declared[P, R]):
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
        self._returns: Returns[R] = Returns(returns_of(function, self._signature, label), label)
        self._task = Task(host, template_fields(function, self.name, self._signature), self._returns, settings)
        if not copied:
            check_used(function, self.template.template)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        check_arguments(self.name, arguments, named)
        span = self._host.spans.here()

        async def work(line: Line) -> R:
            return await self._task.work(line, self._signature.data(arguments, named), span)

        return WorkCall(self._host, self.name, span, work, stored=partial(self._stored, arguments, named))

    @property
    def template(self) -> CompiledTask:
        """The template as the task system has it."""
        return self._task.template

    @functools.cached_property
    def tool(self) -> Tool:
        """The task as a tool: a model that is given it calls this task, even if another has its name."""
        signature, template = self._signature, self.template
        return task_tool(template, signature.description, signature.schema, self._function)

    def with_options(self, **settings: Unpack[TaskSettings]) -> TaskFunction[P, R]:
        """A copy with other options, for calls from Python: programs still call the original. Settings of the history
        adjust those of the original one by one.

        With its own ``name`` the copy is a separate task, which programs and durable runs find by that name; ``flow.start``
        refuses a copy without one. Raises the errors of ``@flow.task``.
        """
        merged = cast(TaskSettings, {**self._settings, **settings})
        if "history" in settings and "history" in self._settings:
            merged["history"] = HistoryConfig.of(settings["history"]).over(HistoryConfig.of(self._settings["history"]))
        copy = TaskFunction(self._host, self._function, merged, copied=True)
        if "name" in settings:
            copy.declare()
        return copy

    def declare(self) -> None:
        """Let programs and durable runs find the task."""
        engine = self._host.engine
        engine.tasks.publish([self.template])
        engine.functions[self.reference] = self

    @property
    def reference(self) -> str:
        return f"{super().reference}@{self.name}" if self._copied else super().reference

    def _stored(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[PythonTarget, dict[str, Any]]:
        if self._copied and self._host.engine.functions.get(self.reference) is not self:
            raise ConfigurationError(
                f"this is a copy of the task '{self.name}' with other options, which another process could not find",
                code="python/not-durable",
                hint=f"give the copy a name where it is made: with_options(name='{self.name}-2', ...)",
            )
        return super()._stored(arguments, named)


class WorkflowFunction(_Declared[P, R]):
    """A workflow declared with ``@flow.workflow``: the calls it awaits are the effects of one run."""

    def __init__(self, host: Host, function: Callable[P, Awaitable[R]]) -> None:
        super().__init__(host, function, "workflow")
        returns = returns_of(function, self._signature, f"workflow '{self.name}'")
        self._returns: TypeAdapter[R] | None = _validator_of(returns)

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> FlowCall[R]:
        check_arguments(self.name, arguments, named)
        whole = self._signature.completed(arguments, named)

        async def work(line: Line) -> R:
            line.converses = False  # the session is for those of its tasks that ask for it
            if line.entered:
                return await line.body(lambda: cast(Callable[..., Awaitable[R]], self._function)(*arguments, **whole))
            call = line.strand.call
            inner = call.at(call.next_path("workflow", self.name, arguments, named))
            return await self._on_a_line(inner, arguments, whole)

        span, source = self._host.spans.here(), source_of(self._host, self._function)
        return WorkCall(
            self._host, self.name, span, work, source=source, stored=partial(self._stored, arguments, named)
        )

    @functools.cached_property
    def tool(self) -> Tool:
        """The workflow as a tool: programs call it by its name, and a model that is given it calls this workflow."""

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
            return await Line(strand).run(
                lambda: function(*arguments, **named), source=source_of(self._host, self._function)
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
        """The most that a call with these ``bindings`` may do and cost; the sizes of those that are left out stay open.

        Raises as ``flow.bounds``, and TaskError for a binding that is not of its type.
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
    """The Python file in which a function is written."""
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


def _may_pass(error: BaseException | None) -> bool:
    return isinstance(error, TaskError) and error.may_pass


def _alone(template: Template) -> SexpEnvironment:
    """Definitions with this task alone: Python calls this one even if programs define another under its name."""
    env = SexpEnvironment()
    env.define_task(template)
    return env


_MOST_ROUNDS = 20
_READS_DEPS = "may read the dependencies of a run"


def check_options(settings: Mapping[str, Any], where: Place) -> None:
    """Raise ConfigurationError (``config/option``) for an option that is none at ``where``, or cannot have its value."""
    if not settings.keys() <= NAMES[where]:
        raise unknown_option(settings, where)
    retries: object = settings.get("retries", 0)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise wrong_value(CALLED[where], "retries", retries, "is no number of attempts", "0 or more: retries=2")
    rounds: object = settings.get("rounds", 1)
    if type(rounds) is not int or not 0 <= rounds <= _MOST_ROUNDS:
        raise wrong_value(CALLED[where], "rounds", rounds, "is no number of repairs", f"0 to {_MOST_ROUNDS}: rounds=2")
    if settings.get("reuse") is not None and settings.get("reuse_key") is None:
        for name in ("system", "check", "tools"):
            if callable(settings.get(name)):
                raise no_reuse_key(CALLED[where], f"its {name} function", _READS_DEPS)


def tools_of(host: Host, settings: TaskSettings, label: str) -> tuple[list[str] | None, Toolbox]:
    """The names of the tools that a task is offered, and the objects among them. Raises ConfigurationError."""
    names, toolbox = [], NO_TOOLBOX
    if "tools" in settings and not chooses_tools(settings["tools"]):
        names, toolbox = host.read_tools(settings["tools"], label)
    if "handoffs" in settings:
        others, own = read_handoffs(settings["handoffs"], label)
        names = None if names is None else [*names, *others]
        toolbox = toolbox.with_all(own) if own else toolbox
    if not AROUND.isdisjoint(settings):
        toolbox = _with_middleware(toolbox, settings, label)
    if settings.get("reuse") is None:
        return names, toolbox
    key = settings.get("reuse_key")
    readers = [name for name, tool in toolbox.items() if tool.deps is not None]
    if readers and key is None:
        raise no_reuse_key(label, f"its tool '{readers[0]}'", _READS_DEPS)
    holders = [name for name, tool in toolbox.items() if holds_values(tool.function)]
    if not holders:
        return names, toolbox
    if key is None:
        raise no_reuse_key(label, f"its tool '{holders[0]}'", "is a closure, a bound method or a partial")
    keyed = Toolbox([entry_of(replace(tool, reuse_key=key)) for tool in toolbox.values()])
    return names, keyed.with_around(toolbox.around_tool, toolbox.around_model, toolbox.mark)


AROUND = frozenset({"around_tool", "around_model"})
"""The options of a task that hold middleware."""
SETTLED = AROUND | {"tools", "handoffs"}
"""The options of a task that are in its toolbox."""


def _with_middleware(toolbox: Toolbox, settings: TaskSettings, label: str) -> Toolbox:
    """A toolbox with the middleware of its task. Raises ConfigurationError."""
    from agentflow.core.ports.around import middleware_in, name_of

    around_tool, around_model = [
        middleware_in(name, settings.get(name), label) for name in ("around_tool", "around_model")
    ]
    functions, key = (*around_tool, *around_model), settings.get("reuse_key")
    if functions and settings.get("reuse") is not None and key is None:
        raise no_reuse_key(label, f"its middleware '{name_of(functions[0])}'", _READS_DEPS)
    return toolbox.with_around(around_tool, around_model, key or "")


RULES = frozenset({"tools", "tool_choice_each", "check", "rounds"})
"""The options of a task that are rules of its turns, ``tools`` where it is a function."""
_OURS = frozenset({"retries", "reuse_key", "handoffs", *AROUND, *RULES})
"""Options without a field in a template."""


def chooses_tools(tools: object) -> bool:
    """Whether the value of ``tools=`` is a function of ``ctx`` that chooses them."""
    if not callable(tools) or isinstance(tools, ToolRegistry | type):
        return False
    try:
        first = next(iter(inspect.signature(tools).parameters.values()), None)
    except ValueError:  # a callable without a signature
        return False
    return first is not None and (first.name == "ctx" or context_in(annotated(tools).get(first.name)) is not None)


def _tools_by(function: Any, host: Host, label: str) -> ToolChooser:
    """The chooser of a prompt from a host's function of the call. Raises ConfigurationError (``config/option``) for a function
    of other parameters."""
    deps = deps_of(function, 1, label, "tools", "def tools(ctx: CallContext) -> list")

    async def choose(call: CallContext) -> tuple[Sequence[str] | None, Mapping[str, Tool]]:
        call.require_deps(deps, f"the tools function of {label}")
        inner = call.at(call.marked_path("tools"))
        listed = await called_by_host(function, (inner,), inner, f"the tools function of {label}")
        return host.read_tools(listed, label)

    return choose


def _rules(settings: TaskSettings, name: str, returns: Returns[Any], host: Host) -> TurnRules | None:
    """The rules for the turns of the task called ``name``; None for the usual ones. Raises ConfigurationError."""
    label, tools = f"task '{name}'", settings.get("tools")
    rules = TurnRules(
        chooser=_tools_by(tools, host, label) if chooses_tools(tools) else None,
        choice_lasts=bool(settings.get("tool_choice_each")),
        check=check_by(settings["check"], returns, label) if "check" in settings else None,
        rounds=settings.get("rounds", 1),
    )
    return None if rules == USUAL_RULES else rules


def _fields(settings: TaskSettings, name: str, returns: Returns[Any], host: Host) -> dict[str, Any]:
    """The fields of a template for the options of the task called ``name``."""
    fields: dict[str, Any] = {FIELDS.get(name, name): value for name, value in settings.items() if name not in _OURS}
    system = settings.get("system", "")
    if not isinstance(system, str):
        del fields["system"]
        fields["system_function"] = system_by(system, f"task '{name}'")
    if not RULES.isdisjoint(settings):
        fields["rules"] = _rules(settings, name, returns, host)
    return fields
