"""Builds tools: from a typed function, from the specification's dict and executor, for a subtask, for user input."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, is_dataclass, replace
from types import UnionType
from typing import Any, TypeVar, Union, cast, get_args, get_origin, overload

from pydantic import BaseModel, PydanticUserError, TypeAdapter
from typing_extensions import TypedDict, is_typeddict

from agentflow.core.call.call import CallContext
from agentflow.core.call.endings import Handoff
from agentflow.core.call.host_threads import as_async
from agentflow.core.data.durations import seconds_of
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import HANDOFF
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.templates import ContextManagement
from agentflow.core.data.values import to_json
from agentflow.core.ports.ports import NeedsApproval, Tool, ToolMiddleware
from agentflow.lib.option_table import NAMES
from agentflow.lib.schema.declared_schema import schema_of
from agentflow.lib.schema.json_schema import Schema, is_large
from agentflow.lib.signature import (
    Signature,
    ToolInputError,
    context_in,
    is_method,
    is_plain,
    parameters_of,
    plain_arguments,
    signature_of,
)

F = TypeVar("F", bound=Callable[..., Any])
OPTIONS = "__agentflow_tool__"
"""The attribute of a function where :func:`tool` stores its options."""


@frozen(kw_only=True)
class ToolOptions:
    """The options of :func:`tool` for a function; the fields are those of :class:`~agentflow.core.ports.ports.Tool`."""

    name: str | None = None
    description: str | None = None
    read_only: bool = False
    idempotent: bool | None = None
    sequential: bool = False
    timeout_s: float | None = None
    retries: int = 0
    approval: bool | NeedsApproval = False
    reuse: str | None = None
    reuse_key: str | None = None
    version: str | None = None
    source: str | None = None
    sinks: Mapping[str, str] = field(default_factory=dict[str, str])
    ends: bool = False
    defer_loading: bool = False
    around: Sequence[ToolMiddleware] = ()


class ToolSettings(TypedDict, total=False):
    """The options of :func:`tool`, for type checkers of ``flow.tool``."""

    name: str | None
    description: str | None
    read_only: bool
    idempotent: bool | None
    sequential: bool
    timeout_s: float | None
    retries: int
    approval: bool | NeedsApproval
    reuse: str | None
    reuse_key: str | None
    version: str | None
    source: str | None
    sinks: Mapping[str, str]
    ends: bool
    defer_loading: bool
    around: Sequence[ToolMiddleware]


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    read_only: bool = False,
    idempotent: bool | None = None,
    sequential: bool = False,
    timeout_s: float | None = None,
    retries: int = 0,
    approval: bool | NeedsApproval = False,
    reuse: str | None = None,
    reuse_key: str | None = None,
    version: str | None = None,
    source: str | None = None,
    sinks: Mapping[str, str] = ...,
    ends: bool = False,
    defer_loading: bool = False,
    around: Sequence[ToolMiddleware] = ...,
) -> Callable[[F], F]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Set the options of a function as a tool: ``@tool`` or ``@tool(sequential=True, timeout_s=5)``.

    The options are stored at the function, added to its existing ones; pass it to ``AgentFlow(tools=[...])``. Give a copy other options
    with ``tool(ends=True)(functools.partial(search))``; for a bound method it returns a copy. Its schema comes from the signature
    and the docstring (Google, NumPy or Sphinx style). A parameter annotated ``CallContext`` is hidden from the model and filled in; ``CallContext[Bank]``
    declares the type of the run's dependencies, ``ctx.deps``.
    A plain (not async) function runs in a worker thread, which a time-out or a cancellation abandons but cannot stop.

    ``name`` and ``description`` replace the function's own. A ``read_only`` tool changes nothing, an ``idempotent`` one may
    be repeated (``idempotent=False``: a durable run interrupted in it follows its ``on_inflight``), a
    ``sequential`` one never runs concurrently with another call of its turn. ``timeout_s`` limits one attempt in seconds,
    ``retries`` is the number of further attempts after a failure (none while a plain function of an earlier attempt still
    works on its thread), and ``approval`` asks the run's approver before every call by a model or an untrusted program.
    A function as ``approval``, plain or async, is called with the arguments and the :class:`CallContext`; only
    calls where it returns ``False`` need no approval. ``reuse="1d"`` reuses the result of an equal call of at most that
    age, from any run of a flow with the same ``durable=`` database; a function that holds values (a closure, a bound
    method, a partial) needs a ``reuse_key`` that identifies them. A changed ``version`` says that earlier results of it, and of tasks that may
    call it, no longer apply. ``source`` is the source of its result
    (``source="web"``), ``sinks`` are the sources that may reach its arguments (``sinks={"to": "user"}``): approvers of
    programs see both. With ``ends`` its result ends the task of the calling model, as that task's value; a failed call does
    not. With ``defer_loading`` models do not receive it but find it with the tool ``search_tools``. ``around`` are async functions around each call, ``async def careful(call, run, ctx)``, innermost
    of all. Raises ConfigurationError for an unknown option (``config/option``) or one out of range (``tool/options``),
    and for an invalid function in ``around`` (``config/middleware``).
    """
    _chosen(ToolOptions(), options)

    def mark(target: F) -> F:
        chosen = _chosen(_options_of(target), options)
        if inspect.ismethod(target):  # which takes no attributes
            target = cast("F", functools.partial(target))
        setattr(target, OPTIONS, chosen)
        return target

    return mark(function) if function is not None else mark


