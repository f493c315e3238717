"""JSON type names of values, and JSON Schemas of simple type names such as ``string[]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.values import Symbol
from agentflow.lib.text.suggest import did_you_mean

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
_LISTED = re.compile(r"(.*)\[(?:<=\s*(\d{1,9}))?\]", re.DOTALL)
_LONGEST_LIST = re.compile(r"<=\s*(\d{1,9})")
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
            f"'{clip(name, 100)}' is no type name",
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
