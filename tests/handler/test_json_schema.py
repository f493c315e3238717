"""JSON Schema: our checker agrees with the jsonschema package, says what is wrong in words, and is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.values import Symbol
from agentflow.lib.schema.json_schema import Schema, check
from agentflow.lib.schema.json_types import simple_schema
from tests.support.spending import at_most

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
    st.just({"const": [True]}),
    st.sampled_from([0.5, 2, 0.1]).map(lambda n: {"multipleOf": n}),
    st.integers(0, 2).map(lambda n: {"minProperties": n, "maxItems": 3}),
    st.just({"maxProperties": 1}),
    st.just({"propertyNames": {"maxLength": 0}}),
    st.just({"dependentRequired": {"a": ["b"]}}),
    st.sampled_from([True, False]),
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
        st.tuples(inner, inner, inner).map(lambda t: {"if": t[0], "then": t[1], "else": t[2]}),
        st.tuples(inner, st.integers(0, 2)).map(lambda t: {"contains": t[0], "minContains": t[1], "maxContains": 2}),
        st.tuples(inner, inner).map(lambda t: {"patternProperties": {"[ab]": t[0]}, "additionalProperties": t[1]}),
        st.tuples(inner, inner).map(lambda t: {"dependentSchemas": {"a": t[0]}, "properties": {"b": t[1]}}),
        st.tuples(inner, inner).map(lambda t: {"$defs": {"x": t[0]}, "$ref": "#/$defs/x", "properties": {"c": t[1]}}),
        st.tuples(inner, inner).map(lambda t: merged(t[0], {"unevaluatedProperties": t[1]})),
        st.tuples(inner, inner).map(lambda t: merged(t[0], {"unevaluatedItems": t[1]})),
        st.tuples(inner, inner).map(lambda t: merged(t[0], {"allOf": [t[1]], "unevaluatedItems": False})),
        st.tuples(inner, inner).map(lambda t: merged(t[0], {"anyOf": [t[1], True], "unevaluatedProperties": False})),
    ),
    max_leaves=6,
)


def merged(one: Any, other: dict[str, Any]) -> dict[str, Any]:
    return {**one, **other} if isinstance(one, dict) else other


def in_one_place(schema: Any) -> Any:
    """The schema without its definitions' names clashing: each ``#/$defs/x`` leads to the definition beside it."""
    definitions: dict[str, Any] = {}

    def move(item: Any) -> Any:
        if isinstance(item, list):
            return [move(each) for each in item]
        if not isinstance(item, dict):
            return item
        if "$defs" in item:
            name = f"d{len(definitions)}"
            definitions[name] = True
            definitions[name] = move(item["$defs"]["x"])
            item = {**{key: each for key, each in item.items() if key != "$defs"}, "$ref": f"#/$defs/{name}"}
        return {key: move(each) if key not in ("enum", "const") else each for key, each in item.items()}

    root = move(schema)
    return {**root, "$defs": definitions} if definitions else root


@given(values, schemas)
@settings(max_examples=200, deadline=None)
def test_agrees_with_jsonschema(value: Any, schema: Any) -> None:
    """Whatever the schema, our verdict is the package's."""
    schema = in_one_place(schema)
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
        ({"a": 1, "b": 1}, {"maxProperties": 1}, "has 2 properties, at most 1 are allowed"),
        ({"a": 1}, {"dependentRequired": {"a": ["b"]}}, "'b' is missing, which 'a' needs"),
        ({"a": 1}, {"propertyNames": {"pattern": "^b"}}, "the name 'a' is not allowed: is \"a\", must match"),
        ([1, 2], {"contains": {"type": "string"}}, "has 0 items that 'contains' describes, at least 1 are needed"),
        ({"a": {"b": 1}}, {"oneOf": [{"required": ["x", "y"]}, {"properties": {"a": False}}]}, "a: nothing is"),
        ({"ab": 1}, {"properties": {"abc": {}}, "unevaluatedProperties": False}, "did you mean 'abc'?"),
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
    assert check("x", {"allOf": [{"type": "integer"}], "anyOf": [{"$ref": "#/allOf/0"}]})
    anchored = {"properties": {"a": {"$ref": "#here"}}, "$defs": {"x": {"$anchor": "here", "type": "integer"}}}
    assert check({"a": 1}, anchored) == [] and check({"a": "x"}, anchored)


def test_program_values() -> None:
    """A symbol is a string, a tuple an array."""
    assert check({"a": Symbol("x"), "b": (1,)}, {"properties": {"a": {"type": "string"}, "b": {"type": "array"}}}) == []


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$ref": "#/nowhere"}, '$ref is "#/nowhere", which leads nowhere'),
        ({"$ref": "#nowhere"}, "leads nowhere"),
        ({"$ref": "http://x"}, 'is "http://x", which is not in this schema'),
        ({"pattern": "("}, "unclosed group"),
        ({"pattern": "a{2,1}"}, "no regular expression"),
        ({"properties": {"a": 5}}, "properties/a is 5 in place of a schema"),
        ({"properties": 5}, "properties is 5, must be an object"),
        ({"items": [{}]}, "items is [{}] in place of a schema"),
        ({"required": "a"}, 'required is "a", must be a list'),
        ({"type": "strin"}, "did you mean 'string'?"),
        ({"anyOf": []}, "anyOf is empty"),
        ({"minLength": "1"}, 'minLength is "1", must be a whole number'),
        ({"exclusiveMinimum": True}, "exclusiveMinimum is true, must be a number"),
        ({"multipleOf": 0}, "must be more than 0"),
        ({"uniqueItems": 1}, "must be true or false"),
        (5, "the schema is 5 in place of a schema"),
    ],
)
def test_bad_schemas(schema: Any, problem: str) -> None:
    """A schema that is wrong is a ConfigurationError that says where and why, whatever the data."""
    with pytest.raises(ConfigurationError) as caught:
        check(None, schema)
    assert problem in caught.value.message


