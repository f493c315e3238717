"""What each dialect says and hears: nothing of a conversation is lost on the way there and back."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import (
    Citation,
    DocumentPart,
    ImagePart,
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    OtherPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    ToolSpec,
    Usage,
    user,
)
from agentflow.core.data.provider_errors import ProtocolError
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers import open_provider
from agentflow.providers.dialects.anthropic_wire import MessagesDecoder
from agentflow.providers.dialects.decoding import Decoder
from agentflow.providers.dialects.openai_chat_wire import ChatDecoder
from agentflow.providers.dialects.openai_responses_wire import ResponsesDecoder
from agentflow.providers.dialects.wire import Wire, dump_json, estimate_tokens
from agentflow.providers.prices import Price
from tests.support.model_server import ModelServer

DIALECTS = ("anthropic", "openai-chat", "openai")
TOOL = ToolSpec("add", "Adds", {"type": "object", "properties": {"a": {"type": "integer"}}})


async def sent(dialect: str, request: ModelRequest, **options: Any) -> dict[str, Any]:
    """The body that goes out for ``request``."""
    async with ModelServer(["fine"]) as server:
        provider = open_provider(dialect, base_url=server.url, api_key="k", **options)
        async for _ in provider.stream(request):
            pass
        await provider.aclose()
        return {**server.requests[0].body, "headers": server.requests[0].headers}


async def answer(provider: ProviderAdapter, request: ModelRequest) -> ModelResponse:
    """The response to one call."""
    responses = [delta.response async for delta in provider.stream(request) if delta.response is not None]
    return responses[-1]


def heard(decoder: Decoder, *events: dict[str, Any] | bytes) -> tuple[list[ModelDelta], ModelResponse]:
    """Deltas and response of a decoder that is given ``events``."""
    out: list[ModelDelta] = []
    for event in events:
        decoder.event(b"", event if isinstance(event, bytes) else dump_json(event), out)
    return out, decoder.finish()


def decoder(kind: type[Any], *tools: str) -> Any:
    request = ModelRequest((), tools=tuple(ToolSpec(name, "", {}) for name in tools))
    return kind(Wire(request), provider="p", model="m")


# --- What goes out ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_system_prompt_tools_and_limits_go_out(dialect: str) -> None:
    """System prompt, tools, tool choice, output limit and schema stand where the dialect wants them."""
    schema = {
        "type": "object",
        "properties": {"x": {"type": "string"}},
        "required": ["x"],
        "additionalProperties": False,
    }
    body = await sent(
        dialect,
        ModelRequest(
            (user("hi"),),
            system="be brief",
            model="m",
            tools=(TOOL,),
            tool_choice="add",
            max_output_tokens=77,
            output_schema=schema,
        ),
    )
    if dialect == "anthropic":
        assert body["system"] == "be brief"
        assert body["tools"][0] == {"name": "add", "description": "Adds", "input_schema": TOOL.input_schema}
        assert body["tool_choice"] == {"type": "tool", "name": "add"}
        assert body["max_tokens"] == 77
        assert body["output_config"]["format"]["schema"]["required"] == ["x"]
    elif dialect == "openai-chat":
        assert body["messages"][0] == {"role": "system", "content": "be brief"}
        assert body["tools"][0]["function"]["parameters"] == TOOL.input_schema
        assert body["tool_choice"] == {"type": "function", "function": {"name": "add"}}
        assert body["max_tokens"] == 77, "a local server knows only the older name"
        assert body["response_format"]["json_schema"]["strict"] is True
    else:
        assert body["instructions"] == "be brief"
        assert body["tools"][0]["name"] == "add"
        assert body["tool_choice"] == {"type": "function", "name": "add"}
        assert body["max_output_tokens"] == 77
        assert body["text"]["format"]["schema"] == schema
        assert body["store"] is False


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_native_settings_are_merged_over_ours(dialect: str) -> None:
    """Settings of the adapter and of the request are fields of the body, the request's last; extra headers are headers."""
    request = ModelRequest((user("hi"),), model="m", settings={"temperature": 0.3, "extra_headers": {"x-mine": "yes"}})
    body = await sent(dialect, request, settings={"top_p": 0.1, "temperature": 0.2})
    assert (body["top_p"], body["temperature"]) == (0.1, 0.3)
    assert body["headers"]["x-mine"] == "yes"
    assert "extra_headers" not in body


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_images_and_documents_go_out(dialect: str) -> None:
    """Pictures and files travel by data or by URL, as the dialect has it."""
    picture = ImagePart("image/png", data="AAAA")
    document = DocumentPart("application/pdf", data="BBBB", name="paper")
    body = await sent(dialect, ModelRequest((Message("user", (TextPart("look"), picture, document)),), model="m"))
    parts = body["input" if dialect == "openai" else "messages"][0]["content"]
    assert [part["type"] for part in parts] == {
        "anthropic": ["text", "image", "document"],
        "openai-chat": ["text", "image_url", "file"],
        "openai": ["input_text", "input_image", "input_file"],
    }[dialect]
    by_url = Message("user", (DocumentPart(url="https://example.com/a.pdf"),))
    if dialect == "openai-chat":
        with pytest.raises(ConfigurationError, match="documents by URL"):
            await sent(dialect, ModelRequest((by_url,), model="m"))
    else:
        assert "https://example.com/a.pdf" in str(await sent(dialect, ModelRequest((by_url,), model="m")))


