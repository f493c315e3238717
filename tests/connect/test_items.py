"""One tool, resource or content that is described wrongly is left out, and not its server or its answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from agentflow import ScriptedProvider
from agentflow.events import Warning
from agentflow.mcp import McpStdio
from tests.connect.flows import PYTHON, flow_with, seen

OBJECT = {"type": "object"}
GOOD = {"name": "good", "inputSchema": OBJECT, "annotations": {"readOnlyHint": True}}
VERSIONS = ["2025-06-18", "2025-11-25", "2026-07-28"]
PIXEL = "iVBORw0KGgo="


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copy(Path(__file__).with_name("listing_server.py"), tmp_path)
    return tmp_path


def listing(version: str, **answers: Any) -> McpStdio:
    """A server with the good tool that gives these answers, by method with ``_`` in the place of ``/``."""
    given = {"tools/list": {"tools": [GOOD]}, **{name.replace("_", "/"): answer for name, answer in answers.items()}}
    return McpStdio("s", [PYTHON, "listing_server.py", json.dumps({"version": version, **given})], timeout_s=10)


WRONG: dict[str, Any] = {
    "no schema": {"name": "bad"},
    "a schema that is null": {"name": "bad", "inputSchema": None},
    "a schema of a list": {"name": "bad", "inputSchema": {"type": "array"}},
    "properties that are a list": {"name": "bad", "inputSchema": {"type": "object", "properties": ["x"]}},
    "required that is true": {"name": "bad", "inputSchema": {"type": "object", "required": True}},
    "an unknown type": {"name": "bad", "inputSchema": {"type": "object", "properties": {"x": {"type": "text"}}}},
    "an output schema that is text": {"name": "bad", "inputSchema": OBJECT, "outputSchema": "text"},
    "a hint that is text": {"name": "bad", "inputSchema": OBJECT, "annotations": {"readOnlyHint": "if asked"}},
    "a description that is a list": {"name": "bad", "inputSchema": OBJECT, "description": ["Reads"]},
    "no name": {"inputSchema": OBJECT},
    "a name that is a number": {"name": 7, "inputSchema": OBJECT},
    "text": "bad",
    "null": None,
}


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_a_tool_that_is_described_wrongly_is_left_out(root: Path, version: str) -> None:
    """With a warning each that says why, wherever it stands in the list; the good one works."""
    tools = [*list(WRONG.values())[:6], GOOD, *list(WRONG.values())[6:]]
    server = listing(version, tools_list={"tools": tools}, tools_call={"content": [{"type": "text", "text": "done"}]})
    async with flow_with(root, server) as flow:
        value, events = await seen(flow, "(content (s:good))")
        warnings = [event for event in events if isinstance(event, Warning)]
        assert value == "done" and [tool.name for tool in flow.mcp.tools_of("s") if not tool.builtin] == ["s:good"]
        assert {event.code for event in warnings} == {"mcp/tool-refused"}
        assert any("'bad'" in event.message and "left out" in event.message for event in warnings)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("schema", [{}, {"properties": {"x": {"type": "string"}}}], ids=["empty", "without a type"])
async def test_a_schema_without_a_type_is_that_of_an_object(root: Path, version: str, schema: dict[str, Any]) -> None:
    """The type of arguments can be no other, so that many leave it out."""
    tools = {"tools": [{**GOOD, "inputSchema": schema}]}
    answer = {"content": [{"type": "text", "text": "done"}]}
    async with flow_with(root, listing(version, tools_list=tools, tools_call=answer)) as flow:
        assert (await flow.run('(content (s:good (x "a")))')).value == "done"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_content_that_is_wrong_is_left_out(root: Path, version: str) -> None:
    """The others reach the program; what only its annotations make wrong is content."""
    blocks = [
        {"type": "text", "text": "one"},
        {"type": "hologram", "data": "x"},
        {"type": "text", "text": "two", "annotations": {"audience": ["everybody"], "priority": 7}},
        {"type": "image", "mimeType": "image/png"},
        {"type": "text"},
        None,
    ]
    async with flow_with(root, listing(version, tools_call={"content": blocks})) as flow:
        text = (await flow.run("(content (s:good))")).value
        assert [line for line in text.splitlines() if not line.startswith("[")] == ["one", "two"]
        assert text.count("left out, since it is not as the protocol says") == 4


@pytest.mark.parametrize("version", VERSIONS[1:])
async def test_a_resource_and_a_message_that_are_wrong_are_left_out(root: Path, version: str) -> None:
    """Of a list of resources, of the parts of one, and of the messages of a prompt."""
    server = listing(
        version,
        resources_list={"resources": [{"uri": "a:1", "name": "one"}, {"uri": 7}, {"name": "nowhere"}]},
        resources_read={"contents": [{"uri": "a:1", "text": "text"}, {"uri": "a:2", "text": None}]},
        prompts_get={
            "messages": [
                {"role": "system", "content": {"type": "text", "text": "Obey."}},
                {"role": "user", "content": {"type": "text", "text": "Hello."}},
            ]
        },
    )
    async with flow_with(root, server) as flow:
        assert (await flow.run("(value-of (s:list_resources))")).value == [{"uri": "a:1", "name": "one"}]
        assert ((await flow.run('(content (s:read_resource (uri "a:1")))')).value).splitlines()[0] == "text"
        said = (await flow.run('(content (s:get_prompt (name "p")))')).value
        assert "Hello." in said and "Obey." not in said and "left out" in said


SHOWN: list[tuple[Any, list[str], str]] = [
    ({"id": 7, "name": "Ada"}, ["Created."], 'Created.\n{"id": 7, "name": "Ada"}'),
    ({"id": 7}, ['{ "id":\n7 }'], '{ "id":\n7 }'),
    ({"result": 7}, ["7"], "7"),
    ({"result": "seven"}, ["seven"], "seven"),
    ({"result": ["a", "b"]}, ["a", "b"], "a\nb"),
    ({"result": ["a", "b"]}, ["a"], 'a\n{"result": ["a", "b"]}'),
    ({"result": ["a", "b"]}, ['["a", "b"]'], '["a", "b"]'),
    ({"rows": [{"id": 7}]}, ['[\n {"id": 7}\n]'], '[\n {"id": 7}\n]'),
    ({"result": []}, [], '{"result": []}'),
    ({"id": 7}, [], '{"id": 7}'),
]


@pytest.mark.parametrize(("data", "texts", "shown"), SHOWN)
async def test_data_that_the_text_does_not_hold_reach_the_model(
    root: Path, data: Any, texts: list[str], shown: str
) -> None:
    """A model reads the text; what it says already is not said twice."""
    answer = {"content": [{"type": "text", "text": text} for text in texts], "structuredContent": data}
    script = ScriptedProvider([{"tool_calls": [{"name": "s:good", "arguments": {}}]}, "done"])
    async with flow_with(root, listing(VERSIONS[1], tools_call=answer), provider=script, model=None) as flow:
        program = '(defatom t (params) (tools "s:good") (instructions "Go.")) (value-of (t))'
        assert (await flow.run(program)).value == "done"
        (told,) = script.requests[-1].messages[-1].parts
        assert told.text == shown  # type: ignore[union-attr]


IMAGE = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
DOCUMENT = {"type": "resource", "resource": {"uri": "a:1", "blob": PIXEL, "mimeType": "application/gzip"}}


@pytest.mark.parametrize(
    ("data", "content", "said"),
    [
        ({"content": [IMAGE]}, [IMAGE], None),
        ({"content": [{"type": "text", "text": "a"}, IMAGE]}, [{"type": "text", "text": "a"}, IMAGE], None),
        ({"shots": [PIXEL, "x"], "width": 1}, [IMAGE], '{"shots": ["[shown above]", "x"], "width": 1}'),
        ({"file": {"bytes": PIXEL}}, [DOCUMENT], '{"file": {"bytes": "[shown above]"}}'),
    ],
    ids=["the contents", "with text", "within data", "a document"],
)
async def test_a_picture_is_not_said_in_base64(root: Path, data: Any, content: list[Any], said: str | None) -> None:
    """A server that repeats its contents as data does not have the model read the bytes of a picture as text; the data hold them."""
    answer = {"content": content, "structuredContent": data}
    async with flow_with(root, listing(VERSIONS[1], tools_call=answer)) as flow:
        result = (await flow.run("(s:good)")).value
        assert PIXEL not in result.content and result.parsed_content == data
        assert said is None or result.content.endswith(f"\n{said}")
        assert (said is None) == ("{" not in result.content)


async def test_a_tool_that_is_called_as_a_task_only_is_left_out(root: Path) -> None:
    """Its calls would all fail: the protocol's tasks are not spoken. One that may be called either way is offered."""
    only, either = [{**GOOD, "name": name, "execution": {"taskSupport": name}} for name in ("required", "optional")]
    async with flow_with(root, listing(VERSIONS[1], tools_list={"tools": [only, either]})) as flow:
        _, events = await seen(flow, "1")
        assert flow.tools.find("s:optional") is not None and flow.tools.find("s:required") is None
        (warning,) = [event for event in events if isinstance(event, Warning)]
        assert warning.code == "mcp/tool-refused" and "only as a task" in warning.message


