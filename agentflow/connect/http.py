"""Transport to a server at an address: Streamable HTTP, with bounded, uncompressed bodies."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from agentflow.connect.bounds import MAX_MESSAGE
from agentflow.lib.json_size import MAX_JSON_VALUES

CONNECT_S = 10.0
"""Seconds to establish a connection and to send a request."""


@asynccontextmanager
async def http_streams(url: str, headers: Mapping[str, str]) -> AsyncGenerator[Any]:
    """The two streams of messages from and to the server at ``url``, as the SDK's client takes them."""
    async with (
        httpx2.AsyncClient(
            headers={**headers, "accept-encoding": "identity"},
            # no read time-out: an answer comes when the tool is done, and the call has a time-out of its own
            timeout=httpx2.Timeout(CONNECT_S, read=None),
            event_hooks={"response": [_bound]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


async def _bound(response: httpx2.Response) -> None:
    """Make the body of a response raise an error when it exceeds the limits."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream, events, encoding not in ("", "identity"))


class _Bounded(httpx2.AsyncByteStream):
    """A body of at most :data:`MAX_MESSAGE` bytes; in an event stream, the limit applies to each event."""

    def __init__(self, body: httpx2.AsyncByteStream, events: bool, packed: bool) -> None:
        self._body = body
        self._events = events
        self._packed = packed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._packed:
            raise httpx2.StreamError("the body is compressed, which the request did not allow")
        size = values = 0
        async for piece in self._body:
            if self._events and (b"\n\n" in piece or b"\r\n\r\n" in piece):
                size = values = 0
            size += len(piece)
            values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
            if size > MAX_MESSAGE or values > MAX_JSON_VALUES:
                raise httpx2.StreamError(f"the body has more than {MAX_MESSAGE:,} bytes, or too many values")
            yield piece

    async def aclose(self) -> None:
        await self._body.aclose()


__all__ = ["http_streams"]
