"""A model server of one's own is not a vendor: it answers few calls at once, slowly, and is sent no key of a vendor."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Provider
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.messages import ModelRequest, user
from agentflow.core.data.provider_errors import CallTimeout, FirstByteTimeout
from agentflow.errors import AgentflowError
from agentflow.events import Event, WaitStarted
from agentflow.providers import Clocks, RetryPolicy, open_provider
from agentflow.providers.dialects.address import is_own
from agentflow.settings import load_settings
from tests.support.children import HANG_S
from tests.support.model_server import ModelServer, Raw, Request


class Slots:
    """Replies of a server that answers ``count`` calls at once, none before ``together`` are there; ``most`` were at work together."""

    def __init__(self, count: int, silent: bool = False, together: int = 0) -> None:
        self.silent = silent
        self._together, self._are_there = together, asyncio.Event()
        self.most = self.working = 0
        self._free = asyncio.Semaphore(count)

    async def __call__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.working += 1
        self.most = max(self.most, self.working)
        if self.most >= self._together:
            self._are_there.set()
        try:
            await asyncio.wait_for(self._are_there.wait(), HANG_S)
            async with self._free:
                await asyncio.sleep(0.3)
                body = b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
                head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
                writer.write(head)
                writer.write(body)
                await writer.drain()
                if self.silent:
                    await asyncio.sleep(30)
        finally:
            self.working -= 1


@pytest.mark.parametrize(
    ("address", "own"),
    [
        ("http://127.0.0.1:8080/v1", True),
        ("http://[::1]:8080/v1", True),
        ("http://[::ffff:10.0.0.1]/v1", True),
        ("http://192.168.1.7:1234/v1", True),
        ("http://100.100.1.2:8000", True),
        ("http://localhost:11434/v1", True),
        ("http://gpu.local:8000/v1", True),
        ("http://host.docker.internal:8080/v1", True),
        ("http://ollama:11434/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://8.8.8.8/v1", False),
        ("https://models.example.com/v1", False),
        ("https://local.example.com", False),
    ],
)
def test_a_server_is_ones_own_by_its_address(address: str, own: bool) -> None:
    """This machine and private networks, by what the address says; ``traits`` says otherwise."""
    assert is_own(address) is own
    assert open_provider("openai-chat", base_url=address, api_key="k").traits.own is own  # type: ignore[attr-defined]
    stated = open_provider("openai-chat", base_url=address, api_key="k", traits={"own": not own})
    assert stated.traits.own is not own  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("about", "options", "most"),
    [
        ({}, {}, 4),
        ({"/props": {"total_slots": 2}}, {}, 4),
        ({"/props": {"total_slots": 9}}, {}, 9),
        ({"/info": {"max_concurrent_requests": 6}}, {}, 6),
        ({"/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}, {}, 12),
        ({"/props": {"total_slots": "many"}}, {}, 4),
        ({}, {"traits": {"slots": 3}}, 3),
        ({}, {"gate": 5}, 5),
        ({}, {"traits": {"own": False}}, 12),
    ],
)
async def test_calls_wait_for_what_a_server_answers_at_once(
    about: dict[str, Any], options: dict[str, Any], most: int
) -> None:
    """Four at once, or as many as the server or its user says; it is asked when a fifth call has to wait, and then once."""
    slots = Slots(12, together=most)
    async with ModelServer([Raw(slots)], repeat=True, about=about) as server:
        provider = open_provider("openai-chat", base_url=f"{server.url}/v1", api_key="k", **options)
        waits: list[Event] = []
        async with AgentFlow("m", provider=provider) as flow:
            flow.subscribe(lambda event: waits.append(event) if isinstance(event, WaitStarted) else None)
            assert await asyncio.gather(*[flow.ask(f"{number}") for number in range(12)]) == ["hi"] * 12
    assert slots.most == most and len(server.requests) == 12
    assert len(server.looks) == (0 if options else len({*server.looks}))
    assert {wait.reason for wait in waits} == (set() if most == 12 and options else {"gate"})  # type: ignore[attr-defined]


async def test_each_call_is_streamed_and_bounded() -> None:
    """Leaving a stream frees the slot, and a model that never ends is cut off where nobody says a maximum."""
    async with ModelServer(["hi"], repeat=True) as server:
        provider = open_provider("openai-chat", base_url=f"{server.url}/v1")
        async with AgentFlow("m", provider=provider) as flow:
            await flow.ask("hi")
            await flow.ask("hi", max_output_tokens=5)
            await flow.ask("hi", settings={"max_tokens": 7})
    assert [request.body.get("max_tokens") for request in server.requests] == [2_048, 5, 7]
    assert all([request.streams for request in server.requests])


@pytest.mark.slow
async def test_a_call_that_is_not_answered_in_time_is_not_sent_again() -> None:
    """The server may be working on it. From the second time on the error says how many calls the server answers at a time."""
    slots = Slots(1, silent=True)
    async with ModelServer([Raw(slots)], repeat=True) as server:
        clocks = Clocks(first_byte_s=0.8, plain_first_byte_s=0.8)
        provider = open_provider("openai-chat", base_url=f"{server.url}/v1", clocks=clocks)

        async def ask() -> BaseException | None:
            try:
                async for _ in provider.stream(ModelRequest((user("hi"),), model="m")):
                    pass
            except AgentflowError as error:
                return error
            return None

        errors = [error for error in await asyncio.gather(*[ask() for _ in range(3)]) if error is not None]
        await provider.aclose()
    assert len(server.requests) == 3 and len(errors) == 2
    assert all([isinstance(error, FirstByteTimeout) for error in errors])
    hints = [str(getattr(error, "hint", "")) for error in errors]
    assert "first_byte_s" in hints[0] and "answers 1 at a time" in hints[1] and "{'slots': 1}" in hints[1]


class SlowServer:
    """Replies of a server that answers one call after the other, each after ``pings`` comments at intervals of 0.1 s; then it
    answers, or is ``silent``."""

    def __init__(self, pings: int, silent: bool = False) -> None:
        self._pings, self._silent = pings, silent
        self._free = asyncio.Semaphore(1)

    async def __call__(self, request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with self._free:
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for _ in range(self._pings):
                writer.write(b": reading the prompt\n\n")
                await writer.drain()
                await asyncio.sleep(0.1)
            if self._silent:
                await reader.read()  # until the caller hangs up
                return
            writer.write(
                b'data: {"choices":[{"index":0,"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
            )
            await writer.drain()


async def test_a_prompt_that_is_being_read_is_waited_for() -> None:
    """Comments are signs of life until the first event: a server that reads a long prompt is neither given up nor sent it again,
    although all of it takes longer than its clocks."""
    async with ModelServer([Raw(SlowServer(30))], repeat=True) as server:
        clocks = Clocks(first_byte_s=1.5, idle_s=0.05)
        provider = open_provider("openai-chat", base_url=f"{server.url}/v1", clocks=clocks)
        async with AgentFlow("m", provider=provider) as flow:
            assert await flow.ask("hi") == "hi"
    assert len(server.requests) == 1


async def test_comments_keep_a_call_alive_for_its_whole_time_alone() -> None:
    """A server that sends nothing else is given up after ``wall_s``."""
    async with ModelServer([Raw(SlowServer(100_000))], repeat=True) as server:
        provider = open_provider("openai-chat", base_url=f"{server.url}/v1", clocks=Clocks(first_byte_s=0.5, wall_s=1))
        async with AgentFlow("m", provider=provider) as flow:
            with pytest.raises(CallTimeout):
                await flow.ask("hi")
    assert len(server.requests) == 1


async def test_a_server_that_falls_silent_over_a_prompt_is_not_sent_it_again() -> None:
    """After its comments too: whoever sends the prompt again begins its reading anew, and takes another slot."""
    async with ModelServer([Raw(SlowServer(2, silent=True))], repeat=True) as server:
        provider = open_provider("openai-chat", base_url=f"{server.url}/v1", clocks=Clocks(first_byte_s=0.5, idle_s=9))
        async with AgentFlow("m", provider=provider) as flow:
            with pytest.raises(FirstByteTimeout) as caught:
                await flow.ask("hi")
    assert len(server.requests) == 1 and caught.value.attempts == 1 and "first_byte_s" in str(caught.value.hint)


async def test_a_queue_of_own_calls_is_no_dead_server() -> None:
    """A call that waits behind others of the same flow is waited for as long as those are answered."""
    async with ModelServer([Raw(SlowServer(3))], repeat=True) as server:
        clocks = Clocks(first_byte_s=1.5, idle_s=9)
        provider = open_provider("openai-chat", base_url=f"{server.url}/v1", clocks=clocks, gate=10)
        async with AgentFlow("m", provider=provider) as flow:
            assert await asyncio.gather(*[flow.ask(f"{number}") for number in range(10)]) == ["hi"] * 10
    assert len(server.requests) == 10


@pytest.mark.parametrize("dialect", ["openai", "openai-chat", "anthropic"])
async def test_a_vendors_key_goes_to_the_vendor_alone(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that base_url names gets api_key or AGENTFLOW_API_KEY, or no key; one that the vendor's own variable names gets the
    vendor's. An own server needs none in any dialect."""
    vendor = "ANTHROPIC" if dialect == "anthropic" else "OPENAI"
    monkeypatch.setenv(f"{vendor}_API_KEY", "sk-vendor-0123456789")

    async def sent(**options: Any) -> str:
        async with AgentFlow(f"{dialect}:m", **options) as flow:
            await flow.ask("hi")
        return str(server.requests[-1].headers)

    async with ModelServer(["hi"], repeat=True) as server:
        assert "sk-vendor" not in await sent(base_url=server.url)
        assert "sk-own" in await sent(base_url=server.url, api_key="sk-own-0123456789")
        monkeypatch.setenv("AGENTFLOW_API_KEY", "sk-mine-0123456789")
        assert "sk-mine" in await sent(base_url=server.url)
        monkeypatch.setenv(f"{vendor}_BASE_URL", server.url)
        assert "sk-vendor" in await sent()
        monkeypatch.delenv(f"{vendor}_API_KEY")
        monkeypatch.delenv("AGENTFLOW_API_KEY")
        await sent()
        assert "sk-" not in await sent(base_url=server.url)