async def test_text_documents_travel_as_text() -> None:
    """Anthropic takes plain text as such rather than as base64."""
    document = DocumentPart("text/plain", data=base64.b64encode(b"words").decode())
    body = await sent("anthropic", ModelRequest((Message("user", (document,)),), model="m"))
    assert body["messages"][0]["content"][0]["source"]["data"] == "words"


def marks(body: dict[str, Any]) -> list[str]:
    """Where a request has cache marks: ``system``, ``tool NAME``, or a message's number and its block's."""
    found = [f"tool {each['name']}" for each in body.get("tools", ()) if "cache_control" in each]
    system = body.get("system")
    found += ["system" for each in (system if isinstance(system, list) else ()) if "cache_control" in each]
    for number, message in enumerate(body["messages"]):
        blocks = message["content"] if isinstance(message["content"], list) else ()
        found += [f"{number}.{at}" for at, block in enumerate(blocks) if "cache_control" in block]
    return found


LONG = Message("user", (TextPart("long", cache="auto"), TextPart("ask")))
CALLS = (Message("assistant", (TextPart("a"),)), user("b"), Message("assistant", (TextPart("c"),)), user("d"))
ADD = ToolSpec("add", "", {"type": "object"})


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ModelRequest((LONG,), system="s"), []),
        (ModelRequest((LONG,), system="s", prompt_cache="5m"), ["system", "0.0"]),
        (ModelRequest((LONG, *CALLS), system="s", prompt_cache="5m"), ["system", "0.0", "2.0", "4.0"]),
        (ModelRequest((LONG, *CALLS), tools=(ADD,), prompt_cache="5m"), ["tool add", "0.0", "2.0", "4.0"]),
        (ModelRequest((user("a"),), system="s", tools=(ADD,), prompt_cache="5m"), ["system", "0.0"]),
        (ModelRequest((LONG, *CALLS), system="s", tools=(ADD,), prompt_cache=False), []),
        (ModelRequest((Message("user", (TextPart("x", cache=True),)),), system="s"), ["0.0"]),
        (ModelRequest((Message("user", tuple([TextPart(f"{n}", cache=True) for n in range(9)])),)), ["0.0", "0.1", "0.2", "0.3"]),
    ],
)  # fmt: skip
async def test_cache_marks_end_what_the_next_call_repeats(request_: ModelRequest, expected: list[str]) -> None:
    """Anthropic is told where to keep a prompt, at most four times; OpenAI's own server finds that itself."""
    asked = replace(request_, model="m")
    assert marks(await sent("anthropic", asked)) == expected
    for dialect in ("openai-chat", "openai"):
        assert "cache" not in str(await sent(dialect, asked))


async def test_an_hour_is_asked_for_and_costs_more() -> None:
    """``1h`` goes out on every mark; what was written for an hour costs twice the input's price instead of a quarter more."""
    body = await sent("anthropic", ModelRequest((user("a"),), system="s", model="m", prompt_cache="1h"))
    assert body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    price = Price(input=4, output=0, cache_write=5)
    million = 1_000_000
    assert price.cost(Usage(million, cache_write_tokens=million)) == 5
    assert price.cost(Usage(million, cache_write_tokens=million, cache_write_1h_tokens=million)) == 8
    reply = {"text": "x", "usage": {"cache_write": 9, "cache_write_1h": 4}}
    async with ModelServer([reply]) as server:
        provider = open_provider("anthropic", base_url=server.url, api_key="k")
        usage = (await answer(provider, ModelRequest((user("hi"),), model="m"))).usage
        await provider.aclose()
    assert (usage.input_tokens, usage.cache_write_tokens, usage.cache_write_1h_tokens) == (19, 9, 4)


