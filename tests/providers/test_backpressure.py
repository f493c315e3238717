"""A consumer that is slow slows the server, not the machine; and its time counts on no clock."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import psutil
import pytest

from agentflow import AgentFlow
from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.data.provider_errors import CallTimeout
from agentflow.core.events.events import RunFinished
from agentflow.providers import Clocks, open_provider
from tests.support.fault_server import chunk
from tests.support.model_server import ModelServer, Raw, Request, stream_head
from tests.support.model_server_wire import Reply, events

DIALECTS = ("anthropic", "openai-chat", "openai")
WORD = "w" * 1_000


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_slow_consumer_holds_the_server_back(dialect: str, aiohttp: bool) -> None:
    """Of a stream without end, memory grows by at most 8 MB while the consumer takes one chunk every 20 ms."""
    sent = 0

    async def endless(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        whole = events(request.dialect, Reply(chunks=[WORD, WORD]), "m")
        at = next(index for index, event in enumerate(whole) if WORD.encode() in event)
        writer.write(stream_head() + b"".join(chunk(event) for event in whole[:at]))
        many = chunk(whole[at]) * 20
        while not writer.is_closing():
            writer.write(many)
            sent += 20
            await writer.drain()

    async with ModelServer([Raw(endless)], repeat=True) as server:
        adapter = open_provider(
            dialect, base_url=server.url, api_key="k", clocks=Clocks(idle_s=0.5, wall_s=2), aiohttp=aiohttp
        )
        seen = 0
        process = psutil.Process()
        async with aclosing(adapter.stream(ModelRequest((user("hi"),), model="m"))) as deltas:
            async for delta in deltas:
                if not delta.text:
                    continue
                if seen == 5:
                    before = process.memory_info().rss
                seen += 1
                await asyncio.sleep(0.02)
                if seen == 50:
                    break
        grown = process.memory_info().rss - before
        await adapter.aclose()
    assert grown <= 8 * 1024 * 1024
    assert sent * len(WORD) <= 16 * 1024 * 1024, "the server was not held back"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_consumers_time_counts_on_no_clock(dialect: str) -> None:
    """A consumer that thinks longer than idle and wall clocks allow still gets the whole answer."""
    async with ModelServer([{"chunks": ["a ", "b ", "c "], "chunk_s": 0.02}]) as server:
        adapter = open_provider(dialect, base_url=server.url, api_key="k", clocks=Clocks(idle_s=0.2, wall_s=0.6))
        text = ""
        async with aclosing(adapter.stream(ModelRequest((user("hi"),), model="m"))) as deltas:
            async for delta in deltas:
                text += delta.text
                if delta.text:
                    await asyncio.sleep(0.3)
        await adapter.aclose()
    assert text == "a b c "


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_ends_at_twice_its_time_whoever_reads(dialect: str) -> None:
    """A consumer's time is given back once over, not for ever: a call that is read slowly does not live on."""
    async with ModelServer([{"chunks": ["a "] * 50, "chunk_s": 0.02}]) as server:
        adapter = open_provider(dialect, base_url=server.url, api_key="k", clocks=Clocks(wall_s=0.2))
        words = 0
        with pytest.raises(CallTimeout):
            async with aclosing(adapter.stream(ModelRequest((user("hi"),), model="m"))) as deltas:
                async for delta in deltas:
                    words += bool(delta.text)
                    await asyncio.sleep(0.1 if delta.text else 0)
        await adapter.aclose()
    assert 1 <= words < 10


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_call_ends_though_nobody_reads_the_runs_stream(dialect: str, tmp_path: Path) -> None:
    """A stream that is opened and left alone holds no connection past twice the time of the call."""
    async with ModelServer([{"chunks": ["a "] * 2_000}]) as server:
        provider = open_provider(dialect, base_url=server.url, api_key="k", clocks=Clocks(wall_s=0.5))
        ended = asyncio.Event()
        async with AgentFlow(provider=provider, root=tmp_path) as flow:
            flow.subscribe(lambda event: ended.set() if isinstance(event, RunFinished) else None)
            async with flow.stream('(progn (defatom t (params) (instructions "x")) (value-of (t)))') as run:
                async with asyncio.timeout(30):
                    await ended.wait()
                with pytest.raises(CallTimeout):
                    await run.value()
        assert len(server.requests) == 1
