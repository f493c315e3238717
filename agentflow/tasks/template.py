"""The texts of a template, its inputs and its output. Texts are parsed once: ``{{x}}``, ``{{x.y}}``, ``{{f(a, b="x")}}``; ``\\{{`` is two plain braces.

Rendering is one pass over the parsed pieces: substituted text is never scanned again, so a value that contains
``{{...}}`` stays text. Field access reads dict keys, list indices and *declared* fields of models; nothing else of a
Python object can be reached.

An output is declared as ``{"type": "text" | "json", "schema": ...}`` where the schema is a simple name (``string[]``), a
dict of field names, a JSON Schema, or a pydantic model; ``output_model`` on the template is the same as a model in
``schema``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any, TypeAlias, TypeVar, cast, get_origin

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from agentflow.core.data.errors import DataError, SexpEvaluationError, TaskError, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.media import is_media, media_fields
from agentflow.core.data.models import MappingModel, validation_messages
from agentflow.core.data.requests import FunctionCallNode, SubtaskRequest
from agentflow.core.data.result_notes import Notes
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Span
from agentflow.core.data.templates import ContextManagement, HistoryConfig, Parameter, TaskTemplate
from agentflow.core.data.values import HELD, Symbol, as_text, is_long, json_work, name_of, pairs_to_dict, to_json
from agentflow.core.data.walk import in_slices
from agentflow.core.ports.ports import PromptOutcome
from agentflow.lib.schema.declared_schema import parse_type, schema_of
from agentflow.lib.schema.json_schema import check
from agentflow.lib.schema.tagged_unions import asked_schema
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.types import convert

_KEYS = ("type", "schema")


@frozen
class OutputSpec:
    """A template's output: ``json`` or text; ``schema`` the required JSON Schema, ``model`` the class or type of its value."""

    json: bool = False
    schema: dict[str, Any] | None = None
    model: Any = None


def output_spec(template: TaskTemplate) -> OutputSpec:
    """The output that a template declares. Raises DataError (``tasks/output-format``) if it is invalid."""
    declared = template.output_format
    unknown = [key for key in declared if key not in _KEYS]
    if unknown:
        raise _wrong(template, f"output_format has no key '{unknown[0]}'", did_you_mean(unknown[0], _KEYS))
    kind = declared.get("type", "json" if "schema" in declared else "text")
    kind = kind.name if isinstance(kind, Symbol) else kind
    schema: object = declared.get("schema")
    if schema is None and isinstance(kind, str) and kind not in ("json", "text") and _is_type(kind):
        kind, schema = "json", kind
    if kind not in ("json", "text"):
        raise _wrong(
            template, f"output_format type {kind!r} is neither 'json' nor 'text'", "put a schema under the key 'schema'"
        )
    model: object = template.output_model
    if model is None and isinstance(schema, type):
        model = schema
    if model is not None:
        if not isinstance(model, type) and get_origin(model) is None:
            raise _wrong(template, f"output_model {model!r} is not a class", "give a pydantic model or dataclass")
        try:
            return OutputSpec(True, TypeAdapter[Any](cast(Any, model)).json_schema(), model)
        except (PydanticUserError, TypeError) as error:
            name = getattr(model, "__name__", model)
            raise _wrong(template, f"output_model {name} has no schema: {error}", None) from error
    if schema is None:
        return OutputSpec(kind == "json")
    if kind == "text":
        raise _wrong(template, "output_format has a schema but asks for text", "say type 'json'")
    try:
        return OutputSpec(True, schema_of(schema) or None)
    except ValueError as error:
        raise _wrong(template, f"output_format schema: {error}", None) from error


def _is_type(name: str) -> bool:
    try:
        return bool(parse_type(name))
    except ValueError:
        return False


def _wrong(template: TaskTemplate, message: str, hint: str | None) -> DataError:
    return DataError(f"template '{template.name}': {message}", code="tasks/output-format", hint=hint)


def format_instructions(spec: OutputSpec) -> str:
    """The text after a prompt that describes the form of its answer; empty for text."""
    if not spec.json:
        return ""
    if spec.schema is None:
        return "\n\nAnswer with one JSON value and nothing else: no prose, no code fence."
    return (
        "\n\nAnswer with one JSON value that meets this JSON Schema, and nothing else: no prose, no code fence.\n"
        f"<schema>{to_json(asked_schema(spec.model, spec.schema))}</schema>"
    )