@pytest.mark.parametrize("dialect", ["openai", "openai-chat"])
async def test_openai_itself_is_told_which_requests_begin_alike(dialect: str) -> None:
    """Its models that charge for keeping a prompt can be told not to; other servers get no field they may not know."""
    provider = open_provider(dialect, api_key="k")
    asked = ModelRequest((user("hi"),), model="gpt-5.6", prompt_cache="5m", cache_key="abc")
    assert provider.described(asked)["body"]["prompt_cache_key"] == "abc"
    never = provider.described(replace(asked, prompt_cache=False))["body"]
    assert "prompt_cache_key" not in never and never["prompt_cache_options"] == {"mode": "explicit"}
    assert "prompt_cache_options" not in provider.described(replace(asked, prompt_cache=False, model="gpt-5.5"))["body"]
    await provider.aclose()


@pytest.mark.parametrize(
    ("dialect", "model", "effort", "expected"),
    [
        ("anthropic", "claude-sonnet-5-5", "max", {"output_config": {"effort": "max"}}),
        ("anthropic", "claude-opus-4-5", "max", {"output_config": {"effort": "high"}}),
        (
            "anthropic",
            "claude-sonnet-4-6",
            "none",
            {"output_config": {"effort": "low"}, "thinking": {"type": "disabled"}},
        ),
        ("anthropic", "claude-sonnet-4-5", "high", {}),
        ("anthropic", "qwen3", "high", {}),
        ("openai", "gpt-5.6-sol", "none", {"reasoning": {"effort": "none"}}),
        ("openai", "gpt-5.4-mini", "max", {"reasoning": {"effort": "xhigh"}}),
        ("openai", "gpt-5-mini", "none", {"reasoning": {"effort": "minimal"}}),
        ("openai", "gpt-5-pro", "low", {"reasoning": {"effort": "high"}}),
        ("openai", "o4-mini", "none", {"reasoning": {"effort": "low"}}),
        ("openai", "gpt-4.1", "low", {}),
        ("openai-chat", "gpt-5.1", "medium", {"reasoning_effort": "medium"}),
        ("openai-chat", "openai/gpt-oss-20b", "max", {"reasoning_effort": "high"}),
        ("openai-chat", "llama3", "max", {}),
    ],
)
async def test_an_effort_is_said_in_the_words_of_the_model(
    dialect: str, model: str, effort: Any, expected: dict[str, Any]
) -> None:
    """The nearest value that the model takes; a model that is not known to take one is sent none."""
    body = await sent(dialect, ModelRequest((user("hi"),), model=model, effort=effort))
    fields = {key: body[key] for key in ("output_config", "thinking", "reasoning", "reasoning_effort") if key in body}
    assert fields == expected
    provider = open_provider(dialect, base_url="http://127.0.0.1:9", api_key="k")
    assert provider.profile(model).takes_effort == bool(expected)
    await provider.aclose()


async def test_an_effort_stands_beside_a_schema() -> None:
    """Anthropic has both in one field."""
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    body = await sent(
        "anthropic", ModelRequest((user("hi"),), model="claude-opus-5", effort="low", output_schema=schema)
    )
    assert body["output_config"]["effort"] == "low" and body["output_config"]["format"]["type"] == "json_schema"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_tools_of_the_provider_are_added_to_ours(dialect: str) -> None:
    """They go out as they are, behind our own tools, and by themselves."""
    search = {"type": "web_search", "name": "web_search"}
    both = await sent(dialect, ModelRequest((user("hi"),), model="m", tools=(ADD,), provider_tools=(search,)))
    assert len(both["tools"]) == 2 and both["tools"][1] == search
    alone = await sent(dialect, ModelRequest((user("hi"),), model="m", provider_tools=(search,)))
    assert alone["tools"] == [search]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_tool_names_are_made_acceptable_and_given_back(dialect: str) -> None:
    """``system:read_files`` goes out without its colon and comes back with it; colliding names stay apart."""
    tools = tuple(ToolSpec(name, "", {"type": "object"}) for name in ("system:read", "system_read", "a" * 100))
    calls = [{"name": "system_read", "arguments": {}}]
    async with ModelServer([{"tool_calls": calls}, "fine"]) as server:
        provider = open_provider(dialect, base_url=server.url, api_key="k")
        response = await answer(provider, ModelRequest((user("hi"),), model="m", tools=tools))
        wire = [tool.get("name") or tool["function"]["name"] for tool in server.requests[0].body["tools"]]
        assert len(set(wire)) == 3 and all(len(name) <= 64 and ":" not in name for name in wire)
        assert response.tool_calls[0].name == "system_read"
        names = Wire(ModelRequest((), tools=tools))
        assert [names.back(name) for name in wire] == [tool.name for tool in tools]
        await provider.aclose()


