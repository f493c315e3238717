"""One exchange with a model server: sends the call, reads the answer under clocks and size caps."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from agentflow.core.data.errors import AgentflowError, ProviderError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.provider_errors import (
    CallTimeout,
    ConnectionLost,
    ConnectionRefused,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    ProtocolError,
)
from agentflow.providers.clocks import Clocks, Watch
from agentflow.providers.dialects import wire_faults
from agentflow.providers.dialects.decoding import Decoder
from agentflow.providers.dialects.wire import Wire
from agentflow.providers.known_servers import Observed
from agentflow.providers.proxies import PooledClient, proxy_of

MAX_BODY_BYTES = 32 * 1024 * 1024
"""Maximum size of a plain answer."""
MAX_STREAM_BYTES = 64 * 1024 * 1024
"""Maximum size of a whole stream."""
_FAIR_S = 0.005
_DRAIN_S = 0.1
_STALE_TRIES = 5


@frozen
class Sdk:
    """The parts of one SDK that an exchange uses: its exception classes, those of its transport, and arguments of ``post``.

    ``fault`` names the reason why a request was not answered; see
    :func:`agentflow.providers.transport.connection_fault`.
    """

    status: type[Exception]
    base: type[Exception]
    transport: tuple[type[Exception], ...]
    fault: Callable[[BaseException], str]
    response: Any
    stream: Any


# Bytes below the SDK's event models: a typed object per chunk costs five times as much (decision 6)
class HttpCall:
    """One model call in progress: the request, its deadline, and the state of the answer."""

    __slots__ = (
        "body",
        "clocks",
        "deadline",
        "decoder",
        "fields",
        "headers",
        "heard",
        "loop",
        "path",
        "provider",
        "request",
        "request_id",
        "status",
        "streaming",
        "waits_since",
        "watch",
        "wire",
    )

    def __init__(self, request: ModelRequest, clocks: Clocks, provider: str, wire: Wire) -> None:
        self.request = request
        self.provider = provider
        self.clocks = clocks
        self.wire = wire
        self.loop = asyncio.get_running_loop()
        wall = request.timeout_s if request.timeout_s is not None else clocks.wall_s
        now = self.loop.time()
        self.deadline = None if wall is None else now + wall
        # The consumer's time does not count, but not without limit: at twice its time a call is over.
        self.watch = Watch(
            None if wall is None else now + 2 * wall, None if clocks.idle_s is None else now + clocks.idle_s
        )
        self.streaming = request.stream
        self.path = ""
        self.body = b""
        self.fields: frozenset[str] = frozenset()
        self.headers: dict[str, str] = {}
        self.decoder: Decoder | None = None
        self.request_id: str | None = None
        self.status: int | None = None
        self.waits_since: tuple[float, float | None] | None = None
        self.heard: Observed | None = None

    def wait_while_heard(self, server: Observed) -> None:
        """Wait for the first event as long as one's own ``server`` sends anything, to whichever call: it answers others first, or it
        is reading this one's prompt."""
        self.heard = server
        first = (self.clocks.first_byte_s if self.streaming else self.clocks.plain_first_byte_s) or 0.0
        self.watch.later = lambda: min(server.heard + first, math.inf if self.deadline is None else self.deadline)

    def pause(self) -> None:
        """Stop the clocks while the call waits to start."""
        self.waits_since = (self.loop.time(), self.watch.end)
        self.watch.end = None

    def go_on(self) -> None:
        """Restart the clocks after :meth:`pause`; the deadline moves by the time paused."""
        assert self.waits_since is not None
        since, end = self.waits_since
        waited = self.loop.time() - since
        self.watch.end = None if end is None else end + waited
        if self.deadline is not None:
            self.deadline += waited

    def due(self, *waits: float | None) -> float | None:
        """Loop time after the sum of ``waits`` (None: unbounded), or the call's deadline if that comes first."""
        if None in waits:
            return self.deadline
        at = self.loop.time() + sum(wait or 0.0 for wait in waits)
        return at if self.deadline is None or at < self.deadline else self.deadline

    @property
    def remaining(self) -> float | None:
        """Seconds left for the whole call."""
        return None if self.deadline is None else self.deadline - self.loop.time()

    def resume(self, paused: float) -> None:
        """Exclude the time since loop time ``paused``, when the consumer was running, from the call's deadline."""
        if self.deadline is not None:
            self.deadline += self.loop.time() - paused

    def timed_out(self, otherwise: type[ProviderError], what: str) -> ProviderError:
        """The error for an expired clock: WallTimeout if it was the call's own, else ``otherwise`` with the message ``what``."""
        if self.watch.over or (self.deadline is not None and self.loop.time() >= self.deadline):
            return CallTimeout(
                "the model call took longer than its time limit", hint="raise timeout_s or Clocks(wall_s=...)"
            )
        return otherwise(what)