def result_of(outcome: PromptOutcome, spec: OutputSpec, notes: Notes) -> TaskResult:
    """The TaskResult of a prompt's outcome.

    Its usage is the outcome's. Text other than the required JSON is COMPLETE with ``notes.parseError`` and no
    parsedContent; valid JSON that violates the schema is FAILED with output_format_failure and the answer in its
    details.
    """
    text, usage = outcome.response.text, outcome.usage
    if outcome.refused is not None:
        return replace(_not_accepted(outcome.refused, text, notes), usage=usage)
    if not spec.json:
        return TaskResult("COMPLETE", text, notes=notes, usage=usage)
    if outcome.parse_error is not None:
        return TaskResult("COMPLETE", text, notes=replace(notes, parse_error=outcome.parse_error), usage=usage)
    value = outcome.value
    errors = outcome.schema_errors
    if not errors and spec.model is not None and not _is_of(value, spec.model):
        try:
            value = TypeAdapter[Any](spec.model).validate_python(value)
        except ValidationError as error:
            errors = tuple(validation_messages(error))
    if errors:
        return replace(_schema_failure(errors, text, value, notes), usage=usage)
    return TaskResult("COMPLETE", text, value, notes=notes, usage=usage)


def _not_accepted(why: str, text: str, notes: Notes) -> TaskResult:
    return TaskResult.failure(
        "output_format_failure",
        f"the check did not accept the answer: {why}",
        details={
            "code": "tasks/check",
            "content": text,
            "hint": "allow more rounds=, state the rule of the check in the prompt, or try another model",
        },
        **notes,
    )


def _is_of(value: object, kind: Any) -> bool:
    """Whether a value is of a class already; a TypedDict has no instances."""
    return isinstance(kind, type) and not is_typeddict(kind) and isinstance(value, kind)


def _schema_failure(errors: tuple[str, ...], text: str, value: object, notes: Notes) -> TaskResult:
    return TaskResult.failure(
        "output_format_failure",
        f"the answer is JSON but misses the schema: {'; '.join(errors[:5])}",
        details={
            "code": "tasks/schema-missed",
            "schema_errors": list(errors[:20]),
            "content": text,
            "value": value.model_dump(mode="json") if isinstance(value, BaseModel) else value,
            "hint": "ask for less at once, loosen the schema, or try another model",
        },
        **notes,
    )


T = TypeVar("T")
M = TypeVar("M", ContextManagement, HistoryConfig)

RESERVED = ("files", "context", "inputs", "history_config")
"""Arguments of a task call that control the call itself, unless the task declares a parameter of that name."""


def required(parameter: Parameter) -> bool:
    """Whether a parameter needs a value: it is required and has no default (null is one unless ``required`` is set)."""
    explicit = parameter.model_fields_set
    return parameter.required and ("default" not in explicit or (parameter.default is None and "required" in explicit))


_TEXT = frozenset({"any", "string"})


