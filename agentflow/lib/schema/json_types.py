"""JSON type names of values, and JSON Schemas of simple type names such as ``string[]``."""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any, cast

from pydantic import BaseModel

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.values import Symbol
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.lib.text.suggest import did_you_mean

DEFINED = "#/$defs/"


def left_out(schema: Mapping[str, Any], arguments: Container[str] = ()) -> tuple[str, ...]:
    """The parameters that may be left out and are not among the ``arguments`` of a call."""
    required = schema.get("required", ())
    return tuple([name for name in schema.get("properties", {}) if name not in required and name not in arguments])


def without(schema: Mapping[str, Any], names: Container[str]) -> dict[str, Any]:
    """The schema of an object without the properties ``names``, and without the definitions that only these refer to."""
    properties: Mapping[str, Any] = schema.get("properties", {})
    kept = {**schema, "properties": {name: each for name, each in properties.items() if name not in names}}
    definitions = reached(kept, kept.pop("$defs", {}))
    return {**kept, "$defs": definitions} if definitions else kept


def reached(root: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The ``definitions`` (``$defs``) that ``root`` refers to, directly or indirectly."""
    reachable: dict[str, Any] = {}
    pending: list[Any] = [{key: each for key, each in root.items() if key != "$defs"}]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            rules = cast("dict[str, Any]", node)
            name = str(rules.get("$ref", "")).removeprefix(DEFINED)
            if name in definitions and name not in reachable:
                reachable[name] = definitions[name]
                pending.append(definitions[name])
            pending.extend(rules.values())
        elif isinstance(node, list):
            pending.extend(cast("list[Any]", node))
    return {name: each for name, each in definitions.items() if name in reachable}


MAX_JSON_VALUES = 200_000
"""Maximum number of values in one JSON text from a model or its server: some 25 ms of parsing."""
_DENSE = 400_000


def has_too_many_values(data: bytes | bytearray) -> bool:
    """Whether ``data`` may hold more than :data:`MAX_JSON_VALUES` values, judged by its commas and brackets."""
    return len(data) > _DENSE and data.count(b",") + data.count(b"[") + data.count(b"{") > MAX_JSON_VALUES


TYPES: Mapping[type, str] = MappingProxyType(
    {
        type(None): "null",
        bool: "boolean",
        str: "string",
        int: "integer",
        float: "number",
        list: "array",
        dict: "object",
    }
)
"""The JSON type names of parsed JSON values, by Python type."""
_LONGEST = 200
"""Maximum length of a type name, which also bounds its nesting."""
_LISTED = late_pattern(r"(.*)\[(?:<=\s*(\d{1,9}))?\]", re.DOTALL)
_LONGEST_LIST = late_pattern(r"<=\s*(\d{1,9})")
_SIMPLE: dict[str, dict[str, Any]] = {
    "any": {},
    "string": {"type": "string"},
    "str": {"type": "string"},
    "text": {"type": "string"},
    "integer": {"type": "integer"},
    "int": {"type": "integer"},
    "number": {"type": "number"},
    "float": {"type": "number"},
    "boolean": {"type": "boolean"},
    "bool": {"type": "boolean"},
    "object": {"type": "object"},
    "dict": {"type": "object"},
    "array": {"type": "array"},
    "list": {"type": "array"},
    "null": {"type": "null"},
}


def simple_schema(name: str) -> dict[str, Any]:
    """The JSON Schema of a simple type name.

    ``string integer number boolean object array null any`` (and Python's names for them), with ``[]`` for a list of
    them (``string[]``, ``integer[][]``) or ``[<=8]`` for one of at most eight, ``?`` for "or null", and ``a|b`` for either.
    Raises ConfigurationError for an unknown name.
    """
    text = name.strip()
    if len(text) > _LONGEST:
        text = ""
    if "|" in text:
        return {"anyOf": [simple_schema(part) for part in text.split("|")]}
    if text.endswith("?"):
        return {"anyOf": [simple_schema(text[:-1]), {"type": "null"}]}
    listed = _LISTED.fullmatch(text)
    if listed is not None:
        longest = {} if listed[2] is None else {"maxItems": int(listed[2])}
        return {"type": "array", "items": simple_schema(listed[1]), **longest}
    schema = _SIMPLE.get(text.lower())
    if schema is None:
        raise ConfigurationError(
            f"'{clip(name, 100)}' is not a type name",
            code="schema/unknown-type",
            hint=did_you_mean(text.lower(), _SIMPLE)
            or "write string, integer, number, boolean, object, array, null or any, with [] for a list of them, [<=8] for one "
            "of at most eight",
        )
    return dict(schema)


def longest_list(bound: object) -> int | None:
    """The number of ``"<=8"``, which says how long a list may be; None for anything else."""
    match = _LONGEST_LIST.fullmatch(bound) if isinstance(bound, str) else None
    return None if match is None else int(match[1])


def type_name(value: object) -> str:
    """The JSON type name of ``value``; the Python type's name if JSON has none."""
    name = TYPES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, str | Symbol):
        return "string"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, list | tuple):
        return "array"
    if isinstance(value, Mapping | BaseModel):
        return "object"
    return type(value).__name__
