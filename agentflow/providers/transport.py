"""The HTTP client under a vendor's SDK client. Import it only when an adapter opens: it loads httpx2.

It sets: pools together as large as the adapter's gate (the SDKs' own allow 1,000 connections, which stalls the
loop for seconds), no redirects, no read time-out (our clocks watch reads), no compression (a body compressed anyway is
inflated here, in bounded pieces), and a cap on the bodies of failures, which the SDKs read completely before
anybody else sees them. The aiohttp transport is used if installed, because calls cost less CPU there.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import ssl
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal, TypeVar, cast

import httpx2

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.provider_errors import ProtocolError
from agentflow.providers.clocks import Clocks
from agentflow.providers.exchange import describe, plain_headers
from agentflow.providers.proxies import check_proxies, proxies

T = TypeVar("T")

MAX_ERROR_BODY = 1024 * 1024
"""Bytes read of an error response's body; the rest is ignored."""
_PIECE = 64 * 1024
_KEEPALIVE_S = 30.0
_POOL_SIZE = 32
"""Connections of one httpx pool. Each request walks its whole pool several times, so a pool of 256 takes most of a
second of CPU to start as many calls; eight pools of 32 do not."""


class _InflatedStream(httpx2.AsyncByteStream):
    """The body of a gzip or deflate response, inflated in pieces of at most 64 KiB."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)  # Accepts either header.
        begun = False
        async for chunk in self._inner:
            begun = True
            while chunk:
                try:
                    piece = inflater.decompress(chunk, _PIECE)
                except zlib.error as error:
                    raise _not_inflated(str(error)) from error
                chunk = inflater.unconsumed_tail
                if piece:
                    yield piece
        if begun and not inflater.eof:
            raise _not_inflated("it ends too early")

    async def aclose(self) -> None:
        await self._inner.aclose()


def _not_inflated(why: str) -> ProtocolError:
    return ProtocolError(f"the compressed body cannot be read: {clip(why, 200)}", code="provider/encoding")


class _CappedStream(httpx2.AsyncByteStream):
    """A response stream that ends after ``limit`` bytes."""

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


async def _bound_body(response: httpx2.Response) -> None:
    """Bound the cost of reading a body: inflate it here, and cap the bodies of error responses."""
    encoding = plain_headers(response).get(b"content-encoding", b"").decode("latin-1").strip().lower()
    if encoding in ("gzip", "x-gzip", "deflate"):
        response.stream = _InflatedStream(response.stream)
        del response.headers["content-encoding"]
    elif encoding not in ("identity", ""):
        raise ProtocolError(
            f"the server answered with content-encoding {clip(encoding, 60)}, which was not requested",
            code="provider/encoding",
            hint="look for a proxy that compresses; agentflow asks for identity and can read gzip and deflate",
        )
    if response.status_code >= 300:
        response.stream = _CappedStream(response.stream, MAX_ERROR_BODY)


def aiohttp_installed() -> bool:
    """Whether the ``aiohttp`` extra is installed."""
    return importlib.util.find_spec("aiohttp") is not None


def http_clients(
    sdk: Any, clocks: Clocks, gate: int, *, address: str, transport: Any = None, aiohttp: bool | None = None
) -> tuple[Callable[[], Any], int]:
    """A factory of HTTP clients for the SDK module ``sdk``, and the number of connections of each client.

    The clients have the SDK's defaults for proxies and certificates, and our limits. ``transport`` replaces the network
    (a cassette); ``aiohttp`` forces or forbids the aiohttp transport, None uses it if installed. The certificates are loaded
    here, once (about 30 ms), unless the ``address`` needs none; each client then costs half a millisecond. Raises
    ConfigurationError for proxies (``config/proxy``) and certificates (``config/certificates``) that cannot be used.
    """
    if transport is None and check_proxies(aiohttp=aiohttp):
        aiohttp = False
    if aiohttp is None:
        aiohttp = aiohttp_installed()
    size = gate if aiohttp or transport is not None else min(gate, _POOL_SIZE)
    options: dict[str, Any] = {
        "timeout": httpx2.Timeout(None, connect=clocks.connect_s),
        "limits": httpx2.Limits(max_connections=size, max_keepalive_connections=size, keepalive_expiry=_KEEPALIVE_S),
        "headers": {"accept-encoding": "identity"},
        "follow_redirects": False,
        "event_hooks": {"response": [_bound_body]},
    }
    if transport is not None:
        return (lambda: httpx2.AsyncClient(transport=transport, **options)), size
    kind = sdk.DefaultAioHttpClient if aiohttp else sdk.DefaultAsyncHttpxClient
    certificates = _certificates(address)
    return (lambda: kind(verify=certificates, **options)), size


def _certificates(address: str) -> ssl.SSLContext:
    """The certificates to trust. For a server without TLS none are loaded; a proxy that wanted TLS would then be refused."""
    secure = address.startswith("https:") or any(proxy.url.startswith("https:") for proxy in proxies())
    if not secure:
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        return httpx2.create_ssl_context()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        named = [f"{name}={value}" for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if (value := os.environ.get(name))]
        raise ConfigurationError(
            f"the certificates cannot be loaded: {describe(error)} ({', '.join(named) or 'those of the system'})",
            code="config/certificates",
            hint="let SSL_CERT_FILE name a readable file of certificates in PEM form, or unset it",
        ) from error


def transport_errors(aiohttp: bool | None) -> tuple[type[Exception], ...]:
    """The exceptions of a broken connection, in addition to the SDK's own."""
    import anyio

    errors: tuple[type[Exception], ...] = (
        httpx2.RequestError,
        httpx2.StreamError,
        OSError,
        anyio.EndOfStream,
        anyio.BrokenResourceError,
        anyio.ClosedResourceError,
    )
    if aiohttp is not False and aiohttp_installed():
        from aiohttp import ClientError

        errors = (*errors, ClientError)
    return errors


