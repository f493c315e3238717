"""Text that is not UTF-8: halves of characters are joined where they follow each other, else replaced, in and out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import AgentFlow, Session, tool
from agentflow.core.data.messages import ModelDelta, ModelRequest, ToolSpec, user
from agentflow.media import DocumentPart, TextPart
from agentflow.providers import open_provider
from agentflow.providers.dialects.halves import whole, whole_json, whole_text
from agentflow.providers.dialects.wire import dump_json, estimate_tokens
from tests.support.model_server import ModelServer, Raw, Request

DIALECTS = ["openai-chat", "openai", "anthropic"]
LONE = "caf\udce9.txt"
HALVES = r"\ud83d", r"\ude00"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain ü 😀", "plain ü 😀"),
        ("\ud83d\ude00", "😀"),
        ("\ud83d\udc80", "💀"),
        ("a\ud83db", "a\ufffdb"),
        ("\ud83d", "\ufffd"),
        ("\ude00\ud83d", "\ufffd\ufffd"),
        ("caf\udce9.txt", "caf\ufffd.txt"),
        ("\udcc3\udca9", "é"),
        ("\udced\udca0\udcbd\udced\udcb8\udc80", "😀"),
    ],
)
def test_halves_are_joined_or_replaced(text: str, expected: str) -> None:
    """Pairs are one character, and so are bytes that ``surrogateescape`` kept apart."""
    assert whole_text(text) == expected


@given(st.recursive(st.text(st.characters(codec=None)), lambda each: st.lists(each) | st.dictionaries(st.text(st.characters(codec=None)), each)))  # fmt: skip
def test_any_text_can_be_written(data: Any) -> None:
    """What comes out is UTF-8, and what was UTF-8 is unchanged."""
    written = dump_json(data)
    assert json.loads(written.decode()) == whole(data)


def test_only_texts_with_halves_are_read_again() -> None:
    """JSON that is broken for another reason stays broken."""
    assert whole_json(b'{"a": "x') is None and whole_json(rb'{"a": "\ud83d') is None
    assert json.loads(whole_json(rb'{"a": "\ud83d"}') or b"") == {"a": "\ufffd"}
    assert json.loads(whole_json(b'{"a": "caf\xe9"}') or b"") == {"a": "caf\ufffd"}
    assert whole_json(rb'{"a": ' + b"[" * 100_000 + rb'"\ud83d"' + b"]" * 100_000 + b"}") is None


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("long", [False, True])
async def test_everything_that_is_sent_can_be_written(dialect: str, long: bool) -> None:
    """Prompts, system texts, results, descriptions, schemas and file names; a session goes on after it."""

    @tool(name="listing", description=f"Lists {LONE}")
    async def listing(folder: str) -> str:
        return LONE * (40_000 if long else 1)

    call = {"tool_calls": [{"name": "listing", "arguments": {"folder": "/"}}]}
    async with (
        ModelServer([call, "done", "again"]) as server,
        AgentFlow(f"{dialect}:m", base_url=server.url, api_key="k", system=f"Read {LONE}") as flow,
    ):
        session = Session()
        document = DocumentPart("text/plain", "aGk=", name=LONE)
        prompt = [TextPart(f"Summarise {LONE}"), document] if dialect != "openai-chat" else f"Summarise {LONE}"
        first = await flow.run(flow.ask(prompt, tools=[listing]), session=session)  # type: ignore[arg-type]
        assert (first.value, (await flow.run(flow.ask("And now?"), session=session)).value) == ("done", "again")
        sent = json.dumps([request.body for request in server.requests], ensure_ascii=False)
        sent.encode()
        assert sent.count("caf\ufffd.txt") > 5


def test_estimates_and_names_take_any_text() -> None:
    """Tokens are counted and tools named without an error."""
    spec = ToolSpec(f"a{LONE}", LONE, {"type": "object", "description": LONE})
    twin = ToolSpec("acaf_.txt".replace(".", "_"), "", {"type": "object"})
    request = ModelRequest((user(LONE),), tools=(spec, twin), model="m")
    assert estimate_tokens(request) > 0
    body = open_provider("openai-chat", base_url="http://localhost/v1").described(request)["body"]  # type: ignore[attr-defined]
    assert len({each["function"]["name"] for each in body["tools"]}) == 2


def chat(delta: str, finish: str = "null") -> str:
    return f'data: {{"model": "m", "choices": [{{"index": 0, "delta": {delta}, "finish_reason": {finish}}}]}}\n\n'


def claude(kind: str, index: int, field: str, text: str) -> str:
    return f'event: content_block_delta\ndata: {{"type": "content_block_delta", "index": {index}, "delta": {{"type": "{kind}", "{field}": "{text}"}}}}\n\n'


def block(index: int, **data: Any) -> str:
    return f"data: {json.dumps({'type': 'content_block_start', 'index': index, 'content_block': data})}\n\n"


def responses(kind: str, text: str, **more: Any) -> str:
    return f'data: {{"type": "response.{kind}.delta", {"".join(f"{json.dumps(k)}: {json.dumps(v)}, " for k, v in more.items())}"delta": "{text}"}}\n\n'


HIGH, LOW = HALVES
CHAT = "".join(
    [
        chat(f'{{"role": "assistant", "reasoning_content": "hm {HIGH}"}}'),
        chat(f'{{"reasoning_content": "{LOW}!"}}'),
        chat(f'{{"content": "a{HIGH}"}}'),
        chat(f'{{"content": "{LOW}b {LOW}{HIGH}"}}'),
        chat('{"content": "c"}'),
        chat(f'{{"content": "d{HIGH}"}}'),
        chat(
            f'{{"tool_calls": [{{"index": 0, "id": "c1", "function": {{"name": "add", "arguments": "{{\\"a\\": \\"{HIGH}"}}}}]}}'
        ),
        chat(
            f'{{"tool_calls": [{{"index": 0, "function": {{"arguments": "{LOW}\\", \\"b\\": \\"\\\\ud83d\\"}}"}}}}]}}'
        ),
        chat("{}", '"tool_calls"'),
        "data: [DONE]\n\n",
    ]
)
CLAUDE = "".join(
    [
        'data: {"type": "message_start", "message": {"model": "m", "usage": {}}}\n\n',
        block(0, type="thinking", thinking=""),
        claude("thinking_delta", 0, "thinking", f"hm {HIGH}"),
        claude("thinking_delta", 0, "thinking", f"{LOW}!"),
        block(1, type="text", text=""),
        claude("text_delta", 1, "text", f"a{HIGH}"),
        'data: {"type": "ping"}\n\n',
        claude("text_delta", 1, "text", f"{LOW}b {LOW}{HIGH}"),
        claude("text_delta", 1, "text", "c"),
        claude("text_delta", 1, "text", f"d{HIGH}"),
        block(2, type="tool_use", id="c1", name="add", input={}),
        claude("input_json_delta", 2, "partial_json", f'{{\\"a\\": \\"{HIGH}'),
        claude("input_json_delta", 2, "partial_json", f'{LOW}\\", \\"b\\": \\"\\\\ud83d\\"}}'),
        'data: {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}}\n\n',
        'data: {"type": "message_stop"}\n\n',
    ]
)
_CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": "", "status": "completed"}
RESPONSES = "".join(
    [
        responses("reasoning_text", f"hm {HIGH}", item_id="rs_1"),
        responses("reasoning_text", f"{LOW}!", item_id="rs_1"),
        responses("output_text", f"a{HIGH}", item_id="msg_1"),
        responses("output_text", f"{LOW}b {LOW}{HIGH}", item_id="msg_1"),
        responses("output_text", "c", item_id="msg_1"),
        responses("output_text", f"d{HIGH}", item_id="msg_1"),
        f"data: {json.dumps({'type': 'response.output_item.added', 'output_index': 2, 'item': _CALL})}\n\n",
        responses("function_call_arguments", f'{{\\"a\\": \\"{HIGH}', item_id="fc_1"),
        responses("function_call_arguments", f'{LOW}\\", \\"b\\": \\"\\\\ud83d\\"}}', item_id="fc_1"),
        'data: {"type": "response.completed", "response": {"status": "completed", "model": "m", "output": []}}\n\n',
    ]
)


def stream(text: str) -> Raw:
    async def write(request: Request, reader: Any, writer: Any) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n" + text.encode())
        await writer.drain()

    return Raw(write)


@pytest.mark.parametrize(
    ("dialect", "answer"), list(zip(DIALECTS, (CHAT, RESPONSES, CLAUDE), strict=True)), ids=DIALECTS
)
async def test_halves_over_two_events_are_joined(dialect: str, answer: str) -> None:
    """Text, thinking and arguments, each with its own; a half that nothing follows is replaced where it was."""
    deltas: list[ModelDelta] = []
    async with ModelServer([stream(answer)]) as server:
        adapter = open_provider(dialect, base_url=server.url, api_key="k")
        async for delta in adapter.stream(ModelRequest((user("hi"),), model="m", stream=True)):
            deltas.append(delta)
        await adapter.aclose()
    response = deltas[-1].response
    assert response is not None
    assert "".join([delta.text for delta in deltas]) == response.text == "a😀b \ufffd\ufffdcd\ufffd"
    assert "".join([delta.thinking for delta in deltas]) == "hm 😀!"
    assert [call.arguments for call in response.tool_calls] == [{"a": "😀", "b": "\ufffd"}]
    assert json.loads("".join([delta.arguments for delta in deltas]))["a"] == "😀"


@pytest.mark.parametrize("cut", [1, 2, 3])
async def test_bytes_of_a_character_over_two_events_are_joined(cut: int) -> None:
    """Servers that cut between bytes rather than characters send JSON that is not UTF-8."""
    data = "😀".encode()
    first, second = (chat('{"content": "X"}').encode().replace(b"X", part) for part in (data[:cut], data[cut:]))

    async def write(request: Request, reader: Any, writer: Any) -> None:
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        writer.write(head + first + second + chat("{}", '"stop"').encode() + b"data: [DONE]\n\n")
        await writer.drain()

    async with (
        ModelServer([Raw(write)]) as server,
        AgentFlow("openai-chat:m", base_url=server.url, api_key="k") as flow,
    ):
        async with flow.stream(flow.ask("hi")) as run:
            assert await run.value() == "😀"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_halves_in_a_plain_answer_are_replaced(dialect: str) -> None:
    """An answer without a stream is read whole."""
    bodies = {
        "openai-chat": rb'{"model": "m", "choices": [{"index": 0, "message": {"content": "a\ud83d"}, "finish_reason": "stop"}]}',
        "openai": rb'{"status": "completed", "model": "m", "output": [{"type": "message", "content": [{"type": "output_text", "text": "a\ud83d"}]}]}',
        "anthropic": rb'{"type": "message", "model": "m", "stop_reason": "end_turn", "content": [{"type": "text", "text": "a\ud83d"}]}',
    }

    async def write(request: Request, reader: Any, writer: Any) -> None:
        data = bodies[dialect]
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(data) + data
        )
        await writer.drain()

    async with ModelServer([Raw(write)]) as server, AgentFlow(f"{dialect}:m", base_url=server.url, api_key="k") as flow:
        assert await flow.ask("hi") == "a\ufffd"
