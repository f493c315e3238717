"""What the adapters rely on in the installed SDKs, pinned: when one of these fails, an SDK release changed it."""

from __future__ import annotations

import inspect
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from tests.support.model_server import ModelServer

CLIENTS = {
    "anthropic": (anthropic, anthropic.AsyncAnthropic, {"open_telemetry": False}, "/v1/messages"),
    "openai": (openai, openai.AsyncOpenAI, {}, "/chat/completions"),
}


def client(name: str, url: str, http: httpx2.AsyncClient | None = None) -> Any:
    """A client made as the adapters make it."""
    _, kind, options, _ = CLIENTS[name]
    return kind(api_key="k", base_url=url, max_retries=0, http_client=http, **options)


@pytest.mark.parametrize("name", CLIENTS)
def test_post_takes_what_we_pass(name: str) -> None:
    """``client.post`` is public and takes cast_to, content, options, stream and stream_cls."""
    parameters = inspect.signature(CLIENTS[name][1].post).parameters
    assert {"cast_to", "content", "options", "stream", "stream_cls"} <= set(parameters)


@pytest.mark.parametrize("name", CLIENTS)
async def test_post_gives_the_unread_response_and_sends_our_bytes(name: str) -> None:
    """With ``cast_to`` the response class and ``stream``, the body is unread; our bytes go out as JSON, with the key."""
    sdk, _, _, path = CLIENTS[name]
    async with ModelServer(["fine"], strict=False) as server:
        made = client(name, server.url)
        response = await made.post(
            path,
            cast_to=httpx2.Response,
            content=b'{"model":"m","messages":[]}',
            options={"headers": {"x-mine": "1"}},
            stream=True,
            stream_cls=sdk.AsyncStream[object],
        )
        assert isinstance(response, httpx2.Response)
        assert not response.is_stream_consumed
        assert b"fine" in b"".join([chunk async for chunk in response.aiter_raw()])
        await response.aclose()
        headers = server.requests[0].headers
        assert headers["content-type"] == "application/json"
        assert headers["authorization"] == "Bearer k"
        assert headers["x-mine"] == "1"
        await made.close()


@pytest.mark.parametrize("name", CLIENTS)
async def test_failures_come_as_status_errors_once(name: str) -> None:
    """A failure status is APIStatusError with status_code, body and response; ``max_retries=0`` means one request."""
    sdk, _, _, path = CLIENTS[name]
    async with ModelServer([{"status": 503}], repeat=True, strict=False) as server:
        made = client(name, server.url)
        with pytest.raises(sdk.APIStatusError) as caught:
            await made.post(
                path, cast_to=httpx2.Response, content=b"{}", stream=True, stream_cls=sdk.AsyncStream[object]
            )
        assert caught.value.status_code == 503
        assert caught.value.body
        assert caught.value.response.headers["request-id"] == "req_1"
        assert len(server.requests) == 1
        await made.close()
    assert issubclass(sdk.APITimeoutError, sdk.APIConnectionError)


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client_can_be_copied_onto_another_pool(name: str) -> None:
    """``copy(http_client=...)`` keeps key and address; both default clients take limits, verify and event hooks."""
    sdk = CLIENTS[name][0]
    certificates = httpx2.create_ssl_context()
    for kind in (sdk.DefaultAsyncHttpxClient, sdk.DefaultAioHttpClient):
        http = kind(
            verify=certificates,
            limits=httpx2.Limits(max_connections=3),
            event_hooks={"response": []},
            follow_redirects=False,
            timeout=httpx2.Timeout(None, connect=1.0),
        )
        async with ModelServer(["fine"], strict=False) as server:
            first = client(name, server.url)
            second = first.copy(http_client=http)
            assert str(second.base_url) == str(first.base_url)
            assert second.api_key == "k"
            await first.close()
            await second.close()


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_response_hook_may_replace_the_stream(name: str) -> None:
    """Failure bodies are capped by a hook that replaces ``response.stream`` before the SDK reads it."""
    from agentflow.providers.clocks import Clocks
    from agentflow.providers.transport import MAX_ERROR_BODY, http_clients
    from tests.support.fault_server import fault

    sdk, _, _, path = CLIENTS[name]
    make, _ = http_clients(sdk, Clocks(), 4, address="https://model.example")
    async with ModelServer([fault("error_body_64mb")], strict=False) as server:
        made = client(name, server.url, make())
        with pytest.raises(sdk.APIStatusError) as caught:
            await made.post(
                path, cast_to=httpx2.Response, content=b"{}", stream=True, stream_cls=sdk.AsyncStream[object]
            )
        assert len(caught.value.response.content) == MAX_ERROR_BODY
        await made.close()


@pytest.mark.parametrize("name", CLIENTS)
async def test_a_quiet_client_does_not_describe_the_machine(name: str) -> None:
    """``platform_headers`` may be overridden: a call, also on a copy's pool, names the SDK and not the machine it runs on."""
    from agentflow.providers.transport import quiet_client

    sdk, kind, options, path = CLIENTS[name]
    async with ModelServer(["fine", "fine"], repeat=True, strict=False) as server:
        quiet = quiet_client(kind)(api_key="k", base_url=server.url, max_retries=0, **options)
        loud = client(name, server.url)
        for each in (loud, quiet, quiet.copy(http_client=httpx2.AsyncClient())):
            await each.post(
                path, cast_to=httpx2.Response, content=b"{}", stream=True, stream_cls=sdk.AsyncStream[object]
            )
            await each.close()
        before, *after = [{key.lower(): value for key, value in sent.headers.items()} for sent in server.requests]
        telling = {
            f"x-stainless-{what}" for what in ("lang", "package-version", "os", "arch", "runtime", "runtime-version")
        }
        assert telling <= set(before)
        for headers in after:
            assert telling.isdisjoint(headers)
            assert headers["user-agent"] == before["user-agent"]
            assert headers["authorization"] == "Bearer k"


def test_the_anthropic_schema_transformation_is_public() -> None:
    """``anthropic.transform_schema`` closes objects as the API's structured output demands."""
    made = anthropic.transform_schema({"type": "object", "properties": {"a": {"type": "string"}}})
    assert made["additionalProperties"] is False
