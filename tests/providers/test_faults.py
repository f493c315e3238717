"""Whatever goes wrong on the wire becomes one typed error with what is known, and never a success."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

import pytest

from agentflow.core.data.errors import ProviderError
from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.ports.ports import ProviderAdapter
from agentflow.providers import Clocks, RetryPolicy, open_provider
from tests.support.fault_server import FAULTS, PARTIAL, STATUSES, STREAM_ONLY, fault, status
from tests.support.model_server import ModelServer, Request

DIALECTS = ("anthropic", "openai-chat", "openai")
# Long beside what a busy machine makes of a connection, for which no fault waits; only silence has to be waited out.
CLOCKS = Clocks(connect_s=3, first_byte_s=1, plain_first_byte_s=1, idle_s=1.5, wall_s=60)
LAG_S = 0.5


class LoopCpu:
    """The most CPU the loop's thread used between two turns of a task that does nothing: what others had to wait for.

    CPU rather than wall time, so that a busy machine does not count.
    """

    def __init__(self) -> None:
        self.worst = 0.0

    async def __aenter__(self) -> LoopCpu:
        self._task = asyncio.create_task(self._beat())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _beat(self) -> None:
        while True:
            before = time.thread_time()
            await asyncio.sleep(0.001)
            self.worst = max(self.worst, time.thread_time() - before)


async def failure(adapter: ProviderAdapter, request: ModelRequest) -> ProviderError | str:
    """The error a call ends in, or what it wrongly gave."""
    try:
        async with aclosing(adapter.stream(request)) as deltas:
            async for delta in deltas:
                if delta.response is not None:
                    return f"a response: {delta.response}"
    except ProviderError as error:
        return error
    return "an end without error or response"


def by_model(request: Request) -> object:
    """The fault named by the requested model."""
    name = request.body["model"]
    return fault(name) if name in FAULTS else status(name)


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "plain"])
async def test_every_fault_is_one_typed_error(streaming: bool, aiohttp: bool) -> None:
    """A fault gives the right class with provider, model and partial text; nothing else escapes; the loop stays free.

    In each dialect, all at once: silence is waited out once for all of them.
    """
    names = [name for name in FAULTS if streaming or name not in STREAM_ONLY]
    async with ModelServer(by_model) as server, LoopCpu() as lag:
        adapters = {
            dialect: open_provider(
                dialect,
                base_url=server.url,
                api_key="k",
                clocks=CLOCKS,
                retry=RetryPolicy(attempts=1),
                traits={"own": False},  # one of your own is waited for while it sends anything: test_own_servers.py
                aiohttp=aiohttp,
            )
            for dialect in DIALECTS
        }
        for adapter in adapters.values():
            await failure(adapter, ModelRequest((user("hi"),), model="400"))
        lag.worst = 0.0

        async def fault_of(dialect: str, name: str) -> str | None:
            """How a fault is told otherwise than it should be."""
            adapter, wall = adapters[dialect], 1.5 if name == "trickle" else None
            made = await failure(adapter, ModelRequest((user("hi"),), model=name, stream=streaming, timeout_s=wall))
            if not isinstance(made, ProviderError) or not isinstance(made, FAULTS[name][1]):
                return f"{dialect}, {name}: {type(made).__name__}: {made}"
            if (made.provider, made.model) != (adapter.profile("").provider, name):
                return f"{dialect}, {name}: provider {made.provider}, model {made.model}"
            if streaming and name in PARTIAL and "one two" not in made.partial:
                return f"{dialect}, {name}: partial text {made.partial!r}"
            return None

        try:
            async with asyncio.timeout(60):
                told = await asyncio.gather(*[fault_of(dialect, name) for dialect in DIALECTS for name in names])
        finally:
            for adapter in adapters.values():
                await adapter.aclose()
    assert [each for each in told if each is not None] == []
    assert lag.worst <= LAG_S, f"the loop was busy for {lag.worst:.3f} s of CPU at a time"


@pytest.mark.parametrize("streaming", [True, False], ids=["stream", "plain"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_every_failure_status_is_its_error(dialect: str, streaming: bool) -> None:
    """A status gives its class, with status, request id and the server's words; without retries nothing is tried twice."""
    async with ModelServer(by_model) as server:
        adapter = open_provider(dialect, base_url=server.url, api_key="k", clocks=CLOCKS, retry=RetryPolicy(attempts=1))
        for name, (code, _, expected) in STATUSES.items():
            made = await failure(adapter, ModelRequest((user("hi"),), model=name, stream=streaming))
            assert isinstance(made, expected), (name, made)
            assert (made.status, made.request_id) == (code, "req_1")
            assert f"scripted {name}" in made.message
        assert len(server.requests) == len(STATUSES)
        await adapter.aclose()
