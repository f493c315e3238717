"""Parts of JSON Schemas: what of a tool's parameters a call depends on, and the definitions that something refers to."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, cast

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
    """Those of the ``definitions`` (``$defs``) to which something in ``root`` refers, directly or not."""
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


__all__ = ["DEFINED", "left_out", "reached", "without"]