async def test_tool_results_come_first_for_anthropic() -> None:
    """The API refuses a user turn in which text stands before the answers to its tool calls."""
    called = Message("assistant", (ToolCallPart("c1", "add", {}),))
    mixed = Message("user", (TextPart("and"), ToolResultPart("c1", "add", "2", is_error=True)))
    body = await sent("anthropic", ModelRequest((user("hi"), called, mixed), model="m"))
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "text"]
    assert body["messages"][2]["content"][0]["is_error"] is True


async def test_a_picture_in_an_error_is_not_marked_as_one_for_anthropic() -> None:
    """The API takes nothing but text in an answer that is marked as an error; the text of one says so by itself."""
    parts = (TextPart("error: no such button"), ImagePart("image/png", "iVBORw0KGgo="))
    answer = ToolResultPart("c1", "click", "error: no such button", is_error=True, parts=parts)
    called = Message("assistant", (ToolCallPart("c1", "click", {}),))
    body = await sent("anthropic", ModelRequest((user("hi"), called, Message("user", (answer,))), model="m"))
    (told,) = body["messages"][2]["content"]
    assert "is_error" not in told and [block["type"] for block in told["content"]] == ["text", "image"]


RESULT = ToolResultPart(
    "c1",
    "look",
    "a chart and a page",
    parts=(TextPart("see:"), ImagePart("image/png", "aW1n"), DocumentPart("application/pdf", "cGRm", name="page.pdf")),
)


async def test_tool_results_with_parts_go_out_as_each_dialect_takes_them() -> None:
    """Text, images and documents for Anthropic and Responses; the text alone for Chat Completions, which takes no more."""
    messages = (user("hi"), Message("assistant", (ToolCallPart("c1", "look", {}),)), Message("user", (RESULT,)))
    request = ModelRequest(messages, model="m")
    (anthropic,) = (await sent("anthropic", request))["messages"][2]["content"]
    assert [block["type"] for block in anthropic["content"]] == ["text", "image", "document"]
    assert anthropic["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": "aW1n"}
    responses = (await sent("openai", request))["input"][2]
    assert responses["type"] == "function_call_output"
    assert [item["type"] for item in responses["output"]] == ["input_text", "input_image", "input_file"]
    assert responses["output"][2]["filename"] == "page.pdf"
    chat = (await sent("openai-chat", request))["messages"][2]
    assert chat == {"role": "tool", "tool_call_id": "c1", "content": "a chart and a page"}


def test_an_unwritable_request_is_a_configuration_error() -> None:
    """A setting that is not JSON is refused with words, not with a TypeError."""
    with pytest.raises(ConfigurationError) as caught:
        dump_json({"x": object()})
    assert caught.value.code == "provider/request-not-json"


# --- What comes back -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_usage_is_normalised(dialect: str) -> None:
    """Input tokens count everything that was read, whichever way the dialect counts its cache."""
    usage = {"input_tokens": 100, "output_tokens": 7, "cache_read": 40}
    async with ModelServer([{"text": "x", "usage": usage}], repeat=True) as server:
        provider = open_provider(dialect, base_url=server.url, api_key="k")
        for stream in (True, False):
            response = await answer(provider, ModelRequest((user("hi"),), model="m", stream=stream))
            made = response.usage
            assert (made.input_tokens, made.cache_read_tokens, made.output_tokens) == (140, 40, 7)
        await provider.aclose()


