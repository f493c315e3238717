"""The rules of the ProviderAdapter port, run on every adapter there is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from agentflow.core.data.errors import ProviderError
from agentflow.core.data.messages import (
    Message,
    ModelDelta,
    ModelRequest,
    ModelResponse,
    ToolResultPart,
    ToolSpec,
    user,
)
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.lib.schema.json_schema import check
from agentflow.providers import FallbackProvider, RetryPolicy, ScriptedProvider, open_provider
from agentflow.providers.offline import OfflineProvider
from tests.support.model_server import ModelServer

HTTP = ("anthropic", "openai", "openai-chat")
ALL = (*HTTP, "scripted", "fallback", "offline")
SCRIPTED = (*HTTP, "scripted", "fallback")
ADD = ToolSpec("add", "Add two numbers", {"type": "object", "properties": {"a": {"type": "integer"}}})
SCHEMA = {
    "type": "object",
    "properties": {"title": {"type": "string"}},
    "required": ["title"],
    "additionalProperties": False,
}
QUESTION = "What do gates do? Gates bound how many calls are in flight at once. The sky is blue."


@dataclass
class Bench:
    """One adapter with the server behind it, if it has one."""

    adapter: ProviderAdapter
    server: ModelServer | None


@asynccontextmanager
async def bench(kind: str, replies: list[Any]) -> AsyncIterator[Bench]:
    if kind == "offline":
        yield Bench(OfflineProvider(), None)
    elif kind == "scripted":
        yield Bench(ScriptedProvider(replies), None)
    elif kind == "fallback":
        yield Bench(FallbackProvider([(ScriptedProvider(replies), "")]), None)
    else:
        async with ModelServer(replies) as server:
            adapter = open_provider(kind, base_url=server.url, api_key="k", retry=RetryPolicy(base_s=0.01))
            yield Bench(adapter, server)
            await adapter.aclose()


async def collect(adapter: ProviderAdapter, request: ModelRequest) -> list[ModelDelta]:
    async with aclosing(adapter.stream(request)) as deltas:
        return [delta async for delta in deltas]


async def answer(adapter: ProviderAdapter, request: ModelRequest) -> ModelResponse:
    response = (await collect(adapter, request))[-1].response
    assert response is not None
    return response


def ask(text: str = QUESTION, **more: Any) -> ModelRequest:
    return ModelRequest((user(text),), model="m", **more)


@pytest.mark.parametrize("kind", ALL)
async def test_a_stream_ends_with_the_whole_response(kind: str) -> None:
    """One response, last; the text deltas joined are its text; it has a stop reason, usage of one request, a model."""
    async with bench(kind, ["Gates bound the  calls\nin flight. "]) as it:
        deltas = await collect(it.adapter, ask())
        responses = [delta.response for delta in deltas if delta.response is not None]
        assert len(responses) == 1
        response = deltas[-1].response
        assert response is not None
        assert "".join(delta.text for delta in deltas) == response.text != ""
        assert response.stop_reason == "end"
        assert response.usage.requests == 1
        assert response.usage.input_tokens > 0
        assert response.usage.output_tokens > 0
        assert response.model
        assert response.provider


@pytest.mark.parametrize("kind", ALL)
async def test_a_delta_says_one_thing(kind: str) -> None:
    """Of text, thinking, tool, attempt and response, a delta carries exactly one."""
    async with bench(kind, [{"text": "a b", "thinking": "c d", "tool_calls": [{"name": "add"}]}]) as it:
        for delta in await collect(it.adapter, ask(tools=(ADD,))):
            kinds = [delta.text, delta.thinking, delta.tool_call_id, delta.attempt, delta.response]
            assert sum(bool(kind) for kind in kinds) == 1, delta


@pytest.mark.parametrize("kind", SCRIPTED)
async def test_an_attempt_begins_and_ends(kind: str) -> None:
    """An adapter whose calls can fail reports an attempt before anything else, and its good end before the response."""
    async with bench(kind, ["fine"]) as it:
        deltas = await collect(it.adapter, ask())
        attempts = [delta.attempt for delta in deltas if delta.attempt is not None]
        assert deltas[0].attempt is not None
        assert [(attempt.number, attempt.outcome) for attempt in attempts] == [(1, None), (1, "ok")]


@pytest.mark.parametrize("kind", ALL)
async def test_a_plain_request_gives_the_same_response(kind: str) -> None:
    """``stream=False`` changes how the answer comes, not what it is."""
    async with bench(kind, ["the same", "the same"]) as it:
        watched = await answer(it.adapter, ask())
        unwatched = await answer(it.adapter, ask(stream=False))
        assert (watched.parts, watched.stop_reason, watched.usage) == (
            unwatched.parts,
            unwatched.stop_reason,
            unwatched.usage,
        )


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", SCRIPTED)
async def test_parallel_tool_calls_arrive_whole(kind: str, stream: bool) -> None:
    """Calls come in order with parsed arguments; their streamed argument text is JSON of the same."""
    calls = [{"name": "add", "arguments": {"a": 1}}, {"name": "add", "arguments": {"a": 2, "b": ["ü", None]}}]
    async with bench(kind, [{"text": "adding", "tool_calls": calls}]) as it:
        deltas = await collect(it.adapter, ask(tools=(ADD,), stream=stream))
        response = deltas[-1].response
        assert response is not None
        assert response.stop_reason == "tool_calls"
        assert [(call.name, call.arguments) for call in response.tool_calls] == [
            ("add", {"a": 1}),
            ("add", {"a": 2, "b": ["ü", None]}),
        ]
        assert len({call.id for call in response.tool_calls}) == 2
        texts: dict[str, str] = {}
        for delta in deltas:
            if delta.tool_call_id:
                assert delta.tool_name or delta.tool_call_id in texts, "arguments before their call"
                texts[delta.tool_call_id] = texts.get(delta.tool_call_id, "") + delta.arguments
        for call_id, text in texts.items():
            assert [json.loads(text)] == [c.arguments for c in response.tool_calls if c.id == call_id]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", SCRIPTED)
@pytest.mark.parametrize("arguments", ["[1]", '{"a": ', "null", '"text"', "7"])
async def test_arguments_that_are_no_object_are_marked(kind: str, stream: bool, arguments: str) -> None:
    """Such a call has no arguments and says why; it is never given invented ones."""
    given: Any = arguments
    if kind in ("scripted", "fallback"):
        try:
            given = json.loads(arguments)
        except ValueError:
            given = arguments
    async with bench(kind, [{"tool_calls": [{"name": "add", "arguments": given}]}]) as it:
        (call,) = (await answer(it.adapter, ask(tools=(ADD,), stream=stream))).tool_calls
        assert call.arguments == {}
        assert "add" in call.invalid


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", SCRIPTED)
async def test_tool_call_ids_are_unique(kind: str, stream: bool) -> None:
    """A model that uses one id twice gets two: a history with it twice would be refused."""
    calls = [{"id": "x", "name": "add", "arguments": {"a": n}} for n in (1, 2)]
    async with bench(kind, [{"tool_calls": calls}]) as it:
        made = (await answer(it.adapter, ask(tools=(ADD,), stream=stream))).tool_calls
        assert [call.arguments for call in made] == [{"a": 1}, {"a": 2}]
        assert len({call.id for call in made}) == 2


@pytest.mark.parametrize("kind", ALL)
async def test_a_conversation_goes_on(kind: str) -> None:
    """A response's message and tool results are taken back as history."""
    first = {"text": "let me add", "thinking": "hm", "tool_calls": [{"name": "add", "arguments": {"a": 1}}]}
    async with bench(kind, [first, "it is 2"]) as it:
        one = await answer(it.adapter, ask(tools=(ADD,), tool_choice="required"))
        results = tuple(ToolResultPart(call.id, call.name, "2") for call in one.tool_calls)
        history = (user(QUESTION), one.message(), Message("user", results))
        two = await answer(it.adapter, ModelRequest(history, model="m", tools=(ADD,)))
        assert two.text


