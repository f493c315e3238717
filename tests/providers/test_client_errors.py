"""What cannot be sent or reached because of an address, a key, a proxy or certificates: said in words, before anything is tried."""

from __future__ import annotations

import os
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.data.provider_errors import ConnectionRefused
from agentflow.core.events.events import AttemptStarted, Event
from agentflow.providers import open_provider
from tests.support.model_server import ModelServer

KEY = "sk-live-0123456789abcdefghij"
DIALECTS = {"openai-chat": "OPENAI", "openai": "OPENAI", "anthropic": "ANTHROPIC"}
TRANSPORTS = pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxies, certificates, keys or addresses but those of a test."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith(("OPENAI_", "ANTHROPIC_", "SSL_CERT")):
            monkeypatch.delenv(name)


async def outcome(
    aiohttp: bool, url: str | None, dialect: str = "openai-chat", key: str | None = "k", **options: Any
) -> tuple[Any, int]:
    """The answer or the error of one call, and how many attempts there were."""
    attempts: list[Event] = []
    provider = open_provider(dialect, base_url=url, api_key=key, aiohttp=aiohttp)
    async with AgentFlow("m", provider=provider) as flow:
        flow.subscribe(lambda event: attempts.append(event) if isinstance(event, AttemptStarted) else None)
        try:
            return await flow.ask("hi", **options), len(attempts)
        except Exception as error:
            return error, len(attempts)


def chain(error: BaseException | None) -> str:
    """All that an error and its causes say."""
    if error is None:
        return ""
    return f"{error!r} {error} {getattr(error, 'details', '')} {getattr(error, 'hint', '')}" + chain(
        error.__cause__ or error.__context__
    )


