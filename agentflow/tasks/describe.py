"""Describes the arguments of task calls, so that the language can check them before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from agentflow.core.data.known_names import NameInfo, ParameterInfo
from agentflow.core.data.templates import ContextManagement, HistoryConfig, Parameter, TaskTemplate
from agentflow.lib.schema.declared_schema import parse_type
from agentflow.lib.schema.json_types import simple_schema
from agentflow.tasks.template import camel_case, required


def task_info(template: TaskTemplate) -> NameInfo:
    """The parameters that a template declares, and the arguments of every task call.

    Raises ValueError for a parameter with an invalid type.
    """
    parameters = {
        name: ParameterInfo(required(parameter), parameter.json_schema or parse_type(parameter.type))
        for name, parameter in template.params.items()
    }
    return NameInfo("task", parameters, reserved=reserved_parameters(), lenient=True)


def arguments_schema(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """The JSON Schema of an object with these parameters; definitions that their schemas refer to stand at its root.

    Raises ValueError for a parameter with an invalid type.
    """
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for name, each in parameters.items():
        schema = simple_schema(each.type) if each.json_schema is None else dict(each.json_schema)
        for defs in ("$defs", "definitions"):
            definitions.setdefault(defs, {}).update(schema.pop(defs, {}))
        if each.description:
            schema.setdefault("description", each.description)
        properties[name] = schema
    needed = [name for name, each in parameters.items() if required(each)]
    shared = {name: value for name, value in definitions.items() if value}
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False, **shared}


@cache
def reserved_parameters() -> dict[str, ParameterInfo]:
    """``files``, ``inputs``, ``context`` and ``history_config``, with the fields of the latter two."""
    schemas: dict[str, dict[str, Any]] = {
        "files": {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]},
        "inputs": {"type": "object"},
        "context": _record(ContextManagement, camel=True),
        "history_config": {"anyOf": [_record(HistoryConfig), {"type": "boolean"}]},
    }
    return {name: ParameterInfo(False, schema) for name, schema in schemas.items()}


def _record(kind: type[ContextManagement | HistoryConfig], *, camel: bool = False) -> dict[str, Any]:
    properties: dict[str, Any] = dict(kind.model_json_schema()["properties"])
    if camel:
        properties |= {camel_case(name): schema for name, schema in properties.items()}
    return {"type": "object", "properties": properties, "additionalProperties": False}