def resolve_inputs(
    name: str, params: Mapping[str, Parameter], inputs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The value of every declared parameter, and the names of undeclared inputs.

    ``name`` is the task's name in messages. Raises one TaskError (input_validation_failure) that names every missing
    parameter and every value of the wrong type.
    """
    undeclared = [] if inputs.keys() <= params.keys() else sorted(inputs.keys() - params.keys())
    values: dict[str, Any] = {}
    missing: list[str] = []
    invalid: dict[str, str] = {}
    for key, parameter in params.items():
        if key not in inputs:
            if required(parameter):
                missing.append(key)
            else:
                values[key] = _default(parameter)
            continue
        value = inputs[key]
        if value is None and not required(parameter):
            values[key] = _default(parameter)
            continue
        if value.__class__ is str and parameter.type in _TEXT and parameter.json_schema is None:
            values[key] = value  # most arguments, and nothing to convert
            continue
        try:
            values[key] = convert(value, parameter.type)
        except ValueError as error:
            invalid[key] = str(error)
            continue
        value = values[key]
        schema = parameter.json_schema
        problems = None if schema is None else check(media_fields(value) if is_media(value) else value, schema)
        if problems:
            invalid[key] = "; ".join(problems[:3])
    if missing or invalid:
        raise _refused(name, missing, invalid, undeclared)
    return values, undeclared


async def resolve_beside(
    name: str, params: Mapping[str, Parameter], inputs: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """The same without holding the event loop: long values are checked and converted on a thread."""
    if is_long(inputs):
        return await asyncio.to_thread(resolve_inputs, name, params, inputs)
    return resolve_inputs(name, params, inputs)


def _default(parameter: Parameter) -> Any:
    return None if parameter.default is None else convert(parameter.default, parameter.type)


def _refused(name: str, missing: list[str], invalid: dict[str, str], undeclared: list[str]) -> TaskError:
    said: list[str] = []
    if missing:
        said.append(f"misses {_names(missing)}")
    said += [f"parameter '{key}': {problem}" for key, problem in invalid.items()]
    hints = [f"'{name}': {near}" for name in undeclared if (near := did_you_mean(name, missing))]
    details: dict[str, Any] = {"missing": missing, "invalid": invalid, "arguments": list(invalid)}
    if undeclared:
        details["undeclared"] = undeclared
    return TaskError(
        f"task '{name}' {'; '.join(said)}",
        reason="input_validation_failure",
        code="tasks/missing-parameter" if missing else "tasks/bad-parameter",
        hint="; ".join(hints) or ("pass it by its name" if missing else None),
        details=details,
    )


def _names(names: list[str]) -> str:
    quoted = ", ".join(f"'{name}'" for name in names)
    return f"its parameter {quoted}" if len(names) == 1 else f"its parameters {quoted}"


def request_from_arguments(template: TaskTemplate, arguments: Mapping[str, Any]) -> SubtaskRequest:
    """The request of a program's task call ``(task (param value) ...)``.

    ``files`` becomes the request's file paths, ``context`` its context settings, ``history_config`` its history
    settings, and ``inputs`` is merged into its inputs (explicit arguments win). A parameter that the template declares
    under one of those names is an ordinary argument. Raises SexpEvaluationError (``tasks/bad-argument``) without a span
    if a reserved argument has the wrong form.
    """
    if not any([key in arguments for key in RESERVED]):  # as in nearly every call
        return SubtaskRequest(template.type, template.subtype, template.name, "", dict(arguments))
    inputs: dict[str, Any] = {}
    reserved: dict[str, Any] = {}
    for key, value in arguments.items():
        target = reserved if key in RESERVED and key not in template.params else inputs
        target[key] = value
    if "inputs" in reserved:
        inputs = {**_pairs(template, "inputs", reserved["inputs"]), **inputs}
    request = SubtaskRequest(template.type, template.subtype, template.name, "", inputs)
    if not reserved:
        return request
    files, context, history = (reserved.get(key) for key in ("files", "context", "history_config"))
    return replace(
        request,
        file_paths=None if "files" not in reserved else _paths(template, files),
        context_management=None
        if "context" not in reserved
        else _settings(template, "context", context, ContextManagement),
        history_config=None
        if "history_config" not in reserved
        else _settings(template, "history_config", history, HistoryConfig),
    )


def _paths(template: TaskTemplate, value: object) -> list[str]:
    if name_of(value) is not None:
        value = [value]
    if isinstance(value, list | tuple):
        names = [name_of(item) for item in cast(list[object], value)]
        if None not in names:
            return cast(list[str], names)
    raise SexpEvaluationError(
        f"'files' of task '{template.name}' is a list of paths",
        code="tasks/bad-argument",
        hint='for example (files (list "a.py" "b.py"))',
    )


def _pairs(template: TaskTemplate, key: str, value: object) -> dict[str, Any]:
    pairs = pairs_to_dict(value)
    if pairs is None:
        raise SexpEvaluationError(
            f"'{key}' of task '{template.name}' is a dict or a list of (name value) pairs, each name once",
            code="tasks/bad-argument",
            hint=f'for example ({key} \'((name "value")))',
        )
    return pairs


def _settings(template: TaskTemplate, key: str, value: object, kind: type[M]) -> M:
    if isinstance(value, kind):
        return value
    switch = value if kind is HistoryConfig and isinstance(value, bool) else None
    fields = _pairs(template, key, value) if switch is None else {}
    try:
        return kind.model_validate(fields if switch is None else switch)
    except ValidationError as error:
        unknown = next((name for name in fields if name not in _field_names(kind)), None)
        raise SexpEvaluationError(
            f"'{key}' of task '{template.name}': {'; '.join(validation_messages(error)[:3])}",
            code="tasks/bad-argument",
            hint=(did_you_mean(unknown, _field_names(kind)) if unknown else None)
            or f"it knows {', '.join(kind.model_fields)}",
        ) from error


def _field_names(kind: type[ContextManagement | HistoryConfig]) -> list[str]:
    return [*kind.model_fields, *map(camel_case, kind.model_fields)]


def camel_case(name: str) -> str:
    """``camelCase`` for ``camel_case``."""
    return re.sub("_(.)", lambda match: match[1].upper(), name)


MAX_NESTING = 16
"""Maximum nesting of function calls within one ``{{...}}``."""

FunctionCaller: TypeAlias = Callable[[FunctionCallNode], Awaitable[str]]
"""Runs a function call with evaluated arguments, and returns the text to insert."""


@frozen
class Slot:
    """``{{name.field...}}``. ``literal`` is its text without such a variable (function arguments)."""

    name: str
    fields: tuple[str, ...]
    span: Span
    literal: str | None = None


@frozen
class Constant:
    """A literal argument of a function call."""

    value: Any


@frozen
class TemplateCall:
    """``{{name(argument ...)}}``."""

    name: str
    arguments: tuple[Argument, ...]
    named: tuple[tuple[str, Argument], ...]
    span: Span


Argument: TypeAlias = "Slot | Constant | TemplateCall"


@frozen
class CompiledText:
    """A parsed template text. ``variables`` are the names its slots need, ``functions`` those it calls, each as often as
    it does."""

    pieces: tuple[str | Slot | TemplateCall, ...]
    variables: tuple[str, ...]
    functions: tuple[str, ...]

    def render(self, values: Mapping[str, Any]) -> str:
        """Fill every slot; function calls are left out. Raises TaskError."""
        out: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                out.append(piece)
                continue
            if isinstance(piece, TemplateCall):
                continue
            slot = piece
            value = values.get(slot.name) if not slot.fields else None
            out.append(value if type(value) is str else text_of(read_slot(slot, values)))
        return "".join(out)

    async def render_with(self, values: Mapping[str, Any], call: FunctionCaller | None) -> str:
        """Fill every slot, with large data in slices, and call every function, several side by side. Raises TaskError."""
        if HELD.isdisjoint(map(type, values.values())) and not self.functions:
            return self.render(values)
        calls = [piece for piece in self.pieces if isinstance(piece, TemplateCall)]
        called = iter([] if call is None else await _run_calls(calls, values, call))
        out: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                out.append(piece)
            elif isinstance(piece, Slot):
                value = read_slot(piece, values)
                out.append(await _data_text(value) if type(value) in HELD else text_of(value))
            elif call is not None:
                out.append(next(called))
        return "".join(out)


async def _run_calls(pieces: Sequence[TemplateCall], values: Mapping[str, Any], call: FunctionCaller) -> list[str]:
    """The results of the calls, in order. Several run concurrently, each at its own call."""
    apart: Callable[[int], Iterator[FunctionCaller]] | None = getattr(call, "apart", None)
    callers = repeat(call) if apart is None else apart(len(pieces))
    return await at_once([_run_call(piece, values, next(callers)) for piece in pieces])


async def _run_call(piece: TemplateCall, values: Mapping[str, Any], call: FunctionCaller) -> str:
    places = [*piece.arguments, *[argument for _, argument in piece.named]]
    called = iter(await _run_calls([each for each in places if isinstance(each, TemplateCall)], values, call))
    filled = [next(called) if isinstance(each, TemplateCall) else _argument(each, values) for each in places]
    arguments, rest = filled[: len(piece.arguments)], filled[len(piece.arguments) :]
    named = {name: value for (name, _), value in zip(piece.named, rest, strict=True)}
    return await call(FunctionCallNode(template_name=piece.name, arguments=arguments, named_arguments=named))


def _argument(argument: Slot | Constant, values: Mapping[str, Any]) -> Any:
    if isinstance(argument, Constant):
        return argument.value
    if argument.literal is not None and argument.name not in values:
        return argument.literal
    return read_slot(argument, values)


def text_of(value: object) -> str:
    """``value`` as text inside a prompt: the content of a TaskResult, text unchanged, other data as JSON."""
    if isinstance(value, TaskResult):
        return value.content
    try:
        return as_text(value)
    except ValueError as error:
        raise _unprintable(error) from None


async def _data_text(value: object) -> str:
    """The same for lists and dicts, in slices."""
    try:
        return await in_slices(json_work(value))
    except ValueError as error:
        raise _unprintable(error) from None


def _unprintable(error: ValueError) -> TaskError:
    return TaskError(
        f"a value cannot be put into a prompt: {error}",
        reason="input_validation_failure",
        code="tasks/unprintable",
    )


def read_slot(slot: Slot, values: Mapping[str, Any]) -> Any:
    """The value of a slot. Raises TaskError that names the missing parameter or field."""
    if slot.name not in values:
        raise _invalid(
            f"parameter '{slot.name}' has no value", "tasks/missing-parameter", did_you_mean(slot.name, values)
        )
    value = values[slot.name]
    path = slot.name
    for field in slot.fields:
        exists, inner = _field(value, field)
        if not exists:
            fields = _fields(value)
            raise _invalid(
                f"parameter '{path}' has no field '{field}'",
                "tasks/missing-field",
                did_you_mean(field, fields) or (f"it has {', '.join(fields[:12])}" if fields else None),
            )
        value, path = inner, f"{path}.{field}"
    return value


def _invalid(message: str, code: str, hint: str | None) -> TaskError:
    return TaskError(message, reason="input_validation_failure", code=code, hint=hint)


def _field(value: object, name: str) -> tuple[bool, Any]:
    if isinstance(value, Mapping):
        mapping = cast(Mapping[object, Any], value)
        return (True, mapping[name]) if name in mapping else (False, None)
    if isinstance(value, MappingModel):
        return (True, value[name]) if name in value else (False, None)
    if name in _fields(value):
        return True, getattr(value, name)
    if name.isdecimal() and isinstance(value, list | tuple):
        items = cast(list[Any], value)
        index = int(name[:9])
        return (True, items[index]) if index < len(items) else (False, None)
    return False, None


def _fields(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [str(key) for key in cast(Mapping[object, Any], value)]
    if isinstance(value, BaseModel):
        return list(type(value).model_fields)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
    if isinstance(value, tuple):
        return [name for name in getattr(type(cast(object, value)), "_fields", ()) if not name.startswith("_")]
    return []


_OPEN = re.compile(r"\\\{\{|\{\{")
_NAME = re.compile(r"[^\W\d][\w-]*(?::[\w-]+)*", re.UNICODE)
_FIELD = re.compile(r"[^\W_][\w-]*", re.UNICODE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SINGLE = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_QUOTED = re.compile(r'\\.|"', re.DOTALL)
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}


def parse_text(text: str, name: str = "<template>") -> CompiledText:
    """Parse a template text. ``name`` is its name in errors.

    Raises DataError (``tasks/template-syntax``) with the position of an invalid ``{{``.
    """
    source = Source(name, text)
    pieces: list[str | Slot | TemplateCall] = []
    at = 0
    while (match := _OPEN.search(text, at)) is not None:
        if match.start() > at:
            pieces.append(text[at : match.start()])
        if match.group() != "{{":
            pieces.append("{{")
            at = match.end()
            continue
        piece, at = _Parser(source, match.end(), match.start()).slot()
        pieces.append(piece)
    if at < len(text):
        pieces.append(text[at:])
    variables: dict[str, None] = {}
    functions: list[str] = []
    for piece in pieces:
        if isinstance(piece, Slot):
            variables[piece.name] = None
        elif isinstance(piece, TemplateCall):
            _collect(piece, functions)
    return CompiledText(tuple(pieces), tuple(variables), tuple(functions))


def _collect(call: TemplateCall, functions: list[str]) -> None:
    functions.append(call.name)
    for argument in (*call.arguments, *(value for _, value in call.named)):
        if isinstance(argument, TemplateCall):
            _collect(argument, functions)


class _Parser:
    """Parses one ``{{...}}``, starting after its opening braces."""

    def __init__(self, source: Source, at: int, start: int) -> None:
        self.source = source
        self.text = source.text
        self.at = at
        self.start = start

    def fail(self, message: str) -> DataError:
        return DataError(
            f"in a template: {message}",
            code="tasks/template-syntax",
            span=self.source.span(self.start, min(len(self.text), self.at + 1)),
            hint='write {{name}}, {{name.field}} or {{function(argument, key="text")}}; \\{{ gives plain braces',
        )

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, token: str) -> bool:
        self.skip()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match.group()

    def slot(self) -> tuple[Slot | TemplateCall, int]:
        self.skip()
        name = self.match(_NAME)
        if name is None:
            raise self.fail("'{{' is followed by no name")
        slot = self.rest(name, 0)
        if not self.take("}}"):
            raise self.fail(f"'{{{{{name}' is not closed by '}}}}'")
        return slot, self.at

    def rest(self, name: str, depth: int, *, argument: bool = False) -> Slot | TemplateCall:
        if self.take("("):
            return self.call(name, depth)
        fields: list[str] = []
        while self.text.startswith(".", self.at):
            self.at += 1
            field = self.match(_FIELD)
            if field is None:
                raise self.fail(f"'.' after '{name}' is followed by no field name (names never begin with '_')")
            fields.append(field)
        literal = ".".join([name, *fields]) if argument else None
        return Slot(name, tuple(fields), self.source.span(self.start, self.at), literal)

    def call(self, name: str, depth: int) -> TemplateCall:
        if depth >= MAX_NESTING:
            raise self.fail(f"function calls are nested deeper than {MAX_NESTING}")
        arguments: list[Argument] = []
        named: list[tuple[str, Argument]] = []
        if not self.take(")"):
            while True:
                key, value = self.argument(depth)
                if key is None:
                    if named:
                        raise self.fail(f"in the call of '{name}', an unnamed argument follows a named one")
                    arguments.append(value)
                elif any(key == other for other, _ in named):
                    raise self.fail(f"in the call of '{name}', argument '{key}' is given twice")
                else:
                    named.append((key, value))
                if self.take(")"):
                    break
                if not self.take(","):
                    raise self.fail(f"in the call of '{name}', ',' or ')' is wanted")
        return TemplateCall(name, tuple(arguments), tuple(named), self.source.span(self.start, self.at))

    def argument(self, depth: int) -> tuple[str | None, Argument]:
        self.skip()
        name = self.match(_NAME)
        if name is None:
            return None, self.constant()
        if self.take("="):
            self.skip()
            inner = self.match(_NAME)
            return name, self.constant() if inner is None else self.word(inner, depth)
        return None, self.word(name, depth)

    def word(self, name: str, depth: int) -> Argument:
        if name in _WORDS:
            return Constant(_WORDS[name])
        return self.rest(name, depth + 1, argument=True)

    def constant(self) -> Constant:
        for pattern in (_DOUBLE, _SINGLE):
            text = self.match(pattern)
            if text is not None:
                body = text if text[0] == '"' else f'"{_QUOTED.sub(_requote, text[1:-1])}"'
                try:
                    return Constant(json.loads(body, strict=False))
                except ValueError:
                    raise self.fail(f"{cut(text, 40)} is not a valid string (escapes are JSON's)") from None
        number = self.match(_NUMBER)
        if number is None:
            raise self.fail("an argument is wanted: a name, a number, true, false, null or a quoted text")
        return Constant(float(number) if set(number) & set(".eE") else int(number[:300]))


def _requote(match: re.Match[str]) -> str:
    text = match.group()
    if text == "\\'":
        return "'"
    return '\\"' if text == '"' else text


async def at_once(works: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The values of all, in order; several run side by side. When one fails the others are cancelled, and its error is raised."""
    if len(works) < 2:
        return [await work for work in works]
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
