"""Structured output of any type, on every dialect: servers take schemas of objects only, tasks may ask for anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow
from agentflow.core.events.events import PartialOutput
from agentflow.lib.schema.json_schema import check
from agentflow.lib.schema.partial_json import disclosed, enclosed
from tests.support.model_server import ModelServer

DIALECTS = ("anthropic", "openai-chat", "openai")


class Tree(BaseModel):
    name: str
    below: list[Tree] = []


ANSWERS: dict[str, tuple[Any, Any]] = {
    "list": ("string[]", ["a", "b"]),
    "text": ("string", "a"),
    "number": ("integer", 5),
    "choice": ({"enum": ["yes", "no"]}, "no"),
    "union": ({"anyOf": [{"type": "object"}, {"type": "null"}]}, None),
    "recursive": (Tree, {"name": "a", "below": [{"name": "b", "below": []}]}),
    "object": ({"title": "string"}, {"title": "Gates"}),
}


def flow(dialect: str, server: ModelServer, root: Path) -> AgentFlow:
    return AgentFlow(model=f"{dialect}:m", base_url=server.url, api_key="k", root=root)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("obeys", [True, False])
async def test_any_output_format_works(dialect: str, name: str, obeys: bool, tmp_path: Path) -> None:
    """Value and content are what was asked for, whether the server obeys the schema or the model the prompt."""
    schema, value = ANSWERS[name]
    said = {"value": value} if obeys and name not in ("object", "recursive") else value
    async with ModelServer([json.dumps(said)]) as server, flow(dialect, server, tmp_path) as it:
        output = {"output_model": schema} if isinstance(schema, type) else {"output_format": {"schema": schema}}
        it.task_system.register_template({"name": "t", "params": "", "instructions": "go", **output})
        result = await it.task_system.execute_subtask_directly({"name": "t"})
    assert result.status == "COMPLETE" and json.loads(result.content) == value, result
    parsed = result.parsed_content
    assert (parsed.model_dump() if isinstance(parsed, BaseModel) else parsed) == value
    assert len(server.requests) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_wrong_answer_goes_back_once(dialect: str, tmp_path: Path) -> None:
    """What is wrong is said of the value, not of the object around it; history keeps the answers as they came."""
    replies = ['{"value": ["a", 5]}', '{"value": ["a"]}']
    async with ModelServer(replies) as server, flow(dialect, server, tmp_path) as it:
        schema = {"type": "array", "items": {"type": "string"}}
        result = await it.handler.execute_prompt("go", output_schema=schema)
        assert result.parsed_content == ["a"] and result.content == '["a"]'
        assert "[1]" in json.dumps(server.requests[1].body)
        assert [message.text for message in it.handler.session.messages if message.role == "assistant"] == replies


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_length_is_told_and_an_answer_past_it_goes_back(dialect: str, tmp_path: Path) -> None:
    """A server that refuses ``maxItems`` reads it in the description; what is longer is sent back."""
    replies = ['{"value": ["a", "b", "c"]}', '{"value": ["a", "b"]}']
    async with ModelServer(replies) as server, flow(dialect, server, tmp_path) as it:
        output = {"output_format": {"schema": "string[<=2]"}}
        it.task_system.register_template({"name": "t", "params": "", "instructions": "go", **output})
        result = await it.task_system.execute_subtask_directly({"name": "t"})
        sent = json.dumps(server.requests[0].body.get("output_config", server.requests[0].body))
    assert result.parsed_content == ["a", "b"] and len(server.requests) == 2
    assert '"maxItems": 2' in sent or (dialect == "anthropic" and "(maxItems: 2)" in sent)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_partial_values_are_those_of_the_list(dialect: str, tmp_path: Path) -> None:
    """While it streams, a list is shown as far as it has come, without the object around it."""
    partial: list[Any] = []
    async with ModelServer(['{"value": ["one two", "three four"]}']) as server, flow(dialect, server, tmp_path) as it:
        it.subscribe(lambda event: partial.append(event.value) if isinstance(event, PartialOutput) else None)
        await it.handler.execute_prompt("go", output_model=list[str])
    assert partial[-1] == ["one two", "three four"] and all(isinstance(value, list) for value in partial)


def test_references_into_the_root_follow_it() -> None:
    """A schema that refers to itself means the same inside the object; shared definitions stay where they are."""
    nested = {
        "type": "array",
        "items": {"anyOf": [{"$ref": "#"}, {"$ref": "#/$defs/leaf"}, {"$ref": "#/items/anyOf/1"}]},
        "$defs": {"leaf": {"type": "integer"}},
    }
    schema = enclosed(nested)
    assert check({"value": [1, [2, [3]]]}, schema) == [] == check([1, [2, [3]]], nested)
    assert check({"value": [1, ["x"]]}, schema) and check({"value": 1}, schema)
    assert disclosed({"value": [1]}) == [1] and disclosed([1]) == [1] and disclosed({"value": 1, "more": 2}) != 1
