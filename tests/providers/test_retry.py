"""Tries and waits: only before anything was delivered, as long as servers ask within bounds, and always reported."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate

import pytest

from agentflow.core.data.errors import ConfigurationError, ProviderError
from agentflow.core.data.messages import Attempt, ModelDelta, ModelRequest, user
from agentflow.core.data.provider_errors import (
    BadRequest,
    CallTimeout,
    ConnectionLost,
    ConnectionRefused,
    ConnectTimeout,
    IncompleteStream,
    Overloaded,
    RateLimited,
)
from agentflow.providers import Clocks, FallbackProvider, RetryPolicy, ScriptedProvider, open_provider
from agentflow.providers.dialects.retry import retry_after
from tests.support.fault_server import fault
from tests.support.model_server import ModelServer, Raw, Request
from tests.support.server_shapes import SHAPES

DIALECTS = ("anthropic", "openai-chat", "openai")
FAST = RetryPolicy(base_s=0.001)
ASK = ModelRequest((user("hi"),), model="m")


async def attempts_of(
    provider: object, request: ModelRequest = ASK
) -> tuple[list[Attempt], ModelDelta | ProviderError]:
    """The attempts reported, and the last delta or the error."""
    seen: list[Attempt] = []
    last = ModelDelta()
    try:
        async for delta in provider.stream(request):  # type: ignore[attr-defined]
            last = delta
            if delta.attempt is not None:
                seen.append(delta.attempt)
    except ProviderError as error:
        return seen, error
    return seen, last


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_passing_failure_is_tried_again(dialect: str) -> None:
    """Overload and a lost connection are tried again; each try is reported with its status and the wait that follows."""
    script = [{"status": 529}, fault("closed"), "at last"]
    async with ModelServer(script) as server:
        provider = open_provider(dialect, base_url=server.url, api_key="k", retry=FAST)
        seen, last = await attempts_of(provider)
        await provider.aclose()
    assert isinstance(last, ModelDelta) and last.response is not None and last.response.text == "at last"
    assert [(a.number, a.outcome) for a in seen] == [
        (1, None),
        (1, "failed"),
        (2, None),
        (2, "failed"),
        (3, None),
        (3, "ok"),
    ]
    assert seen[1].status == 529 and seen[1].retry_in_s is not None
    assert isinstance(seen[3].error, ConnectionLost)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_nothing_is_tried_again_after_text_was_delivered(dialect: str) -> None:
    """A stream that broke after its first text is an error at once: a second try would say it twice."""
    async with ModelServer([fault("clean_end"), "never asked for"]) as server:
        provider = open_provider(dialect, base_url=server.url, api_key="k", retry=FAST)
        seen, error = await attempts_of(provider)
        await provider.aclose()
        assert len(server.requests) == 1
    assert isinstance(error, IncompleteStream) and "one two" in error.partial
    assert len(seen) == 2


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 413, 422])
async def test_what_is_wrong_stays_wrong(status: int) -> None:
    """A request the server refuses is not sent again."""
    async with ModelServer([{"status": status}], repeat=True) as server:
        provider = open_provider("openai-chat", base_url=server.url, retry=FAST)
        _, error = await attempts_of(provider)
        await provider.aclose()
        assert len(server.requests) == 1
    assert isinstance(error, ProviderError) and error.attempts == 1


async def test_a_spent_quota_is_not_a_rate_limit() -> None:
    """OpenAI answers 429 when the account is empty; asking again does not fill it."""
    empty = {"status": 429, "error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "empty"}}
    async with ModelServer([empty], repeat=True) as server:
        provider = open_provider("openai", base_url=server.url, api_key="k", retry=FAST)
        _, error = await attempts_of(provider)
        await provider.aclose()
        assert len(server.requests) == 1
    assert isinstance(error, ProviderError) and error.code == "provider/quota"


async def test_the_tries_are_bounded() -> None:
    """After the last try its error is raised and knows how many there were."""
    async with ModelServer([{"status": 500}], repeat=True) as server:
        provider = open_provider(
            "openai", base_url=server.url, api_key="k", retry=RetryPolicy(attempts=3, base_s=0.001)
        )
        _, error = await attempts_of(provider)
        await provider.aclose()
        assert len(server.requests) == 3
    assert isinstance(error, ProviderError) and error.attempts == 3


async def test_a_server_that_asks_for_an_hour_is_told_goodbye() -> None:
    """More than a minute, or than the call has left, ends the call; the error carries what was asked."""
    for seconds, limit in (("3600", None), ("5", 2.0)):
        async with ModelServer([{"status": 429, "headers": {"retry-after": seconds}}], repeat=True) as server:
            provider = open_provider("openai", base_url=server.url, api_key="k")
            _, error = await attempts_of(provider, ModelRequest((user("hi"),), model="m", timeout_s=limit))
            await provider.aclose()
            assert len(server.requests) == 1
        assert isinstance(error, RateLimited) and error.retry_after == float(seconds)
        assert f"asks to wait {seconds} s" in error.message


async def test_a_short_wait_is_honoured() -> None:
    """The wait a server asks for is the wait that is made and reported."""
    async with ModelServer([{"status": 503, "headers": {"retry-after-ms": "30"}}, "fine"]) as server:
        provider = open_provider("anthropic", base_url=server.url, api_key="k")
        seen, last = await attempts_of(provider)
        await provider.aclose()
    assert seen[1].retry_in_s == 0.03
    assert isinstance(last, ModelDelta) and last.response is not None


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "1"}, 1.0),
        ({"retry-after": " 2.5 "}, 2.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "0"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "9" * 10_000}, None),
        ({"retry-after": "Mon, 99 Nonsense"}, None),
        ({"retry-after": formatdate(0, usegmt=True)}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_or_ignored(headers: dict[str, str], expected: float | None) -> None:
    """Seconds, milliseconds and dates are understood; nonsense and the past count as nothing."""
    assert retry_after(headers) == expected


def test_retry_after_may_be_a_date() -> None:
    """A date means the seconds until then."""
    wait = retry_after({"retry-after": formatdate(time.time() + 10, usegmt=True)})
    assert wait is not None and 8 < wait <= 10


def test_waits_grow_and_vary() -> None:
    """Without a server's word the wait doubles to its cap, with up to half of it taken off at random."""
    policy = RetryPolicy(attempts=10, base_s=1, cap_s=4)
    error = Overloaded("busy")
    for number, top in ((1, 1.0), (2, 2.0), (3, 4.0), (4, 4.0)):
        waits = {policy.wait(error, number, None) for _ in range(50)}
        assert len(waits) > 1
        assert all(wait is not None and top / 2 <= wait <= top for wait in waits)
    assert policy.wait(error, 10, None) is None
    assert policy.wait(BadRequest("no"), 1, None) is None
    assert policy.wait(error, 1, 0.1) is None


