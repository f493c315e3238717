"""Loopback servers that speak as the clouds do: they check a request's signature, and answer in the cloud's framing.

SigV4 is recomputed here from its specification, frames are built here byte by byte: nothing of botocore's is used.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import zlib
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

EVENTS: list[dict[str, Any]] = [
    {
        "type": "message_start",
        "message": {"id": "m1", "model": "claude", "role": "assistant", "content": [], "usage": {"input_tokens": 12, "output_tokens": 1}},
    },
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Par"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "is"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 3}},
    {"type": "message_stop"},
]  # fmt: skip
MESSAGE = {
    "id": "m1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "Paris"}], "usage": {"input_tokens": 12, "output_tokens": 3},
}  # fmt: skip


def frame(payload: bytes, **headers: str) -> bytes:
    """An AWS event frame."""
    block = b""
    for name, value in headers.items():
        key, data = f":{name.replace('_', '-')}".encode(), value.encode()
        block += bytes([len(key)]) + key + b"\x07" + len(data).to_bytes(2, "big") + data
    prelude = (16 + len(block) + len(payload)).to_bytes(4, "big") + len(block).to_bytes(4, "big")
    prelude += zlib.crc32(prelude).to_bytes(4, "big")
    body = prelude + block + payload
    return body + zlib.crc32(body).to_bytes(4, "big")


def chunk(event: Mapping[str, Any]) -> bytes:
    """A model's event as Bedrock frames it."""
    payload = json.dumps({"bytes": base64.b64encode(json.dumps(event).encode()).decode(), "p": "abcd"}).encode()
    return frame(payload, event_type="chunk", content_type="application/json", message_type="event")


def frames() -> bytes:
    """A whole answer in frames."""
    return b"".join(map(chunk, EVENTS))


def sse() -> bytes:
    """The same as server-sent events."""
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in EVENTS)


def signature(secret: str, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
    """The signature that a request should have, by the rules of Signature Version 4."""
    _, _, terms = headers["authorization"].partition(" ")
    parts = dict(each.strip().split("=", 1) for each in terms.split(","))
    _, date, region, service, _ = parts["Credential"].split("/")
    signed = parts["SignedHeaders"]
    lines = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in signed.split(";"))
    digest = hashlib.sha256(body).hexdigest()
    request = "\n".join([method, quote(path, safe="/-_.~"), "", lines, signed, digest])
    scope = f"{date}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", headers["x-amz-date"], scope, hashlib.sha256(request.encode()).hexdigest()])
    key = b"AWS4" + secret.encode()
    for each in (date, region, service, "aws4_request"):
        key = hmac.new(key, each.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


@dataclass
class Asked:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    data: bytes

    @property
    def body(self) -> dict[str, Any]:
        """Its JSON body."""
        return json.loads(self.data)


@dataclass
class CloudServer:
    """``answer`` gives status, content type and body of each request; ``pieces`` is how many bytes are sent at a time."""

    answer: Callable[[Asked], tuple[int, str, bytes]]
    pieces: int = 7
    url: str = ""
    asked: list[Asked] = field(default_factory=list[Asked])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines if each)}
        data = await reader.readexactly(int(headers.get("content-length", "0")))
        request = Asked(method, path, headers, data)
        self.asked.append(request)
        status, kind, body = self.answer(request)
        writer.write(
            f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n".encode()
        )
        for at in range(0, len(body), self.pieces):
            piece = body[at : at + self.pieces]
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def cloud_server(
    answer: Callable[[Asked], tuple[int, str, bytes]], pieces: int = 7
) -> AsyncGenerator[CloudServer, None]:
    """A server on the loopback address."""
    server = CloudServer(answer, pieces)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    async with listening:
        yield server