def _options_of(function: Any) -> ToolOptions:
    """The options of a function; of a partial without any those of the function that it calls, such as its approval, and the sinks of
    the remaining arguments."""
    options: ToolOptions | None = getattr(function, OPTIONS, None)
    if options is not None or not isinstance(function, functools.partial):
        return options or ToolOptions()
    options = _options_of(cast(Any, function).func)
    if options.sinks:
        left = {each.name for each in parameters_of(cast(Any, function))}
        options = replace(options, sinks={name: who for name, who in options.sinks.items() if name in left})
    return options


def _chosen(before: ToolOptions, options: Mapping[str, Any]) -> ToolOptions:
    """``before`` with these options in place of its own, checked."""
    if not options.keys() <= NAMES["tool"]:
        from agentflow.lib.option_hints import unknown_option

        raise unknown_option(options, "tool")
    if "around" in options:
        from agentflow.core.ports.around import middleware_in

        options = {**options, "around": middleware_in("around", options["around"], "@tool")}
    chosen = replace(before, **options)
    _check_options(chosen)
    return chosen


def _check_options(options: ToolOptions) -> None:
    seconds: object = options.timeout_s
    if seconds is not None and not (_is_number(seconds) and options.timeout_s > 0):  # pyright: ignore[reportOptionalOperand]
        raise ConfigurationError(f"timeout_s={options.timeout_s!r}: must be above 0 seconds", code="tool/options")
    if isinstance(options.retries, bool) or not isinstance(options.retries, int) or options.retries < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"retries={options.retries!r}: must be 0 or more", code="tool/options")
    _check_approval(options.approval)
    if not isinstance(cast(object, options.version), str | None):
        raise ConfigurationError(f"version={options.version!r}: must be a text", code="tool/options")
    if options.reuse is not None:
        try:
            seconds_of(options.reuse)
        except (ValueError, AttributeError) as error:
            raise ConfigurationError(f"reuse={options.reuse!r}: {error}", code="tool/options") from None


def _check_approval(approval: object) -> None:
    if isinstance(approval, bool):
        return
    problem = f"must be True, False or a function, not {type(approval).__name__}"
    if callable(approval):
        try:
            inspect.signature(approval).bind({}, None)
        except TypeError:
            problem = "the function must take two arguments"
        except ValueError:  # a callable without a signature
            return
        else:
            return
    raise ConfigurationError(
        f"approval={approval!r}: {problem}",
        code="tool/options",
        hint="write approval=True, or a function of the arguments and the call: "
        "approval=lambda arguments, ctx: arguments['amount'] > 100",
    )


