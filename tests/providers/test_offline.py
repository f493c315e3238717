"""The offline model extracts, obeys schemas, cites, and never pretends."""

from __future__ import annotations

import datetime
import json
import uuid
from typing import Any, Literal

import jsonschema
import pytest
from pydantic import BaseModel, Field

from agentflow.core.data.messages import (
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    user,
)
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers.offline import OfflineProvider

STREAM = '''"""Reads server-sent events.

A stream that ends without its terminal event was cut off: IncompleteStream is raised with the partial text.
"""

class Reader:
    def feed(self, data: bytes) -> None:
        """Take more bytes; the parser keeps what is not a whole event yet."""
        if self.finished: raise IncompleteStream(self.partial)
'''
RETRY = "# Retries wait longer each time, with jitter.\ndef backoff(n): return 2 ** n\n"
QUESTION = "Question: how are streams that were cut off detected?"
FILES = f'<file path="src/sse.py">\n{STREAM}\n</file>\n\n<file path="src/retry.py">\n{RETRY}\n</file>'


async def ask(prompt: str, **fields: Any) -> tuple[ModelResponse, list[ModelDelta]]:
    provider = OfflineProvider()
    messages = fields.pop("messages", (user(prompt),))
    deltas = [delta async for delta in provider.stream(ModelRequest(messages=messages, **fields))]
    assert deltas[-1].response is not None
    return deltas[-1].response, deltas


async def test_the_answer_is_the_sentence_that_bears_on_the_question_with_its_file() -> None:
    """The telling sentence comes first; its file is cited; files that say nothing are not."""
    response, _ = await ask(f"{QUESTION}\n\nAnswer from these files.\n\n{FILES}")
    assert "ends without its terminal event was cut off" in response.text
    assert "src/sse.py" in response.text and "src/retry.py" not in response.text


async def test_it_says_what_it_is() -> None:
    """Metadata, model and cost of every answer; usage is counted."""
    response, _ = await ask("hello")
    assert response.metadata == {"model": "offline", "note": "extractive, no language model"}
    assert (response.model, response.provider, response.cost_usd, response.stop_reason) == (
        "offline",
        "offline",
        0.0,
        "end",
    )
    assert response.usage.requests == 1 and response.usage.input_tokens > 0 and response.usage.output_tokens > 0


async def test_it_streams_word_by_word_and_the_same_each_time() -> None:
    """The deltas are the answer, in words; the same request gives the same answer."""
    response, deltas = await ask(f"{QUESTION}\n\n{FILES}")
    words = [delta.text for delta in deltas if delta.text]
    assert "".join(words) == response.text and len(words) > 10
    assert all(len(word.split()) == 1 for word in words)
    assert (await ask(f"{QUESTION}\n\n{FILES}"))[0].text == response.text


async def test_the_demo_prompts_work() -> None:
    """A summary of one file as JSON, then an answer from summaries as JSON text, naming the files."""
    schema = {
        "type": "object",
        "properties": {"summary": {"type": "string"}, "key_points": {"type": "array", "items": {"type": "string"}}},
        "required": ["summary", "key_points"],
    }
    prompt = f"{QUESTION}\n\nSummarise what the file src/sse.py has to say about it.\n\n--- src/sse.py ---\n{STREAM}"
    response, _ = await ask(prompt, output_schema=schema)
    summary = json.loads(response.text)
    jsonschema.validate(summary, schema)
    assert "terminal event" in summary["summary"] and summary["key_points"]
    summaries = json.dumps(
        [{"path": "src/sse.py", "summary": summary}, {"path": "b.py", "summary": {"summary": "No."}}]
    )
    response, _ = await ask(f"{QUESTION}\n\nAnswer it from these summaries alone, naming the files.\n\n{summaries}")
    assert "terminal event" in response.text and "Files: src/sse.py" in response.text


