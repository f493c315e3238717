"""What the HTTP dialects share: one call with its attempts, clocks, caps and the gate in front of the server.

The request goes out through the vendor SDK client's public low-level ``post`` (authentication, proxies, connection
pool), the body as bytes we wrote and the answer as bytes we read: the SDKs' typed requests walk the whole history on
every call and their typed events cost several times what reading the JSON does.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

from agentflow.core.errors import (
    AgentflowError,
    CallTimeout,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    FirstByteTimeout,
    IdleTimeout,
    ProtocolError,
    ProviderError,
    clip,
)
from agentflow.core.messages import Attempt, ModelDelta, ModelProfile, ModelRequest, ModelResponse
from agentflow.providers import faults
from agentflow.providers.clocks import Clocks, Watch
from agentflow.providers.lanes import Lane, Lanes, Turns
from agentflow.providers.prices import Prices
from agentflow.providers.retry import RetryPolicy
from agentflow.providers.sse import SseParser
from agentflow.providers.wire import Decoder, ToolNames, dump_json, estimate_tokens, parse_json

DEFAULT_GATE = 256
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Largest plain answer."""
MAX_STREAM_BYTES = 64 * 1024 * 1024
"""Largest stream in all."""
_PING_SIZE = 1_024
_FAIR_S = 0.005
_DRAIN_S = 0.1


@dataclass(frozen=True, slots=True)
class SdkErrors:
    """The exception classes of one SDK, and those of its transport."""

    status: type[Exception]
    timeout: type[Exception]
    base: type[Exception]
    transport: tuple[type[Exception], ...]
    connect_timeout: Any
    response: Any
    stream: Any


@dataclass(frozen=True, slots=True)
class Opened:
    """What belongs to one event loop: SDK clients, their errors and the gate."""

    loop: asyncio.AbstractEventLoop
    lanes: Lanes
    errors: SdkErrors
    gate: asyncio.Semaphore
    turns: Turns


class Call:
    """One model call in progress: what is sent, by when it must end, and what is known of the answer so far."""

    __slots__ = (
        "body",
        "clocks",
        "deadline",
        "decoder",
        "headers",
        "loop",
        "names",
        "path",
        "request",
        "request_id",
        "status",
        "streaming",
        "watch",
    )

    def __init__(self, request: ModelRequest, clocks: Clocks) -> None:
        self.request = request
        self.clocks = clocks
        self.names = ToolNames(request)
        self.loop = asyncio.get_running_loop()
        self.watch = Watch()
        wall = request.timeout_s if request.timeout_s is not None else clocks.wall_s
        self.deadline = None if wall is None else self.loop.time() + wall
        self.streaming = request.stream
        self.path = ""
        self.body = b""
        self.headers: dict[str, str] = {}
        self.decoder: Decoder | None = None
        self.request_id: str | None = None
        self.status: int | None = None

    def due(self, *waits: float | None) -> float | None:
        """Loop time after the sum of ``waits`` (None: unbounded), or the call's deadline if that comes first."""
        if None in waits:
            return self.deadline
        at = self.loop.time() + sum(wait or 0.0 for wait in waits)
        return at if self.deadline is None or at < self.deadline else self.deadline

    @property
    def remaining(self) -> float | None:
        """Seconds left of the whole call."""
        return None if self.deadline is None else self.deadline - self.loop.time()

    def resume(self, paused: float) -> None:
        """The consumer had what came since loop time ``paused``: that time is not the provider's."""
        if self.deadline is not None:
            self.deadline += self.loop.time() - paused

    def timed_out(self, otherwise: type[ProviderError], what: str) -> ProviderError:
        """The error of the clock that ran out: the wall clock, or the one that was being watched."""
        if self.deadline is not None and self.loop.time() >= self.deadline:
            return CallTimeout(
                "the model call took longer than its time limit", hint="raise timeout_s or Clocks(wall_s=...)"
            )
        return otherwise(what)


