"""The number of values that a JSON Schema allows: an upper bound on the information in such an answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

MOST = 1_000_000
"""Maximum number of values of a bounded schema; one with more counts as unbounded."""
_DEPTH = 20
_LABELS = frozenset(
    {"title", "description", "default", "examples", "$defs", "definitions", "$schema", "$id", "$comment"}
)
"""Keywords that do not restrict values."""
_NUMBER_FORMS = 3
"""A whole number is itself in up to three ways: 0, 0.0 and -0.0."""


def capacity(schema: Mapping[str, Any] | None) -> int | None:
    """The number of values, as :func:`canonical` gives them, that ``schema`` allows at most; None if nothing bounds it.

    An unknown keyword bounds nothing.
    """
    number = None if schema is None else _count(schema, schema, 0)
    return None if number is None or number > MOST else number


def canonical(value: Any) -> Any:
    """JSON data with its keys in order: the order of fields in an answer must not carry information."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: canonical(entries[key]) for key in sorted(entries)}
    return [canonical(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _count(schema: object, root: Mapping[str, Any], depth: int) -> int | None:
    if depth > _DEPTH or not isinstance(schema, Mapping):
        return None
    rules = {key: each for key, each in cast("Mapping[str, Any]", schema).items() if key not in _LABELS}
    if "$ref" in rules:
        return _count(_target(rules["$ref"], root), root, depth + 1) if len(rules) == 1 else None
    if "const" in rules:
        return _forms(rules["const"])
    if isinstance(rules.get("enum"), list):
        return sum([_forms(each) for each in rules["enum"]])
    for key in ("anyOf", "oneOf"):
        if key in rules:
            return _sum([_count(each, root, depth + 1) for each in _listed(rules[key])])
    kinds = rules.get("type")
    if isinstance(kinds, list):
        return _sum([_count({**rules, "type": kind}, root, depth + 1) for kind in cast("list[Any]", kinds)])
    return _of_kind(kinds, rules, root, depth)


def _of_kind(kind: object, rules: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> int | None:
    match kind:
        case "null":
            return 1
        case "boolean":
            return 2
        case "integer":
            return _integers(rules)
        case "array":
            return _lists(rules, root, depth)
        case "object":
            return _objects(rules, root, depth)
        case _:
            return None


def _integers(rules: Mapping[str, Any]) -> int | None:
    least, most = rules.get("minimum"), rules.get("maximum")
    if not isinstance(least, int | float) or not isinstance(most, int | float) or not math.isfinite(most - least):
        return None
    return max(0, math.floor(most) - math.ceil(least) + 1) * _NUMBER_FORMS


def _lists(rules: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> int | None:
    longest = rules.get("maxItems")
    one = _count(rules.get("items"), root, depth + 1) if "prefixItems" not in rules else None
    if not isinstance(longest, int) or one is None:
        return None
    total = 0
    for length in range(min(longest, MOST) + 1):
        total += one**length
        if total > MOST:
            return None
    return total


def _objects(rules: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> int | None:
    if rules.get("additionalProperties") is not False or "patternProperties" in rules:
        return None
    required = _listed(rules.get("required", []))
    fields: Any = rules.get("properties", {})
    total = 1
    for name, each in cast("Mapping[str, Any]", fields).items():
        number = _count(each, root, depth + 1)
        if number is None:
            return None
        total = min(total * (number + (name not in required)), MOST + 1)
    return total


def _target(reference: object, root: Mapping[str, Any]) -> object:
    """The target of ``#/$defs/Name``; None for any other reference."""
    parts = str(reference).split("/")
    if len(parts) != 3 or parts[0] != "#" or parts[1] not in ("$defs", "definitions"):
        return None
    definitions: object = root.get(parts[1])
    return cast("Mapping[str, Any]", definitions).get(parts[2]) if isinstance(definitions, Mapping) else None


def _forms(value: object) -> int:
    """The number of values equal to ``value``."""
    if isinstance(value, list | dict):
        parts = cast("list[Any]", value) if isinstance(value, list) else list(cast("dict[str, Any]", value).values())
        return math.prod([_forms(each) for each in parts])
    return _NUMBER_FORMS if isinstance(value, int | float) and not isinstance(value, bool) else 1


def _listed(value: object) -> Sequence[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else ()


def _sum(numbers: Sequence[int | None]) -> int | None:
    return None if not numbers or None in numbers else sum(cast("Sequence[int]", numbers))