class ResponseBody:
    """Reads a response body in chunks, under the clocks and size caps."""

    __slots__ = ("_call", "_due", "_fair", "_first", "_iterator", "_left", "_sdk", "headers", "response")

    def __init__(self, response: Any, call: HttpCall, sdk: Sdk) -> None:
        self.response = response
        self.headers = plain_headers(response)
        call.status = response.status_code
        call.request_id = _request_id(self.headers)
        self._call = call
        self._sdk = sdk
        self._left = MAX_STREAM_BYTES if call.streaming else MAX_BODY_BYTES
        self._iterator: AsyncIterator[bytes] = response.aiter_raw()
        self._first = True
        clocks = call.clocks
        self._due = call.due(clocks.first_byte_s if call.streaming else clocks.plain_first_byte_s)
        self._fair = call.loop.time()

    def bound(self, limit: int) -> None:
        """Accept at most ``limit`` more bytes."""
        self._left = min(self._left, limit)

    def progress(self) -> None:
        """Restart the idle clock: something other than a ping arrived."""
        self._call.watch.later = None
        self._due = self._call.due(self._call.clocks.idle_s)

    @property
    def framed(self) -> bool:
        """Whether the body's end is marked by its length or a last chunk, so that a truncated body is detected."""
        return (
            b"content-length" in self.headers
            or b"chunked" in self.headers.get(b"transfer-encoding", b"").lower()
            or self.response.http_version == "HTTP/2"
        )

    async def opening(self) -> bytes:
        """The first non-blank chunk, empty if there is none: servers send line feeds to keep a call alive."""
        while chunk := await self.read():
            if not chunk.isspace():
                return chunk
        return b""

    async def read(self) -> bytes:
        """The next chunk, empty at the end. Raises ProviderError: a clock, a cap, or a broken connection."""
        call = self._call
        watch = call.watch
        if call.loop.time() - self._fair > _FAIR_S:
            # A server faster than we read never makes us wait, so other tasks would not run.
            await asyncio.sleep(0)
            self._fair = call.loop.time()
        watch.arm(self._due)
        try:
            chunk = await anext(self._iterator)
        except StopAsyncIteration:
            return b""
        except asyncio.CancelledError:
            if watch.expired():
                kind = FirstByteTimeout if self._first or watch.later is not None else IdleTimeout
                raise call.timed_out(kind, "the model sent nothing in time") from None
            raise
        except self._sdk.transport as error:
            raise ConnectionLost(f"the connection broke while the model answered: {describe(error)}") from error
        except ValueError as error:
            raise ProtocolError(f"the body cannot be decoded: {describe(error)}") from error
        finally:
            watch.disarm()
        if call.heard is not None:
            call.heard.heard = call.loop.time()
        elif self._first:
            self.progress()
        self._first = False
        self._left -= len(chunk)
        if self._left < 0:
            raise ProtocolError(
                "the server sent more data than any answer of a model has",
                code="provider/too-large",
                hint="check the base URL",
            )
        return chunk

    async def drain(self) -> None:
        """Read briefly past the terminal event, so that the connection can be reused."""
        watch = self._call.watch
        watch.arm(self._call.loop.time() + _DRAIN_S)
        try:
            async for _ in self._iterator:
                pass
        except asyncio.CancelledError:
            if not watch.expired():
                raise
        except (*self._sdk.transport, ValueError):
            pass  # The answer is complete; the pool notices the lost connection.
        finally:
            watch.disarm()

    async def aclose(self) -> None:
        """Release the connection, or close it if the body was not read to its end."""
        try:
            await self._iterator.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            await self.response.aclose()
        except self._sdk.transport:
            pass  # It broke earlier, and that was reported then.


async def send(client: PooledClient, sdk: Sdk, call: HttpCall) -> ResponseBody:
    """Send a call and return the response, its body unread. Raises ProviderError, for error statuses too."""
    clocks, watch = call.clocks, call.watch
    first = clocks.first_byte_s if call.streaming else clocks.plain_first_byte_s
    watch.arm(call.due(clocks.connect_s, first))
    try:
        response = await _post(client, sdk, call)
    except asyncio.CancelledError:
        if watch.expired():
            raise call.timed_out(FirstByteTimeout, "the model did not answer in time") from None
        raise
    except sdk.status as error:
        raise _status_error(error, call) from None
    except (sdk.base, *sdk.transport, ExceptionGroup) as error:
        if (own := _own_error(error)) is not None:
            raise own from None
        raise _connection_error(error, sdk.fault(error), client.base_url) from error
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the answer cannot be read: {describe(error)}") from error
    finally:
        watch.disarm()
    return ResponseBody(response, call, sdk)