NODE: dict[str, Any] = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {"name": {"type": "string"}, "next": {"anyOf": [{"type": "null"}, {"type": "string"}]}},
            "required": ["name", "next"],
        }
    },
}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "integer", "minimum": 3, "maximum": 9},
        {"type": "number", "minimum": 0, "maximum": 1},
        {"type": "boolean"},
        {"type": "null"},
        {"enum": ["low", "medium", "high"]},
        {"enum": [1, 2, 3]},
        {"const": {"a": 1}},
        {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
        {"type": "array", "items": {"type": "integer"}, "minItems": 4},
        {"type": "object", "required": ["answer", "files"]},
        {"type": ["null", "string"]},
        {"type": "string", "maxLength": 10},
        {"type": "string", "minLength": 2000},
        NODE,
        {"type": "array", "items": NODE["$defs"]["Node"]},
        {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a", "b_points"]}]},
        {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "score": {"type": "number", "minimum": 0, "maximum": 1},
                "relevance": {"type": "string", "enum": ["none", "low", "medium", "high"]},
                "rating": {"type": "integer", "minimum": 1, "maximum": 5},
                "deep": {"type": "object", "properties": {"deeper": {"type": "array", "items": {"type": "boolean"}}}},
            },
            "required": ["path", "score", "relevance", "rating", "deep"],
            "additionalProperties": False,
        },
    ],
)
@pytest.mark.parametrize("prompt", [f"{QUESTION}\n\n{FILES}", "hi", ""], ids=["files", "hi", "empty"])
async def test_a_schema_is_obeyed(schema: dict[str, Any], prompt: str) -> None:
    """Whatever the schema asks for is filled, from the text where there is any, and is valid."""
    response, _ = await ask(prompt, output_schema=schema)
    jsonschema.validate(json.loads(response.text), schema)


@pytest.mark.parametrize("child", [{"$ref": "#/$defs/T"}, {"type": "array", "items": {"$ref": "#/$defs/T"}}])
async def test_a_recursive_schema_ends(child: dict[str, Any]) -> None:
    """A type that contains itself is not followed for ever, nor at its full width at every level."""
    schema = {
        "$ref": "#/$defs/T",
        "$defs": {"T": {"type": "object", "properties": {"child": child, "name": {"type": "string"}}}},
    }
    response, _ = await ask(f"{QUESTION}\n\n{FILES}", output_schema=schema)
    jsonschema.validate(json.loads(response.text), schema)
    assert len(response.text) < 100_000


class Person(BaseModel):
    """A type with bounds, formats, choices and defaults."""

    name: str
    age: int = Field(ge=0, le=120)
    height_m: float = Field(gt=0, lt=3)
    seats: int = Field(multiple_of=4, ge=3)
    colour: Literal["red", "green", "blue"]
    born: datetime.date
    id: uuid.UUID
    pair: tuple[int, str]
    note: str | None = None


async def test_values_are_sensible_where_the_text_has_none() -> None:
    """Without text, strings are named by their properties; numbers are within bounds; choices and defaults come first."""
    response, _ = await ask("Invent a person.", output_schema=Person.model_json_schema())
    person = Person.model_validate_json(response.text)
    assert (person.name, person.age, person.height_m, person.seats, person.colour, person.note) == (
        "name",
        0,
        1,
        4,
        "red",
        None,
    )
    told = f"{QUESTION} Is it red?\n\n<file path='a'>How streams that were cut off are detected: at 37, by blue.</file>"
    response, _ = await ask(told.replace("'", '"'), output_schema=Person.model_json_schema())
    person = Person.model_validate_json(response.text)
    assert (person.age, person.colour) == (37, "blue") and "detected: at 37" in person.name


async def test_it_does_not_collect_what_it_was_asked() -> None:
    """Unlike a script's, its requests are not kept."""
    provider = OfflineProvider()
    for _ in range(3):
        [delta async for delta in provider.stream(ModelRequest(messages=(user("hi"),)))]
    assert len(provider.requests) <= 1


async def test_json_asked_for_in_words() -> None:
    """Without a schema, JSON holds the answer and the files it rests on."""
    response, _ = await ask(f"{QUESTION}\nAnswer with one JSON value and nothing else.\n\n{FILES}")
    answer = json.loads(response.text)
    assert "terminal event" in answer["answer"] and answer["files"] == ["src/sse.py"]


