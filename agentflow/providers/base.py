"""The base of the HTTP dialects: makes one call, with attempts, clocks, size caps and a gate on calls in flight.

A request goes out through the public low-level ``post`` of the vendor's SDK client (authentication, proxies, connection
pool). We write the body and read the answer as bytes: the SDKs' typed requests walk the whole history on every call,
and their typed events cost several times as much as parsing the JSON.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypedDict, Unpack, cast

from agentflow.core.errors import (
    AgentflowError,
    CallTimeout,
    ConfigurationError,
    ConnectionLost,
    ConnectTimeout,
    FirstByteTimeout,
    ProtocolError,
    ProviderError,
    clip,
)
from agentflow.core.messages import Attempt, ModelDelta, ModelProfile, ModelRequest, ModelResponse
from agentflow.lib.start_throttle import StartThrottle
from agentflow.providers import faults
from agentflow.providers.client_pool import ClientPool, PooledClient
from agentflow.providers.clocks import Clocks
from agentflow.providers.exchange import Answer, HttpCall, SdkErrors, describe, read_whole
from agentflow.providers.prices import Prices
from agentflow.providers.retry import RetryPolicy
from agentflow.providers.sse import SseParser
from agentflow.providers.wire import Decoder, ToolNames, dump_json, estimate_tokens, parse_json

DEFAULT_GATE = 256
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Maximum size of a plain answer."""
MAX_STREAM_BYTES = 64 * 1024 * 1024
"""Maximum size of a whole stream."""
_PING_SIZE = 1_024


@dataclass(frozen=True, slots=True)
class Opened:
    """The state of an adapter on one event loop: SDK clients, their errors and the gate."""

    loop: asyncio.AbstractEventLoop
    clients: ClientPool
    errors: SdkErrors
    gate: asyncio.Semaphore
    throttle: StartThrottle


class AdapterOptions(TypedDict, total=False):
    """The parameters of :class:`HttpAdapter`, for factories that pass them on."""

    base_url: str | None
    api_key: str | None
    clocks: Clocks | None
    retry: RetryPolicy | None
    gate: int
    prices: Prices | None
    settings: dict[str, Any] | None
    transport: Any
    aiohttp: bool | None
    name: str | None