async def _post(client: PooledClient, sdk: Sdk, call: HttpCall) -> Any:
    """Send the request; repeat it for each pooled connection that turns out to have been closed by the server.

    Some servers close connections that they promised to keep (llama.cpp after each stream), and the aiohttp transport
    notices only when it writes.
    """
    options: dict[str, Any] = {"headers": call.headers} if call.headers else {}
    tries = _STALE_TRIES
    while True:
        try:
            if not call.body:  # a question about the server, at an address of its own
                return await client.client.get(
                    call.path, cast_to=sdk.response, options=options, stream=True, stream_cls=sdk.stream
                )
            return await client.client.post(
                client.base_url + call.path,  # Absolute, so that the SDK need not parse its base URL on every call.
                cast_to=sdk.response,
                content=call.body,
                options=options,
                stream=True,
                stream_cls=sdk.stream,
            )
        except sdk.base as error:
            tries -= 1
            if not tries or sdk.fault(error) != "stale":
                raise


def _status_error(error: Any, call: HttpCall) -> ProviderError:
    call.status = int(error.status_code)
    call.request_id = _request_id(plain_headers(error.response))
    return wire_faults.from_status(
        call.status,
        error.body,
        error.response.headers,
        provider=call.provider,
        model=call.request.model,
        request_id=call.request_id,
    )


def _connection_error(error: Exception, fault: str, url: str) -> ProviderError:
    if (proxy := proxy_of(url)) is not None and fault in ("proxy", "connect_timeout", "refused", "unknown_host"):
        kind = ConnectTimeout if fault == "connect_timeout" else ConnectionRefused
        said = "no connection in time" if fault == "connect_timeout" else describe(error)
        return kind(
            f"{url} is asked through {proxy}, which failed: {said}",
            hint=f"correct or unset {proxy.variable}, or name the server's host in NO_PROXY",
        )
    match fault:
        case "connect_timeout":
            return ConnectTimeout(f"no connection to {url} in time")
        case "read_timeout":
            return FirstByteTimeout("the model did not answer in time")
        case "refused":
            return ConnectionRefused(
                f"the connection to {url} was refused: no server listens there",
                hint="start the server, or check the port in the base URL",
            )
        case "unknown_host":
            return ConnectionRefused(
                f"no connection to {url}: its host name has no address ({describe(error)})",
                hint="check the host in the base URL, and the network",
            )
        case _:
            return ConnectionLost(f"the connection to {url} was lost before the answer: {describe(error)}")


def plain_headers(response: Any) -> dict[bytes, bytes]:
    """A response's headers, names in lower case: each look-up in httpx2's own mapping scans and decodes all of them."""
    headers: dict[bytes, bytes] = {}
    for raw, value in response.headers.raw:
        name = raw.lower()
        headers[name] = headers[name] + b", " + value if name in headers else value
    return headers


def _request_id(headers: dict[bytes, bytes]) -> str | None:
    text = headers.get(b"request-id") or headers.get(b"x-request-id")
    return text.decode("latin-1") if text else None


def _own_error(error: BaseException | None) -> AgentflowError | None:
    """An agentflow error wrapped by an SDK: from a cassette, or from the guard against network use."""
    while error is not None:
        if isinstance(error, AgentflowError):
            return error
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return next((own for inner in group.exceptions if (own := _own_error(inner)) is not None), None)
        error = error.__cause__
    return None


async def read_whole(answer: ResponseBody, opening: bytes) -> bytes:
    """The whole body; ``opening`` is the part already read."""
    answer.bound(MAX_BODY_BYTES - len(opening))
    pieces = [opening]
    while chunk := await answer.read():
        pieces.append(chunk)
        answer.progress()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def is_event_stream(answer: ResponseBody, opening: bytes, streaming: bool) -> bool:
    """Whether a body is an event stream rather than JSON.

    Servers send either form regardless of the request, and mislabel it too: the first bytes decide, and the content type
    only if they do not. Raises ProtocolError for a web page.
    """
    if opening.startswith((b"{", b"[")):
        return False
    kind = answer.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
    if kind == "text/event-stream" and opening.startswith((b"data: ", b"event: ")):
        return True
    first = opening.removeprefix(b"\xef\xbb\xbf").lstrip()
    if first.startswith((b"{", b"[")):
        return False
    if kind == "text/html" or first[:1] == b"<" or (first and not kind.endswith("json") and not _like_events(first)):
        raise ProtocolError(
            f"the server answered with {clip(kind, 100) or 'text'} where JSON or an event stream was expected",
            code="provider/not-a-model",
            hint="check the base URL; a proxy's page looks like this",
        )
    return _like_events(first) or kind == "text/event-stream" or (not first and streaming and not kind)


def _like_events(first: bytes) -> bool:
    """Whether a body may be an event stream: it starts with a field, a comment, or part of a field's name."""
    fields = (b":", b"data:", b"event:", b"id:", b"retry:")
    return first != b"" and any(first.startswith(field) or field.startswith(first) for field in fields)


def describe(error: BaseException) -> str:
    """The innermost cause as type and message: SDK errors only say that there was one."""
    while (inner := error.__cause__ or next(iter(error.args), None)) and isinstance(inner, BaseException):
        error = inner
    return clip(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 300)
