"""JSON Schema: our plain checker agrees with the jsonschema package, and says what is wrong in words."""

from __future__ import annotations

import time
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.core.errors import ConfigurationError
from agentflow.core.values import Symbol
from agentflow.lib.json_schema import check, simple_schema

values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-3, 3) | st.sampled_from(["", "a", "ab", "abc"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
    max_leaves=8,
)
leaf_schemas = st.one_of(
    st.builds(dict),
    st.sampled_from(["string", "integer", "number", "boolean", "null", "object", "array"]).map(lambda t: {"type": t}),
    st.lists(st.sampled_from([1, "a", None, True]), min_size=1, max_size=3).map(lambda e: {"enum": e}),
    st.integers(-2, 2).map(lambda n: {"minimum": n}),
    st.integers(-2, 2).map(lambda n: {"exclusiveMaximum": n}),
    st.integers(0, 3).map(lambda n: {"minLength": n, "maxItems": n}),
    st.just({"pattern": "^a"}),
    st.just({"uniqueItems": True, "type": "array"}),
    st.just({"const": 1}),
)
schemas = st.recursive(
    leaf_schemas,
    lambda inner: st.one_of(
        inner.map(lambda s: {"items": s}),
        st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2).map(lambda p: {"properties": p}),
        st.tuples(inner, st.booleans()).map(
            lambda t: {"type": "object", "required": ["a"], "additionalProperties": t[0]}
        ),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: {"anyOf": s}),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: {"allOf": s}),
        st.lists(inner, min_size=1, max_size=3).map(lambda s: {"oneOf": s}),
        inner.map(lambda s: {"not": s}),
        st.lists(inner, min_size=1, max_size=2).map(lambda s: {"prefixItems": s, "items": {"type": "string"}}),
    ),
    max_leaves=6,
)


@given(values, schemas)
@settings(max_examples=300, deadline=None)
def test_agrees_with_jsonschema(value: Any, schema: dict[str, Any]) -> None:
    """Whatever the schema, our verdict is the package's."""
    assert (not check(value, schema)) == jsonschema.Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    ("value", "schema", "problem"),
    [
        (5, {"type": "string"}, "the value: is 5 (integer), must be string"),
        (
            {"a": {"b": [1, "x"]}},
            {"properties": {"a": {"properties": {"b": {"items": {"type": "integer"}}}}}},
            "a.b[1]",
        ),
        ({"colour": 1}, {"properties": {"color": {}}, "additionalProperties": False}, "did you mean 'color'?"),
        ({}, {"required": ["name"]}, "'name' is missing"),
        (True, {"type": "integer"}, "is true (boolean)"),
        ({"a": 1, "b": 1}, {"maxProperties": 1}, "too many"),
    ],
)
def test_messages(value: Any, schema: dict[str, Any], problem: str) -> None:
    """A violation says where it is, what is there and what must be."""
    assert problem in " ".join(check(value, schema))


def test_references() -> None:
    """Local references are followed, through recursion too."""
    schema = {
        "$defs": {
            "node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}
        },
        "$ref": "#/$defs/node",
    }
    assert check({"n": 1, "next": {"n": 2}}, schema) == []
    assert "next.n" in check({"next": {"n": "x"}}, schema)[0]


def test_program_values() -> None:
    """A symbol is a string, a tuple an array."""
    assert check({"a": Symbol("x"), "b": (1,)}, {"properties": {"a": {"type": "string"}, "b": {"type": "array"}}}) == []


@pytest.mark.parametrize(
    "schema", [{"$ref": "#/nowhere"}, {"$ref": "http://x"}, {"pattern": "("}, {"properties": {"a": 5}}]
)
def test_bad_schemas(schema: dict[str, Any]) -> None:
    """A schema that is itself wrong is a ConfigurationError, never a KeyError."""
    with pytest.raises(ConfigurationError):
        check("a" if "properties" not in schema else {"a": 1}, schema)


def test_bounded() -> None:
    """Ten thousand violations give twenty lines; deep data and self-reference end."""
    assert len(check(list(range(10_000)), {"items": {"type": "string"}})) == 20
    assert check(1, {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"})
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    began = time.perf_counter()
    check(deep, {"type": "array", "items": {"$ref": "#"}})
    assert time.perf_counter() - began < 5


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("string[]", ["a"], [1]),
        ("integer[][]", [[1]], [1]),
        ("number?", None, "x"),
        ("string|integer", 1, None),
        ("object", {}, []),
        ("any", [1], None),
    ],
)
def test_simple_names(name: str, good: Any, bad: Any) -> None:
    """Simple names make schemas; unknown ones name the nearest."""
    assert check(good, simple_schema(name)) == []
    assert name == "any" or check(bad, simple_schema(name))
    with pytest.raises(ConfigurationError, match="no type name") as caught:
        simple_schema("strng[]".removesuffix("[]"))
    assert "string" in (caught.value.hint or "")
