"""Structured answers: parsed and checked when complete, and as partial values while they stream."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from typing import Any, Union, cast, get_args, get_origin
from weakref import WeakKeyDictionary

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import to_json

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ConfigurationError, ResourceExhausted, clip
from agentflow.core.data.messages import WRITTEN, ModelRequest, ModelResponse, ToolCallPart
from agentflow.core.data.provider_errors import ProtocolError, Refused
from agentflow.core.data.walk import LONG_TEXT
from agentflow.core.ports.ports import Prompt, ProviderAdapter
from agentflow.lib.schema.json_schema import Schema, check
from agentflow.lib.schema.partial_json import (
    PartialJson,
    disclosed,
    enclosed,
    parse_answer,
    prune,
    with_root,
    without_thoughts,
)
from agentflow.lib.schema.tagged_unions import TaggedUnions, UnionMissed, tagged_unions


def checked_calls(
    response: ModelResponse, request: ModelRequest, adapter: ProviderAdapter, longest: int
) -> tuple[ToolCallPart, ...]:
    """The tool calls of the answer to ``request``, before any tool has run.

    Raises ResourceExhausted (``output``, ``context``) for an answer that was cut off or has more than ``longest``
    characters, Refused, and ProtocolError for tool calls that cannot be answered: none where some were announced, a
    missing or duplicate id, arguments that are not an object, any where no tool was offered.
    """
    calls = response.tool_calls
    if calls and not (request.tools or request.provider_tools):
        raise _unanswerable(
            response, f"the model called '{clip(calls[0].name, 80)}', and no tool is offered", "no tool was run"
        )
    if response.stop_reason not in ("end", "pause", "stop_sequence"):
        _check_stop(response, request, adapter, calls)
    seen: set[str] = set()
    for part in calls:
        problem = None
        if not part.id:
            problem = f"the call of '{clip(part.name, 80)}' has no id"
        elif part.id in seen:
            problem = f"two tool calls have the id '{clip(part.id, 80)}'"
        elif not isinstance(part.arguments, dict):  # pyright: ignore[reportUnnecessaryIsInstance] - adapters are foreign code
            problem = f"the arguments of '{clip(part.name, 80)}' are no object"
        if problem:
            raise _unanswerable(
                response,
                f"the model's tool calls cannot be answered: {problem}",
                "the server is at fault; no tool was run",
            )
        seen.add(part.id)
    size = 0
    for part in response.parts:
        if isinstance(part, WRITTEN):
            size += len(part.text)
    if size > longest:
        raise ResourceExhausted(
            f"the answer has {size:,} characters, at most {longest:,} fit into a string",
            resource="output",
            used=size,
            limit=longest,
            hint="ask for a shorter answer, or raise limits.string",
        )
    return calls


def without_calls(response: ModelResponse, call: CallContext, *, checked: bool) -> ModelResponse:
    """An answer to a prompt that offers no tools, and in which tools are called: its text alone, with a Warning.

    One without text is left as it is, unless it is ``checked``, and so sent back to be repaired.
    """
    calls = response.tool_calls
    if not checked and not response.text.strip():
        return response
    called = clip(calls[0].name, 80)
    call.warn(
        "handler/no-tools",
        f"the model called '{called}', and no tool is offered: its text alone is the answer",
        model=response.model,
    )
    parts = tuple([part for part in response.parts if not isinstance(part, ToolCallPart)])
    stop = "end" if response.stop_reason == "tool_calls" else response.stop_reason
    return replace(response, parts=parts, stop_reason=stop)


def _check_stop(
    response: ModelResponse, request: ModelRequest, adapter: ProviderAdapter, calls: tuple[ToolCallPart, ...]
) -> None:
    stop = response.stop_reason
    if stop == "max_tokens":
        used = response.usage.output_tokens
        error = ResourceExhausted(
            "the answer was cut off: the model reached its output limit",
            resource="output",
            used=used,
            limit=request.max_output_tokens or used,
            hint="raise max_output_tokens, or ask for a shorter answer",
        )
        error.partial, error.model = response.text, response.model
        error.details["partial"] = clip(response.text)
        error.details["request_id"] = response.request_id
        raise error
    if stop == "context_window":
        window = adapter.profile(request.model).context_window
        raise ResourceExhausted(
            "the answer was cut off: the model's context window is full",
            resource="context",
            used=response.usage.total_tokens,
            limit=window or response.usage.total_tokens,
            hint="give it less: fewer files, fewer history turns, or split the task",
        )
    if stop == "refusal":
        raise Refused(
            f"the model refused to answer{': ' + clip(response.text, 500) if response.text else ''}",
            request_id=response.request_id,
            partial=response.text,
            provider=response.provider,
            model=response.model,
        )
    if stop == "tool_calls" and not calls:
        raise _unanswerable(response, "the model stopped to call tools, but its answer has no tool call")


def _unanswerable(response: ModelResponse, message: str, hint: str | None = None) -> ProtocolError:
    return ProtocolError(
        message,
        request_id=response.request_id,
        partial=response.text,
        provider=response.provider,
        model=response.model,
        hint=hint,
    )


class OutputSchema:
    """The required form of an answer: a JSON Schema, a pydantic model (or any annotated type), or any JSON.

    ``schema`` is what a value must meet, ``requested`` what the model is asked for: the same, with tags for the members of
    unions of classes, and perhaps an object around it.
    """

    __slots__ = ("_adapter", "_enclosed", "_partial", "_unions", "model", "requested", "schema")

    def __init__(self, schema: dict[str, Any] | None, model: Any) -> None:
        self.model = model
        self._adapter: TypeAdapter[Any] | None = None
        self._partial: TypeAdapter[Any] | None = None
        self._unions: TaggedUnions | None = None
        self._enclosed = False
        if model is not None:
            try:
                self._adapter = TypeAdapter(model)
                self._unions = tagged_unions(model)
                schema = schema if schema is not None else self._adapter.json_schema()
            except PydanticUserError as error:
                raise ConfigurationError(
                    f"the output model {model!r} has no JSON Schema: {clip(str(error), 300)}",
                    code="handler/output-model",
                    hint="give a pydantic model, a dataclass, or a type such as list[str]",
                ) from error
        self.schema = schema
        self.requested = schema if self._unions is None else self._unions.schema

    def asking(self, schema: dict[str, Any]) -> OutputSchema:
        """A copy that requests another JSON Schema; the pydantic model still determines the value."""
        result = copy(self)
        result.schema = result.requested = schema
        result._unions = None
        return result

    def as_object(self) -> OutputSchema:
        """A schema whose answers are objects: this one, or a copy that requests an object around the value."""
        if self.requested is None or self.requested.get("type") == "object":
            return self
        result = copy(self)
        result.requested = with_root(self.requested)
        if result.requested.get("type") != "object":
            result.requested = enclosed(self.requested)
            result._enclosed = True
        return result

    def text_of(self, text: str) -> str:
        """The JSON text of the value in an answer: the whole answer, or a valid one without its object and its tags."""
        if self._unions is not None:
            value, *problems = self.read(text)
            if not any(problems):
                return self._unions.untagged(value)
        if not self._enclosed:
            return without_thoughts(text)
        value = parse_answer(text)
        inner = disclosed(value)
        return without_thoughts(text) if inner is value else to_json(inner).decode()

    def read(self, text: str) -> tuple[Any, str | None, tuple[str, ...]]:
        """``(value, parse error, schema violations)`` of a complete answer; with a model, the value is its instance."""
        try:
            value = parse_answer(text)
        except ValueError as error:
            return None, clip(str(error), 500), ()
        if self._enclosed:
            value = disclosed(value)
        checked = self._checked(value)
        if checked[2] and (schema := self.schema if self._unions is None else self._unions.schema) is not None:
            completed = Schema(schema).without_nulls(value)
            if completed is not value:
                return self._checked(completed)
        return checked

    def _checked(self, value: Any) -> tuple[Any, str | None, tuple[str, ...]]:
        if self._unions is not None:
            try:
                return self._unions.validate_python(value), None, ()
            except UnionMissed as error:
                return value, None, error.problems[:20]
            except ValidationError as error:
                return value, None, tuple(_problem(problem) for problem in error.errors(include_url=False)[:20])
        if self._adapter is not None:
            try:
                # As JSON, not as Python data: a strict model accepts a date as text only in JSON.
                return self._adapter.validate_json(to_json(value)), None, ()
            except ValidationError as error:
                return value, None, tuple(_problem(problem) for problem in error.errors(include_url=False)[:20])
        if self.schema is not None:
            return value, None, tuple(check(value, self.schema))
        return value, None, ()

    async def read_aside(self, text: str) -> tuple[Any, str | None, tuple[str, ...]]:
        """Like :meth:`read`, but in a thread if the text is long: checking it may take a second."""
        return self.read(text) if len(text) <= LONG_TEXT else await asyncio.to_thread(self.read, text)

    def partial(self, value: Any) -> Any | None:
        """The valid part of an incomplete ``value``; with a model, an instance of its partial type."""
        if self._enclosed:
            value = disclosed(value)
            if not value or isinstance(value, str | int | float):
                return None
        schema = self.schema if self._unions is None else self._unions.schema
        if schema:
            value = prune(value, schema)
        if value is None or self.model is None:
            return value
        if self._partial is None:
            self._partial = TypeAdapter(partial_type(self.model))
        part = _validated(self._partial, value)
        if self._unions is not None and isinstance(part, BaseModel) and not part.model_fields_set:
            return None  # nothing but a tag, which no partial class has
        return part


def _problem(problem: Mapping[str, Any]) -> str:
    location = ".".join(str(part) for part in problem["loc"]) or "the value"
    return f"{location}: {problem['msg']}"


def _validated(adapter: TypeAdapter[Any], value: Any) -> Any | None:
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        if not isinstance(value, dict):
            return None
        wrong = {problem["loc"][0] for problem in error.errors(include_url=False) if problem["loc"]}
    kept = {key: item for key, item in cast(dict[str, Any], value).items() if key not in wrong}
    try:
        return adapter.validate_python(kept)
    except ValidationError:
        return None


class PartialModel(BaseModel):
    """Base of the partial types: a field that has not arrived is None, and absent from :meth:`model_dump`."""

    model_config = ConfigDict(populate_by_name=True)

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """The fields that have arrived. Options are those of pydantic."""
        options.setdefault("exclude_unset", True)
        return super().model_dump(**options)


def partial_type(kind: Any, _made: dict[Any, Any] | None = None) -> Any:
    """``kind`` with every field of every model in it optional; missing fields are None and not in ``model_fields_set``.

    Lists, dicts and unions are converted inside; other types are unchanged. A recursive model becomes a plain dict.
    """
    built = _made if _made is not None else {}
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind in built:
            return built[kind]
        built[kind] = dict[str, Any]
        fields: dict[str, Any] = {
            name: (
                partial_type(info.annotation, built) | None,
                Field(default=None, alias=info.alias, validation_alias=info.validation_alias),
            )
            for name, info in kind.model_fields.items()
        }
        built[kind] = create_model(f"Partial{kind.__name__}", __base__=PartialModel, **fields)
        return built[kind]
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return Union[tuple(partial_type(item, built) for item in inner)]  # noqa: UP007 - built from a tuple
    if origin is list and inner:
        return list[partial_type(inner[0], built)]
    if origin is dict and len(inner) == 2:
        return dict[inner[0], partial_type(inner[1], built)]
    return cast(Any, kind)


class OutputSchemas:
    """OutputSchemas by output model, cached while the model lives: a type adapter takes a millisecond to build."""

    def __init__(self) -> None:
        self._by_model: WeakKeyDictionary[Any, OutputSchema] = WeakKeyDictionary()

    def of(self, prompt: Prompt) -> OutputSchema | None:
        """The output schema of a prompt; None if it asks for text. Raises ConfigurationError."""
        model, schema = prompt.output_model, prompt.output_schema
        if model is None:
            return OutputSchema(schema, None) if prompt.json_output or schema is not None else None
        try:
            cached = self._by_model.get(model)
            if cached is None:
                cached = self._by_model[model] = OutputSchema(None, model)
        except TypeError:  # not every annotation can be referenced weakly
            cached = OutputSchema(None, model)
        return cached if schema is None or schema == cached.schema else cached.asking(schema)


class PartialAnswer:
    """A structured answer while it streams: takes text, returns partial values."""

    __slots__ = ("_last", "_shape", "_text")

    def __init__(self, shape: OutputSchema) -> None:
        self._shape = shape
        self._text = PartialJson()
        self._last: Any = None

    def feed(self, text: str) -> Any | None:
        """Add ``text``. Returns the partial value if it has changed, else None."""
        value = self._text.feed(text)
        if not value or isinstance(value, str | int | float):
            return None
        part = self._shape.partial(value)
        if part is None or part == self._last:
            return None
        self._last = part
        return part