async def test_candidates_are_ranked() -> None:
    """The memory's re-ranking prompt gets scores by relevance, for the paths given."""
    shown = [{"path": "a.py", "text": STREAM}, {"path": "b.py", "text": "nothing of the kind"}]
    schema = {
        "type": "array",
        "items": {
            "type": "object",
            "properties": {"path": {"type": "string"}, "score": {"type": "number"}, "relevance": {"type": "string"}},
            "required": ["path", "score", "relevance"],
        },
    }
    prompt = f"Request: how are cut off streams detected\n\nCandidates:\n{json.dumps(shown)}\n\nChoose at most 5."
    response, _ = await ask(prompt, output_schema=schema)
    ranking = json.loads(response.text)
    jsonschema.validate(ranking, schema)
    assert ranking[0]["path"] == "a.py" and 0 < ranking[0]["score"] <= 1 and len(ranking) == 1


async def test_tools_are_called_only_when_required() -> None:
    """A required tool gets arguments of its schema; its result is then used; offered tools are left alone."""
    tool = ToolSpec(
        "search", "", {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    )
    response, _ = await ask(QUESTION, tools=(tool,))
    assert response.tool_calls == ()
    response, deltas = await ask(QUESTION, tools=(tool,), tool_choice="required")
    call = response.tool_calls[0]
    assert response.stop_reason == "tool_calls" and call.name == "search"
    assert call.arguments == {"query": "how are streams that were cut off detected?"}
    assert json.loads("".join(delta.arguments for delta in deltas)) == call.arguments
    history = (
        user(QUESTION),
        Message("assistant", (ToolCallPart("1", "search", {}),)),
        Message("user", (ToolResultPart("1", "search", "Cut off streams lack their terminal event."),)),
    )
    response, _ = await ask("", messages=history, tools=(tool,), tool_choice="required")
    assert "lack their terminal event" in response.text and response.tool_calls == ()


async def test_output_is_cut_at_the_limit() -> None:
    """As a model's would be, with the stop reason that says so."""
    response, _ = await ask(f"{QUESTION}\n\n{FILES}", max_output_tokens=5)
    assert response.stop_reason == "max_tokens" and response.text and response.usage.output_tokens <= 5


@pytest.mark.parametrize(
    "prompt", ["", "?", "\0", "<file", "[" * 5_000, '{"path": ' * 300, "a" * 300_000, "é\n" * 5_000]
)
async def test_hostile_prompts_are_answered(prompt: str) -> None:
    """Whatever the prompt, there is an answer; text that is not text costs no time to speak of."""
    response, _ = await ask(prompt)
    assert response.text


def test_it_is_an_adapter() -> None:
    """It implements the port, for every model name, without a key."""
    provider: ProviderAdapter = OfflineProvider()
    assert provider.profile("anything").dialect == "offline" and isinstance(provider, ProviderAdapter)


async def test_system_prompt_and_parts_are_counted() -> None:
    """Estimated tokens cover everything sent."""
    provider = OfflineProvider()
    short = ModelRequest(messages=(user("abcd"),))
    long = ModelRequest(messages=(Message("user", (TextPart("abcd"), TextPart("e" * 400))),), system="i" * 400)
    assert await provider.count_tokens(long) == await provider.count_tokens(short) + 200


CHECKED = 'def test_cut_off_streams_are_detected():\n    """Streams that were cut off are detected by a test of streams that were cut off."""\n'


async def test_an_answer_quotes_the_words_of_files_and_not_their_code() -> None:
    """Of a Python file its docstrings and comments, once each, by short paths; tests only where there is nothing else."""
    files = "\n\n".join(
        f'<file path="/home/me/app/{path}">\n{text}\n</file>'
        for path, text in {"src/sse.py": STREAM, "src/wire/retry.py": RETRY, "tests/test_sse.py": CHECKED}.items()
    )
    response, _ = await ask(f"{QUESTION}\n\nAnswer from these files.\n\n{files}")
    assert "sse.py: A stream that ends without its terminal event was cut off" in response.text
    assert "self.finished" not in response.text and "/home/me" not in response.text and "test" not in response.text
    assert response.text.count("terminal event") == 1
    alone = f'<file path="/home/me/app/tests/test_sse.py">\n{CHECKED}\n</file>'
    assert "test_sse.py: Streams that were cut off" in (await ask(f"{QUESTION}\n\n{alone}"))[0].text