@pytest.mark.parametrize("kind", ALL)
async def test_an_output_schema_gives_json(kind: str) -> None:
    """With a schema the answer is JSON that meets it, where the dialect (or the model behind it) can."""
    async with bench(kind, ['{"title": "Gates"}']) as it:
        response = await answer(it.adapter, ask(output_schema=SCHEMA))
        assert check(json.loads(response.text), SCHEMA) == []


@pytest.mark.parametrize("kind", ALL)
async def test_calls_do_not_mix(kind: str) -> None:
    """Concurrent calls of one adapter each get an answer of their own."""
    async with bench(kind, [f"answer {n}" for n in range(20)]) as it:
        made = await asyncio.gather(*(answer(it.adapter, ask()) for _ in range(20)))
        if kind != "offline":
            assert sorted(response.text for response in made) == sorted(f"answer {n}" for n in range(20))


@pytest.mark.parametrize("kind", ALL)
async def test_a_closed_stream_leaves_the_adapter_usable(kind: str) -> None:
    """Closing a stream early ends it at once and harms no later call."""
    async with bench(kind, ["one two three four", "again"]) as it:
        async with aclosing(it.adapter.stream(ask())) as deltas:
            async for delta in deltas:
                if delta.text:
                    break
        assert (await answer(it.adapter, ask())).text