ConnectionFault = Literal["proxy", "connect_timeout", "read_timeout", "refused", "unknown_host", "stale", "lost"]
"""``stale``: a pooled connection that the server had already closed; it read no part of the request."""


def connection_fault(error: BaseException) -> ConnectionFault:
    """Why a request was not answered, by the innermost causes: the aiohttp transport's outer class misleads."""
    causes = list(_causes(error))
    if any(isinstance(cause, httpx2.ProxyError) for cause in causes):
        return "proxy"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "refused"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "unknown_host"
    if aiohttp_installed():
        from aiohttp import ClientConnectionResetError, ClientError, ClientHttpProxyError, ConnectionTimeoutError

        if any(isinstance(cause, ClientHttpProxyError) for cause in causes):
            return "proxy"
        if any(isinstance(cause, ClientConnectionResetError) for cause in causes):
            return "stale"
        if any(isinstance(cause, ConnectionTimeoutError) for cause in causes):
            return "connect_timeout"
        if any(isinstance(cause, ClientError) and not isinstance(cause, TimeoutError) for cause in causes):
            return "lost"
    if any(isinstance(cause, httpx2.ConnectTimeout) for cause in causes):
        return "connect_timeout"
    return "read_timeout" if any(isinstance(cause, httpx2.TimeoutException) for cause in causes) else "lost"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """``error``, its causes and contexts, and the members of groups."""
    if error is None:
        return
    yield error
    yield from _causes(error.__cause__)
    for wrapped in (getattr(error, "os_error", None), *error.args):
        if isinstance(wrapped, BaseException):
            yield from _causes(wrapped)
    if isinstance(error, BaseExceptionGroup):
        for member in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _causes(member)


def quiet_client(kind: type[T]) -> type[T]:
    """The SDK's client class ``kind`` without the six headers that describe this machine to the server.

    They name its operating system, processor and interpreter. No server needs them, and the SDK merges, checks and writes
    them on each call. ``User-Agent``, which holds the name of the class, still identifies the caller.
    """
    return cast(type[T], type(kind.__name__, (kind,), {"platform_headers": _no_headers}))


def _no_headers(client: object) -> dict[str, str]:
    return {}


RESPONSE: Any = httpx2.Response
"""The argument of ``client.post(cast_to=...)``: the response itself, its body unread."""
