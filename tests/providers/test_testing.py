"""What ``agentflow.testing`` offers: traffic recorded once and replayed byte for byte, and no way onto the network."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentflow.core.errors import DataError
from agentflow.core.messages import ModelDelta, ModelRequest, user
from agentflow.core.ports import ProviderAdapter
from agentflow.providers import RetryPolicy, open_provider
from agentflow.testing import Cassette, NetworkForbidden, forbid_network
from tests.support.model_server import ModelServer

pytest_plugins = ["agentflow.testing.plugin"]
DIALECTS = ("anthropic", "openai-chat", "openai")
REPLIES = [
    {"text": "héllo wörld, the answer", "thinking": "let me see"},
    {"tool_calls": [{"name": "add", "arguments": {"a": 1}}]},
    {"status": 429, "error": {"type": "rate_limit_error", "message": "slowly"}},
]


async def play(provider: ProviderAdapter, text: str = "hi", stream: bool = True) -> list[ModelDelta]:
    """All deltas of one call; attempts and notices (the first import of an SDK) aside."""
    return [
        d
        async for d in provider.stream(ModelRequest((user(text),), model="m", stream=stream))
        if not (d.attempt or d.notice)
    ]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_replay_is_the_recorded_traffic(dialect: str, tmp_path: Path) -> None:
    """Deltas, response and request id come out of the file as they came off the wire; no key is in it."""
    path = tmp_path / "cassette.json"
    options = {"retry": RetryPolicy(attempts=1)}
    async with ModelServer(list(REPLIES)) as server:
        with Cassette(path) as cassette:
            provider = cassette.provider(dialect, base_url=server.url, api_key="sk-very-secret", **options)
            live = [await play(provider), await play(provider, stream=False)]
            with pytest.raises(Exception, match="slowly"):
                await play(provider)
            await provider.aclose()
    assert "secret" not in path.read_text(encoding="utf-8")
    with Cassette(path) as again, forbid_network():
        provider = again.provider(dialect, base_url="https://api.example.com", **options)
        assert [await play(provider), await play(provider, stream=False)] == live
        with pytest.raises(Exception, match="slowly"):
            await play(provider)
        assert again.left == 0
        await provider.aclose()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_another_request_is_a_clear_error(dialect: str, tmp_path: Path) -> None:
    """A request that was not recorded raises DataError with the difference, and is not retried; so does one too many."""
    path = tmp_path / "cassette.json"
    async with ModelServer(["fine"]) as server:
        with Cassette(path, "record") as cassette:
            provider = cassette.provider(dialect, base_url=server.url, api_key="k")
            await play(provider)
            await provider.aclose()
    cassette = Cassette(path, "replay")
    provider = cassette.provider(dialect)
    with pytest.raises(DataError) as caught:
        await play(provider, "something else")
    assert caught.value.code == "cassette/mismatch"
    assert "something else" in caught.value.message
    await play(provider)
    with pytest.raises(DataError) as caught:
        await play(provider)
    assert caught.value.code == "cassette/exhausted"
    await provider.aclose()


CHUNKS = ["data: a\n\n", "base64:not", b"\xff\xfe", "é"]
"""Chunks as bytes or text; the second looks like what version 1 wrote for bytes."""


def written(version: int) -> str:
    """A cassette of one call with these chunks, as ``version`` writes it."""

    def chunk(value: str | bytes) -> Any:
        encoded = base64.b64encode(value if isinstance(value, bytes) else value.encode()).decode()
        if version == 1:
            prefixed = isinstance(value, bytes) or value.startswith("base64:")
            return f"base64:{encoded}" if prefixed else value
        return {"base64": encoded} if isinstance(value, bytes) else value

    response = {"status": 200, "headers": {"content-type": "text/plain"}, "chunks": [chunk(each) for each in CHUNKS]}
    request = {"method": "GET", "path": "/x", "body": None}
    return json.dumps({"agentflow_cassette": version, "calls": [{"request": request, "response": response}]})


@pytest.mark.parametrize("version", [1, 2])
async def test_both_versions_replay_the_same_bytes(version: int, tmp_path: Path) -> None:
    """A cassette of version 1 is read as one of version 2, in either way of opening it."""
    path = tmp_path / "cassette.json"
    path.write_text(written(version), encoding="utf-8")
    expected = b"".join(each if isinstance(each, bytes) else each.encode() for each in CHUNKS)
    for cassette in (Cassette(path), await Cassette.open(path)):
        async with httpx2.AsyncClient(transport=cassette.transport()) as client:
            assert (await client.get("https://api.example.com/v1/x")).content == expected


async def test_a_cassette_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """What a later agentflow wrote is not guessed at."""
    path = tmp_path / "cassette.json"
    path.write_text(json.dumps({"agentflow_cassette": 3, "calls": []}), encoding="utf-8")
    for open_it in (lambda: asyncio.to_thread(Cassette, path), lambda: Cassette.open(path)):
        with pytest.raises(DataError) as caught:
            await open_it()
        assert caught.value.code == "cassette/version"


async def test_a_cassette_on_an_event_loop(tmp_path: Path) -> None:
    """Opened and saved through ``async with``, it records once and replays after; a failed block saves nothing."""
    path = tmp_path / "deep" / "cassette.json"
    with pytest.raises(ZeroDivisionError):
        async with await Cassette.open(path):
            raise ZeroDivisionError
    assert not path.exists()
    async with ModelServer(["fine"]) as server, await Cassette.open(path) as cassette:
        provider = cassette.provider("openai-chat", base_url=server.url, api_key="k")
        live = await play(provider)
        await provider.aclose()
    assert json.loads(path.read_text("utf-8"))["agentflow_cassette"] == 2 and path.stat().st_mode & 0o77 == 0
    async with await Cassette.open(path) as again:
        provider = again.provider("openai-chat")
        assert not again.recording and await play(provider) == live
        await provider.aclose()
    with pytest.raises(DataError, match="no cassette"):
        await Cassette.open(tmp_path / "none.json", "replay")


def test_a_file_that_is_no_cassette_is_refused(tmp_path: Path) -> None:
    """A missing file and one of another kind are DataErrors that say what to do."""
    with pytest.raises(DataError, match="no cassette"):
        Cassette(tmp_path / "none.json", "replay")
    (tmp_path / "other.json").write_text(json.dumps([1]), encoding="utf-8")
    with pytest.raises(DataError, match="no cassette this version can read"):
        Cassette(tmp_path / "other.json")


@pytest.mark.parametrize("aiohttp", [False, True])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("host", ["203.0.113.7", "api.example.com"])
async def test_no_network_forbids_provider_traffic(no_network: None, dialect: str, aiohttp: bool, host: str) -> None:
    """Under the fixture a provider call raises NetworkForbidden naming the host; loopback still works."""
    provider = open_provider(dialect, base_url=f"http://{host}/", api_key="k", aiohttp=aiohttp)
    with pytest.raises(NetworkForbidden, match=host):
        await play(provider)
    await provider.aclose()
    async with ModelServer(["near"]) as server:
        provider = open_provider(dialect, base_url=server.url, api_key="k", aiohttp=aiohttp)
        assert (await play(provider))[-1].response is not None
        await provider.aclose()
