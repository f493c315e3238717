"""Tasks from typed functions: the docstring, or the text the body returns, is the prompt; the parameters are its slots, the
return annotation is the type of the answer."""

from __future__ import annotations

import dis
import functools
import inspect
import warnings
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, Generic, TypeVar, cast, get_args

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError

from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.call.endings import called_by_host
from agentflow.core.data.errors import AgentflowError, ConfigurationError, InvalidOutput, TaskError, clip, cut
from agentflow.core.data.media import MEDIA_PARTS
from agentflow.core.data.models import validation_messages
from agentflow.core.data.results import TaskResult
from agentflow.core.data.templates import Parameter, TaskTemplate
from agentflow.core.ports.ports import AnswerCheck
from agentflow.lib.option_table import wrong_value
from agentflow.lib.schema.tagged_unions import tagged_unions
from agentflow.lib.signature import Signature, annotated, context_in, hints_of
from agentflow.lib.text.slots import not_filled, not_used, single_braces, unused

R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

_SIMPLE = frozenset({"string", "integer", "number", "boolean", "object", "array"})
_SAID = frozenset({"type", "title", "description", "default"})
"""Keywords of a schema that a :class:`Parameter` has fields for."""


def adapter_of(kind: Any, label: str) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    """The adapter that reads data as the type ``kind``, and its JSON Schema. Raises ConfigurationError (``python/returns``)
    for a type without one; ``label`` names the function."""
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        return adapter, adapter.json_schema()
    except PydanticUserError as error:
        raise ConfigurationError(
            f"{label}: what it returns, {clip(_shown(kind), 120)}, has no JSON Schema: {clip(str(error), 200)}",
            code="python/returns",
            hint="return str, a pydantic model, a dataclass, or built-in types of these; TaskResult gives everything",
        ) from error


class Returns(Generic[R]):
    """The answer type of a task: text for ``str``, the whole result for ``TaskResult``, else data of the type ``kind``.

    ``fields`` are the template fields that request it. Raises ConfigurationError (``python/returns``) for a type without
    a JSON Schema; ``label`` names the task there.
    """

    __slots__ = ("_adapter", "_class", "_whole", "fields")

    def __init__(self, kind: Any, label: str) -> None:
        self.fields: dict[str, Any] = {}
        self._adapter: TypeAdapter[R] | None = None
        self._class: type | None = None
        self._whole = kind is TaskResult
        if self._whole or kind is str:
            return
        self._adapter, schema = adapter_of(kind, label)
        if isinstance(kind, type) and (issubclass(kind, BaseModel) or is_dataclass(cast(Any, kind))):
            self._class = cast(type, kind)
            self.fields = {"output_model": kind}
        elif tagged_unions(kind) is not None:
            self.fields = {"output_model": kind}
        else:
            self.fields = {"output_format": {"type": "json", "schema": schema}}

    def of_answer(self, text: str, value: Any) -> Any:
        """The Python value of an answer that has the right form: its text, or its ``value`` as the type asked for."""
        if self._adapter is None or (self._class is not None and isinstance(value, self._class)):
            return text if self._adapter is None else value
        return self._adapter.validate_python(value)

    def read(self, result: TaskResult) -> R:
        """The Python value of a result. Raises the error of a FAILED one, InvalidOutput for data of another type."""
        if self._whole:
            return cast(R, result)
        problem = result.problem()
        if problem is not None and not isinstance(problem, AgentflowError) and result.notes.error is not None:
            raise result.notes.error.exception() from problem  # like that of a record
        if problem is not None:
            raise problem
        if self._adapter is None:
            return cast(R, result.content)
        value = result.parsed_content
        if self._class is not None and isinstance(value, self._class):
            return cast(R, value)
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            raise InvalidOutput(
                f"the answer is not of the type asked for: {'; '.join(validation_messages(error)[:5])}",
                details={"content": cut(result.content, 2_000)},
            ) from error