def _check_sinks(name: str, sinks: Mapping[str, str], schema: Mapping[str, Any]) -> None:
    unknown = [key for key in sinks if key not in schema.get("properties", {})]
    if unknown:
        raise ConfigurationError(
            f"tool '{name}': sinks names '{unknown[0]}', which is not one of its arguments",
            code="tool/options",
            hint="name arguments, and who may fill them: sinks={'to': 'user'}",
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def tool_from_function(function: Callable[..., Any], **overrides: Any) -> Tool:
    """Build a Tool from a typed function, its :func:`tool` options and ``overrides`` of them.

    Raises ConfigurationError if the function has no name, or no JSON object can represent its arguments.
    """
    chosen = _options_of(function)
    if overrides:
        chosen = _chosen(chosen, overrides)
    name = chosen.name or _function_name(function)
    if is_method(function):
        raise ConfigurationError(
            f"tool '{clip(name, 120)}' is the method {function.__qualname__}, and is given without an object",
            code="python/method",
            hint=f"give it of an object: tools=[thing.{function.__name__}], or flow.tool(thing.{function.__name__})",
        )
    signature = signature_of(function, name, chosen.description)
    _check_sinks(name, chosen.sinks, signature.schema)
    if chosen.reuse is not None and chosen.reuse_key is None and holds_values(function):
        raise no_reuse_key(f"the tool '{name}'", "it", "is a closure, a bound method or a partial")
    run = as_async(function)

    def execute(arguments: dict[str, Any], call: CallContext) -> Awaitable[Any]:
        return run(**signature.bind(arguments, call)) if is_plain(arguments) else execute_with_data(arguments, call)

    async def execute_with_data(arguments: dict[str, Any], call: CallContext) -> Any:
        return await run(**await check(arguments, call))

    async def check(arguments: dict[str, Any], call: CallContext) -> dict[str, Any]:
        plain = arguments if is_plain(arguments) else await plain_arguments(arguments)
        bind = signature.bind
        return await asyncio.to_thread(bind, plain, call) if is_large(plain) else bind(plain, call)

    return Tool(
        spec=ToolSpec(name, signature.description, signature.schema),
        call=execute,
        validates=True,
        check=check,
        read_only=chosen.read_only,
        idempotent=chosen.idempotent,
        sequential=chosen.sequential,
        timeout_s=chosen.timeout_s,
        retries=chosen.retries,
        approval=chosen.approval,
        reuse=chosen.reuse,
        reuse_key=chosen.reuse_key,
        version=chosen.version,
        source=chosen.source,
        sinks=chosen.sinks,
        ends=chosen.ends,
        defer_loading=chosen.defer_loading,
        around=chosen.around,
        function=function,
        returns=lambda: _returned(signature),
        declares_data=declares_data(signature.returns),
        deps=signature.deps,
    )


def declares_data(annotation: Any) -> bool:
    """Whether a dict returned under this annotation is data of a class: a TypedDict, dataclass or model."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)
    return any([is_typeddict(kind) or is_dataclass(kind) or _is_model(kind) for kind in kinds]) and not any(
        [kind in (dict, Any, TaskResult) or get_origin(kind) in (dict, Mapping) for kind in kinds]
    )


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def holds_values(function: Any) -> bool:
    """Whether the result of a function depends on more than its arguments and its code: a closure over values, a bound method, a partial."""
    if function is None or inspect.isbuiltin(function) or inspect.isclass(function):
        return False
    if not inspect.isfunction(function):
        return True
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    return any([value is not function and not inspect.ismodule(value) and _is_value(value) for value in cells])


def _is_value(value: Any) -> bool:
    return not (inspect.isfunction(value) or inspect.isclass(value)) or holds_values(value)


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def no_reuse_key(label: str, holder: str, why: str) -> ConfigurationError:
    """The error for results with ``reuse`` although they depend on more than the arguments: on values that
    ``holder`` holds or reads, as ``why`` says."""
    return ConfigurationError(
        f"{label} has reuse=, and {holder} {why}: calls with equal arguments may answer differently",
        code="config/reuse-key",
        hint="name the captured value: reuse_key='user-42'; or pass it as an argument",
    )


def _returned(signature: Signature) -> Mapping[str, Any] | None:
    """The JSON Schema of the return values of functions with this signature; None without one."""
    if "returned" not in signature.memo:
        signature.memo["returned"] = _schema_of(signature.returns)
    return signature.memo["returned"]


def _schema_of(annotation: Any) -> Mapping[str, Any] | None:
    """The JSON Schema of a function's return annotation; None without one, or if it has no schema."""
    if annotation in (inspect.Signature.empty, None, Any, TaskResult):
        return None
    try:
        return TypeAdapter(annotation).json_schema()
    except (PydanticUserError, TypeError):
        return None


def _function_name(function: Callable[..., Any]) -> str:
    target: Any = function
    while isinstance(target, functools.partial):
        target = cast(Any, target.func)  # pyright: ignore[reportUnknownMemberType]
    name = getattr(target, "__name__", None)
    if not callable(function) or not isinstance(name, str) or name == "<lambda>":
        raise ConfigurationError(
            f"{function!r} has no name a model could call it by",
            code="tool/no-name",
            hint="write @tool(name='...') above it, or use a named function",
        )
    return name


_SPEC = ("name", "description", "input_schema", "parameters")
"""The keys of the specification's dict for a tool."""


def tool_from_spec(spec: Mapping[str, Any], executor: Callable[..., Any]) -> Tool:
    """Build a Tool from the specification's ``{"name", "description", "input_schema"}`` and an executor of one dict.

    The executor may be async or plain, and may take a second argument annotated ``CallContext``. Other keys of the spec
    are options of :func:`tool`. Raises ConfigurationError for an invalid one.
    """
    name = spec.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ConfigurationError("a tool's spec needs a 'name', a text that is not empty", code="tool/no-name")
    if not callable(executor):
        raise ConfigurationError(
            f"tool '{name}': the executor is {type(executor).__name__}, it must be callable", code="tool/executor"
        )
    schema = spec.get("input_schema", spec.get("parameters"))
    if schema is None or schema == {}:
        schema = cast(Any, {"type": "object", "properties": {}})
    if not isinstance(schema, dict) or cast(dict[str, Any], schema).get("type", "object") != "object":
        raise ConfigurationError(
            f"tool '{name}': 'input_schema' must be the JSON Schema of an object",
            code="tool/schema",
            hint="for example {'type': 'object', 'properties': {'path': {'type': 'string'}}, 'required': ['path']}",
        )
    checked = cast(dict[str, Any], schema)
    Schema(checked)  # refused now, not at the first call
    run = as_async(executor)
    takes_call = _takes_call(executor)

    async def execute(arguments: dict[str, Any], call: CallContext) -> Any:
        return await (run(arguments, call) if takes_call else run(arguments))

    chosen = {key: value for key, value in spec.items() if key not in _SPEC}
    _chosen(ToolOptions(), chosen)
    _check_sinks(name, chosen.get("sinks", {}), checked)
    described = ToolSpec(name, str(spec.get("description") or ""), checked)
    return Tool(spec=described, call=execute, function=executor, **chosen)


def _takes_call(executor: Callable[..., Any]) -> bool:
    try:
        parameters = list(inspect.signature(executor).parameters.values())
    except (TypeError, ValueError):
        return False
    if len(parameters) < 2:
        return False
    annotation = parameters[1].annotation
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2] == "CallContext"
    return context_in(annotation) is not None