def test_impossible_settings_are_refused() -> None:
    """A clock or policy that cannot be is a ConfigurationError that names it."""
    with pytest.raises(ConfigurationError, match="idle_s"):
        Clocks(idle_s=0)
    with pytest.raises(ConfigurationError, match="connect_s"):
        Clocks(connect_s=True)
    with pytest.raises(ConfigurationError, match="attempts"):
        RetryPolicy(attempts=0)


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("url", "words"), [("http://127.0.0.1:9", "refused"), ("http://no.such.host.invalid", "no address")]
)
async def test_an_unreachable_server_is_said_at_once(dialect: str, url: str, words: str, aiohttp: bool) -> None:
    """Nobody listens, or the host has no name: the error says which, where and what to do, after one try."""
    provider = open_provider(dialect, base_url=url, api_key="k", aiohttp=aiohttp)
    _, error = await attempts_of(provider)
    await provider.aclose()
    assert isinstance(error, ConnectionRefused) and isinstance(error, ConnectionLost)
    assert url in error.message and words in error.message and "base URL" in (error.hint or "")
    assert error.attempts == 1


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
async def test_a_dropped_connection_is_lost_and_tried_again(aiohttp: bool) -> None:
    """A server that hangs up without a word is a lost connection on either transport; the last error counts the tries."""
    async with ModelServer([fault("closed")], repeat=True) as server:
        provider = open_provider("openai-chat", base_url=server.url, retry=FAST, aiohttp=aiohttp)
        _, error = await attempts_of(provider)
        await provider.aclose()
    assert type(error) is ConnectionLost and error.attempts == 4
    assert "4 attempts were made" in error.message


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
async def test_a_connection_closed_after_its_answer_costs_no_try(aiohttp: bool) -> None:
    """Servers close connections that they promised to keep: the next call goes out on another, at once."""

    async def then_close(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SHAPES["chat: llama.cpp stream"].answer)
        await writer.drain()

    async with ModelServer([Raw(then_close)], repeat=True) as server:
        provider = open_provider("openai-chat", base_url=server.url, retry=RetryPolicy(attempts=1), aiohttp=aiohttp)
        for _ in range(5):
            seen, last = await attempts_of(provider)
            assert isinstance(last, ModelDelta) and last.response is not None, last
            assert len(seen) == 2
        await provider.aclose()


