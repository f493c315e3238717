"""A model call cancelled anywhere leaves nothing behind and harms no later call."""

from __future__ import annotations

import asyncio
import gc
import warnings
from contextlib import aclosing

import pytest

from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers import RetryPolicy, open_provider
from tests.support.model_server import ModelServer, Request
from tests.support.spending import at_most

_SERVER = ("ModelServer", "_accept_connection")
DIALECTS = ("anthropic", "openai-chat", "openai")


def script(request: Request) -> dict[str, object]:
    """Slow enough that every await can be met: a stream of ten chunks, or a failure that is tried again."""
    if request.body["model"] == "failing":
        return {"status": 529}
    return {"text": "one two three four five six seven eight nine ten", "delay_s": 0.005, "chunk_s": 0.001}


async def call(adapter: ProviderAdapter, model: str = "m", stream: bool = True) -> str:
    text = ""
    async with aclosing(adapter.stream(ModelRequest((user("hi"),), model=model, stream=stream))) as deltas:
        async for delta in deltas:
            text += delta.text
    return text


def others() -> set[asyncio.Task[object]]:
    """Tasks besides this one and the server's own connections."""
    return {
        task
        for task in asyncio.all_tasks()
        if task is not asyncio.current_task() and not any(own in repr(task.get_coro()) for own in _SERVER)
    }


async def settled(server: ModelServer, at_most: int) -> None:
    """Wait for the server to see closed connections."""
    for _ in range(200):
        if server.live <= at_most:
            return
        await asyncio.sleep(0.005)
    raise AssertionError(f"{server.live} connections are open")


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_cancelling_at_every_step_leaves_nothing(dialect: str, aiohttp: bool) -> None:
    """At 60 points of streamed, plain and retrying calls: CancelledError once, soon; no task; the gate is free again."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        async with ModelServer(script) as server:
            adapter = open_provider(
                dialect, base_url=server.url, api_key="k", gate=2, retry=RetryPolicy(base_s=0.01), aiohttp=aiohttp
            )
            await call(adapter)
            before = others()
            for step in range(60):
                model, stream = ("failing", True) if step % 3 == 2 else ("m", step % 3 == 0)
                task = asyncio.create_task(call(adapter, model, stream))
                await asyncio.sleep(0.0005 * (step // 3) ** 1.2)
                if not task.cancel():
                    assert task.exception() is None, "it had ended well before it could be cancelled"
                    continue
                with pytest.raises(asyncio.CancelledError), at_most(0.5):
                    await task
                assert task.cancelled()
                assert others() <= before
            assert await call(adapter) == "one two three four five six seven eight nine ten"
            await settled(server, 2)
            await adapter.aclose()
            await settled(server, 0)
            gc.collect()
            assert others() == set()


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_walking_away_from_a_stream_closes_its_connection(dialect: str) -> None:
    """A consumer that leaves the loop and closes the generator stops the server at once."""
    async with ModelServer([{"chunks": ["x "] * 10_000, "chunk_s": 0.002}, "fine"]) as server:
        adapter = open_provider(dialect, base_url=server.url, api_key="k")
        async with aclosing(adapter.stream(ModelRequest((user("hi"),), model="m"))) as deltas:
            async for delta in deltas:
                if delta.text:
                    break
        await settled(server, 0)
        assert await call(adapter) == "fine"
        await adapter.aclose()


async def test_cancelling_a_call_that_waits_at_the_gate_frees_its_place() -> None:
    """Of three calls on a gate of one, the second is cancelled while it waits; the third still gets its turn."""
    async with ModelServer(script) as server:
        adapter = open_provider("openai-chat", base_url=server.url, gate=1)
        await call(adapter)
        tasks = [asyncio.create_task(call(adapter)) for _ in range(3)]
        await asyncio.sleep(0.002)
        tasks[1].cancel()
        async with asyncio.timeout(5):
            done = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one).__name__ for one in done] == ["str", "CancelledError", "str"]
        await adapter.aclose()


async def test_a_timeout_of_the_caller_is_the_callers() -> None:
    """``asyncio.timeout`` around a call ends it with TimeoutError, even where one of our own clocks runs as well."""
    async with ModelServer([{"text": "late", "delay_s": 5}], repeat=True) as server:
        adapter = open_provider("anthropic", base_url=server.url, api_key="k")
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await call(adapter)
        current = asyncio.current_task()
        assert current is not None and current.cancelling() == 0
        await adapter.aclose()


async def test_one_adapter_serves_one_loop_after_another() -> None:
    """Sessions of ``asyncio.run`` may share an adapter: each loop gets a client of its own."""
    async with ModelServer(script) as server:
        adapter = open_provider("openai-chat", base_url=server.url)

        def elsewhere() -> str:
            async def once() -> str:
                try:
                    return await call(adapter)
                finally:
                    await adapter.aclose()

            return asyncio.run(once())

        for _ in range(2):
            assert (await asyncio.to_thread(elsewhere)).startswith("one two")
        assert (await call(adapter)).startswith("one two")
        await adapter.aclose()
