"""How many values a schema allows, which bounds what an answer can tell."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agentflow.core.data.values import to_json
from agentflow.lib.schema.json_schema import Schema
from agentflow.lib.schema.json_types import simple_schema
from agentflow.lib.schema.schema_capacity import canonical, capacity

VALUES: list[Any] = [None, True, False, 0, 0.0, -0.0, 1, 2, 1.0, 2.5, "a", "b", "c", "", [], {}]
VALUES += [[each] for each in VALUES[:12]] + [list(each) for each in itertools.product([True, False], repeat=2)]
VALUES += [{"x": each} for each in VALUES[:12]] + [{"x": a, "y": b} for a in (True, False) for b in ("a", "b", "c")]
VALUES += [{"y": b, "x": a} for a in (True, False) for b in ("a", "b", "c")]

BOUNDED: list[tuple[dict[str, Any], int]] = [
    ({"type": "boolean"}, 2),
    ({"type": "null"}, 1),
    (simple_schema("boolean?"), 3),
    ({"enum": ["a", "b", "c"]}, 3),
    ({"enum": ["a", 1, None]}, 5),
    ({"const": "a"}, 1),
    ({"type": "integer", "minimum": 0, "maximum": 2}, 9),
    ({"anyOf": [{"type": "boolean"}, {"enum": ["a"]}]}, 3),
    ({"type": ["boolean", "null"]}, 3),
    ({"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, 7),
    ({"type": "object", "properties": {"x": {"type": "boolean"}}, "additionalProperties": False}, 3),
    (
        {
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/X"}, "y": {"enum": ["a", "b", "c"]}},
            "required": ["x", "y"],
            "additionalProperties": False,
            "$defs": {"X": {"type": "boolean"}},
        },
        6,
    ),
]
OPEN: list[dict[str, Any] | None] = [
    None,
    {},
    {"type": "string"},
    {"type": "string", "maxLength": 3},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "integer", "minimum": 0},
    {"type": "array", "items": {"type": "boolean"}},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 1000},
    {"type": "object", "properties": {"x": {"type": "boolean"}}},
    {"type": "object", "properties": {"x": {}}, "additionalProperties": False},
    {"anyOf": [{"type": "boolean"}, {"type": "string"}]},
    {"allOf": [{"type": "boolean"}]},
    {"$ref": "#"},
    {"$ref": "#/$defs/X", "$defs": {"X": {"$ref": "#/$defs/X"}}},
    {"type": "object", "patternProperties": {".": {}}, "additionalProperties": False},
]


@pytest.mark.parametrize(("schema", "number"), BOUNDED, ids=[to_json(schema)[:60] for schema, _ in BOUNDED])
def test_no_more_values_than_counted_fit(schema: dict[str, Any], number: int) -> None:
    """Of values of every kind, in whatever order they name their fields, at most as many fit as are counted, and some do."""
    check = Schema(schema)
    fitting = {to_json(canonical(value)) for value in VALUES if not check.check(value)}
    assert capacity(schema) == number and 0 < len(fitting) <= number


@pytest.mark.parametrize("schema", OPEN, ids=[to_json(schema)[:60] for schema in OPEN])
def test_what_nothing_bounds_is_not_counted(schema: dict[str, Any] | None) -> None:
    """Texts, numbers, lists without an end, further fields, and keywords that are not understood."""
    assert capacity(schema) is None