def standing_for(function: Callable[..., Any]) -> Callable[[F], F]:
    """A decorator for a function that agentflow calls in place of a host's ``function``, which stays its ``__wrapped__``: whether a result
    may be used again depends on the code and the closure of that."""
    return cast("Callable[[F], F]", functools.wraps(function, assigned=(), updated=()))


def template_fields(function: Callable[..., Any], name: str, signature: Signature) -> dict[str, Any]:
    """The fields of the template that a function declares, but for its answer. Raises ConfigurationError."""
    prompt = inspect.getdoc(function) or ""
    fields: dict[str, Any] = {"name": name, "instructions": prompt, "params": parameters_of(signature.schema)}
    if _gives_something(function):
        fields["prompt_function"] = _prompt_by_body(function, name, signature)
    elif not prompt:
        raise ConfigurationError(
            f"task '{name}' has no docstring, which is its prompt",
            code="python/no-prompt",
            hint='write """Name the worst bugs in {{path}}.""" below its first line, or return the prompt from its body',
        )
    return fields


def check_used(function: Callable[..., Any], template: TaskTemplate) -> None:
    """Report parameters that the texts of a task leave out: their values would never reach a model.

    A parameter in single braces is an error, ConfigurationError ``tasks/single-braces``; any other a Python warning at the
    function. A body that returns the prompt may use them all, a lookup of context reads the arguments, and images,
    documents and sound are attached.
    """
    if template.prompt_function is not None:
        return
    texts = (template.instructions, template.system, template.description, *template.file_paths)
    hints = annotated(function)
    looks_up = template.subtype == "subtask" or template.context_management.fresh_context == "enabled"
    for name in unused(template.params, texts):
        if single_braces(name, template.instructions):
            message, hint = not_filled(template.name, name)
            raise ConfigurationError(message, code="tasks/single-braces", hint=hint)
        if not (looks_up or _may_be_attached(hints.get(name))):
            message, hint = not_used(template.name, name)
            code = inspect.unwrap(function).__code__
            warnings.warn_explicit(f"{message}: {hint}", UserWarning, code.co_filename, code.co_firstlineno)


def _may_be_attached(hint: Any) -> bool:
    """Whether a value of this annotation may be, or hold, an image, a document or sound."""
    return hint in (Any, object, *MEDIA_PARTS) or any(map(_may_be_attached, get_args(hint)))


def _gives_something(function: Callable[..., Any]) -> bool:
    """Whether a body returns anything but None: that of ``...``, or of ``raise NotImplementedError``, does not."""
    steps = [step for step in dis.get_instructions(function) if step.opname not in ("NOP", "CACHE", "RESUME")]
    for before, step in pairwise(steps):
        nothing = before.opname == "LOAD_CONST" and before.argval is None
        if step.opname == "RETURN_VALUE" and not nothing:
            return True
        if step.opname == "RETURN_CONST" and step.argval is not None:
            return True
    return False


def _prompt_by_body(
    function: Callable[..., Any], name: str, signature: Signature
) -> Callable[[Mapping[str, Any], CallContext], Awaitable[str]]:
    """A function that returns the prompt from the body of a task's function; the empty text if the body returns None."""

    @standing_for(function)
    async def say(values: Mapping[str, Any], call: CallContext) -> str:
        if signature.deps is not None:
            call.require_deps(signature.deps, f"task '{name}'")
        arguments = signature.bind(dict(values), call)
        try:
            with HostCode(call.at(call.path)) as code:
                text = await code.to_end(function(**arguments), f"the body of task '{name}'")
        except AgentflowError:
            raise
        except Exception as error:
            raise TaskError(
                f"the body of task '{name}' raised {type(error).__name__}: {error}",
                code="host/raised",
                details={"exception": type(error).__name__},
            ) from error
        if text is not None and not isinstance(text, str):
            raise TaskError(
                f"the body of task '{name}' gives {clip(repr(text), 120)}, and not the text of its prompt",
                code="python/prompt",
                hint="return text, or nothing where the docstring is the prompt; work of your own belongs into @flow.workflow",
            )
        return text or ""

    return say