async def test_the_wall_clock_bounds_retries_too() -> None:
    """``timeout_s`` ends a call whose tries each fail in time."""
    async with ModelServer([{"delay_s": 5, "text": "late"}], repeat=True) as server:
        provider = open_provider("openai-chat", base_url=server.url, clocks=Clocks(first_byte_s=0.2))
        _, error = await attempts_of(provider, ModelRequest((user("hi"),), model="m", timeout_s=0.1))
        await provider.aclose()
    assert isinstance(error, CallTimeout)


async def test_a_fallback_answers_when_the_first_fails() -> None:
    """The next model is asked when nothing was delivered; the attempts show the switch and are numbered through."""
    first, second = ScriptedProvider([{"error": Overloaded("busy")}], name="one"), ScriptedProvider(["b"], name="two")
    seen, last = await attempts_of(FallbackProvider([(first, "a"), (second, "b")]))
    assert isinstance(last, ModelDelta) and last.response is not None and last.response.text == "b"
    assert [(a.number, a.provider, a.model, a.outcome) for a in seen] == [
        (1, "one", "a", None),
        (1, "one", "a", "failed"),
        (2, "two", "b", None),
        (2, "two", "b", "ok"),
    ]
    assert second.requests[0].model == "b"


async def test_a_fallback_never_says_things_twice() -> None:
    """After the first text there is no switch; nor for a request that is wrong for every model."""
    for reply in ({"text": "half of it", "error": "broke"}, {"error": BadRequest("no such parameter", status=400)}):
        second = ScriptedProvider(["other"])
        _, error = await attempts_of(FallbackProvider([(ScriptedProvider([reply]), ""), (second, "")]))
        assert isinstance(error, ProviderError)
        assert second.requests == []


async def test_a_fallback_tells_the_whole_story() -> None:
    """When all fail, the last error is raised and notes the earlier ones."""
    routes = [(ScriptedProvider([{"error": f"broken {n}"}]), f"m{n}") for n in (1, 2)]
    _, error = await attempts_of(FallbackProvider(routes))
    assert isinstance(error, ProviderError) and "broken 2" in error.message
    assert "broken 1" in "".join(error.__notes__)
    with pytest.raises(ConfigurationError):
        FallbackProvider([])


async def test_a_connection_that_never_stands_is_a_connect_timeout() -> None:
    """The connect clock is its own error. The listener's queue is full, so that the handshake gets no answer."""
    import socket

    with socket.socket() as listener, socket.socket() as filler, socket.socket() as filler2:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for full in (filler, filler2):
            full.setblocking(False)
            full.connect_ex(listener.getsockname())
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        for aiohttp in (False, True):
            provider = open_provider(
                "openai-chat",
                base_url=url,
                clocks=Clocks(connect_s=0.2),
                retry=RetryPolicy(attempts=1),
                aiohttp=aiohttp,
            )
            _, error = await attempts_of(provider)
            await provider.aclose()
            assert isinstance(error, ConnectTimeout), repr(error)
