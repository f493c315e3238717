"""Puts a JSON Schema of any value into that of an object, for servers that take no other, and takes the value out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

KEY = "value"
"""The only key of the object."""
_SHARED = ("$defs", "definitions")


def enclosed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object that holds a value of ``schema``, under :data:`KEY`; shared definitions stay at the root."""
    inner = {key: value for key, value in schema.items() if key not in _SHARED}
    shared = {key: schema[key] for key in _SHARED if key in schema}
    outer: dict[str, Any] = {
        "type": "object",
        "properties": {KEY: inner},
        "required": [KEY],
        "additionalProperties": False,
    }
    return cast(dict[str, Any], _moved({**outer, **shared}))


def with_root(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` with its definition in place of the reference that a recursive class has at its root; any other unchanged."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definition: Any = schema.get("$defs", {}).get(name)
    if schema.keys() != {"$ref", "$defs"} or not isinstance(definition, dict):
        return schema
    return {**cast(dict[str, Any], definition), "$defs": schema["$defs"]}


def disclosed(value: Any) -> Any:
    """What an object of :func:`enclosed` holds; any other value unchanged, for servers that ask for no schema."""
    entries: dict[str, Any] = cast(Any, value) if isinstance(value, dict) else {}
    return entries[KEY] if entries.keys() == {KEY} else value  # pyright: ignore[reportUnknownVariableType]


def _moved(schema: object) -> object:
    """``schema`` with references into the old root as references into the new one."""
    if isinstance(schema, list):
        return [_moved(each) for each in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, object] = {key: _moved(value) for key, value in cast(dict[str, Any], schema).items()}
    target = moved.get("$ref")
    if (
        isinstance(target, str)
        and target.startswith("#")
        and target.split("/")[1:2] not in (["$defs"], ["definitions"])
    ):
        moved["$ref"] = f"#/properties/{KEY}{target[1:]}"
    return moved
