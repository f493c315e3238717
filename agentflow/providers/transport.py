"""The HTTP client under a vendor's SDK client. Import it only when an adapter opens: it loads httpx2.

What we set: pools as large together as the adapter's gate (the SDKs' own allow 1,000 connections, which stalls the loop for
seconds), no redirects, no read time-out (our clocks watch reads), and a cap on the bodies of failures, which the SDKs
read whole before anybody else sees them. The aiohttp transport is used when it is installed: a call costs less there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2

from agentflow.providers.clocks import Clocks

MAX_ERROR_BODY = 1024 * 1024
"""Bytes of a failure's body that are read; the rest is left."""
_KEEPALIVE_S = 30.0
_LANE = 32
"""Connections of one httpx pool. Each request walks its whole pool several times, so a pool of 256 takes most of a second
of CPU to start as many calls; eight pools of 32 do not."""


class _CappedStream(httpx2.AsyncByteStream):
    """A response stream that ends after so many bytes."""

    def __init__(self, inner: Any, limit: int) -> None:
        self._inner = inner
        self._left = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        stream = aiter(self._inner)
        try:
            async for chunk in stream:
                yield chunk[: self._left]
                self._left -= len(chunk)
                if self._left <= 0:
                    return
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _cap_failures(response: httpx2.Response) -> None:
    if response.status_code >= 300:
        response.stream = _CappedStream(response.stream, MAX_ERROR_BODY)


def aiohttp_installed() -> bool:
    """Whether the ``aiohttp`` extra is there."""
    return importlib.util.find_spec("aiohttp") is not None


def http_clients(
    sdk: Any, clocks: Clocks, gate: int, *, transport: Any = None, aiohttp: bool | None = None
) -> tuple[Callable[[], Any], int]:
    """How to make HTTP clients of the SDK module ``sdk``, with its defaults for proxies and certificates and our bounds,
    and how many connections one of them should have.

    ``transport`` replaces the network (a cassette); ``aiohttp`` forces or forbids that transport, None takes it when
    it is installed. The certificates are loaded here, once (some 30 ms); a client more costs half a millisecond then.
    """
    if aiohttp is None:
        aiohttp = aiohttp_installed()
    size = gate if aiohttp or transport is not None else min(gate, _LANE)
    options: dict[str, Any] = {
        "timeout": httpx2.Timeout(None, connect=clocks.connect_s),
        "limits": httpx2.Limits(max_connections=size, max_keepalive_connections=size, keepalive_expiry=_KEEPALIVE_S),
        "follow_redirects": False,
        "event_hooks": {"response": [_cap_failures]},
    }
    if transport is not None:
        return (lambda: httpx2.AsyncClient(transport=transport, **options)), size
    kind = sdk.DefaultAioHttpClient if aiohttp else sdk.DefaultAsyncHttpxClient
    certificates = httpx2.create_ssl_context()
    return (lambda: kind(verify=certificates, **options)), size


def transport_errors(aiohttp: bool | None) -> tuple[type[Exception], ...]:
    """What a broken connection may raise besides the SDK's own errors."""
    import anyio

    found: tuple[type[Exception], ...] = (
        httpx2.RequestError,
        httpx2.StreamError,
        OSError,
        anyio.EndOfStream,
        anyio.BrokenResourceError,
        anyio.ClosedResourceError,
    )
    if aiohttp is not False and aiohttp_installed():
        from aiohttp import ClientError

        found = (*found, ClientError)
    return found


def connect_timeout(error: BaseException | None) -> bool:
    """Whether ``error`` or what caused it is the connect clock running out."""
    while error is not None:
        if isinstance(error, httpx2.ConnectTimeout):
            return True
        error = error.__cause__
    return False


RESPONSE: Any = httpx2.Response
"""What ``client.post(cast_to=...)`` is asked for: the response itself, its body unread."""