@pytest.mark.parametrize(
    ("dialect", "variable"), [("foundry", "ANTHROPIC_FOUNDRY_API_KEY"), ("bedrock", "AWS_BEARER_TOKEN_BEDROCK")]
)
async def test_a_clouds_key_goes_to_the_cloud_alone(
    dialect: str, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a vendor's: the server that base_url names is sent none."""
    monkeypatch.setenv(variable, "cloud-secret-0123456789")
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    async with ModelServer(["hi"], repeat=True, strict=False) as server:
        provider = open_provider(dialect, base_url=server.url, traits={"own": False})
        async for _ in provider.stream(ModelRequest((user("hi"),), model="m", max_output_tokens=50)):
            pass
        await provider.aclose()
    assert server.requests and "cloud-secret" not in str(server.requests[0].headers)


async def test_a_refused_call_says_where_a_key_would_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 401 of a server to which the vendor's key was not sent."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-vendor-0123456789")
    async with ModelServer([{"status": 401}]) as server, AgentFlow("openai-chat:m", base_url=server.url) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.ask("hi")
    assert "openai.com alone" in str(caught.value.hint) and "AGENTFLOW_API_KEY" in str(caught.value.hint)


async def test_clocks_and_retries_are_settings(tmp_path: Path) -> None:
    """Of the flow, by name or whole, over those of the settings file; the rest stays as it is for that server."""
    (tmp_path / "agentflow.toml").write_text("[clocks]\nidle_s = 7\nwall_s = 5000\n[retry]\nattempts = 2\n")
    settings = load_settings(tmp_path, {})
    flow = AgentFlow(
        "openai-chat:m",
        base_url="http://localhost:1/v1",
        settings=settings,
        provider=Provider(clocks={"wall_s": 900}, retry={"base_s": 0}),
    )
    adapter: Any = flow.router.resolve(None)[0]
    assert adapter._clocks == Clocks(first_byte_s=600, idle_s=7, wall_s=900)
    assert adapter._retry == RetryPolicy(attempts=2, base_s=0)
    await flow.aclose()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        ({"clocks": {"first_byte": 5}}, "config/option", "first_byte_s"),
        ({"clocks": {"idle_s": 0}}, "config/clocks", ""),
        ({"clocks": 30}, "config/option", "clocks={'connect_s': ...}"),
        ({"retry": 3}, "config/option", "retry={'attempts': ...}"),
        ({"retry": {"attempts": 0}}, "config/retry", ""),
        ({"retry": {"attempts": 2.5}}, "config/retry", ""),
        ({"retry": {"attempt": 2}}, "config/option", "attempts"),
        ({"retry": {"max_retries": 2}}, "config/option", "the options are attempts"),
        ({"clocks": {"timeout": 30}}, "config/option", "first_byte_s"),
    ],
)
def test_clocks_and_retries_that_there_are_not(options: dict[str, Any], code: str, words: str) -> None:
    """Refused when the flow is built, with what is meant."""
    with pytest.raises(ConfigurationError) as caught:
        AgentFlow("openai-chat:m", base_url="http://localhost:1/v1", provider=Provider(**options))
    assert caught.value.code == code and words in str(caught.value.hint or "")