@TRANSPORTS
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("key", [KEY + "\n", f" {KEY}", f"{KEY}\r\nX-Other: 1", f"{KEY}\u2019"])
@pytest.mark.parametrize("place", ["argument", "environment"])
async def test_a_key_that_no_header_can_hold(
    dialect: str, key: str, place: str, aiohttp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before the first attempt, and shown nowhere."""
    if place == "environment":
        monkeypatch.setenv(f"{DIALECTS[dialect]}_API_KEY", key)
    async with ModelServer(["ok"]) as server:
        if place == "environment":
            monkeypatch.setenv(f"{DIALECTS[dialect]}_BASE_URL", server.url)
        url = None if place == "environment" else server.url
        error, attempts = await outcome(aiohttp, url, dialect, key if place == "argument" else None)
    assert isinstance(error, ConfigurationError) and error.code == "config/header"
    assert "API key" in error.message and KEY not in chain(error) and attempts == 0


@pytest.mark.parametrize("headers", [{"X-Tenant": "a\nb"}, {"X-Tenant": "naïve"}, {"X Tenant": "a"}, {"X-Tenant": 7}])
async def test_a_header_that_cannot_be_sent(headers: dict[str, Any]) -> None:
    """``extra_headers`` are checked as keys are; the value is not shown."""
    async with ModelServer(["ok"]) as server:
        error, attempts = await outcome(False, server.url, settings={"extra_headers": headers})
    assert isinstance(error, ConfigurationError) and error.code == "config/header" and attempts == 0
    assert "Tenant" in error.message and "naïve" not in chain(error)


@TRANSPORTS
async def test_certificates_that_are_missing(aiohttp: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error names the variable and the file; a server without TLS needs no certificates."""
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificates")
    for path in ("/nonexistent/company.pem", str(empty)):
        monkeypatch.setenv("SSL_CERT_FILE", path)
        error, attempts = await outcome(aiohttp, "https://127.0.0.1:9/v1")
        assert isinstance(error, ConfigurationError) and error.code == "config/certificates"
        assert f"SSL_CERT_FILE={path}" in error.message and attempts == 0
        async with ModelServer(["ok"]) as server:
            assert await outcome(aiohttp, server.url) == ("ok", 1)


@TRANSPORTS
@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://127.0.0.1:1", "is not the address of a proxy"),
        ("http://127.0.0.1:port", "is not the address of a proxy"),
        ("http://user:secretword@127.0.0.1:99999", "is not the address of a proxy"),
        ("socks5://user:secretword@127.0.0.1:1080", "speaks SOCKS"),
    ],
)
async def test_a_proxy_that_no_client_can_be_made_for(
    url: str, words: str, aiohttp: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the variable, and not the password."""
    if url.startswith("socks") and not aiohttp and find_spec("socksio"):
        pytest.skip("the package for SOCKS is installed")
    monkeypatch.setenv("ALL_PROXY", url)
    error, attempts = await outcome(aiohttp, "http://model.example/v1")
    assert isinstance(error, ConfigurationError) and error.code == "config/proxy"
    assert words in error.message and "ALL_PROXY" in error.message and attempts == 0
    assert "secretword" not in chain(error)


@TRANSPORTS
async def test_a_proxy_that_does_not_listen_is_named(aiohttp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not said of the model's server that nothing listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("HTTP_PROXY", f"http://user:secretword@127.0.0.1:{port}")
    error, attempts = await outcome(aiohttp, "http://model.example/v1")
    assert isinstance(error, ConnectionRefused) and attempts == 1
    assert f"the proxy http://***@127.0.0.1:{port} (HTTP_PROXY)" in error.message and "NO_PROXY" in str(error.hint)
    assert "secretword" not in error.message
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    async with ModelServer(["ok"]) as server:
        assert await outcome(aiohttp, server.url) == ("ok", 1)


@TRANSPORTS
@pytest.mark.parametrize(
    "exempt", ["127.0.0.1,::1", "127.0.0.1,[::1]", "127.0.0.1,fd07:b51a:cc66:f0::/64", "127.0.0.1,::/0"]
)
async def test_exemptions_for_ipv6_do_no_harm(exempt: str, aiohttp: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """VPNs and container hosts put networks into NO_PROXY."""
    monkeypatch.setenv("NO_PROXY", exempt)
    async with ModelServer(["ok"]) as server:
        assert await outcome(aiohttp, server.url) == ("ok", 1)


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("place", ["argument", "environment"])
@pytest.mark.parametrize("end", ["", "/"])
async def test_a_query_of_the_address_goes_behind_the_path(
    dialect: str, place: str, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Azure's ``?api-version=``; the address shown is the one that is asked."""
    path = {"openai-chat": "/v1/chat/completions", "openai": "/v1/responses", "anthropic": "/v1/messages"}[dialect]
    async with ModelServer(["ok"]) as server:
        url = f"{server.url}{'' if dialect == 'anthropic' else '/v1'}{end}?api-version=preview&x=1"
        if place == "environment":
            monkeypatch.setenv(f"{DIALECTS[dialect]}_BASE_URL", url)
        adapter = open_provider(dialect, base_url=url if place == "argument" else None, api_key="k")
        async for _ in adapter.stream(ModelRequest((user("hi"),), model="m")):
            pass
        shown = adapter.described(ModelRequest((user("hi"),), model="m"))["url"]  # type: ignore[attr-defined]
        await adapter.aclose()
        asked = server.requests[0]
        assert (asked.path, asked.query) == (path, "api-version=preview&x=1")
        assert shown == f"{server.url}{path}?api-version=preview&x=1"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("localhost:8080/v1", "is not the address of a server"),
        ("http://[::1/v1", "is not the address of a server"),
        ("http://localhost:8080/v1\n", "contains a blank, a line end"),
        ("http://localhost:8080/v1#models", "has a fragment"),
        ("http://user:secretword@localhost:8080/v1", "contains credentials"),
    ],
)
@pytest.mark.parametrize("place", ["flow", "adapter", "environment"])
async def test_addresses_that_are_refused(url: str, words: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they come from, with the word to write, and without a password."""
    if place == "environment":
        monkeypatch.setenv("OPENAI_BASE_URL", url)
    with pytest.raises(ConfigurationError) as caught:
        if place == "flow":
            AgentFlow("openai-chat:m", base_url=url)
        else:
            adapter = open_provider("openai-chat", base_url=url if place == "adapter" else None, api_key="k")
            async for _ in adapter.stream(ModelRequest((user("hi"),), model="m")):
                pass
    assert caught.value.code == "config/base-url" and words in caught.value.message and caught.value.hint
    assert "secretword" not in chain(caught.value)
    assert ("OPENAI_BASE_URL" in caught.value.message) is (place == "environment")


async def test_the_address_of_the_environment_is_the_one_that_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """For what the server is known to take, for the issuer of its answers and for what is shown."""
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway.example/claude")
    adapter: Any = open_provider("anthropic", api_key="k")
    assert not adapter.profile("claude-sonnet-5").native_json_schema
    assert adapter.issuer == "anthropic gateway.example/claude"
    assert (
        adapter.described(ModelRequest((user("hi"),), model="m"))["url"] == "https://gateway.example/claude/v1/messages"
    )


def test_what_is_shown_of_a_cloud_names_its_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoints are those of the SDK's clients."""
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    monkeypatch.setenv("CLOUD_ML_REGION", "europe-west1")
    monkeypatch.setenv("ANTHROPIC_VERTEX_PROJECT_ID", "p")
    monkeypatch.setenv("ANTHROPIC_FOUNDRY_RESOURCE", "mine")
    hosts = {
        "bedrock": "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/invoke",
        "vertex": "https://europe-west1-aiplatform.googleapis.com/v1/projects/p/",
        "foundry": "https://mine.services.ai.azure.com/anthropic/v1/messages",
    }
    for dialect, begins in hosts.items():
        adapter: Any = open_provider(dialect, api_key="k")
        assert adapter.described(ModelRequest((user("hi"),), model="m"))["url"].startswith(begins)