class HttpAdapter(ABC):
    """An adapter that reaches its provider over HTTP through an SDK client. Implements ``ProviderAdapter``.

    Parameters: ``base_url`` and ``api_key`` (default: the SDK's environment variables); ``clocks``, ``retry``; ``gate``
    the maximum number of calls in flight, also the size of the connection pool; ``prices`` for costs; ``settings``
    native request fields of every call; ``transport`` an httpx2 transport instead of the network; ``aiohttp`` forces or
    forbids the aiohttp transport (None: use it if installed); ``name`` of the provider in errors and events.
    """

    dialect: ClassVar[str]
    provider: ClassVar[str]

    def __init__(self, **options: Unpack[AdapterOptions]) -> None:
        if unknown := set(options) - AdapterOptions.__annotations__.keys():
            raise TypeError(f"{type(self).__name__} takes no {', '.join(sorted(unknown))}")
        gate = options.get("gate", DEFAULT_GATE)
        if gate < 1:
            raise ConfigurationError(f"gate={gate!r}: at least one call must be allowed", code="config/gate")
        self.name = options.get("name") or self.provider
        self._base_url = options.get("base_url")
        self._api_key = options.get("api_key")
        self._clocks = options.get("clocks") or Clocks()
        self._retry = options.get("retry") or RetryPolicy()
        self._gate_size = gate
        self._prices = options.get("prices") or Prices()
        self._settings = options.get("settings") or {}
        self._transport = options.get("transport")
        self._aiohttp = options.get("aiohttp")
        self._opened: Opened | None = None
        self._opening: asyncio.Lock | None = None

    @abstractmethod
    def profile(self, model: str) -> ModelProfile:
        """The profile of ``model``."""

    @abstractmethod
    def _open(self) -> tuple[ClientPool, SdkErrors]:
        """Build the first SDK client and the error table. Blocking (imports, certificates): runs on a worker thread."""

    @abstractmethod
    def _encode(self, request: ModelRequest, names: ToolNames, streaming: bool) -> tuple[str, dict[str, Any]]:
        """The path and the JSON body of a request."""

    @abstractmethod
    def _decoder(self, call: HttpCall) -> Decoder:
        """A new decoder for one answer."""

    def _plain(self, request: ModelRequest) -> bool:
        """Whether a request that nobody watches may be a plain one."""
        return True

    def _merged(self, data: dict[str, Any], request: ModelRequest, headers: dict[str, str]) -> dict[str, Any]:
        """The body with the native settings merged over it; their ``extra_headers`` go to ``headers``."""
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
        call = HttpCall(request, self._clocks)
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
        """Input tokens of ``request``, estimated at four bytes per token."""
        return estimate_tokens(request)

    async def _count(self, request: ModelRequest, path: str, fields: tuple[str, ...]) -> int:
        """``input_tokens`` from a counting endpoint, sent ``fields`` of the body; an estimate if there is none."""
        opened = await self._ready()
        call = HttpCall(replace(request, stream=False), self._clocks)
        call.path, data = path, self._encode(request, call.names, False)[1]
        body = self._merged(data, request, call.headers)
        call.body = dump_json({name: body[name] for name in fields if name in body})
        try:
            await self._pass_gate(opened, call)
            pooled = opened.clients.take()
            try:
                answer = await self._send(pooled, opened.errors, call)
                try:
                    return int(parse_json(await read_whole(answer), "a token count")["input_tokens"])
                finally:
                    await answer.aclose()
            finally:
                pooled.active -= 1
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
        """Close all connections. The adapter reopens when it is used again."""
        opened, self._opened = self._opened, None
        if opened is not None and opened.loop is asyncio.get_running_loop():
            await opened.clients.aclose()

    async def _ready(self) -> Opened:
        opened = self._opened
        loop = asyncio.get_running_loop()
        if opened is not None and opened.loop is loop:
            return opened
        if opened is not None or self._opening is None:
            # A client belongs to the loop it was first used on; another loop gets its own.
            self._opening, self._opened = asyncio.Lock(), None
        async with self._opening:
            if self._opened is None:
                clients, errors = await asyncio.to_thread(self._open)
                self._opened = Opened(loop, clients, errors, asyncio.Semaphore(self._gate_size), StartThrottle(loop))
            return self._opened

    async def _attempt(self, opened: Opened, call: HttpCall) -> AsyncGenerator[list[ModelDelta], None]:
        """Make one attempt; yields the deltas in batches, one batch per network chunk."""
        call.request_id = call.status = None
        call.decoder = decoder = self._decoder(call)
        await self._pass_gate(opened, call)
        pooled = opened.clients.take()
        try:
            answer = await self._send(pooled, opened.errors, call)
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
            pooled.active -= 1
            opened.gate.release()

    async def _pass_gate(self, opened: Opened, call: HttpCall) -> None:
        call.watch.arm(call.deadline)
        try:
            await opened.gate.acquire()
            try:
                await opened.throttle.take()
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

    async def _send(self, pooled: PooledClient, errors: SdkErrors, call: HttpCall) -> Answer:
        """Send the request and return the response, its body unread. Raises ProviderError, for error statuses too."""
        clocks, watch = call.clocks, call.watch
        first = clocks.first_byte_s if call.streaming else clocks.plain_first_byte_s
        watch.arm(call.due(clocks.connect_s, first))
        options: dict[str, Any] = {"headers": call.headers} if call.headers else {}
        try:
            response = await pooled.client.post(
                pooled.base_url + call.path,  # Absolute, so that the SDK need not parse its base URL on every call.
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
                raise ConnectTimeout(f"no connection to {pooled.base_url} in time") from error
            raise FirstByteTimeout("the model did not answer in time") from error
        except (errors.base, *errors.transport, ExceptionGroup) as error:
            if (own := _own_error(error)) is not None:
                raise own from None
            raise ConnectionLost(f"no connection to {pooled.base_url}: {describe(error)}") from error
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"the answer cannot be read: {describe(error)}") from error
        finally:
            watch.disarm()
        call.status = response.status_code
        call.request_id = _request_id(response)
        return Answer(response, call, errors, MAX_STREAM_BYTES if call.streaming else MAX_BODY_BYTES)

    async def _read_events(
        self, answer: Answer, call: HttpCall, decoder: Decoder
    ) -> AsyncGenerator[list[ModelDelta], None]:
        parser = SseParser()
        started = False
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
                if batch and not started:
                    # Somebody waits for the first word: yield it before decoding the rest of the chunk.
                    started = True
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
            excerpt = data[:200].decode("utf-8", "backslashreplace")
            raise ProtocolError(
                f"an event has not the shape {self.dialect} gives it ({describe(error)}): {excerpt}",
                code="provider/bad-event",
            ) from error

    async def _read_body(self, answer: Answer, call: HttpCall, decoder: Decoder) -> ModelResponse:
        """Read the answer to a plain request."""
        data = parse_json(await read_whole(answer), "an answer")
        try:
            return self._finished(decoder.body(data), call)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ProtocolError(
                f"the answer has not the shape {self.dialect} gives it ({describe(error)})", code="provider/bad-event"
            ) from error

    def _is_stream(self, response: Any, call: HttpCall) -> bool:
        """Whether the body is an event stream; local servers choose either form whatever was requested."""
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

    def _finished(self, response: ModelResponse, call: HttpCall) -> ModelResponse:
        """The decoder's response with the fields that only the adapter knows."""
        model = response.model or call.request.model
        return replace(
            response,
            model=model,
            provider=self.name,
            request_id=call.request_id or response.request_id,
            cost_usd=self._prices.cost(self.provider, model, response.usage),
        )

    def _status_error(self, error: Any, call: HttpCall) -> ProviderError:
        call.status = int(error.status_code)
        call.request_id = _request_id(error.response)
        failure = faults.from_status(
            call.status,
            error.body,
            error.response.headers,
            provider=self.name,
            model=call.request.model,
            request_id=call.request_id,
        )
        if self._api_key and self._api_key in failure.message:
            failure.message = failure.message.replace(self._api_key, "***")
            failure.args = (failure.message,)
        return failure

    def _complete(self, error: ProviderError, call: HttpCall, number: int) -> None:
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
        self, attempt: Attempt, call: HttpCall, error: ProviderError | None = None, wait: float | None = None
    ) -> Attempt:
        return replace(
            attempt,
            outcome="ok" if error is None else "failed",
            error=error,
            retry_in_s=wait,
            status=call.status,
            request_id=call.request_id,
        )


def _request_id(response: Any) -> str | None:
    headers = response.headers
    return headers.get("request-id") or headers.get("x-request-id")


def _own_error(error: BaseException | None) -> AgentflowError | None:
    """An agentflow error that an SDK has wrapped: from a cassette, or from the guard against network use."""
    while error is not None:
        if isinstance(error, AgentflowError):
            return error
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            return next((own for inner in group.exceptions if (own := _own_error(inner)) is not None), None)
        error = error.__cause__
    return None
