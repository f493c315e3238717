"""Output formats: what a template requires, the instructions for the model, and the answer as a TaskResult.

``output_format`` is ``{"type": "text" | "json", "schema": ...}`` where the schema is a simple name (``string[]``), a
dict of field names, a JSON Schema, or a pydantic model; ``output_model`` on the template is the same as a model in
``schema``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast, get_origin

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import is_typeddict

from agentflow.core.data.errors import DataError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.models import validation_messages
from agentflow.core.data.notes import Notes
from agentflow.core.data.results import TaskResult
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.data.values import Symbol, to_json
from agentflow.core.ports.ports import PromptOutcome
from agentflow.lib.schema.declared_schema import parse_type, schema_of
from agentflow.lib.schema.tagged_unions import asked_schema
from agentflow.lib.text.suggest import did_you_mean

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
            raise _wrong(template, f"output_model {model!r} is no class", "give a pydantic model or dataclass")
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
    """What is said after a prompt of the form of its answer; empty for text."""
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

    Its usage is the outcome's. Text that is not the required JSON is COMPLETE with ``notes.parseError`` and no
    parsedContent; valid JSON that violates the schema is FAILED with output_format_failure and the answer in its
    details.
    """
    text, usage = outcome.response.text, outcome.usage
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