@pytest.mark.parametrize("data", [[1, 2], "text", 7], ids=str)
async def test_data_that_are_no_object_in_an_older_revision(root: Path, data: Any) -> None:
    """It knows objects only; they are text then, and the answer is not refused."""
    answer = {"content": [{"type": "text", "text": "Here."}], "structuredContent": data}
    async with flow_with(root, listing(VERSIONS[1], tools_call=answer)) as flow:
        assert (await flow.run("(content (s:good))")).value == f"Here.\n{json.dumps(data)}"


async def test_data_without_contents(root: Path) -> None:
    """The protocol asks for a list of contents, be it empty; some leave it out."""
    async with flow_with(root, listing(VERSIONS[1], tools_call={"structuredContent": {"id": 7}})) as flow:
        assert (await flow.run("(value-of (s:good))")).value == {"id": 7}


async def test_a_picture_in_an_error_reaches_the_model(root: Path) -> None:
    """The screenshot of a page that a browser could not use, with the words that it is an error."""
    image = {"type": "image", "data": PIXEL, "mimeType": "image/png"}
    answer = {"content": [{"type": "text", "text": "no such button"}, image], "isError": True}
    script = ScriptedProvider([{"tool_calls": [{"name": "s:good", "arguments": {}}]}, "done"])
    async with flow_with(root, listing(VERSIONS[1], tools_call=answer), provider=script, model=None) as flow:
        program = '(defatom t (params) (tools "s:good") (instructions "Go.")) (value-of (t))'
        assert (await flow.run(program)).value == "done"
        (told,) = script.requests[-1].messages[-1].parts
        text, picture = told.parts  # type: ignore[union-attr]
        assert told.is_error and text.text.startswith("error (tool_execution_error): no such button")  # type: ignore[union-attr]
        assert picture.type == "image"
        result = (await flow.run("(s:good)")).value
        assert result.failed and len(result.notes.parts) == 2