def system_by(function: Callable[..., Any], label: str) -> Callable[[CallContext], Awaitable[str]]:
    """A function that returns the system prompt of the task called ``label`` from a host's ``function`` of the call, async or
    plain. Raises ConfigurationError (``config/option``) for a function of other parameters."""
    deps = deps_of(function, 1, label, "system", "def system(ctx: CallContext) -> str")

    @standing_for(function)
    async def say(call: CallContext) -> str:
        call.require_deps(deps, f"the system function of {label}")
        text = await called_by_host(
            function, (inner := call.at(call.marked_path("system")),), inner, f"the system function of {label}"
        )
        if isinstance(text, str):
            return text
        raise TaskError(
            f"the system function of {label} gives {clip(repr(text), 120)}, and not a text",
            code="python/prompt",
            hint="return the text of the system prompt",
        )

    return say


def check_by(function: Callable[..., Any], returns: Returns[Any], label: str) -> AnswerCheck:
    """The check of a prompt from a host's ``function`` of the value and the call, async or plain. Raises ConfigurationError
    (``config/option``) for a function of other parameters."""
    deps = deps_of(function, 2, label, "check", "def check(value: Review, ctx: CallContext) -> Review")

    @standing_for(function)
    async def judge(text: str, value: Any, call: CallContext) -> tuple[Any] | None:
        call.require_deps(deps, f"the check of {label}")
        typed = returns.of_answer(text, value)
        accepted = await called_by_host(function, (typed, call), call, f"the check of {label}")
        if accepted is typed:
            return None
        if accepted is None:
            raise TaskError(
                f"the check of {label} returned nothing",
                code="python/check",
                hint="return the value, changed or not, or raise Retry('the fault')",
            )
        return (accepted,)

    return judge


def deps_of(function: object, count: int, label: str, option: str, example: str) -> Any:
    """The type of the dependencies that a host's function declares for its last parameter, the call; None without one.

    Raises ConfigurationError (``config/option``) for an object that cannot be called with ``count`` arguments.
    """
    try:
        signature = inspect.signature(cast(Any, function)) if callable(function) else None
        if signature is None:
            raise TypeError
        signature.bind(*[None] * count)
    except TypeError:
        raise wrong_value(label, option, function, "cannot be called with its argument", f"write {example}") from None
    except ValueError:  # a callable without a signature
        return None
    last = list(signature.parameters)[count - 1 : count]
    hint = hints_of(cast(Any, function), f"{label}: {option}=").get(last[0]) if last else None
    context = context_in(hint)
    return None if context is Any else context


def returns_of(function: Callable[..., Any], signature: Signature, label: str) -> Any:
    """The type that an async function is annotated to return. Raises ConfigurationError without an annotation."""
    if not inspect.iscoroutinefunction(function):
        raise ConfigurationError(
            f"{label} is not an async function", code="python/not-async", hint="write async def in place of def"
        )
    if signature.returns is inspect.Signature.empty:
        raise ConfigurationError(
            f"{label} has no return annotation", code="python/annotation", hint="write -> str, or the type it gives"
        )
    return signature.returns


def parameters_of(schema: Mapping[str, Any]) -> dict[str, Parameter]:
    """The parameters of a template for an arguments object with this JSON Schema."""
    required = frozenset(schema.get("required", ()))
    shared = {"$defs": schema["$defs"]} if "$defs" in schema else {}
    return {name: _parameter(own, shared, name in required) for name, own in schema["properties"].items()}


def _parameter(own: Mapping[str, Any], shared: Mapping[str, Any], required: bool) -> Parameter:
    kind = own.get("type")
    simple = kind if isinstance(kind, str) and kind in _SIMPLE else "any"
    fields: dict[str, Any] = {"type": simple, "required": required, "description": own.get("description", "")}
    if not own.keys() <= _SAID:
        fields["json_schema"] = {**own, **shared}
    if not required:
        fields["default"] = own.get("default")
    return Parameter(**fields)


def _shown(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
