"""What a model server may cost in memory, whatever it sends; and which address a settings file may name."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, suppress

import pytest

from agentflow.core.data.errors import ProviderError
from agentflow.core.data.messages import ModelRequest, user
from agentflow.file_rules import leads_to_loopback
from agentflow.providers import Clocks, RetryPolicy, open_provider
from tests.support.model_server import ModelServer, Raw, Request
from tests.support.server_shapes import chunked, events, head, sized

Writer = asyncio.StreamWriter
MB = 1024 * 1024
CASES: dict[str, Callable[[Writer], Awaitable[None]]] = {}
BOUND = 100 * MB
"""The most memory a call may take: a stream's cap of 64 MB and its pieces."""
BOMB = 150 * MB
"""More than the bound: whatever keeps all of it fails."""


def case(function: Callable[[Writer], Awaitable[None]]) -> Callable[[Writer], Awaitable[None]]:
    CASES[function.__name__] = function
    return function


def bomb(size: int, unit: bytes, wbits: int = 31) -> bytes:
    """``size`` bytes of repeated ``unit``, compressed some thousandfold."""
    press = zlib.compressobj(1, wbits=wbits)
    block = unit * (MB // len(unit))
    return b"".join(press.compress(block) for _ in range(size // MB)) + press.flush()


async def pour(writer: Writer, pieces: Iterator[bytes]) -> None:
    with suppress(ConnectionError):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            if writer.is_closing():
                return


@case
async def gzip_in_a_failure(writer: Writer) -> None:
    await pour(writer, iter([sized(bomb(BOMB, b"x"), status=400, content_encoding="gzip")]))


@case
async def deflate_in_a_failure(writer: Writer) -> None:
    await pour(writer, iter([sized(bomb(BOMB, b"x", 15), status=500, content_encoding="deflate")]))


@case
async def gzip_of_json(writer: Writer) -> None:
    await pour(writer, iter([sized(bomb(BOMB, b"["), content_encoding="gzip")]))


@case
async def gzip_of_comments(writer: Writer) -> None:
    await pour(writer, iter([chunked(bomb(BOMB, b": " + b"x" * 65_532 + b"\n\n"), content_encoding="gzip")]))


@case
async def gzip_of_blanks(writer: Writer) -> None:
    await pour(writer, iter([sized(bomb(BOMB, b"\n"), content_encoding="gzip")]))


@case
async def brotli_in_a_failure(writer: Writer) -> None:
    await pour(writer, iter([sized(b"\x0b" * 10_000, status=400, content_encoding="br")]))


@case
async def many_headers(writer: Writer) -> None:
    await pour(
        writer, (b"HTTP/1.1 200 OK\r\n" if n == 0 else b"x-%d: %s\r\n" % (n, b"y" * 900) for n in range(200_000))
    )


@case
async def one_long_header(writer: Writer) -> None:
    await pour(writer, (b"HTTP/1.1 200 OK\r\nx: " if n == 0 else b"y" * 65_536 for n in range(3_000)))


@case
async def a_long_status_line(writer: Writer) -> None:
    await pour(writer, (b"HTTP/1.1 200 " if n == 0 else b"y" * 65_536 for n in range(3_000)))


@case
async def many_trailers(writer: Writer) -> None:
    begin = head(200, "text/event-stream", transfer_encoding="chunked") + b"\r\n3\r\n:a\n\r\n0\r\n"
    await pour(writer, (begin if n == 0 else b"x-%d: %s\r\n" % (n, b"y" * 900) for n in range(200_000)))


@case
async def a_long_chunk_extension(writer: Writer) -> None:
    begin = head(200, "text/event-stream", transfer_encoding="chunked") + b"\r\n3;"
    await pour(writer, (begin if n == 0 else b"y" * 65_536 for n in range(3_000)))


@case
async def informational_answers(writer: Writer) -> None:
    await pour(writer, (b"HTTP/1.1 103 Early Hints\r\nlink: %s\r\n\r\n" % (b"y" * 8_000) for _ in range(10_000)))


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
@pytest.mark.parametrize("name", CASES)
async def test_an_answer_of_any_size_costs_bounded_memory(name: str, aiohttp: bool) -> None:
    """Bodies are bounded after inflating, heads and trailers altogether; the call ends in a typed error."""

    async def write(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
        await CASES[name](writer)

    async with ModelServer(["fine", Raw(write)], repeat=True) as server:
        clocks = Clocks(first_byte_s=5, idle_s=5, wall_s=15)
        adapter = open_provider(
            "openai-chat", base_url=server.url, clocks=clocks, retry=RetryPolicy(attempts=1), aiohttp=aiohttp
        )
        request = ModelRequest((user("hi"),), model="m")
        async for _ in adapter.stream(request):
            pass  # What is measured is an answer, not the import of the SDK.
        tracemalloc.start()
        try:
            with pytest.raises(ProviderError):
                async for _ in adapter.stream(request):
                    pass
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            await adapter.aclose()
    assert peak < BOUND, f"{peak / MB:.0f} MB"


def chat_calls(count: int) -> list[bytes]:
    made = [{"index": n, "id": f"c{n}", "function": {"name": "add", "arguments": "{}"}} for n in range(count)]
    whole = {"message": {"role": "assistant", "tool_calls": made}, "finish_reason": "tool_calls"}
    streamed = [{"choices": [{"delta": {"tool_calls": [call]}}]} for call in made]
    return [chunked(events(*streamed)), sized(json.dumps({"choices": [whole]}).encode())]


@pytest.mark.parametrize("aiohttp", [False, True], ids=["httpx", "aiohttp"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "plain"])
async def test_a_flood_of_tool_calls_is_refused_while_it_comes(stream: bool, aiohttp: bool) -> None:
    """Of 20,000 calls in one answer, 256 are read; then it is an error that says the number, and none of them runs."""

    async def write(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
        await pour(writer, iter([chat_calls(20_000)[0 if stream else 1]]))

    async with ModelServer([Raw(write)], repeat=True) as server:
        adapter = open_provider("openai-chat", base_url=server.url, retry=RetryPolicy(attempts=1), aiohttp=aiohttp)
        started = 0
        with pytest.raises(ProviderError, match="256 tool calls") as caught:
            async with aclosing(adapter.stream(ModelRequest((user("hi"),), model="m", stream=stream))) as deltas:
                async for delta in deltas:
                    started += bool(delta.tool_name)
        await adapter.aclose()
    assert caught.value.code == "provider/too-many-calls" and started <= 256


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1.evil.com/v1",
        "http://127.evil.com",
        "http://localhost.evil.com",
        "http://127.0.0.1@evil.com",
        "http://evil.com\\@127.0.0.1/",
        "http://evil.com#@127.0.0.1",
        "http://127.0.0.1\t.evil.com",
        "http://127.0.0.1\n.evil.com",
        "http://127.0.0.1 .evil.com",
        "http://[::1].evil.com",
        "http://[::1",
        "http://::1.evil.com",
        "http://0177.0.0.1",
        "http://2130706433",
        "http://0.0.0.0",
        "http://10.0.0.1",
        "http://127.0.0.1.:80x",
        "//evil.com",
        "evil.com",
        "127.0.0.1:80",
        "ftp://127.0.0.1",
        "https://example.com",
        "http://１２７.0.0.1",
        "",
    ],
)
def test_elsewhere_is_not_loopback(url: str) -> None:
    """What only begins or reads like a loopback address is not one; a settings file may not send the key there."""
    assert not leads_to_loopback(url)


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8080/v1", "http://localhost", "https://LOCALHOST:1/x", "http://[::1]:80/v1", "http://127.9.8.7"],
)
def test_loopback_is_loopback(url: str) -> None:
    """Loopback by address, and by its one name."""
    assert leads_to_loopback(url)