class Answer:
    """A response body read chunk by chunk under the clocks and caps."""

    __slots__ = ("_call", "_due", "_errors", "_fair", "_first", "_iterator", "_left", "response")

    def __init__(self, response: Any, call: Call, errors: SdkErrors, limit: int) -> None:
        self.response = response
        self._call = call
        self._errors = errors
        self._left = limit
        encoded = response.headers.get("content-encoding", "identity") != "identity"
        self._iterator: AsyncIterator[bytes] = response.aiter_bytes() if encoded else response.aiter_raw()
        self._first = True
        clocks = call.clocks
        self._due = call.due(clocks.first_byte_s if call.streaming else clocks.plain_first_byte_s)
        self._fair = call.loop.time()

    def progress(self) -> None:
        """Something other than a ping came: the idle clock starts anew."""
        self._due = self._call.due(self._call.clocks.idle_s)

    async def read(self) -> bytes:
        """The next chunk, empty at the end. Raises ProviderError: a clock, a cap, or a broken connection."""
        call = self._call
        watch = call.watch
        if call.loop.time() - self._fair > _FAIR_S:
            # A server faster than we read never makes us wait, and others would not get the loop.
            await asyncio.sleep(0)
            self._fair = call.loop.time()
        watch.arm(self._due)
        try:
            chunk = await anext(self._iterator)
        except StopAsyncIteration:
            return b""
        except asyncio.CancelledError:
            if watch.expired():
                kind = FirstByteTimeout if self._first else IdleTimeout
                raise call.timed_out(kind, "the model sent nothing in time") from None
            raise
        except self._errors.transport as error:
            raise ConnectionLost(f"the connection broke while the model answered: {_said(error)}") from error
        except ValueError as error:
            raise ProtocolError(f"the body cannot be decoded: {_said(error)}") from error
        finally:
            watch.disarm()
        if self._first:
            self._first = False
            self.progress()
        self._left -= len(chunk)
        if self._left < 0:
            raise ProtocolError(
                "the server sent more than a model's answer can be",
                code="provider/too-large",
                hint="check what the base URL points to",
            )
        return chunk

    async def drain(self) -> None:
        """Read what follows the terminal event, briefly, so that the connection can be used again."""
        watch = self._call.watch
        watch.arm(self._call.loop.time() + _DRAIN_S)
        try:
            async for _ in self._iterator:
                pass
        except asyncio.CancelledError:
            if not watch.expired():
                raise
        except (*self._errors.transport, ValueError):
            pass  # The answer is complete; only the connection is lost, and the pool notices by itself.
        finally:
            watch.disarm()

    async def aclose(self) -> None:
        """Give the connection back, or close it when the body was not read to its end."""
        try:
            await self._iterator.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
            await self.response.aclose()
        except self._errors.transport:
            pass  # It broke before; that has been reported where it mattered.