def nested(count: int, inside: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(count):
        inside = wrap(inside)
    return inside


def array(inner: Any) -> Any:
    return [inner]


HOSTILE: dict[str, tuple[Any, Any]] = {
    "many violations": (list(range(1_000_000)), {"items": {"type": "string"}}),
    "a reference to itself": (1, {"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}),
    "deep data": (nested(100_000, [], array), {"type": "array", "items": {"$ref": "#"}}),
    "deep data in alternatives": (
        nested(200, [], array),
        {"items": nested(60, {"$ref": "#"}, lambda s: {"anyOf": [s]}), "minItems": 1},
    ),
    "alternatives in alternatives": (nested(40, [], array), {"items": {"anyOf": [{"$ref": "#"}] * 3}, "minItems": 1}),
    "definitions that double": (
        1,
        {
            "$defs": {
                **{f"d{n}": {"oneOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(50)},
                "d50": {"type": "string"},
            },
            "$ref": "#/$defs/d0",
        },
    ),
    "data that shares its parts": (nested(60, [], lambda x: [x, x]), {"const": {"a": 1}}),
    "a pattern that backtracks": ("a" * 1_000_000 + "!", {"pattern": "^(a+)+$"}),
    "parts evaluated over and over": (
        nested(30, {}, lambda x: {"a": x, "b": 1}),
        {"anyOf": [{"properties": {"a": {"$ref": "#"}}}] * 3, "unevaluatedProperties": False},
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_data_and_schemas_end(case: str) -> None:
    """Whatever model wrote data and schema, a check ends within seconds of computing, with at most twenty-one lines."""
    value, schema = HOSTILE[case]
    with at_most(5):
        problems = check(value, schema)
    assert 0 < len(problems) <= 21 and all(len(problem) < 1_000 for problem in problems)


@pytest.mark.parametrize(
    "schema",
    [
        nested(300, {}, lambda s: {"items": s}),
        nested(300, {}, lambda s: {"properties": {"a": s}}),
        nested(40, {}, lambda s: {"allOf": [s, s]}),
        {"pattern": "a" * 1_000_000},
    ],
    ids=["deep items", "deep properties", "shared parts", "long"],
)
def test_hostile_schemas_are_refused(schema: Any) -> None:
    """A schema that would take long to compile is refused, before it has."""
    with pytest.raises(ConfigurationError), at_most(3):
        check(None, schema)


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "((a{100}){100}){100}"},
        {"anyOf": [{"pattern": rf"\p{{L}}{{100}}{number}"} for number in range(100)]},
        {"anyOf": [{"pattern": f"{number}" + "(?=a|b)" * 4_000} for number in range(100)]},
        {"pattern": r"(?<=a)b"},
        {"pattern": r"(a)\1"},
        {"pattern": r"a(?!b)"},
        {"pattern": r"^(?!a|b)|c$"},
        {"pattern": r"^\uD83D\uDE00$"},
        {"patternProperties": {r"(?<year>\d{4})-\k<year>": {"type": "string"}}},
    ],
)
def test_a_pattern_that_has_no_linear_match_is_not_checked_and_said(schema: Any) -> None:
    """JSON Schema takes expressions of ECMA-262: one that cannot be matched in linear time is a warning, and refuses no text."""
    with pytest.warns(UserWarning, match="cannot be matched in linear time"), at_most(3):
        assert check("anything", schema) == []


@pytest.mark.parametrize(
    ("pattern", "good", "bad"),
    [
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "12.5", "-."),
        (r"^(?=.*[A-Z])(?=.*\d).{8,}$", "Abcdefg1", "abcdefg1"),
        (r"^(?!admin$|root$)\w+$", "ann", "root"),
        (r"^\u0041\/b$", "A/b", "B/b"),
    ],
)
def test_look_ahead_at_the_beginning_is_checked(pattern: str, good: str, bad: str, recwarn: Any) -> None:
    """``^(?!...)`` and ``^(?=...)``, as pydantic writes them for a Decimal, are conditions that are matched in linear time."""
    assert check(good, {"pattern": pattern}) == [] and check(bad, {"pattern": pattern})
    assert not recwarn.list


def test_a_pattern_that_is_too_large_leaves_the_others_checked() -> None:
    """A pattern with a large counted repetition is not matched; the other patterns of its schema are."""
    schema = {"properties": {"text": {"pattern": r"^.{1,65536}$"}, "code": {"pattern": "^[a-z]{3}$"}}}
    with pytest.warns(UserWarning, match="cannot be matched in linear time"):
        assert check({"text": "x", "code": "abcd"}, schema)


def test_nulls_in_place_of_what_may_be_left_out() -> None:
    """A null for a property that may be left out and takes no null is left out; any other stays."""
    schema = {
        "$defs": {"leaf": {"properties": {"n": {"type": "integer"}}}},
        "properties": {
            "a": {"type": "string"},
            "b": {"type": ["string", "null"]},
            "c": {"type": "string"},
            "d": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]},
            "e": {"items": {"$ref": "#/$defs/leaf"}},
        },
        "required": ["c"],
    }
    value = {"a": None, "b": None, "c": None, "d": {"n": None}, "e": [{"n": None}, {"n": 1}], "f": None}
    rest = Schema(schema).without_nulls(value)
    assert rest == {"b": None, "c": None, "d": {}, "e": [{}, {"n": 1}], "f": None}
    assert Schema(schema).without_nulls(rest) is rest


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
    with pytest.raises(ConfigurationError, match="not a type name") as caught:
        simple_schema("strng[]".removesuffix("[]"))
    assert "string" in (caught.value.hint or "")
