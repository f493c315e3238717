"""The first call of a process waits for nothing that could have been done before: the SDK is imported and a connection opened."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from agentflow import AgentFlow, ConfigurationError, Provider
from agentflow.core.data.messages import ModelRequest, user
from agentflow.errors import ProviderError
from agentflow.providers.http_adapter import HttpAdapter
from agentflow.providers.table import open_provider
from tests.support.children import HANG_S
from tests.support.model_server import ModelServer
from tests.support.model_server_wire import Reply

VENDOR = Provider(traits={"own": False}, retry={"attempts": 1})
"""The loopback server as one that is not on this machine."""


@pytest.mark.parametrize("dialect", ["openai-chat", "openai", "anthropic"])
async def test_a_connection_to_a_vendor_is_open_before_the_first_call(dialect: str) -> None:
    """One HEAD without a key goes out beside the code of the host, and the call goes over the same connection."""
    async with ModelServer([Reply(text="hi")]) as server:
        async with AgentFlow(
            f"{dialect}:m", base_url=f"{server.url}/v1", api_key="sk-0123456789", provider=VENDOR
        ) as flow:
            # until its answer has been read, too: a call that comes earlier opens a connection of its own
            await asyncio.wait(
                [each for each in asyncio.all_tasks() if each.get_name() == "preparation of the first call"]
            )
            assert await flow.ask("Say hi") == "hi"
        assert server.connections == 1
        (head,) = server.heads
        assert head.path == "/v1" and "sk-0123456789" not in str(head)


@pytest.mark.parametrize("aiohttp", [False, True])
async def test_the_call_finds_the_connection_with_either_transport(aiohttp: bool) -> None:
    """The pools of httpx2 and of aiohttp both keep what the preparation has opened."""
    async with ModelServer([Reply(text="hi")]) as server:
        options = {"base_url": f"{server.url}/v1", "api_key": "k", "traits": {"own": False}, "aiohttp": aiohttp}
        adapter = open_provider("openai-chat", **options)
        assert isinstance(adapter, HttpAdapter)
        await adapter.warm()
        deltas = [each async for each in adapter.stream(ModelRequest(messages=(user("Say hi"),), model="m"))]
        await adapter.aclose()
        assert deltas[-1].response is not None and deltas[-1].response.text == "hi"
        assert (len(server.heads), server.connections) == (1, 1)


async def test_nothing_is_sent_to_a_server_of_this_machine_or_without_leave() -> None:
    """A connection on this machine takes no time, and a server with few slots is left alone; ``warm=False`` opens none."""
    async with ModelServer([Reply(text="hi")] * 2) as server:
        for warm, provider in ((True, None), (False, VENDOR)):
            url = f"{server.url}/v1"
            async with AgentFlow("openai-chat:m", base_url=url, api_key="k", provider=provider, warm=warm) as flow:
                assert await flow.ask("Say hi") == "hi"
        assert not server.heads


async def test_a_server_that_is_not_there_is_told_by_the_first_call() -> None:
    """A flow begins without its server, and its first call raises as it does without preparation."""
    async with AgentFlow("openai-chat:m", base_url="http://127.0.0.1:9", api_key="k", provider=VENDOR) as flow:
        with pytest.raises(ProviderError) as refused:
            await flow.ask("Say hi")
        assert refused.value.code == "provider/connection-refused"


async def test_a_missing_key_is_told_by_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flow begins without a key: only what calls the model needs one."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with AgentFlow("openai-chat:gpt-5.4") as flow:
        assert (await flow.run("(+ 1 2)")).value == 3
        with pytest.raises(ConfigurationError) as missing:
            await flow.ask("Say hi")
        assert missing.value.code == "config/no-key"


IMPORTED = """
import asyncio, sys, time
from agentflow import AgentFlow
async def main():
    async with AgentFlow("openai-chat:m", base_url="http://127.0.0.1:9", api_key="k", warm={warm}):
        until = time.monotonic() + {seconds}
        while "openai._client" not in sys.modules and time.monotonic() < until:
            await asyncio.sleep(0.01)
        print("openai._client" in sys.modules)
asyncio.run(main())
"""


@pytest.mark.parametrize(("warm", "seconds"), [(True, HANG_S), (False, 0.3)])
def test_the_sdk_is_imported_beside_the_code_of_the_host(warm: bool, seconds: float) -> None:
    """Without any call the SDK is imported on a thread; with ``warm=False`` the first call imports it."""
    code = IMPORTED.format(warm=warm, seconds=seconds)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout.strip() == str(warm)


HANGING = """
import asyncio, socket, threading, time
from agentflow import AgentFlow
asked = threading.Event()
def hangs(*arguments, **named):
    asked.set()
    time.sleep(1_000_000)
socket.getaddrinfo = hangs
async def main():
    async with AgentFlow("openai-chat:m", base_url="https://vendor.example/v1", api_key="k"):
        while not asked.is_set():
            await asyncio.sleep(0.01)
    print("ended")
asyncio.run(main())
"""


def test_a_resolver_that_does_not_answer_holds_no_exit() -> None:
    """A flow that makes no call ends while the name of its vendor is looked up, and so does its process."""
    done = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout == "ended\n"
