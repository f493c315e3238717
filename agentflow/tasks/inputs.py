"""Checks a task's arguments against its declared parameters, converts them, and adds defaults."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from agentflow.core.data.errors import SexpEvaluationError, TaskError
from agentflow.core.data.media import is_media, media_fields
from agentflow.core.data.models import validation_messages
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.templates import ContextManagement, HistoryConfig, Parameter, TaskTemplate
from agentflow.core.data.values import is_long, name_of, pairs_to_dict
from agentflow.lib.schema.json_schema import check
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.types import convert

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
        hint="; ".join(hints) or (f"pass it by name: ({name} ({missing[0]} ...))" if missing else None),
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
