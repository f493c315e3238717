"""What answers say in fields that few servers have: kept for their issuer, read, counted, or told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentflow.core.data.messages import (
    ImagePart,
    Message,
    ModelRequest,
    ModelResponse,
    OtherPart,
    ToolResultPart,
    user,
)
from agentflow.core.data.provider_errors import RateLimited
from agentflow.providers import open_provider
from agentflow.providers.dialects.retry import RetryPolicy
from agentflow.providers.http_adapter import HttpAdapter
from tests.support.model_server import ModelServer, Raw, Request
from tests.support.server_shapes import c, calls, completion, dump, plain, stream

SIGNATURE = {"google": {"thought_signature": "c2ln"}}
CALL = {
    "id": "x",
    "type": "function",
    "extra_content": SIGNATURE,
    "function": {"name": "add", "arguments": "{}", "note": "n"},
}


def raw(answer: bytes) -> Raw:
    """A reply of these bytes."""

    async def write(request: Request, reader: Any, writer: Any) -> None:
        writer.write(answer)
        await writer.drain()

    return Raw(write)


async def talk(
    *answers: bytes, route: str = "openai-chat", model: str = "m", **options: Any
) -> tuple[ModelResponse, dict[str, Any], list[str]]:
    """The first answer of a server; the body of the request after it, with results of its calls; the codes of its notices."""
    script = [raw(answer) for answer in answers] + ["done"]
    async with ModelServer(script) as server:
        adapter = open_provider(route, base_url=server.url, api_key="k", **options)
        deltas = [delta async for delta in adapter.stream(ModelRequest((user("hi"),), model=model))]
        response = deltas[-1].response
        assert response is not None
        results = [ToolResultPart(call.id, call.name, "7") for call in response.tool_calls]
        more = Message("user", tuple(results)) if results else user("more")
        request = ModelRequest((user("hi"), response.message(), more), model=model)
        assert isinstance(adapter, HttpAdapter)
        body = adapter.described(request)["body"]
        other = open_provider(route, base_url="http://other.test", api_key="k")
        assert isinstance(other, HttpAdapter)
        assert "c2ln" not in json.dumps(other.described(request)["body"]), "what only the issuer can read"
        await adapter.aclose()
    return response, body, [delta.notice.code for delta in deltas if delta.notice is not None and delta.notice.code]


@pytest.mark.parametrize("streamed", [False, True])
async def test_keys_of_a_call_come_back_with_it(streamed: bool) -> None:
    """Gemini refuses a call of its own without the signature that it sent beside it; others put keys into the function."""
    answer = stream(calls({"index": 0, **CALL}), c({}, "tool_calls")) if streamed else plain(completion({"content": None, "tool_calls": [CALL]}, "tool_calls"))  # fmt: skip
    response, body, _ = await talk(answer)
    assert response.tool_calls[0].arguments == {}
    (sent,) = body["messages"][1]["tool_calls"]
    assert sent == CALL


@pytest.mark.parametrize("streamed", [False, True])
async def test_keys_of_a_message_come_back_with_it(streamed: bool) -> None:
    """OpenRouter's reasoning_details go back as they came, whole and in order, though they are streamed in pieces."""
    first = {"type": "reasoning.text", "index": 0, "format": "f", "text": "hm hm", "signature": "c2ln"}
    second = {"type": "reasoning.encrypted", "index": 1, "data": "c2ln"}
    if streamed:
        pieces = [{**first, "text": "hm ", "signature": None}, {**first, "text": "hm", "signature": None}]
        last = {"type": "reasoning.text", "index": 0, "format": "f", "signature": "c2ln"}
        answer = stream(
            c({"role": "assistant", "content": "", "reasoning": "hm ", "reasoning_details": [pieces[0]]}),
            c({"content": "", "reasoning": "hm", "reasoning_details": [pieces[1]]}),
            c({"content": "", "reasoning_details": [last, second]}),
            c({"content": "hello"}, "stop"),
        )
    else:
        answer = plain(completion({"content": "hello", "reasoning": "hm hm", "reasoning_details": [first, second]}))
    response, body, _ = await talk(answer)
    assert response.text == "hello"
    assert body["messages"][1] == {
        "role": "assistant",
        "content": "hello",
        "reasoning": "hm hm",
        "reasoning_details": [first, second],
    }


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
async def test_reasoning_is_kept_under_its_key(key: str) -> None:
    """Servers differ in what they call reasoning; it comes back under the name it came with."""
    _, body, _ = await talk(stream(c({key: "hm"}), c({"content": "so"}, "stop")))
    assert body["messages"][1] == {"role": "assistant", "content": "so", key: "hm"}


