"""Images, documents and sound: from memory, an address or a file, in prompts, tasks and programs."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.media import MAX_MEDIA_BYTES
from agentflow.durable.values.record_values import fingerprint
from agentflow.lib.signature import ToolInputError
from agentflow.media import AudioPart, DocumentPart, ImagePart, TextPart, attachment
from tests.support.model_server import ModelServer

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 8
WAV = b"RIFF\0\0\0\0WAVE" + b"\0" * 8
ENCODED = base64.b64encode(PNG).decode()


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (PNG, ImagePart("image/png", ENCODED)),
        (b"%PDF-1.7", DocumentPart("application/pdf", base64.b64encode(b"%PDF-1.7").decode())),
        (WAV, AudioPart("audio/wav", base64.b64encode(WAV).decode())),
        ("https://example.com/a.JPG?size=2", ImagePart("image/jpeg", None, "https://example.com/a.JPG?size=2")),
        ("https://example.com/a.pdf", DocumentPart("application/pdf", None, "https://example.com/a.pdf", "a.pdf")),
        (f"data:image/gif;base64,{ENCODED}", ImagePart("image/gif", ENCODED)),
    ],
)
async def test_what_it_is_is_seen(source: Any, expected: object) -> None:
    """Content is known by its first bytes, an address by its ending, a data address by what it says."""
    assert await attachment(source) == expected


async def test_a_file_is_read_and_named(tmp_path: Path) -> None:
    """Its content counts before its name."""
    file = tmp_path / "report.bin"
    file.write_bytes(b"%PDF-1.7")
    part = await attachment(file)
    assert isinstance(part, DocumentPart) and part.name == "report.bin" and part.media_type == "application/pdf"
    assert (await attachment(file, media_type="text/plain")).media_type == "text/plain"


@pytest.mark.parametrize(
    ("source", "code"),
    [
        (b"who knows", "media/type"),
        ("https://example.com/a", "media/type"),
        ("/nowhere/a.png", "media/file"),
        (b"%PDF-" + b"\0" * MAX_MEDIA_BYTES, "media/too-large"),
    ],
    ids=["bytes", "address", "file", "size"],
)
async def test_what_cannot_be_sent_is_an_error(source: Any, code: str) -> None:
    """Before any model is asked."""
    with pytest.raises(ConfigurationError) as caught:
        await attachment(source)
    assert caught.value.code == code and caught.value.hint


async def test_a_prompt_is_a_list_of_texts_files_and_parts(tmp_path: Path) -> None:
    """A path is a file that is read; anything else is an error that says so."""
    (tmp_path / "a.png").write_bytes(PNG)
    async with ModelServer(["a cat"]) as server:
        async with AgentFlow("openai:gpt-5", base_url=server.url, api_key="k") as flow:
            await flow.handler.execute_prompt(
                ["What is this?", tmp_path / "a.png", await attachment("https://e.com/b.png")]
            )
            with pytest.raises(ConfigurationError, match="not of bytes"):
                await flow.handler.execute_prompt(["x", PNG])  # type: ignore[list-item]
    content = server.requests[0].body["input"][0]["content"]
    assert [part["type"] for part in content] == ["input_text", "input_image", "input_image"]
    assert content[1]["image_url"].endswith(ENCODED) and content[2]["image_url"] == "https://e.com/b.png"


PROGRAM = """(defatom describe (params photo) (instructions "Describe {{photo}}."))
(define (all photos) (map (lambda (each) (content (describe (photo each)))) photos)) (all photos)"""


async def test_a_program_hands_parts_on_to_tasks() -> None:
    """In the text stands the parameter's name, beside the part itself; several are told apart by number."""
    async with ModelServer(["fine"], repeat=True) as server:
        async with AgentFlow("openai-chat:m", base_url=server.url, api_key="k") as flow:
            part = await attachment(PNG)
            assert (await flow.run(PROGRAM, bindings={"photos": [part, part]})).value == ["fine", "fine"]
            await flow.run(
                '(defatom both (params pair) (instructions "{{pair}}")) (both (pair photos))',
                bindings={"photos": [part, await attachment(WAV)]},
            )
    content = server.requests[0].body["messages"][-1]["content"]
    text = "".join(part.get("text", "") for part in content)
    assert text.startswith('Describe <image name="photo"/>.') and ENCODED in str(content)
    both = server.requests[2].body["messages"][-1]["content"]
    assert both[0]["text"] == '<image name="pair 1"/> <audio name="pair 2"/>'
    assert [part["type"] for part in both if part["type"] != "text"] == ["image_url", "input_audio"]