def test_anthropic_blocks_survive_verbatim() -> None:
    """Redacted thinking, server tools with streamed input, citations and signatures are kept to be sent back."""
    start = {"type": "message_start", "message": {"id": "m1", "model": "m", "usage": {"input_tokens": 1}}}
    blocks: list[dict[str, Any]] = [
        {"type": "redacted_thinking", "data": "xyz"},
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [{"url": "u"}]},
        {"type": "text", "text": ""},
    ]
    events: list[dict[str, Any]] = [start]
    for index, block in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": block})
    query = {"type": "input_json_delta", "partial_json": '{"query": "q"}'}
    events.append({"type": "content_block_delta", "index": 1, "delta": query})
    events.append({"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "found"}})
    citation = {"type": "citations_delta", "citation": {"url": "u"}}
    events.append({"type": "content_block_delta", "index": 3, "delta": citation})
    events.append({"type": "a_new_event"})
    events.append({"type": "content_block_delta", "index": 3, "delta": {"type": "a_new_delta"}})
    events.append({"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {"output_tokens": 3}})
    events.append({"type": "message_stop"})
    _, response = heard(decoder(MessagesDecoder), *events)
    assert response.stop_reason == "pause"
    assert response.unknown_events == 2
    natives = [part.native.data for part in response.parts if isinstance(part, OtherPart)]
    assert natives == [blocks[0], {**blocks[1], "input": {"query": "q"}}, blocks[2]]
    text = response.parts[3]
    assert isinstance(text, TextPart) and text.text == "found" and text.native is not None
    assert text.native.data["citations"] == [{"url": "u"}]


def test_blocks_without_an_index_follow_the_last_begun() -> None:
    """Servers that imitate Anthropic leave the index out; deltas then belong to the block that began last."""
    events: list[dict[str, Any]] = [{"type": "message_start", "message": {"id": "m", "model": "m"}}]
    for text in ("one", "two"):
        events.append({"type": "content_block_start", "index": None, "content_block": {"type": "text", "text": ""}})
        events.append({"type": "content_block_delta", "index": None, "delta": {"type": "text_delta", "text": text}})
    events += [{"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}]
    assert [part.text for part in heard(decoder(MessagesDecoder), *events)[1].parts if isinstance(part, TextPart)] == [
        "one",
        "two",
    ]


def chat(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


@pytest.mark.parametrize("index", [None, 0])
def test_chat_calls_are_told_apart_by_id(index: int | None) -> None:
    """Real servers send null or constant indexes: a new id is a new call, a delta without one belongs to the last."""
    events: list[dict[str, Any]] = []
    for call_id, arguments in (("x", '{"a":1}'), ("y", '{"a":2}')):
        function = {"name": "add", "arguments": ""}
        events.append(chat({"tool_calls": [{"index": index, "id": call_id, "function": function}]}))
        more = {"index": index, "function": {"arguments": arguments}}
        events.append(chat({"tool_calls": [more if index is None else {**more, "id": call_id}]}))
    _, response = heard(decoder(ChatDecoder), *events, chat({}, "tool_calls"), b"[DONE]")
    assert [(call.id, call.arguments) for call in response.tool_calls] == [("x", {"a": 1}), ("y", {"a": 2})]


def test_chat_calls_without_ids_get_some() -> None:
    """Local servers send calls whole and without ids."""
    calls = [{"function": {"name": "add", "arguments": '{"a":1}'}}]
    _, response = heard(decoder(ChatDecoder), chat({"tool_calls": calls}), chat({}, "stop"), b"[DONE]")
    assert response.tool_calls[0].id
    assert response.stop_reason == "tool_calls", "some finish with stop after tool calls"


def test_responses_items_survive_verbatim_and_unknown_events_are_counted() -> None:
    """Items nobody here knows are kept; delta events without an item id find their call by its place."""
    call = {"type": "function_call", "id": None, "call_id": "k", "name": "add", "arguments": ""}
    search = {"type": "web_search_call", "id": "w", "status": "completed"}
    done = {**call, "arguments": '{"a": 1}'}
    response_object = {"id": "r", "status": "completed", "model": "m", "output": [], "usage": None}
    deltas, response = heard(
        decoder(ResponsesDecoder),
        {"type": "response.created", "response": {}},
        {"type": "response.output_item.done", "output_index": 0, "item": search},
        {"type": "response.output_item.added", "output_index": 1, "item": call},
        {"type": "response.function_call_arguments.delta", "item_id": None, "output_index": 1, "delta": '{"a": 1}'},
        {"type": "response.output_item.done", "output_index": 1, "item": done},
        {"type": "response.something.brand_new"},
        {"type": "response.completed", "response": response_object},
    )
    assert [delta.arguments for delta in deltas if delta.arguments] == ['{"a": 1}']
    assert {delta.tool_call_id for delta in deltas} == {"k"}
    assert response.parts[0] == OtherPart(response.parts[0].native) and response.parts[0].native.data == search  # type: ignore[union-attr]
    assert isinstance(response.parts[1], ToolCallPart) and response.parts[1].arguments == {"a": 1}
    assert response.unknown_events == 1


@pytest.mark.parametrize("kind", [MessagesDecoder, ChatDecoder, ResponsesDecoder])
def test_a_surrogate_or_nonsense_number_is_a_protocol_error(kind: type[Any]) -> None:
    """What JSON parsers disagree about never reaches a caller as something else than a ProtocolError."""
    for data in (b'{"type": "\\ud800"}', b'{"type": 01}', b"", b"nul", b'{"a":1}{"b":2}'):
        with pytest.raises(ProtocolError):
            decoder(kind).event(b"", data, [])


def test_tokens_are_estimated_from_all_parts() -> None:
    """Text, tools, calls, results and pictures all count."""
    small = estimate_tokens(ModelRequest((user("hi"),)))
    many = (user("hi" * 400), Message("assistant", (ToolCallPart("c", "add", {"a": "x" * 400}),)))
    assert estimate_tokens(ModelRequest(many, tools=(TOOL,))) > small + 250
    assert estimate_tokens(ModelRequest((Message("user", (ImagePart(data="A" * 9_000),)),))) > 1_000


async def test_an_answer_as_long_as_allowed_is_noticed() -> None:
    """llama.cpp, LiteLLM and transformers call a Responses answer completed that their limit cut off: there is a notice."""
    usage = {"output_tokens": 17}
    async with ModelServer([{"text": "cut o", "usage": usage}], repeat=True) as server:
        provider = open_provider("openai", base_url=server.url, api_key="k")
        for limit, expected in ((17, ["provider/at-limit"]), (18, []), (None, [])):
            request = ModelRequest((user("hi"),), model="m", max_output_tokens=limit)
            deltas = [delta async for delta in provider.stream(request)]
            assert [delta.notice.code for delta in deltas if delta.notice and delta.notice.code] == expected
        await provider.aclose()


def test_citations_are_read_from_anthropic_whole_and_streamed() -> None:
    """Documents, searches and pages name their title, address or path, and the words they were cited for."""
    page = {"type": "page_location", "cited_text": "Rome is old.", "document_title": "Atlas", "document_index": 0}
    web = {
        "type": "web_search_result_location",
        "url": "https://x.org/rome",
        "title": "Rome",
        "cited_text": "2.8 million",
    }
    search = {"type": "search_result_location", "source": "docs/rome.md", "title": "Notes", "cited_text": "so"}
    odd = {"type": "char_location", "cited_text": 7, "document_title": None}
    expected = (
        Citation("Atlas", quote="Rome is old."),
        Citation("Rome", "https://x.org/rome", quote="2.8 million"),
        Citation("Notes", path="docs/rome.md", quote="so"),
        Citation(),
    )
    block = {"type": "text", "text": "Rome.", "citations": [page, web, search, odd]}
    whole = decoder(MessagesDecoder).body({"content": [block], "stop_reason": "end_turn"})
    events = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Rome."}},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"type": "citations_delta", "citation": each}}
            for each in block["citations"]
        ),
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ]
    _, streamed = heard(decoder(MessagesDecoder), *events)
    for response in (whole, streamed):
        (part,) = response.parts
        assert isinstance(part, TextPart) and part.citations == expected and part.native is not None
        assert part.native.data["citations"] == block["citations"]


def test_citations_are_read_from_responses() -> None:
    """The annotations of a message's text: pages by address and title, files by name; others are passed over."""
    notes = [
        {"type": "url_citation", "url": "https://x.org/rome", "title": "Rome", "start_index": 0, "end_index": 4},
        {"type": "file_citation", "file_id": "f1", "filename": "rome.pdf", "index": 4},
        {"type": "file_path", "file_id": "f2", "index": 4},
    ]
    item = {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Rome.", "annotations": notes}],
    }
    response = decoder(ResponsesDecoder).body({"status": "completed", "output": [item]})
    (part,) = response.parts
    assert isinstance(part, TextPart)
    assert part.citations == (Citation("Rome", "https://x.org/rome"), Citation(path="rome.pdf"))
