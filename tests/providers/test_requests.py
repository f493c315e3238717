"""What is sent holds what the server wants of limits, pictures of tools and cache marks, and what the user asked for."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow import AgentFlow, Limits, Session, tool
from agentflow.core.data.errors import AgentflowError, ConfigurationError
from agentflow.core.data.messages import Message, ModelRequest, TextPart, ToolCallPart, ToolResultPart, ToolSpec, user
from agentflow.media import DocumentPart, ImagePart
from agentflow.providers import open_provider
from tests.support.model_server import ModelServer

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 40).decode()
BUDGET = {"thinking": {"type": "enabled", "budget_tokens": 16_000}}
ADD = ToolSpec("add", "Adds", {"type": "object", "properties": {}})


def sent(
    dialect: str, request: ModelRequest, address: str = "http://localhost:8000/v1", **options: Any
) -> dict[str, Any]:
    """The body of a request."""
    options.setdefault("traits", {"own": False})
    return open_provider(dialect, base_url=address, api_key="k", **options).described(request)["body"]  # type: ignore[attr-defined]


@tool
async def screenshot(page: str) -> ImagePart:
    """A picture of the page."""
    return ImagePart("image/png", PNG)


@tool
async def weather(city: str) -> str:
    """Weather."""
    return "warm"


CALLS = {
    "tool_calls": [
        {"name": "screenshot", "arguments": {"page": "x"}},
        {"name": "weather", "arguments": {"city": "Oslo"}},
    ]
}


@pytest.mark.parametrize("dialect", ["openai-chat", "openai", "anthropic"])
async def test_a_picture_of_a_tool_reaches_the_model(dialect: str) -> None:
    """In the result where the dialect has room for it, else in a message of the user after all results."""
    async with (
        ModelServer([CALLS, "done", "again"]) as server,
        AgentFlow(f"{dialect}:m", base_url=server.url, api_key="k") as flow,
    ):
        session = Session()
        await flow.run(flow.ask("Look", tools=[screenshot, weather]), session=session)
        await flow.run(flow.ask("Once more"), session=session)
        for request in server.requests[1:]:
            assert str(request.body).count(PNG) == 1
        if dialect == "openai-chat":
            messages = server.requests[1].body["messages"]
            assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "user"]
            said, picture = messages[-1]["content"]
            assert "screenshot" in said["text"] and PNG in picture["image_url"]["url"]


def results(*parts: Any) -> ModelRequest:
    call = ToolCallPart("c12345678", "look", {})
    result = ToolResultPart("c12345678", "look", "[image: image/png]", parts=(ImagePart("image/png", PNG),))
    return ModelRequest((user("hi"), Message("assistant", (call,)), Message("user", (result, *parts))), model="m")


def test_servers_that_take_no_user_after_results_are_told_by_the_model() -> None:
    """Mistral refuses that order."""
    body = sent("openai-chat", results(), "https://api.mistral.ai/v1")
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    body = sent("openai-chat", results(TextPart("And now?")), "https://api.mistral.ai/v1")
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool", "assistant", "user"]


def test_models_without_eyes_are_told_of_pictures_in_words() -> None:
    """A picture would be refused with the whole request."""
    body = sent("openai-chat", results(), "https://api.deepseek.com")
    assert PNG not in str(body) and body["messages"][-1]["content"] == "[image: image/png]"


def test_documents_of_tools_go_the_same_way() -> None:
    """Whatever a tool gives besides text."""
    result = ToolResultPart("c1", "read", "[document]", parts=(TextPart("two"), DocumentPart("application/pdf", PNG)))
    request = ModelRequest(
        (user("hi"), Message("assistant", (ToolCallPart("c1", "read", {}),)), Message("user", (result,))), model="m"
    )
    assert [part["type"] for part in sent("openai-chat", request)["messages"][-1]["content"]] == ["text", "file"]


@pytest.mark.parametrize("dialect", ["anthropic", "bedrock", "foundry"])
def test_the_limit_follows_a_budget_of_thinking(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The budget is a part of the limit: without a limit of one's own there is room for the text as well."""
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    body = sent(dialect, ModelRequest((user("hi"),), model="claude-sonnet-4-5", settings=BUDGET))
    assert body["max_tokens"] == 8_192 + 16_000
    assert (
        sent(
            dialect, ModelRequest((user("hi"),), model="claude-sonnet-4-5", max_output_tokens=20_000, settings=BUDGET)
        )["max_tokens"]
        == 20_000
    )
    own = {**BUDGET, "max_tokens": 17_000}
    assert sent(dialect, ModelRequest((user("hi"),), model="claude-sonnet-4-5", settings=own))["max_tokens"] == 17_000
    for request in (
        ModelRequest((user("hi"),), model="m", max_output_tokens=16_000, settings=BUDGET),
        ModelRequest((user("hi"),), model="m", settings={**BUDGET, "max_tokens": 4_000}),
    ):
        with pytest.raises(ConfigurationError) as caught:
            sent(dialect, request)
        assert caught.value.code == "config/thinking-budget" and "16,000" in caught.value.message
    adaptive = {"thinking": {"type": "adaptive"}}
    assert sent(dialect, ModelRequest((user("hi"),), model="m", settings=adaptive))["max_tokens"] == 8_192