async def test_files_of_a_task_may_be_sound(tmp_path: Path) -> None:
    """``files`` takes what the ending says, within the root."""
    (tmp_path / "said.wav").write_bytes(WAV)
    async with ModelServer(["hello"]) as server:
        async with AgentFlow("openai-chat:m", base_url=server.url, api_key="k", root=tmp_path) as flow:
            await flow.run('(defatom hear (params) (instructions "What is said?")) (hear (files "said.wav"))')
    parts = server.requests[0].body["messages"][-1]["content"]
    assert parts[-1] == {
        "type": "input_audio",
        "input_audio": {"data": base64.b64encode(WAV).decode(), "format": "wav"},
    }


@pytest.mark.parametrize("part", [AudioPart("audio/ogg", "AA"), AudioPart("audio/wav", None, "https://e.com/a.wav")])
async def test_sound_that_a_dialect_does_not_take_is_refused_before_the_call(part: AudioPart) -> None:
    """Anthropic takes none, OpenAI's dialects take WAV and MP3 by content."""
    async with ModelServer(["hello"], repeat=True) as server:
        for model in ("anthropic:m", "openai:m", "openai-chat:m"):
            async with AgentFlow(model, base_url=server.url, api_key="k") as flow:
                result = await flow.handler.execute_prompt(["hear", part])
            assert result.status == "FAILED" and "does not take audio" in result.content
        assert server.requests == []


async def test_a_durable_run_tells_pictures_apart(tmp_path: Path) -> None:
    """What a task was shown is part of its record: another picture is another question, the same one is not asked again."""
    program = '(defatom look (params photo) (instructions "Look at {{photo}}.")) (content (look (photo photo)))'
    async with ModelServer(["fine"], repeat=True) as server:
        options: dict[str, Any] = {
            "base_url": server.url,
            "api_key": "k",
            "durable": f"sqlite:///{tmp_path / 'runs.db'}",
        }
        photo = await attachment(PNG)
        for _ in range(2):
            async with AgentFlow("openai-chat:m", **options) as flow:
                run = await flow.start(program, run_id="one", bindings={"photo": photo})
                assert (await run.result()).value == "fine"
        assert len(server.requests) == 1
    other = await attachment(PNG + b"more")
    assert fingerprint("task", {"photo": photo}) != fingerprint("task", {"photo": other})
    assert fingerprint("task", {"photo": photo}) == fingerprint("task", {"photo": await attachment(PNG)})


async def test_a_schema_is_said_only_where_the_server_does_not_take_it() -> None:
    """A vendor's own server is given the schema as such; others read it in the prompt too."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    async with ModelServer(['{"n": 1}']) as server:
        async with AgentFlow("openai-chat:m", base_url=server.url, api_key="k") as flow:
            result = await flow.handler.execute_prompt("Count.", output_schema=schema)
            assert result["parsedContent"] == {"n": 1}
            assert flow.handler.session.messages[0].text == "Count."
    assert "JSON Schema" in str(server.requests[0].body["messages"])
    provider = ScriptedProvider(['{"n": 1}'])
    async with AgentFlow(provider=provider) as flow:
        await flow.handler.execute_prompt("Count.", output_schema=schema)
    assert provider.requests[0].messages[0].parts == (TextPart("Count."),)
    assert provider.requests[0].output_schema is not None


async def test_python_gives_pictures_to_tasks_and_asks_about_them(tmp_path: Path) -> None:
    """A parameter may be a picture, which pydantic leaves as it is, and ``flow.ask`` takes the same lists as a prompt."""
    (tmp_path / "a.png").write_bytes(PNG)
    async with ModelServer(["a cat"], repeat=True) as server:
        async with AgentFlow("openai:gpt-5", base_url=server.url, api_key="k") as flow:

            @flow.task
            async def describe(photo: ImagePart, language: str = "English") -> str:
                """Describe {{photo}} in {{language}}."""

            part = await attachment(PNG)
            assert isinstance(part, ImagePart)
            assert await describe(part) == "a cat"
            assert await flow.ask(["What is this?", tmp_path / "a.png"]) == "a cat"
            assert await flow.ask(["Only", "text."]) == "a cat"
            with pytest.raises(ToolInputError):
                await describe("a.png")  # type: ignore[arg-type]
    first, second, third = [request.body["input"][-1]["content"] for request in server.requests]
    assert first[0]["text"] == 'Describe <image name="photo"/> in English.' and first[-1]["image_url"].endswith(ENCODED)
    assert second[0]["text"] == "What is this?" and second[-1]["image_url"].endswith(ENCODED)
    assert third == "Only\n\ntext."