def parameters_schema(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the arguments from ``{name: type of its values}``: a simple type name, fields by name or a JSON Schema;
    ``name?`` is optional.

    Raises ConfigurationError (``tool/signature``) for anything else, or a dict that could be fields as well as a schema.
    """
    properties: dict[str, Any] = {}
    required: list[str] = []
    for key, kind in parameters.items():
        name = key.removesuffix("?")
        try:
            properties[name] = schema_of(kind)
        except ValueError as error:
            raise ConfigurationError(f"the parameter '{clip(name, 80)}': {error}", code="tool/signature") from None
        if not key.endswith("?"):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def subtask_tool(
    name: str,
    description: str,
    *,
    template: str | None = None,
    subtype: str | None = None,
    template_hints: list[str] | None = None,
    parameters: Mapping[str, Any] | None = None,
    context_management: ContextManagement | dict[str, Any] | None = None,
) -> Tool:
    """Build a tool that runs an atomic task (a CONTINUATION); a model sees it like any other.

    ``template`` names the task; without it ``subtype``, ``template_hints`` and the description select one.
    ``parameters`` maps argument names to simple type names or JSON Schemas (``name?`` is optional); without it the
    model passes ``description`` (the goal), ``inputs`` and ``file_paths``. Raises ConfigurationError for an unknown
    type name.
    """
    free = parameters is None
    schema = parameters_schema(
        {"description": "string", "inputs?": "object", "file_paths?": "string[]"} if parameters is None else parameters
    )

    async def request(arguments: dict[str, Any], call: CallContext) -> SubtaskRequest:
        fields: dict[str, Any] = {
            "name": template,
            "subtype": subtype,
            "template_hints": template_hints or [],
            "context_management": context_management,
        }
        if free:
            return SubtaskRequest.of({**fields, **arguments})
        return SubtaskRequest(**fields, description=description, inputs=arguments)

    return Tool(spec=ToolSpec(name, description, schema), call=request, kind="subtask")


def task_tool(task: Any, description: str, schema: Mapping[str, Any], function: Any = None) -> Tool:
    """Build a tool that runs the compiled template ``task``, even if another has its name. ``function`` declared
    it."""

    async def request(arguments: dict[str, Any], call: CallContext) -> SubtaskRequest:
        return SubtaskRequest(name=task.name, inputs=arguments)

    spec = ToolSpec(task.name, description, dict(schema))
    return Tool(spec=spec, call=request, kind="subtask", builtin=True, task=task, function=function)


def handoff_tool(handoff: Handoff, compiled: Any) -> Tool:
    """Build the tool ``transfer_to_NAME``; by calling it a model hands its conversation over to the task ``compiled``."""

    parameters = dict(compiled.arguments_schema())
    schema = Schema(parameters)

    async def hand_over(arguments: dict[str, Any], call: CallContext) -> Handoff:
        problems = schema.check(arguments)
        if problems:
            raise ToolInputError(f"the handoff to '{compiled.name}' cannot take these arguments: {'; '.join(problems)}")
        return replace(handoff, arguments=arguments)

    told = compiled.template.description or compiled.template.instructions
    spec = ToolSpec(
        f"{HANDOFF}{compiled.name}",
        f"Hand the conversation over to {compiled.name}, which goes on with it. {compiled.name}: {told}",
        parameters,
    )
    return Tool(spec=spec, call=hand_over, builtin=True, calls_models=True, ends=True, validates=True, task=compiled)


SEARCH_TOOLS = "search_tools"
"""The name of the tool that models use to find deferred tools."""
_MOST_FOUND = 5


def search_tool(deferred: Sequence[ToolSpec], in_programs: Mapping[str, str] | None = None) -> Tool:
    """Build the tool that finds tools among ``deferred`` by words; models are offered the results from the next turn on. It also finds
    tools that programs may call, with their usage: ``in_programs``, by name."""
    usages = in_programs or {}
    texts = {spec.name: f"{spec.name.replace('_', ' ')} {spec.description}" for spec in deferred}
    texts = {**{name: usage.replace("_", " ") for name, usage in usages.items()}, **texts}
    about = {spec.name: spec.description for spec in deferred}

    async def search(arguments: dict[str, Any], call: CallContext) -> str:
        from agentflow.lib.text.sentence_rank import LexicalSentenceRanker  # few models search for tools

        rank = LexicalSentenceRanker()
        scores = rank(arguments["query"], [*texts.values()])
        best = sorted(zip(scores, texts, strict=True), key=lambda each: (-each[0], each[1]))
        hits = [name for score, name in best if score > 0][:_MOST_FOUND]
        return to_json(
            [
                {"name": name, **({"description": about[name]} if name in about else {"in_programs": usages[name]})}
                for name in hits
            ]
        )

    told = f"Find more tools by what they do. There are {len(texts)}"
    if deferred:
        told += ", and those that are found can be called from your next answer on"
    if usages:
        told += "; programs may call those with 'in_programs' at once, which is how" if deferred else ", for programs"
    schema = parameters_schema({"query": {"type": "string", "description": "words for what the tool should do"}})
    return Tool(spec=ToolSpec(SEARCH_TOOLS, f"{told}.", schema), call=search, builtin=True, read_only=True)


def user_input_tool(
    ask: Callable[[str], str | Awaitable[str]],
    *,
    name: str = "request_user_input",
    description: str = "Ask the user a question and wait for the answer. Use it only when you cannot go on without.",
    timeout_s: float | None = None,
) -> Tool:
    """Build a tool for a model to ask the user. ``ask``, async or plain, answers the question."""
    run = as_async(ask)

    async def execute(arguments: dict[str, Any], call: CallContext) -> Any:
        return await run(arguments["prompt"])

    schema = parameters_schema({"prompt": {"type": "string", "description": "the question", "minLength": 1}})
    return Tool(spec=ToolSpec(name, description, schema), call=execute, sequential=True, timeout_s=timeout_s)
