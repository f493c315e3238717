"""Transport to a server at an address: Streamable HTTP, with bounded, uncompressed bodies."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND

from agentflow.connect.depth import readable, readable_event
from agentflow.connect.oauth import Challenge, challenge_of, digest_of
from agentflow.connect.size_limits import MAX_MESSAGE
from agentflow.lib.schema.json_types import MAX_JSON_VALUES

_HANDSHAKE = (b'"initialize"', b'"server/discover"')
_END = re.compile(rb"(?:\r\n|\n|\r(?!\n))(?:\r\n|\n|\r(?!\n))")
"""The empty line that ends an event."""
_LONGEST_END = 4
CHALLENGE = "agentflow/challenge"
"""The key, in the data of an error, of the refusal that it stands for."""
TERMINATED = "Session terminated"
"""The SDK's words for a session that the server does not know any more."""
CONNECT_S = 10.0
"""Seconds to establish a connection, to send a message, and until one is acknowledged that has no answer."""


@asynccontextmanager
async def http_streams(url: str, headers: Mapping[str, str], auth: httpx2.Auth | None) -> AsyncGenerator[Any]:
    """The two streams of messages from and to the server at ``url``, as the SDK's client takes them; ``auth`` sends a user's token."""
    async with (
        httpx2.AsyncClient(
            headers={**headers, "accept-encoding": "identity"},
            auth=auth,
            timeout=httpx2.Timeout(CONNECT_S),
            event_hooks={"request": [_let_calls_wait], "response": [_bound, _say_expired]},
        ) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=MAX_MESSAGE) as streams,
    ):
        yield streams


async def _let_calls_wait(request: httpx2.Request) -> None:
    """Remove the read time-out of a request of the protocol, and of the stream for messages of the server.

    A request is answered when the tool is done, and its call has a time-out of its own. Nothing else does: the SDK sends one
    message after the other, so all of them would wait behind a notification that is never acknowledged.
    """
    if request.method == "GET" or (request.method == "POST" and _is_answered(request.content)):
        request.extensions["timeout"] = {**request.extensions["timeout"], "read": None}


def _is_answered(content: bytes) -> bool:
    """Whether a message of ours is a request, and not a notification or an answer."""
    message: Any = json.loads(content)
    return "id" in message and "method" in message


async def _bound(response: httpx2.Response) -> None:
    """Make the body of a response raise an error when it exceeds the limits."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    events = response.headers.get("content-type", "").lower().startswith("text/event-stream")
    if isinstance(response.stream, httpx2.AsyncByteStream):
        response.stream = _Bounded(response.stream, events, encoding not in ("", "identity"))


async def _say_expired(response: httpx2.Response) -> None:
    """Replace the body of a response that refuses a session, or gives no reason, with an error that says so.

    The SDK passes on the error of a body, but not the status: a restarted server would look like one with a failed tool.
    """
    body = response.stream
    if response.status_code < 400 or response.request.method != "POST" or not isinstance(body, _Bounded):
        return
    content = b""
    with suppress(httpx2.StreamError, httpx2.HTTPError, TimeoutError):  # an unreadable body says nothing
        async with asyncio.timeout(CONNECT_S):
            content = b"".join([piece async for piece in body])
    await body.aclose()
    error = _error_of(content)
    if _is_expired(response, error, content):
        error = {"code": INVALID_REQUEST, "message": TERMINATED}
    elif error is None and response.status_code != 404:  # which before a session means an unknown method
        error = {"code": INTERNAL_ERROR, "message": f"HTTP {response.status_code} {response.reason_phrase}".rstrip()}
    challenge = _challenge_in(response)
    if challenge is not None:
        error = {"code": INTERNAL_ERROR, "message": "", **(error or {}), "data": {CHALLENGE: challenge}}
    if error is not None:
        content = json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode()
        response.headers["content-type"] = "application/json"
    response.stream = httpx2.ByteStream(content)


def _challenge_in(response: httpx2.Response) -> dict[str, Any] | None:
    """The data that :func:`challenged` reads a challenge from; None for any other response."""
    if response.status_code not in (401, 403):
        return None
    token = response.request.headers.get("authorization", "").removeprefix("Bearer ")
    refused = digest_of(token) if token else ""
    return {"status": response.status_code, "header": response.headers.get("www-authenticate"), "token": refused}


def challenged(error: MCPError) -> Challenge | None:
    """The challenge in the error of a request; None for any other error."""
    data: Any = error.error.data
    stated: Any = cast("dict[str, Any]", data).get(CHALLENGE) if isinstance(data, dict) else None
    if not isinstance(stated, dict):
        return None
    read = cast("dict[str, Any]", stated)
    status, header, token = read.get("status"), read.get("header"), read.get("token")
    if not isinstance(status, int) or not isinstance(token, str) or not isinstance(header, str | None):
        return None  # an error of the server's own making
    return challenge_of(status, header, token)


def _error_of(content: bytes) -> dict[str, Any] | None:
    """The JSON-RPC error in a body; None for any other body."""
    try:
        message: Any = json.loads(content)
        error = message["error"]
        return error if isinstance(error["code"], int) and isinstance(error["message"], str) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def _is_expired(response: httpx2.Response, error: Mapping[str, Any] | None, content: bytes) -> bool:
    """Whether a request was refused because its session, or the credential of an open connection, has become invalid."""
    code = None if error is None else error["code"]
    in_session = "mcp-session-id" in response.request.headers
    match response.status_code:
        case 401:
            return in_session or not any([method in response.request.content for method in _HANDSHAKE])
        case 404 | 410:
            return in_session and code != METHOD_NOT_FOUND
        case 400:
            return in_session and code not in (INVALID_PARAMS, METHOD_NOT_FOUND) and b"session" in content.lower()
        case _:
            return False


class _Bounded(httpx2.AsyncByteStream):
    """A body of at most :data:`MAX_MESSAGE` bytes, in an event stream each event, that the SDK's parser can read.

    It comes in whole messages: a body at its end, an event at its end.
    """

    def __init__(self, body: httpx2.AsyncByteStream, events: bool, packed: bool) -> None:
        self._body = body
        self._events = events
        self._packed = packed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._packed:
            raise httpx2.StreamError("the body is compressed, which the request did not allow")
        held = bytearray()
        values = 0
        async for piece in self._body:
            searched = max(len(held) - _LONGEST_END, 0)
            held += piece
            for event in self._taken(held, searched):
                yield event
                values = 0
            values += piece.count(b",") + piece.count(b"[") + piece.count(b"{")
            if len(held) > MAX_MESSAGE or values > MAX_JSON_VALUES:
                raise httpx2.StreamError(f"the body has more than {MAX_MESSAGE:,} bytes, or too many values")
        if held:
            yield bytes(held) if self._events else readable(bytes(held))

    def _taken(self, held: bytearray, searched: int) -> Iterator[bytes]:
        """The whole events in ``held``, which are removed from it; the end of none lies before ``searched``."""
        start = 0
        if self._events:
            for end in _END.finditer(bytes(held[searched:])):
                event = bytes(held[start : searched + end.end()])
                start = searched + end.end()
                yield readable_event(event)
        del held[:start]

    async def aclose(self) -> None:
        await self._body.aclose()