async def test_thinking_among_the_parts_of_the_content_gets_no_key_of_others() -> None:
    """Mistral's thinking is a part of its content; a server that has no reasoning_content is not sent any."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "so"}]
    _, body, _ = await talk(plain(completion({"content": parts})))
    assert body["messages"][1] == {"role": "assistant", "content": "so"}


async def test_pictures_of_an_answer_are_parts_of_it() -> None:
    """As data or by address; what is sent next names them in words, since no server takes them in an answer."""
    images = [{"type": "image_url", "image_url": {"url": url}} for url in ("data:image/webp;base64,aW1n", "https://a.test/b.png")]  # fmt: skip
    for answer in (plain(completion({"content": "", "images": images})), stream(c({"images": images}), c({}, "stop"))):
        response, body, codes = await talk(answer)
        assert [part for part in response.parts if isinstance(part, ImagePart)] == [
            ImagePart("image/webp", "aW1n"),
            ImagePart(url="https://a.test/b.png"),
        ]
        assert "image/webp" in body["messages"][1]["content"] and codes == []


async def test_a_picture_of_the_responses_api_is_a_part_beside_its_item() -> None:
    """The item goes back to its server; the picture can be looked at."""
    item = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "aW1n",
        "output_format": "webp",
    }
    data = {"id": "r", "status": "completed", "model": "m", "output": [item]}
    response, body, _ = await talk(plain(data), route="openai")
    assert isinstance(response.parts[0], OtherPart) and response.parts[1] == ImagePart("image/webp", "aW1n")
    assert body["input"][1] == item


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}, (10, 5, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 43, "completion_tokens_details": {"reasoning_tokens": 28}}, (10, 33, 28)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 28}}, (10, 33, 28)),
        ({"prompt_tokens": 10, "completion_tokens": 30, "total_tokens": 40, "completion_tokens_details": {"reasoning_tokens": 28}}, (10, 30, 28)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 1}, (10, 5, 0)),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": "many"}, (10, 5, 0)),
    ],
)  # fmt: skip
async def test_usage_counts_what_the_total_says(usage: dict[str, Any], expected: tuple[int, int, int]) -> None:
    """Reasoning is output, whether a server counts it in the output tokens (OpenAI) or beside them (xAI, Gemini)."""
    response, _, _ = await talk(plain(completion({"content": "hi"}, usage=usage)))
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.reasoning_tokens) == expected


async def test_usage_does_not_go_down_within_a_stream() -> None:
    """A last report of zeros, or of a part, takes back nothing; Moonshot's is inside of the choice."""
    whole = {"prompt_tokens": 10, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}
    none = {"prompt_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": None}
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"completion_tokens": 7}}]}
    response, _, _ = await talk(stream({**c({"content": "hi"}), "usage": whole}, {**c({}), "usage": none}, last))
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.cache_read_tokens) == (10, 7, 4)


async def test_another_tier_of_service_is_in_the_metadata() -> None:
    """It is charged differently; the usual one is not worth a word."""
    for said, expected in (("flex", "flex"), ("default", None), (None, None)):
        response, _, _ = await talk(plain(completion({"content": "hi"}, service_tier=said)))
        assert response.metadata.get("service_tier") == expected


async def test_tokens_of_which_nothing_was_read_are_told() -> None:
    """With the keys that the answer has; thinking that used up all of the answer is no such case."""
    answer = plain(completion({"content": None, "speech": "aGk="}, usage={"completion_tokens": 5}))
    assert (await talk(answer))[2] == ["provider/unread-answer"]
    usage = {"completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 5}}
    assert (await talk(plain(completion({"content": None, "speech": "aGk="}, usage=usage))))[2] == []


@pytest.mark.parametrize("said", ["90s", "90.5s", "1e9s", "soon", 90, None])
async def test_the_wait_in_the_body_of_an_error_is_kept(said: Any) -> None:
    """Google says it as RetryInfo, in words that a header would not need; what is not a duration is not a wait."""
    details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": said}]
    body = dump([{"error": {"code": 429, "message": "slow", "status": "RESOURCE_EXHAUSTED", "details": details}}])
    with pytest.raises(RateLimited) as caught:
        await talk(plain(body, status=429), retry=RetryPolicy(attempts=1))
    assert caught.value.retry_after == {"90s": 90.0, "90.5s": 90.5}.get(said)


@pytest.mark.parametrize(
    ("address", "model", "asked"),
    [
        ("https://api.openai.com/v1", "gpt-5", True),
        ("https://api.openai.com/v1", "gpt-4o", False),
        ("https://we.openai.azure.com/openai/v1", "our-writer", True),
        ("https://gateway.test/v1", "openai/gpt-5.2", True),
    ],
)
def test_encrypted_reasoning_is_asked_for_where_it_may_come(address: str, model: str, asked: bool) -> None:
    """Nothing is stored, so reasoning that is to come back has to be encrypted. With OpenAI itself the name of a model tells
    whether it reasons; that of a deployment or of a gateway's model does not."""
    adapter = open_provider("openai", base_url=address, api_key="k")
    assert isinstance(adapter, HttpAdapter)
    body = adapter.described(ModelRequest((user("hi"),), model=model))["body"]
    assert ("include" in body) == asked


@pytest.mark.parametrize("said", [{"param": "include"}, {}])
async def test_a_model_that_has_no_encrypted_reasoning_is_asked_without(said: dict[str, str]) -> None:
    """Azure's gpt-4o refuses the field, and no table knows which model a deployment is."""
    error = {"error": {"message": "Encrypted content is not supported with this model.", "type": "invalid_request_error", **said}}  # fmt: skip
    answer = plain({"id": "r", "status": "completed", "model": "m", "output": []})
    _, body, codes = await talk(plain(error, status=400), answer, route="openai")
    assert codes == ["provider/field-refused"] and "include" not in body