@pytest.mark.parametrize("kind", ALL)
async def test_an_adapter_can_be_closed_and_used_again(kind: str) -> None:
    """``aclose`` releases what is open; a later call opens it anew."""
    async with bench(kind, ["one", "two"]) as it:
        await answer(it.adapter, ask())
        await it.adapter.aclose()
        await it.adapter.aclose()
        assert (await answer(it.adapter, ask())).text


@pytest.mark.parametrize("kind", ALL)
async def test_tokens_are_counted(kind: str) -> None:
    """``count_tokens`` gives a positive number without making a model call."""
    async with bench(kind, []) as it:
        assert await it.adapter.count_tokens(ask(system="be brief", tools=(ADD,))) > 0


@pytest.mark.parametrize("kind", ALL)
async def test_the_profile_names_its_model(kind: str) -> None:
    """A profile is to be had before any call."""
    async with bench(kind, []) as it:
        profile = it.adapter.profile("m")
        assert profile.model == "m"
        assert profile.provider
        assert profile.dialect
        assert isinstance(it.adapter, ProviderAdapter)


@pytest.mark.parametrize("kind", SCRIPTED)
async def test_a_failure_is_an_ended_attempt_and_an_error(kind: str) -> None:
    """The last attempt ends ``failed`` with the error that is raised, and no response was given."""
    failing: Any = {"error": {"type": "invalid_request_error", "message": "no good"}, "status": 400}
    if kind in ("scripted", "fallback"):
        failing = {"error": "no good"}
    async with bench(kind, [failing]) as it:
        seen: list[ModelDelta] = []
        with pytest.raises(ProviderError, match="no good") as caught:
            async for delta in it.adapter.stream(ask()):
                seen.append(delta)
        assert seen[-1].attempt is not None
        assert seen[-1].attempt.outcome == "failed"
        assert seen[-1].attempt.error is caught.value
        assert not any(delta.response for delta in seen)


@pytest.mark.parametrize(("stop", "native"), [("max_tokens", ("max_tokens", "length", "max_output_tokens"))])
@pytest.mark.parametrize("kind", SCRIPTED)
async def test_an_answer_cut_at_the_limit_says_so(kind: str, stop: str, native: tuple[str, str, str]) -> None:
    """Whatever the dialect calls it, an answer that met its token limit has the stop reason ``max_tokens``."""
    words = {"anthropic": native[0], "openai-chat": native[1], "openai": native[2]}
    for stream in (True, False):
        async with bench(kind, [{"text": "cut o", "stop_reason": words.get(kind, stop)}]) as it:
            assert (await answer(it.adapter, ask(stream=stream))).stop_reason == stop


@pytest.mark.parametrize("kind", HTTP)
async def test_a_refusal_is_a_stop_reason(kind: str) -> None:
    """A refusal has the stop reason ``refusal``, streamed or not."""
    for stream in (True, False):
        async with bench(kind, [{"text": "" if kind != "anthropic" else "I", "refusal": "I will not"}]) as it:
            assert (await answer(it.adapter, ask(stream=stream))).stop_reason == "refusal"
