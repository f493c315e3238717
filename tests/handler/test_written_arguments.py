"""Arguments as models and gateways write them: in pieces, after an empty object, or as JSON text in place of data."""

from __future__ import annotations

import enum
import json
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.messages import ModelRequest, user
from agentflow.handler.tools import tool_from_function
from agentflow.providers.dialects.decoding import parse_arguments
from agentflow.providers.dialects.openai_chat_wire import ChatDecoder
from agentflow.providers.dialects.wire import Wire


class Slot(BaseModel):
    start: str


class Colour(enum.Enum):
    RED = "red"


async def test_a_list_written_as_text_is_read_and_text_stays_text() -> None:
    """A list or object that is written as JSON text is read where no text is wanted; a str parameter keeps its text."""
    got: list[Any] = []

    async def book(slots: list[Slot], note: str, more: dict[str, list[int]] | None = None) -> str:
        """Book."""
        got.append((slots, note, more))
        return "booked"

    arguments = {"slots": '[{"start": "09:30"}]', "note": '{"a": 1}', "more": {"a": "[1]"}}
    model = ScriptedProvider([{"tool_calls": [{"name": "book", "arguments": arguments}]}, "done"])
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("Book", tools=[book]) == "done"
    assert got == [([Slot(start="09:30")], '{"a": 1}', {"a": [1]})]


async def test_a_list_written_as_text_is_read_for_a_schema() -> None:
    """So it is for a tool that is declared with a JSON Schema; text that is not JSON is refused as before."""
    got: list[Any] = []
    schema = {
        "type": "object",
        "properties": {"rows": {"type": "array", "items": {"type": "integer"}}, "text": {"type": "string"}},
    }
    calls = [{"rows": "[1, 2]", "text": "[3]"}, {"rows": "[1, 2"}]
    model = ScriptedProvider([*[{"tool_calls": [{"name": "add", "arguments": each}]} for each in calls], "done"])
    async with AgentFlow(provider=model) as flow:
        flow.handler.register_tool({"name": "add", "description": "Add.", "input_schema": schema}, got.append)
        assert await flow.ask("Add", tools=["add"]) == "done"
    assert got == [{"rows": [1, 2], "text": "[3]"}]
    last: list[Any] = list(model.requests[-1].messages[-1].parts)
    assert "must be array" in last[0].text


@pytest.mark.parametrize(
    ("text", "arguments"),
    [('{}{"a": 1}', {"a": 1}), (' {} \n{"a": {}}', {"a": {}}), ("{}", {}), ('{"a": 1}', {"a": 1})],
)
def test_an_empty_object_before_the_arguments_is_passed_over(text: str, arguments: Any) -> None:
    """A gateway begins a call's arguments with ``{}``, and sends the whole object after it."""
    assert parse_arguments(text, "t") == (arguments, "")


@pytest.mark.parametrize("text", ['{}{"a"', '{"a": 1}{"b": 2}', "{}[1]", "{}" * 1_000])
def test_several_objects_have_no_meaning(text: str) -> None:
    """Two objects, or half of one, are told to the model."""
    arguments, problem = parse_arguments(text, "t")
    assert arguments == {} and problem


def pieces(*calls: dict[str, Any]) -> list[tuple[str, Any]]:
    decoder = ChatDecoder(Wire(ModelRequest((user("x"),))), provider="p", model="m")
    for call in calls:
        data = {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}
        decoder.event(b"", json.dumps(data).encode(), [])
    decoder.event(b"", b'{"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}', [])
    return [(call.id, call.arguments) for call in decoder.finish().tool_calls]


def test_the_pieces_of_a_call_belong_together_by_id_first() -> None:
    """Head and tail under two indexes are one call: by the id, or because the tail names no call; two ids are two calls."""
    head = {"index": 0, "id": "c1", "function": {"name": "t", "arguments": '{"a":'}}
    assert pieces(head, {"index": 1, "function": {"arguments": "1}"}}) == [("c1", {"a": 1})]
    assert pieces(head, {"index": 1, "id": "c1", "function": {"arguments": "1}"}}) == [("c1", {"a": 1})]
    other = {"index": 0, "id": "c2", "function": {"name": "t", "arguments": '{"a": 2}'}}
    assert pieces({**head, "function": {"name": "t", "arguments": '{"a": 1}'}}, other) == [
        ("c1", {"a": 1}),
        ("c2", {"a": 2}),
    ]


async def test_a_member_of_an_enum_is_its_value() -> None:
    """What a tool gives of an Enum, alone, as a key or within data, is the value that a model may write."""

    async def give() -> Any:
        """Give."""
        return {"colour": Colour.RED, "all": [Colour.RED], Colour.RED: 1}

    async def one() -> Colour:
        """One."""
        return Colour.RED

    calls: list[Any] = [{"name": "give", "arguments": {}}, {"name": "one", "arguments": {}}]
    model = ScriptedProvider([{"tool_calls": calls}, "done"])
    async with AgentFlow(provider=model) as flow:
        await flow.ask("Go", tools=[give, one])
    results: list[Any] = list(model.requests[-1].messages[-1].parts)
    first, second = [str(part.text) for part in results]
    assert json.loads(first) == {"colour": "red", "all": ["red"], "red": 1} and second == '"red"'


@pytest.mark.parametrize(
    "text",
    [
        "Args:\n    city: The city.\n    units: The units.",
        "Args:\n    city: The city,\n        whole.\n    units: The units.",
        "Get it.\n\nArgs:\n    city: The city.\n\nKeyword Args:\n    units: The units.",
        "Get it.\n\nArgs:\n    city: The city.\n\nKeyword Arguments:\n    units (str): The units.",
        "Get it.\n\nArgs:\n    - city: The city.\n    - units: The units.",
        "Get it.\n\nArgs:\n    * city (str): The city.\n    * units: The units.\n\nReturns:\n    - what: it is",
        "Get it.\n\nParameters\n----------\ncity : str\n    The city.\nunits : str\n    The units.",
        "Get it.\n\n:param city: The city.\n:keyword units: The units.",
    ],
)
def test_docstrings_describe_parameters_in_every_form(text: str) -> None:
    """Sections on the first line, of keywords, and bullets describe parameters; the tool's description has none of them."""

    async def weather(city: str, *, units: str = "C") -> str:
        return city + units

    weather.__doc__ = text
    spec = tool_from_function(weather).spec
    fields = spec.input_schema["properties"]
    assert fields["city"]["description"].startswith("The city")
    assert fields["units"]["description"] == "The units."
    assert "city" not in spec.description
