"""What ``agentflow.testing`` offers: traffic recorded once and replayed byte for byte, and no way onto the network."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentflow import AgentFlow
from agentflow.core.data.errors import DataError
from agentflow.core.data.messages import ModelDelta, ModelRequest, user
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers import RetryPolicy, open_provider
from agentflow.testing import Cassette, NetworkForbidden, forbid_network
from agentflow.testing.cassette import without_cache_markers
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
        provider = again.provider(dialect, base_url=server.url, **options)
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
    provider = cassette.provider(dialect, base_url=server.url, api_key="k")
    with pytest.raises(DataError) as caught:
        await play(provider, "something else")
    assert caught.value.code == "cassette/mismatch"
    assert "call 1 of 1" in caught.value.message
    assert 'recorded "hi", sent "something else"' in caught.value.message
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


class Delayed(httpx2.AsyncBaseTransport):
    """Sends each request after a random time."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, seed: int) -> None:
        self.inner = inner
        self.random = random.Random(seed)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        await asyncio.sleep(self.random.random() / 100)
        return await self.inner.handle_async_request(request)


BRANCHES = """
(defatom ask (params (n integer)) (instructions "Number {{n}}"))
(pmap (lambda (n) (value-of (ask (n n)))) (range 20) 10)
"""


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_concurrent_branches_replay_whatever_their_order(dialect: str, tmp_path: Path) -> None:
    """What was recorded under ``pmap`` replays under it: each branch gets its own answer, in any order of arrival."""
    path = tmp_path / "cassette.json"

    async def run(cassette: Cassette, url: str, seed: int) -> Any:
        provider = open_provider(dialect, transport=Delayed(cassette.transport(), seed), base_url=url, api_key="k")
        async with AgentFlow("m", provider=provider) as flow:
            return (await flow.run(BRANCHES)).value

    async with ModelServer(lambda request: f"answer to {request.body}") as server:
        async with await Cassette.open(path) as cassette:
            live = await run(cassette, server.url, seed=0)
    assert len(set(live)) == 20
    for seed in (1, 2):
        cassette = await Cassette.open(path, "replay")
        assert await run(cassette, "https://api.example.com", seed) == live
        assert cassette.left == 0


async def test_equal_requests_replay_in_order_among_themselves(tmp_path: Path) -> None:
    """Equal requests that were answered differently are answered so again, in their order, whatever comes between."""
    path = tmp_path / "cassette.json"
    async with ModelServer(["one", "two", "other", "three"]) as server:
        with Cassette(path) as cassette:
            provider = cassette.provider("openai-chat", base_url=server.url, api_key="k")
            live = [await play(provider, text) for text in ("same", "same", "else", "same")]
            await provider.aclose()
    cassette = Cassette(path)
    provider = cassette.provider("openai-chat")
    assert [await play(provider, text) for text in ("else", "same", "same", "same")] == [live[2], *live[:2], live[3]]
    with pytest.raises(DataError, match="holds 3 such calls, and all of them were replayed"):
        await play(provider, "same")
    await provider.aclose()


async def test_a_miss_names_the_nearest_request(tmp_path: Path) -> None:
    """The message says which recorded call is the most like the one asked, and each field that differs."""
    path = tmp_path / "cassette.json"
    async with ModelServer(["a"], repeat=True) as server:
        with Cassette(path) as cassette:
            provider = cassette.provider("openai-chat", base_url=server.url, api_key="k")
            for text in ("Translate: good morning", "Review the file " + "x" * 500 + " a.py", "Say hello"):
                await play(provider, text, stream=False)
            await provider.aclose()
    provider = Cassette(path).provider("openai-chat")
    with pytest.raises(DataError) as caught:
        await play(provider, "Review the file " + "x" * 500 + " b.py", stream=False)
    message = caught.value.message
    assert caught.value.code == "cassette/mismatch" and "call 2 of 3. The differences" in message
    line = message.splitlines()[-1]
    assert "messages[0].content: recorded ..." in line and 'a.py"' in line and 'b.py"' in line and len(line) < 200
    await provider.aclose()


@pytest.mark.parametrize("answered", ["in part", "not at all"])
async def test_an_abandoned_call_replays_as_one(answered: str, tmp_path: Path) -> None:
    """A call that was cut off while it was recorded is not truncated answer later: nothing more comes until it is cut off."""
    path = tmp_path / "cassette.json"
    stuck = asyncio.Event()

    async def pace(index: int) -> None:
        if answered == "not at all" or index == 3:
            stuck.set()
            await asyncio.Event().wait()

    async def collect(provider: ProviderAdapter, deltas: list[ModelDelta]) -> None:
        async for delta in provider.stream(ModelRequest((user("hi"),), model="m", stream=True)):
            if delta.text:
                deltas.append(delta)

    async def cut_off(task: asyncio.Task[None], provider: ProviderAdapter) -> None:
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await provider.aclose()

    live: list[ModelDelta] = []
    async with ModelServer([{"text": "one two three", "pace": pace}]) as server:
        with Cassette(path) as cassette:
            provider = cassette.provider("openai-chat", base_url=server.url, api_key="k")
            task = asyncio.create_task(collect(provider, live))
            await stuck.wait()
            while answered == "in part" and not live:
                await asyncio.sleep(0.001)
            await cut_off(task, provider)
    again: list[ModelDelta] = []
    cassette = Cassette(path)
    provider = cassette.provider("openai-chat")
    task = asyncio.create_task(collect(provider, again))
    while cassette.left or len(again) < len(live):
        await asyncio.sleep(0.001)
    for _ in range(50):
        await asyncio.sleep(0)
    assert again == live
    await cut_off(task, provider)


async def test_a_cassette_of_a_later_version_is_refused(tmp_path: Path) -> None:
    """What a later agentflow wrote is not guessed at."""
    path = tmp_path / "cassette.json"
    path.write_text(json.dumps({"agentflow_cassette": 4, "calls": []}), encoding="utf-8")
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
    assert json.loads(path.read_text("utf-8"))["agentflow_cassette"] == 3 and path.stat().st_mode & 0o77 == 0
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
    with pytest.raises(DataError, match="not a cassette that this version can read"):
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


def test_what_a_request_says_leaves_the_cache_out() -> None:
    """Which prompts are marked for a provider's cache depends on what was sent before, so a cassette passes over it."""
    block = {"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}
    marked = {"system": [{**block, "text": "s"}], "messages": [{"role": "user", "content": [block]}]}
    plain = {"system": "s", "messages": [{"role": "user", "content": "hi"}], "prompt_cache_key": "abc"}
    assert (
        without_cache_markers(marked)
        == without_cache_markers(plain)
        == {"system": "s", "messages": [{"role": "user", "content": "hi"}]}
    )
    assert without_cache_markers({"content": [{"type": "text", "text": "a"}, {"type": "image"}]})["content"] == [
        "a",
        {"type": "image"},
    ]