class HttpAdapter(ABC):
    """A provider spoken to over HTTP through its SDK's client. Implements ``ProviderAdapter``.

    Parameters: ``base_url`` and ``api_key`` (else the SDK's environment variables); ``clocks``, ``retry``; ``gate`` the
    most calls in flight at once, which is also the size of the connection pool; ``prices`` for costs; ``settings`` native
    request fields of every call; ``transport`` an httpx2 transport instead of the network; ``aiohttp`` forces or forbids
    that transport (None: used when installed); ``name`` what errors and events call the provider.
    """

    dialect: ClassVar[str]
    provider: ClassVar[str]

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        clocks: Clocks | None = None,
        retry: RetryPolicy | None = None,
        gate: int = DEFAULT_GATE,
        prices: Prices | None = None,
        settings: dict[str, Any] | None = None,
        transport: Any = None,
        aiohttp: bool | None = None,
        name: str | None = None,
    ) -> None:
        if gate < 1:
            raise ConfigurationError(f"gate={gate!r}: at least one call must be allowed", code="config/gate")
        self.name = name or self.provider
        self._base_url = base_url
        self._api_key = api_key
        self._clocks = clocks or Clocks()
        self._retry = retry or RetryPolicy()
        self._gate_size = gate
        self._prices = prices or Prices()
        self._settings = settings or {}
        self._transport = transport
        self._aiohttp = aiohttp
        self._opened: Opened | None = None
        self._opening: asyncio.Lock | None = None

    @abstractmethod
    def profile(self, model: str) -> ModelProfile:
        """What is known of ``model``."""

    @abstractmethod
    def _open(self) -> tuple[Lanes, SdkErrors]:
        """Build the first SDK client and the error table. Blocks for the imports and certificates; runs on a worker thread."""

    @abstractmethod
    def _encode(self, request: ModelRequest, names: ToolNames, streaming: bool) -> tuple[str, dict[str, Any]]:
        """Path and JSON body."""

    @abstractmethod
    def _decoder(self, call: Call) -> Decoder:
        """A fresh reader of one answer."""

    def _plain(self, request: ModelRequest) -> bool:
        """Whether a plain request may serve where nobody watches."""
        return True

    def _merged(self, data: dict[str, Any], request: ModelRequest, headers: dict[str, str]) -> dict[str, Any]:
        """The body with the native settings merged over it; ``extra_headers`` among them become headers."""
        settings = {**self._settings, **request.settings} if self._settings else request.settings
        if settings:
            extra = settings.get("extra_headers")
            if extra is not None:
                settings = {key: value for key, value in settings.items() if key != "extra_headers"}
                headers.update(extra)
            data = {**data, **settings}
        return data

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call; see :class:`agentflow.core.ports.ProviderAdapter`."""
        opened = await self._ready()
        call = Call(request, self._clocks)
        call.streaming = request.stream or not self._plain(request)
        call.path, data = self._encode(request, call.names, call.streaming)
        if request.idempotency_key:
            call.headers["Idempotency-Key"] = request.idempotency_key
        call.body = dump_json(self._merged(data, request, call.headers))
        number = 0
        try:
            while True:
                number += 1
                delivered = False
                attempt = Attempt(number, self.name, request.model)
                yield ModelDelta(attempt=attempt)
                try:
                    async with aclosing(self._attempt(opened, call)) as batches:
                        async for batch in batches:
                            for delta in batch:
                                if delta.response is not None:
                                    yield ModelDelta(attempt=self._ended(attempt, call))
                                delivered = True
                                yield delta
                    return
                except ProviderError as error:
                    self._complete(error, call, number)
                    wait = None if delivered else self._retry.wait(error, number, call.remaining)
                    yield ModelDelta(attempt=self._ended(attempt, call, error, wait))
                    if wait is None:
                        raise
                await asyncio.sleep(wait)
        finally:
            call.watch.close()

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens ``request`` would use; here by rule of thumb (four bytes a token)."""
        return estimate_tokens(request)

    async def _count(self, request: ModelRequest, path: str, fields: tuple[str, ...]) -> int:
        """``input_tokens`` of a counting endpoint taking ``fields`` of the body; an estimate where there is none."""
        opened = await self._ready()
        call = Call(replace(request, stream=False), self._clocks)
        call.path, data = path, self._encode(request, call.names, False)[1]
        body = self._merged(data, request, call.headers)
        call.body = dump_json({name: body[name] for name in fields if name in body})
        try:
            await self._pass_gate(opened, call)
            lane = opened.lanes.take()
            try:
                answer = await self._send(lane, opened.errors, call)
                try:
                    return int(parse_json(await read_whole(answer), "a token count")["input_tokens"])
                finally:
                    await answer.aclose()
            finally:
                lane.active -= 1
                opened.gate.release()
        except ProviderError as error:
            if error.status in (404, 405, 501):
                return estimate_tokens(request)
            self._complete(error, call, 1)
            raise
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the token count has not the expected shape", code="provider/bad-event") from None
        finally:
            call.watch.close()

    async def aclose(self) -> None:
        """Close connections. The adapter opens again when it is used again."""
        opened, self._opened = self._opened, None
        if opened is not None and opened.loop is asyncio.get_running_loop():
            await opened.lanes.aclose()

    async def _ready(self) -> Opened:
        opened = self._opened
        loop = asyncio.get_running_loop()
        if opened is not None and opened.loop is loop:
            return opened
        if opened is not None or self._opening is None:
            # A client belongs to the loop it was first used on; another loop gets one of its own.
            self._opening, self._opened = asyncio.Lock(), None
        async with self._opening:
            if self._opened is None:
                lanes, errors = await asyncio.to_thread(self._open)
                self._opened = Opened(loop, lanes, errors, asyncio.Semaphore(self._gate_size), Turns(loop))
            return self._opened

    async def _attempt(self, opened: Opened, call: Call) -> AsyncGenerator[list[ModelDelta], None]:
        """One try: deltas in batches, one batch a chunk of the network's."""
        call.request_id = call.status = None
        call.decoder = decoder = self._decoder(call)
        await self._pass_gate(opened, call)
        lane = opened.lanes.take()
        try:
            answer = await self._send(lane, opened.errors, call)
            try:
                if not self._is_stream(answer.response, call):
                    yield [ModelDelta(response=await self._read_body(answer, call, decoder))]
                    return
                async with aclosing(self._read_events(answer, call, decoder)) as batches:
                    async for batch in batches:
                        yield batch
            finally:
                await answer.aclose()
        finally:
            lane.active -= 1
            opened.gate.release()

    async def _pass_gate(self, opened: Opened, call: Call) -> None:
        call.watch.arm(call.deadline)
        try:
            await opened.gate.acquire()
            try:
                await opened.turns.take()
            except asyncio.CancelledError:
                opened.gate.release()
                raise
        except asyncio.CancelledError:
            if call.watch.expired():
                raise CallTimeout(
                    "the call's time ran out while it waited for its turn at the adapter's gate"
                ) from None
            raise
        finally:
            call.watch.disarm()

    async def _send(self, lane: Lane, errors: SdkErrors, call: Call) -> Answer:
        """The response, its body unread. Raises ProviderError for failures and failure statuses."""
        clocks, watch = call.clocks, call.watch
        first = clocks.first_byte_s if call.streaming else clocks.plain_first_byte_s
        watch.arm(call.due(clocks.connect_s, first))
        options: dict[str, Any] = {"headers": call.headers} if call.headers else {}
        try:
            response = await lane.client.post(
                lane.base_url + call.path,  # Whole, so that the SDK need not take its base URL apart on every call.
                cast_to=errors.response,
                content=call.body,
                options=options,
                stream=True,
                stream_cls=errors.stream,
            )
        except asyncio.CancelledError:
            if watch.expired():
                raise call.timed_out(FirstByteTimeout, "the model did not answer in time") from None
            raise
        except errors.status as error:
            raise self._status_error(error, call) from None
        except errors.timeout as error:
            if errors.connect_timeout(error):
                raise ConnectTimeout(f"no connection to {lane.base_url} in time") from error
            raise FirstByteTimeout("the model did not answer in time") from error
        except (errors.base, *errors.transport, ExceptionGroup) as error:
            if (own := _own_error(error)) is not None:
                raise own from None
            raise ConnectionLost(f"no connection to {lane.base_url}: {_said(error)}") from error
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the answer cannot be read: {_said(error)}") from error
        finally:
            watch.disarm()
        call.status = response.status_code
        call.request_id = _request_id(response)
        return Answer(response, call, errors, MAX_STREAM_BYTES if call.streaming else MAX_BODY_BYTES)

    async def _read_events(
        self, answer: Answer, call: Call, decoder: Decoder
    ) -> AsyncGenerator[list[ModelDelta], None]:
        parser = SseParser()
        begun = False
        while not decoder.done:
            chunk = await answer.read()
            if not chunk:
                break
            batch: list[ModelDelta] = []
            moved = parser.pending > _PING_SIZE
            for name, data in parser.feed(chunk):
                moved = self._decode(decoder, name, data, batch) or moved
                if decoder.done:
                    break
                if batch and not begun:
                    # The first word is waited for; it does not wait for what else came with it.
                    begun = True
                    paused = call.loop.time()
                    yield batch
                    call.resume(paused)
                    batch = []
            if batch:
                paused = call.loop.time()
                yield batch
                call.resume(paused)
            if moved:
                answer.progress()
        response = self._finished(decoder.finish(), call)
        await answer.drain()
        yield [ModelDelta(response=response)]

    def _decode(self, decoder: Decoder, name: bytes, data: bytes, batch: list[ModelDelta]) -> bool:
        try:
            return decoder.event(name, data, batch)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            shown = data[:200].decode("utf-8", "backslashreplace")
            raise ProtocolError(
                f"an event has not the shape {self.dialect} gives it ({_said(error)}): {shown}",
                code="provider/bad-event",
            ) from error

    async def _read_body(self, answer: Answer, call: Call, decoder: Decoder) -> ModelResponse:
        """The answer to a plain request."""
        data = parse_json(await read_whole(answer), "an answer")
        try:
            return self._finished(decoder.body(data), call)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ProtocolError(
                f"the answer has not the shape {self.dialect} gives it ({_said(error)})", code="provider/bad-event"
            ) from error

    def _is_stream(self, response: Any, call: Call) -> bool:
        """Whether the body is an event stream; local servers answer plainly or in a stream whatever was asked."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "text/event-stream":
            return True
        if kind.endswith("json"):
            return False
        if not kind:
            return call.streaming
        raise ProtocolError(
            f"the server answered with {clip(kind, 100)} where JSON or an event stream was expected",
            code="provider/not-a-model",
            hint="check what the base URL points to; a proxy's page looks like this",
        )

    def _finished(self, response: ModelResponse, call: Call) -> ModelResponse:
        """The decoder's response with what only the adapter knows."""
        model = response.model or call.request.model
        return replace(
            response,
            model=model,
            provider=self.name,
            request_id=call.request_id or response.request_id,
            cost_usd=self._prices.cost(self.provider, model, response.usage),
        )

    def _status_error(self, error: Any, call: Call) -> ProviderError:
        call.status = int(error.status_code)
        call.request_id = _request_id(error.response)
        made = faults.from_status(
            call.status,
            error.body,
            error.response.headers,
            provider=self.name,
            model=call.request.model,
            request_id=call.request_id,
        )
        if self._api_key and self._api_key in made.message:
            made.message = made.message.replace(self._api_key, "***")
            made.args = (made.message,)
        return made

    def _complete(self, error: ProviderError, call: Call, number: int) -> None:
        error.attempts = number
        faults.complete(
            error,
            provider=self.name,
            model=call.request.model,
            request_id=call.request_id,
            status=call.status,
            partial=call.decoder.partial if call.decoder is not None else "",
        )

    def _ended(
        self, attempt: Attempt, call: Call, error: ProviderError | None = None, wait: float | None = None
    ) -> Attempt:
        return replace(
            attempt,
            outcome="ok" if error is None else "failed",
            error=error,
            retry_in_s=wait,
            status=call.status,
            request_id=call.request_id,
        )


async def read_whole(answer: Answer) -> bytes:
    """The whole body."""
    pieces: list[bytes] = []
    while chunk := await answer.read():
        pieces.append(chunk)
        answer.progress()
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _request_id(response: Any) -> str | None:
    headers = response.headers
    return headers.get("request-id") or headers.get("x-request-id")


def _own_error(error: BaseException | None) -> AgentflowError | None:
    """The error of ours inside one an SDK wrapped: a cassette's, or the guard's against the network."""
    while error is not None:
        if isinstance(error, AgentflowError):
            return error
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return next((own for inner in group.exceptions if (own := _own_error(inner)) is not None), None)
        error = error.__cause__
    return None


def _said(error: BaseException) -> str:
    """The innermost cause in a few words: SDK errors say no more than that there was one."""
    while error.__cause__ is not None:
        error = error.__cause__
    return clip(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__, 300)
