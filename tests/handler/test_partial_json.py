"""JSON that is still coming: a value at any moment, at a cost that is linear in the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter

from agentflow.core.data.messages import TextPart
from agentflow.core.ports.ports import Prompt
from agentflow.handler.model_turn import OutputSchema, OutputSchemas, PartialAnswer, partial_type
from agentflow.lib.schema.partial_json import PartialJson, parse_answer, prune
from tests.support.spending import at_most, spent


@pytest.mark.parametrize(
    "text", ['{"a": 1}', '  {"a": 1}\n', '```json\n{"a": 1}\n```', 'Here you are:\n```\n{"a": 1}\n```\nEnjoy.']
)
def test_answers(text: str) -> None:
    """The whole text is JSON, or its one code fence is."""
    assert parse_answer(text) == {"a": 1}


@pytest.mark.parametrize(
    "text", ["", "nope", '{"a": 1', "```\n{}\n```\n```\n{}\n```", "NaN", "[" * 20_000, '{"a":1} x']
)
def test_not_answers(text: str) -> None:
    """Everything else is a ValueError with a reason, deep nesting and NaN included."""
    with pytest.raises(ValueError):
        parse_answer(text)


def test_every_prefix() -> None:
    """Fed character by character, there is never an error and the last value is the whole one."""
    data = {"name": 'Ä\n"x"', "list": [1, 2.5, None, {"deep": [True]}], "empty": {}}
    partial, last = PartialJson(), None
    for character in json.dumps(data, ensure_ascii=False):
        value = partial.feed(character)
        last = value if value is not None else last
    assert last == data


def test_linear() -> None:
    """Four times the text costs about four times as much, not sixteen (a wide margin: machines differ)."""

    def cost(size: int) -> float:
        text = json.dumps({"items": ["word " * 8] * (size // 45)})
        partial = PartialJson()
        with spent() as spending:
            for at in range(0, len(text), 20):
                partial.feed(text[at : at + 20])
        return spending.seconds

    cost(50_000)
    assert cost(1_600_000) < 11 * max(cost(400_000), 1e-3)


class Person(BaseModel):
    name: str
    age: int
    friends: list[Person] = []
    address: Address | None = None


class Address(BaseModel):
    city: str


Person.model_rebuild()


def test_partial_model() -> None:
    """With a model, partials are of its partial type: nested models too, missing fields None, wrong ones left out."""
    answer = PartialAnswer(OutputSchema(None, Person))
    seen: list[Any] = []
    for piece in ['{"name": "An', 'na", "age": "x"', ', "address": {"ci', 'ty": "Oslo"}}']:
        value = answer.feed(piece)
        if value is not None:
            seen.append(value)
    assert [value.name for value in seen] == ["An", "Anna", "Anna", "Anna"]
    assert seen[0].age is None and seen[-1].age is None and seen[-1].address.city == "Oslo"
    assert seen[0].model_fields_set == {"name"}
    assert seen[-1].model_dump() == {"name": "Anna", "address": {"city": "Oslo"}}


def test_shapes_are_kept() -> None:
    """A model's shape is built once, also when the caller sends the model's schema along or one of its own."""
    shapes, parts = OutputSchemas(), (TextPart("x"),)
    first = shapes.of(Prompt(parts=parts, output_model=Person))
    assert first is not None and shapes.of(Prompt(parts=parts, output_model=Person)) is first
    same = TypeAdapter(Person).json_schema()
    assert shapes.of(Prompt(parts=parts, output_model=Person, output_schema=same)) is first
    other = shapes.of(Prompt(parts=parts, output_model=Person, output_schema={"type": "object"}))
    assert (
        other is not None and other.schema == {"type": "object"} and other.read('{"name": "A", "age": 1}')[0].age == 1
    )
    assert shapes.of(Prompt(parts=parts)) is None


def test_partial_type_of_others() -> None:
    """Lists and unions are followed, plain types stay."""
    assert partial_type(int) is int
    assert partial_type(list[Address]).__args__[0].__name__ == "PartialAddress"


def test_hostile_text_is_linear() -> None:
    """Text made to be slow to look for a fence in is not."""
    for text in ("```\n" + " " * 2_000_000, "```a" * 500_000, "`" * 2_000_000):
        with pytest.raises(ValueError), at_most(1):
            parse_answer(text)


def test_unions_and_enums() -> None:
    """A union takes the first alternative that fits; an enum's unfinished word is left out."""
    schema = {
        "properties": {
            "u": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"x": {"type": "integer"}}}]},
            "e": {"enum": ["apple", "pear"]},
        }
    }
    assert prune({"u": {"x": 1, "y": 2}, "e": "app"}, schema) == {"u": {"x": 1, "y": 2}}
    assert prune({"u": 5, "e": "pear"}, schema) == {"e": "pear"}


def test_pruned_by_schema() -> None:
    """Without a model the schema prunes: what has the wrong type is left out, unions may pass."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    }
    assert prune({"n": "1", "tags": ["a", 5], "more": 1}, schema) == {"tags": ["a"], "more": 1}
