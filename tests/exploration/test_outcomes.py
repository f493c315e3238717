"""Values for schemas: what they allow, the plainest first, and near the constants of the program."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from agentflow.exploration.constants import Constants, constants_of
from agentflow.exploration.outcomes import Values, samples
from agentflow.exploration.python_constants import constants_of_python
from agentflow.lang.diagnosis import analyse
from agentflow.lib.schema.json_schema import check

PAGE = {
    "$defs": {"Link": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]}},
    "type": "object",
    "properties": {
        "title": {"type": "string", "minLength": 3, "maxLength": 12},
        "links": {"type": "array", "items": {"$ref": "#/$defs/Link"}, "minItems": 1, "maxItems": 2},
        "size": {"type": "integer", "minimum": 5, "exclusiveMaximum": 9},
        "state": {"enum": ["new", "old"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "share": {"type": "number", "maximum": 1},
        "ok": {"type": "boolean"},
    },
    "required": ["title", "links"],
}


def every(values: Values, schema: dict[str, Any]) -> list[Any]:
    """The plainest value, and those that differ from it in one choice."""
    choices: dict[str, int] = {}
    plainest = values.value(schema, "=", lambda at, options: choices.setdefault(at, options) and 0)
    made = [plainest]
    for place, options in list(choices.items()):
        for taken in range(1, options):
            made.append(values.value(schema, "=", lambda at, _, p=place, t=taken: t if at == p else 0))
    return made


@pytest.mark.parametrize(
    "schema",
    [PAGE, {"type": ["string", "null"]}, {"const": 3}, {"type": "array", "prefixItems": [{"type": "integer"}]}, {}],
)
def test_every_value_is_one_that_the_schema_allows(schema: dict[str, Any]) -> None:
    """Whatever is chosen, a value meets its schema."""
    made = every(Values(Constants(numbers=(7, 0.5), words=("old",), keys=("title",))), schema)
    assert made and all(not check(value, schema) for value in made)


def test_values_are_near_the_constants_of_the_program() -> None:
    """A number is tried beside what the program compares with, a text as the words it compares with, and empty; a list as
    long as the program counts."""
    values = Values(Constants(numbers=(8,), words=("feature",)))
    assert {7, 8, 9, 0, -1} <= set(every(values, {"type": "integer"}))
    assert {"feature", ""} <= set(every(values, {"type": "string"}))
    read = Values(Constants(numbers=(8, 30, 65), reads_numbers=True))
    assert {"7", "8", "29", "65", "66"} <= set(every(read, {"type": "string"}))
    assert {0, 1, 2, 8, 9} <= {len(each) for each in every(values, {"type": "array", "items": {"type": "null"}})}


def test_what_a_field_is_compared_with_is_tried_first() -> None:
    """Of many constants, those come first that the program compares with the field, with a variable of its name, or with the
    answer of the task, in texts of either surface."""
    _, tree = analyse(
        """(define (judged answer) (let ((effort (get answer "effort")))
             (cond ((> effort 20) 100) ((= (get answer "open-days") 7) 50) ((equal? (get answer "kind") "spam") 30))))"""
    )
    text = ast.parse("""
def judged(answer):
    if answer.effort > 20:
        return 100
    if answer["open_days"] == 7:
        return 50
    return 30 if answer.kind.lower() == "spam" else answer.get("effort") < 5
""")
    fields = {"effort": {"type": "integer"}, "open_days": {"type": "number"}, "kind": {"type": "string"}}
    schema = {"type": "object", "properties": fields, "required": [*fields]}
    for constants in (constants_of(tree), constants_of_python(text)):
        values = every(Values(constants), schema)
        for name, first in {
            "effort": [1, 20, 19, 21],
            "open_days": [1.0, 7.0, 6.5, 7.5],
            "kind": ["text", "spam"],
        }.items():
            tried = [*dict.fromkeys(each[name] for each in values)]
            assert tried[: len(first)] == first


def test_each_optional_field_is_left_out_once() -> None:
    """Of an object each field that is not required is missing in some value, and no other is."""
    made = every(Values(Constants()), PAGE)
    missing = [set(PAGE["properties"]) - set(each) for each in made]
    assert {frozenset(each) for each in missing if each} == {
        frozenset({name}) for name in PAGE["properties"] if name not in PAGE["required"]
    }


@pytest.mark.parametrize(
    ("pattern", "some"),
    [
        ("^[0-9]{4}$", {"0000", "9999"}),
        (r"^\d{3}-\d{2}$", {"000-00"}),
        ("^(bug|feature)$", {"bug", "feature"}),
        ("^[^a-z ]+$", {"1"}),
        ("(", set[str]()),
        ("(((((" * 20, set[str]()),
        ("x{50000}", set[str]()),
    ],
)
def test_texts_for_patterns(pattern: str, some: set[str]) -> None:
    """The texts for a pattern are ones in which it occurs; one that is not understood has none."""
    found = samples(pattern)
    assert some <= set(found) and (some or not found)


def test_texts_of_a_pattern_or_a_format() -> None:
    """A text keeps to its pattern, its format and its length; words of the program that do come first."""
    values = Values(Constants(words=("ABC", "none")))
    assert every(values, {"type": "string", "pattern": "^[A-Z]{3,}$"})[0] == "ABC"
    assert set(every(values, {"type": "string", "format": "date"})) == {"2024-02-29", "1999-12-31"}
    assert all(
        len(text) == 3
        for text in every(values, {"type": "string", "pattern": "^[A-Z]+$", "minLength": 3, "maxLength": 3})
    )


def test_assumptions_narrow_fields_of_a_name() -> None:
    """What is assumed of a field holds wherever it stands."""
    values = Values(Constants(), {"size": {"minimum": 6, "maximum": 7}})
    assert {each["size"] for each in every(values, PAGE) if "size" in each} == {6, 7}


def test_constants_are_those_that_tests_look_at() -> None:
    """Words that are compared come before others; what is read from data is a key, and no prompt is a word."""
    _, tree = analyse(
        """(defatom t (params (x)) (instructions "A prompt {{x}}") (output_format (type "json")))
        (define d (value-of (t (x "spare"))))
        (if (> (get d "grade") 8) (case (get d 'kind) (("bug") 1) (else (timeout 3 (parse-json "{}")))) "none")"""
    )
    constants = constants_of(tree)
    assert constants.numbers == (8, 1, 3) and constants.words[0] == "bug" and "spare" in constants.words
    assert constants.keys == ("grade", "kind") and constants.parses and constants.deadlines
    assert not any("prompt" in word for word in constants.words)