@pytest.mark.parametrize("where", ["task", "flow"])
async def test_a_budget_of_thinking_within_a_budget_of_tokens(where: str) -> None:
    """What is reserved for an answer has room for its thinking; too long for one plain answer, it is streamed."""
    from agentflow.settings import Settings

    settings = Settings(model_settings=BUDGET if where == "flow" else {})
    async with (
        ModelServer(["done"]) as server,
        AgentFlow(
            "anthropic:claude-sonnet-4-5",
            base_url=server.url,
            api_key="k",
            settings=settings,
            limits=Limits(tokens=100_000),
        ) as flow,
    ):
        assert await flow.ask("hi", settings=BUDGET if where == "task" else {}) == "done"
        body = server.requests[0].body
        assert body["max_tokens"] == 24_192 and body["stream"] is True


@pytest.mark.parametrize("asked", [1, 16, 200])
def test_responses_are_asked_for_at_least_sixteen_tokens(asked: int) -> None:
    """OpenAI refuses less; servers that are not known get what was asked for."""
    request = ModelRequest((user("hi"),), model="gpt-5", max_output_tokens=asked)
    assert sent("openai", request, "https://api.openai.com/v1")["max_output_tokens"] == max(16, asked)
    assert sent("openai", request)["max_output_tokens"] == asked


_TEXTS = st.builds(TextPart, st.sampled_from(["", " ", "\n", "a", "b"]), st.sampled_from([True, False]))
_TURNS = st.lists(st.lists(_TEXTS, min_size=1, max_size=4), min_size=1, max_size=6)


@given(_TURNS, st.sampled_from([None, "5m", "1h"]), st.booleans(), st.sampled_from(["", "s"]))
def test_cache_marks_are_few_and_on_text(turns: list[list[TextPart]], kept: Any, tools: bool, system: str) -> None:
    """At most four, none on a blank text, and the newest message has one where prompts are kept."""
    messages = tuple([Message("assistant" if at % 2 else "user", tuple(parts)) for at, parts in enumerate(turns)])
    request = ModelRequest(messages, system=system, model="m", tools=(ADD,) if tools else (), prompt_cache=kept)
    try:
        body = sent("anthropic", request)
    except AgentflowError:
        return
    marked = list(_marked(body))
    assert len(marked) <= 4
    assert all([block.get("type") not in ("thinking", "redacted_thinking") for block in marked])
    assert all([block["text"].strip() for block in marked if block.get("type") == "text"])
    last = [message for message in body["messages"] if message["role"] == "user"][-1]
    if kept and (tools or len(body["messages"]) > 1):
        assert any(_marked(last))


def _marked(data: Any) -> Any:
    if isinstance(data, list):
        for each in data:
            yield from _marked(each)
    elif isinstance(data, dict):
        if "cache_control" in data:
            yield data
        for value in data.values():
            yield from _marked(value)
