"""What goes wrong on the wire, as handlers for the loopback model server: each writes one faulty answer.

``FAULTS[name]`` takes a request and gives what the server should do; ``expected(name, ...)`` says which errors are right.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from email.utils import formatdate
from time import time

from agentflow import errors
from tests.support.model_server import Raw, Request, stream_head
from tests.support.model_server_wire import Reply, body, error_body, events

TEXT = "one two three four five six seven eight"
_JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nrequest-id: req_1\r\nx-request-id: req_1\r\n"

Writer = asyncio.StreamWriter
Script = Callable[[Request, asyncio.StreamReader, Writer], Awaitable[None]]


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def _events(request: Request, reply: Reply | None = None) -> list[bytes]:
    return events(request.dialect, reply or Reply(text=TEXT), "m")


def _plain(request: Request, reply: Reply | None = None) -> bytes:
    return json.dumps(body(request.dialect, reply or Reply(text=TEXT), "m")).encode()


def _sized(content: bytes, claimed: int | None = None) -> bytes:
    return _JSON_HEAD + f"content-length: {claimed or len(content)}\r\n\r\n".encode() + content


async def _until_gone(reader: asyncio.StreamReader) -> None:
    """Wait until the client hangs up."""
    with contextlib.suppress(ConnectionError):
        await reader.read()


async def _send(writer: Writer, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def no_byte(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    await _until_gone(reader)


async def stall(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    if request.streams:
        await _send(writer, stream_head() + b"".join(chunk(event) for event in _events(request)[:6]))
    else:
        content = _plain(request)
        await _send(writer, _sized(content[: len(content) // 2], len(content)))
    await _until_gone(reader)


async def pings_only(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    await _send(writer, stream_head())
    ping = b'event: ping\ndata: {"type": "ping"}\n\n' if request.dialect == "anthropic" else b": keep-alive\n\n"
    while not writer.is_closing():
        await _send(writer, chunk(ping))
        await asyncio.sleep(0.05)


async def trickle(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    if request.streams:
        await _send(writer, stream_head())
        content = b"".join(_events(request))
    else:
        content = _plain(request)
        await _send(writer, _sized(b"", len(content)))
    for byte in content:
        data = bytes([byte])
        await _send(writer, chunk(data) if request.streams else data)
        await asyncio.sleep(0.1)


async def clean_end(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    if not request.streams:
        await _send(writer, _sized(_plain(request)[:-40]))
        return
    whole = _events(request)
    cut = {"anthropic": -2, "chat": -3, "responses": -1}[request.dialect]  # before the stop reason
    await _send(writer, stream_head() + b"".join(chunk(event) for event in whole[:cut]) + b"0\r\n\r\n")


async def half_event(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    if not request.streams:
        content = _plain(request)
        await _send(writer, _sized(content[: len(content) // 2], len(content)))
        return
    whole = b"".join(_events(request))
    await _send(writer, stream_head() + chunk(whole[: len(whole) * 2 // 3]) + b"0\r\n\r\n")


async def reset(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    if request.streams:
        await _send(writer, stream_head() + b"".join(chunk(event) for event in _events(request)[:6]))
    else:
        content = _plain(request)
        await _send(writer, _sized(content[: len(content) // 2], len(content)))
    await asyncio.sleep(0.05)
    raw = writer.get_extra_info("socket")
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _spoiled(data: bytes) -> Script:
    """A good beginning, then an event (or a body) with ``data``."""

    async def handler(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
        if request.streams:
            await _send(writer, stream_head() + b"".join(chunk(event) for event in _events(request)[:6]))
            await _send(writer, chunk(b"data: " + data + b"\n\n") + b"0\r\n\r\n")
        else:
            await _send(writer, _sized(data))

    return handler


async def html_200(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    page = b"<html><body>Sign in to the network</body></html>"
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: %d\r\n\r\n" % len(page)
    await _send(writer, head + page)


async def html_as_stream(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    page = b"<html><body>Sign in to the network</body></html>"
    if request.streams:
        await _send(writer, stream_head() + chunk(page) + b"0\r\n\r\n")
    else:
        await _send(writer, _sized(page))


async def error_200(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    error = {"type": "overloaded_error", "message": "come back later"}
    if request.dialect != "anthropic":
        error = {"type": "server_error", "code": "server_error", "message": "come back later"}
    if request.streams:
        whole = _events(request, Reply(text=TEXT, error=error))
        await _send(writer, stream_head() + b"".join(chunk(event) for event in whole) + b"0\r\n\r\n")
    else:
        await _send(writer, _sized(json.dumps(error_body(request.dialect, error)).encode()))


async def body_64mb(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    size = 64 * 1024 * 1024
    await _send(writer, _JSON_HEAD + b"content-length: %d\r\n\r\n" % size + b'{"text": "')
    await _pour(writer, b"x" * 65_536, size)


async def line_256mb(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    await _send(writer, stream_head() + chunk(b'data: {"text": "'))
    await _pour(writer, chunk(b"x" * 65_536), 256 * 1024 * 1024)


async def short_lines_8mb(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    await _send(writer, stream_head())
    await _pour(writer, chunk(b"data: 1\n" * 8_192), 8 * 1024 * 1024)
    await _send(writer, chunk(b"\n") + b"0\r\n\r\n")


async def error_body_64mb(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    size = 64 * 1024 * 1024
    await _send(writer, b"HTTP/1.1 400 Bad\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n" % size)
    await _pour(writer, b"x" * 65_536, size)


async def redirect(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    await _send(writer, b"HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:9/elsewhere\r\ncontent-length: 0\r\n\r\n")


async def gibberish(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    await _send(writer, b"\x00\x01\x02 not http at all\r\n\r\n")


async def closed(request: Request, reader: asyncio.StreamReader, writer: Writer) -> None:
    """Close without a word."""


async def _pour(writer: Writer, piece: bytes, total: int) -> None:
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < total and not writer.is_closing():
            await _send(writer, piece)
            sent += len(piece)
            await asyncio.sleep(0)


DEEP = b'{"type": "x", "choices": ' + b"[" * 20_000

FAULTS: dict[str, tuple[Script, tuple[type[errors.ProviderError], ...]]] = {
    "no_byte": (no_byte, (errors.FirstByteTimeout,)),
    "stall": (stall, (errors.IdleTimeout,)),
    "pings_only": (pings_only, (errors.IdleTimeout,)),
    "trickle": (trickle, (errors.CallTimeout, errors.IdleTimeout)),
    "clean_end": (clean_end, (errors.IncompleteStream, errors.ProtocolError)),
    "half_event": (half_event, (errors.IncompleteStream, errors.ConnectionLost)),
    "reset": (reset, (errors.ConnectionLost,)),
    "bad_json": (_spoiled(b'{"type": broken'), (errors.ProtocolError,)),
    "bad_utf8": (_spoiled(b'{"type": "\xff\xfe"}'), (errors.ProtocolError,)),
    "wrong_shape": (_spoiled(b'{"type": "content_block_delta", "choices": 7, "content": 3}'), (errors.ProviderError,)),
    "not_an_object": (_spoiled(b"[1, 2]"), (errors.ProtocolError,)),
    "deep": (_spoiled(DEEP), (errors.ProtocolError,)),
    "html_200": (html_200, (errors.ProtocolError,)),
    "html_as_stream": (html_as_stream, (errors.IncompleteStream, errors.ProtocolError)),
    "error_200": (error_200, (errors.Overloaded, errors.ServerError)),
    "body_64mb": (body_64mb, (errors.ProtocolError,)),
    "line_256mb": (line_256mb, (errors.ProtocolError,)),
    "short_lines_8mb": (short_lines_8mb, (errors.ProtocolError,)),
    "error_body_64mb": (error_body_64mb, (errors.BadRequest,)),
    "redirect": (redirect, (errors.ProtocolError,)),
    "gibberish": (gibberish, (errors.ConnectionLost,)),
    "closed": (closed, (errors.ConnectionLost,)),
}
"""Name -> what the server does, and the errors that are right for it."""

STREAM_ONLY = frozenset({"pings_only", "line_256mb", "short_lines_8mb"})
PARTIAL = frozenset({"stall", "clean_end", "half_event", "reset", "bad_json", "bad_utf8", "deep", "error_200"})
"""Faults that come after some text when streaming."""

STATUSES: dict[str, tuple[int, dict[str, str], type[errors.ProviderError]]] = {
    "400": (400, {}, errors.BadRequest),
    "401": (401, {}, errors.AuthenticationFailed),
    "403": (403, {}, errors.PermissionDenied),
    "404": (404, {}, errors.BadRequest),
    "408": (408, {}, errors.ServerError),
    "409": (409, {}, errors.BadRequest),
    "413": (413, {}, errors.BadRequest),
    "422": (422, {}, errors.BadRequest),
    "429": (429, {}, errors.RateLimited),
    "429-1": (429, {"retry-after": "1"}, errors.RateLimited),
    "429-3600": (429, {"retry-after": "3600"}, errors.RateLimited),
    "429-date": (429, {"retry-after": formatdate(time() + 2, usegmt=True)}, errors.RateLimited),
    "429-nonsense": (429, {"retry-after": "soon"}, errors.RateLimited),
    "500": (500, {}, errors.ServerError),
    "502": (502, {}, errors.ServerError),
    "503": (503, {}, errors.Overloaded),
    "529": (529, {}, errors.Overloaded),
}
"""Name -> status, headers, and the error that is right for it."""


def fault(name: str) -> Raw:
    """What to put into the model server's script for the fault ``name``."""
    return Raw(FAULTS[name][0])


def status(name: str) -> Reply:
    """What to put into the model server's script for the failure status ``name``."""
    code, headers, _ = STATUSES[name]
    return Reply(status=code, headers=headers, error={"type": "scripted", "message": f"scripted {name}"})
