"""Calls to model servers nobody here wrote. Skipped, with words, where they are not installed: see docs/servers.md."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from agentflow import AgentFlow, tool
from agentflow.core.data.errors import ProviderError
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
from agentflow.core.data.provider_errors import BadRequest, ContextWindowExceeded, RateLimited
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers import RetryPolicy, open_provider
from tests.support.real_servers import KEY, SERVERS, missing, running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
ADD = ToolSpec(
    "add", "Add two numbers", {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
)
TOKENS = 12


@asynccontextmanager
async def server(name: str, directory: Path) -> AsyncIterator[str]:
    """The address of a running server; skips the test where it is not installed."""
    if why := missing(name):
        pytest.skip(why)
    async with running(name, directory) as url:
        yield url


def adapter(dialect: str, url: str, aiohttp: bool | None = None) -> ProviderAdapter:
    """An adapter that tries once."""
    base_url = url if dialect == "anthropic" else f"{url}/v1"
    return open_provider(dialect, base_url=base_url, api_key=KEY, retry=RetryPolicy(attempts=1), aiohttp=aiohttp)


def request(name: str, directory: Path, *messages: Message, stream: bool = True, **more: object) -> ModelRequest:
    """A request to the server's model, of few tokens."""
    model = str(directory / name / "a" / "b" / "tiny") if name == "transformers" else SERVERS[name].model
    return ModelRequest(messages, **{"model": model, "max_output_tokens": TOKENS, "stream": stream, **more})  # type: ignore[arg-type]


async def ask(provider: ProviderAdapter, what: ModelRequest) -> tuple[list[ModelDelta], ModelResponse]:
    """The deltas and the response of a call."""
    async with aclosing(provider.stream(what)) as stream:
        deltas = [delta async for delta in stream]
    response = deltas[-1].response
    assert response is not None
    return deltas, response


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
@pytest.mark.parametrize("name", SERVERS)
async def test_answers_and_conversations(name: str, aiohttp: bool, tmp_path: Path) -> None:
    """Streamed and plain, alone and with a history of both sides: a whole answer each time, at the first try."""
    history = (user("hi"), Message("assistant", (TextPart("hello"),)), user("hi"))
    async with server(name, tmp_path) as url:
        for dialect in SERVERS[name].dialects:
            provider = adapter(dialect, url, aiohttp)
            for stream in (True, False, True):
                for messages in (history[:1], history):
                    deltas, response = await ask(
                        provider, request(name, tmp_path, *messages, stream=stream, system="s")
                    )
                    text = "".join(delta.text for delta in deltas)
                    assert text == (response.text if stream else text)
                    assert response.text or response.usage.output_tokens
                    assert response.stop_reason in ("end", "max_tokens")
                    # Some servers have no word for a cut answer; then there is a notice.
                    noticed = [delta.notice.code for delta in deltas if delta.notice and delta.notice.code]
                    cut = response.stop_reason == "end" and response.usage.output_tokens >= TOKENS
                    assert noticed == (["provider/at-limit"] if cut else [])
            assert await provider.count_tokens(request(name, tmp_path, user("hi"))) > 0
            await provider.aclose()


@pytest.mark.parametrize("name", ["llama.cpp", "litellm"])
async def test_an_input_that_is_too_long(name: str, tmp_path: Path) -> None:
    """It is ContextWindowExceeded in every dialect, with the server's words."""
    async with server(name, tmp_path) as url:
        for dialect in SERVERS[name].dialects:
            provider = adapter(dialect, url)
            for stream in (True, False):
                with pytest.raises(ContextWindowExceeded, match="available context size"):
                    await ask(provider, request(name, tmp_path, user("hi " * 1_500), stream=stream))
            await provider.aclose()


@pytest.mark.parametrize("name", ["litellm", "transformers"])
async def test_a_model_that_is_not_there(name: str, tmp_path: Path) -> None:
    """It is a BadRequest that names the model."""
    async with server(name, tmp_path) as url:
        for dialect in SERVERS[name].dialects:
            provider = adapter(dialect, url)
            with pytest.raises(BadRequest, match="nope"):
                await ask(provider, request(name, tmp_path, user("hi"), model="nope"))
            await provider.aclose()


async def test_a_key_that_is_refused(tmp_path: Path) -> None:
    """LiteLLM's refusal is a ProviderError with its words, and not tried again."""
    async with server("litellm", tmp_path) as url:
        provider = open_provider("openai-chat", base_url=f"{url}/v1", api_key="sk-not-the-key")
        with pytest.raises(ProviderError) as caught:
            await ask(provider, request("litellm", tmp_path, user("hi")))
        assert caught.value.status in (400, 401, 403) and caught.value.attempts == 1
        await provider.aclose()


async def test_tools_and_failures_of_a_mock(tmp_path: Path) -> None:
    """aimock calls a tool, takes its result, and is busy with a wait that the error tells."""
    call = ToolCallPart("call_add", "add", {"a": 1, "b": 2})
    result = Message("user", (ToolResultPart("call_add", "add", "3"),))
    async with server("aimock", tmp_path) as url:
        for dialect in SERVERS["aimock"].dialects:
            provider = adapter(dialect, url)
            for stream in (True, False):
                _, response = await ask(provider, request("aimock", tmp_path, user("add"), tools=(ADD,), stream=stream))
                assert [(each.name, each.arguments) for each in response.tool_calls] == [("add", {"a": 1, "b": 2})]
                answered = (user("add"), Message("assistant", (call,)), result)
                _, response = await ask(provider, request("aimock", tmp_path, *answered, tools=(ADD,), stream=stream))
                assert response.text == "The sum is 3."
                with pytest.raises(RateLimited, match=r"come back later.*asks to wait"):
                    await ask(provider, request("aimock", tmp_path, user("busy"), stream=stream))
            await provider.aclose()


async def test_a_whole_run_over_a_mock(tmp_path: Path) -> None:
    """A task with a tool runs over each dialect: call, tool, answer."""

    @tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    program = '(progn (defatom t (params (x)) (instructions "{{x}}") (tools add)) (value-of (t (x "add"))))'
    async with server("aimock", tmp_path) as url:
        for dialect in SERVERS["aimock"].dialects:
            base_url = url if dialect == "anthropic" else f"{url}/v1"
            async with AgentFlow(f"{dialect}:m", base_url=base_url, api_key=KEY, root=tmp_path, tools=[add]) as flow:
                assert (await flow.run(program)).value == "The sum is 3."
