"""A JSON Schema as OpenAI's strict mode takes it: closed objects whose properties are all required.

https://platform.openai.com/docs/guides/structured-outputs#supported-schemas. An optional property is asked for like any other.
Bounds that the mode does not know are told in the description, and answers are checked against the schema as it was in any case.
"""

from __future__ import annotations

from typing import Any, cast

from agentflow.lib.json_types import type_name

_UNTOLD = ("minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties")
"""Keywords that strict mode refuses, and a description can tell."""
_FORMATS = frozenset(["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"])
_MAPS = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_PLAIN = frozenset(["type", "title", "description", "enum", "const", "default", "examples", "format", "pattern", "multipleOf", "minimum", "maximum"]) | {
    "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems", "required", "$ref", "$schema", "$id", "discriminator",
}  # fmt: skip


class _Loose(Exception):
    """A schema that strict mode cannot express."""


def strict_form(schema: dict[str, Any]) -> dict[str, Any] | None:
    """``schema`` for strict mode; None where it cannot be strict: for objects with any keys, values of any type, conditions.

    Another schema of an object only: strict mode takes no other at the root.
    """
    if schema.get("type") != "object":
        return None
    try:
        return _strict(schema)
    except _Loose:
        return None


def _strict(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, dict) or not schema:
        raise _Loose
    rules = cast("dict[str, Any]", schema)
    strict: dict[str, Any] = {}
    told: list[str] = []
    for key, value in rules.items():
        if key in _UNTOLD:
            told.append(f"{key}: {value}")
        elif key == "format" and value not in _FORMATS:
            told.append(f"format: {value}")
        elif key in _MAPS:
            strict[key] = {name: _strict(each) for name, each in cast("dict[str, Any]", value).items()}
        elif key in _LISTS:
            strict[key] = [_strict(each) for each in cast("list[Any]", value)]
        elif key == "items":
            strict[key] = _strict(value)
        elif key == "additionalProperties":
            if value is not False:
                raise _Loose
        elif key in _PLAIN:
            strict[key] = value
        else:
            raise _Loose
    if "$ref" not in rules:
        _check_kind(rules)
    if told:
        strict["description"] = " ".join(
            [str(each) for each in (rules.get("description"), f"({', '.join(told)})") if each]
        )
    return _completed(strict)


def _check_kind(rules: dict[str, Any]) -> None:
    """Refuse a schema that does not say what it is of, an object of any keys, and items of any type."""
    kinds = rules.get("type")
    if kinds is None and not any([key in rules for key in ("anyOf", "oneOf", "allOf", "enum", "const")]):
        raise _Loose
    if (kinds == "object" and "properties" not in rules) or (kinds == "array" and "items" not in rules):
        raise _Loose
    if len(rules.get("allOf", ())) > 1 or "prefixItems" in rules:
        raise _Loose


def _completed(strict: dict[str, Any]) -> dict[str, Any]:
    """A schema with closed objects, ``anyOf`` for ``oneOf``, and no defaults, which say nothing where all is required."""
    for key in ("default", "discriminator", "$schema", "$id", "required"):
        strict.pop(key, None)
    if "oneOf" in strict:
        strict["anyOf"] = strict.pop("oneOf")
    if "allOf" in strict:
        (only,) = strict.pop("allOf")
        strict = {**only, **strict}
    values = cast("list[Any]", strict.get("enum", [strict["const"]] if "const" in strict else []))
    if values and "type" not in strict:  # strict mode wants the type said
        kinds = list(dict.fromkeys([type_name(each) for each in values]))
        strict = {"type": kinds[0] if len(kinds) == 1 else kinds, **strict}
    if "properties" in strict:
        strict["required"] = list(strict["properties"])
        strict["additionalProperties"] = False
    elif "$ref" in strict:
        strict = {"$ref": strict["$ref"]}
    return strict
