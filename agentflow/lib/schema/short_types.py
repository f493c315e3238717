"""JSON Schemas as short types, for models that write programs: ``list[{id: int, total: float}]``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, cast

_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "string": "str",
        "integer": "int",
        "number": "float",
        "boolean": "bool",
        "array": "list",
        "object": "dict",
        "null": "None",
        "list": "list",
        "dict": "dict",
    }
)
"""The types as Python writes them."""
_DEEPEST = 3
_MOST_FIELDS = 16
_MOST_CHOICES = 8


def short_type(schema: object, defs: Mapping[str, Any] | None = None, depth: int = 0) -> str:
    """The type of the values of a JSON Schema as Python annotates it, where an object lists its fields: ``{id: int}``.

    Deeper objects, and those with many fields, are a ``dict``. ``Any`` for everything that has no short form.
    """
    if not isinstance(schema, Mapping):
        return "Any"
    part = cast("Mapping[str, Any]", schema)
    defs = defs or cast("Mapping[str, Any]", part.get("$defs") or part.get("definitions") or {})
    if isinstance(ref := part.get("$ref"), str):
        return short_type(defs.get(ref.rpartition("/")[2]), defs, depth + 1) if depth <= _DEEPEST else "Any"
    choices = part.get("anyOf") or part.get("oneOf")
    if isinstance(choices, list):
        return " | ".join(dict.fromkeys([short_type(each, defs, depth) for each in cast("list[Any]", choices)]))
    values = [part["const"]] if "const" in part else part.get("enum")
    if isinstance(values, list) and 0 < len(listed := cast("list[Any]", values)) <= _MOST_CHOICES:
        return " | ".join([json.dumps(value) for value in listed])
    kind = part.get("type")
    if isinstance(kind, list):
        return " | ".join([short_type({**part, "type": each}, defs, depth) for each in cast("list[Any]", kind)])
    if kind == "array":
        inner = short_type(part.get("items"), defs, depth)
        return "list" if inner == "Any" else f"list[{inner}]"
    named = cast("Mapping[str, Any]", part.get("properties") or {})
    if kind == "object" and depth < _DEEPEST and 0 < len(named) <= _MOST_FIELDS:
        return f"{{{', '.join([f'{name}: {short_type(each, defs, depth + 1)}' for name, each in named.items()])}}}"
    return simple_type(str(kind))


def simple_type(kind: str) -> str:
    """A simple type name (``string``, ``integer[]``) as Python annotates it; ``Any`` for another one."""
    return f"list[{simple_type(kind[:-2])}]" if kind.endswith("[]") else _NAMES.get(kind, "Any")
