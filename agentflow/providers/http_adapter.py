"""The base of the HTTP dialects: makes one call, with attempts, clocks, size caps and a gate on calls in flight.

A request goes out through the public low-level ``post`` of the vendor's SDK client (authentication, proxies, connection
pool). We write the body and read the answer as bytes: the SDKs' typed requests walk the whole history on every call,
and their typed events cost several times as much as parsing the JSON.
"""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypedDict, Unpack

from agentflow.core.data.errors import AgentflowError, ConfigurationError, ProviderError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import (
    CAP_SETTINGS,
    Attempt,
    ModelDelta,
    ModelProfile,
    ModelRequest,
    ModelResponse,
    Notice,
    Waiting,
    thinking_tokens,
)
from agentflow.core.data.provider_errors import (
    AuthenticationFailed,
    BadRequest,
    CallTimeout,
    FirstByteTimeout,
    IdleTimeout,
    ProtocolError,
    RateLimited,
)
from agentflow.core.data.walk import in_slices
from agentflow.core.ports.ports import RateLimiter
from agentflow.lib.event_loop import Gate, StartThrottle, running_loop
from agentflow.lib.own_threads import is_imported, own_thread
from agentflow.providers.clocks import Clocks, clocks_of
from agentflow.providers.dialects import refused_fields, wire_faults
from agentflow.providers.dialects.address import check_base_url, is_host_of, split_query
from agentflow.providers.dialects.decoding import Decoder, deltas_of, unread
from agentflow.providers.dialects.halves import Halves, whole_json
from agentflow.providers.dialects.retry import RetryPolicy, retry_of
from agentflow.providers.dialects.sse import SseParser
from agentflow.providers.dialects.traits import Traits, issuer_of, stated_traits
from agentflow.providers.dialects.wire import Wire, body_of, estimate_tokens, parse_json, parse_whole
from agentflow.providers.exchange import HttpCall, ResponseBody, Sdk, describe, is_event_stream, read_whole, send
from agentflow.providers.known_servers import (
    LOOK_CLOCKS,
    MODELS,
    OWN_CLOCKS,
    OWN_GATE,
    OWN_LIMIT,
    SLOTS,
    Observed,
    check_headers,
    slots_of,
    traits_of,
)
from agentflow.providers.prices import Prices, batched_cost
from agentflow.providers.proxies import ClientPool

if TYPE_CHECKING:  # few flows send batches
    from agentflow.core.data.batches import BatchAnswer
    from agentflow.core.ports.batch_ports import BatchApi


@frozen
class OpenedClients:
    """The state of an adapter on one event loop: SDK clients, the parts of the SDK that the exchange needs, and the gate."""

    clients: ClientPool
    sdk: Sdk
    gate: Gate
    throttle: StartThrottle
    observed: Observed


class Openings(dict[asyncio.AbstractEventLoop, OpenedClients]):
    """The open clients of an adapter, by event loop: a client belongs to the loop that opened it.

    Parameters: ``open`` makes the first client, on a worker thread (imports, certificates); ``gate`` gives the maximum
    number of calls in flight; ``provider`` is the provider's name in errors.
    """

    def __init__(self, open: Callable[[], tuple[ClientPool, Sdk]], gate: Callable[[], int], provider: str) -> None:
        super().__init__()
        self._open = open
        self._gate = gate
        self._provider = provider
        self._locks: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}

    async def ready(self, loop: asyncio.AbstractEventLoop) -> OpenedClients:
        """The state on ``loop``, opened now if need be. Raises ConfigurationError if no client can be made."""
        for closed in [closed for closed in tuple(self._locks) if closed.is_closed()]:
            self._locks.pop(closed, None)
            self.pop(closed, None)
        async with self._locks.setdefault(loop, asyncio.Lock()):
            if (opened := self.get(loop)) is None:
                clients, sdk = await own_thread(self._made)  # does not hold the exit of a process, as others do
                opened = self[loop] = OpenedClients(clients, sdk, Gate(self._gate()), StartThrottle(loop), Observed())
            return opened

    def _made(self) -> tuple[ClientPool, Sdk]:
        try:
            clients, sdk = self._open()
            check_headers(clients.headers, self._provider)
        except AgentflowError:
            raise
        except Exception as error:  # any fault that the SDK or the HTTP library finds in arguments and environment
            raise ConfigurationError(
                f"no client for {self._provider} can be made: {describe(error)}",
                code="config/client",
                hint="look at the address, the key and the variables of the environment that the SDK reads",
            ) from error
        return clients, sdk

    async def aclose(self) -> None:
        """Close all connections, those of other live loops on theirs."""
        opened = dict(self)
        self.clear()
        here = asyncio.get_running_loop()
        for loop, each in opened.items():
            if loop is here:
                await each.clients.aclose()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(each.clients.aclose(), loop))


DEFAULT_GATE = 256
NO_KEY = "no-key-needed"
"""Sent in place of a key to a server that needs none, since the SDKs want one."""
_LENGTHENING = frozenset({*CAP_SETTINGS, "n", "best_of"})
"""Native request fields that may make an answer longer than ``max_output_tokens``."""
_PING_SIZE = 1_024
_KEY_LENGTH = 8
"""Length of the shortest key removed from error texts: a shorter one is a placeholder, and part of many words."""
_MALFORMED = (KeyError, TypeError, AttributeError, IndexError, ValueError)
"""Exceptions raised when JSON does not have the expected shape."""


class EventParser(Protocol):
    """Splits a stream into events; see :class:`~agentflow.providers.dialects.sse.SseParser`."""

    @property
    def pending(self) -> int: ...
    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]: ...


class AdapterOptions(TypedDict, total=False):
    """The parameters of :class:`HttpAdapter`, for factories that pass them through."""

    base_url: str | None
    api_key: str | None
    clocks: Clocks | Mapping[str, Any] | None
    retry: RetryPolicy | Mapping[str, Any] | None
    gate: int | None
    prices: Prices | None
    rates: RateLimiter | None
    settings: dict[str, Any] | None
    traits: Mapping[str, Any] | Traits | None
    transport: Any
    aiohttp: bool | None
    name: str | None


class HttpAdapter(ABC):
    """An adapter that reaches its provider over HTTP through an SDK client. Implements ``ProviderAdapter``.

    Parameters: ``base_url`` and ``api_key`` (default: the SDK's environment variables; the key goes to the vendor's hosts
    alone, or to the address that the vendor's own variable names); ``clocks`` and ``retry``, whole or as mappings of
    changed fields; ``gate`` is the maximum number of calls in flight (None: 256 to a vendor; to your own server the number
    it reports, or 4); ``prices`` for costs; ``rates`` limits requests and tokens per minute; ``settings`` are native
    request fields of every call, None leaves a field out; ``traits`` describe the server's API
    (:class:`~agentflow.providers.dialects.traits.Traits`); ``transport`` is an httpx2 transport to use instead of the
    network; ``aiohttp`` forces or forbids the aiohttp transport (None: use it if installed); ``name`` is the provider's
    name in errors and events. Raises ConfigurationError (``config/gate``) for a gate below 1, and (``config/option``) for
    unknown traits.
    """

    dialect: ClassVar[str]
    provider: ClassVar[str]
    route: ClassVar[str] = ""

    def __init__(self, **options: Unpack[AdapterOptions]) -> None:
        if unknown := set(options) - AdapterOptions.__annotations__.keys():
            raise TypeError(f"{type(self).__name__} takes no {', '.join(sorted(unknown))}")
        gate = options.get("gate")
        if gate is not None and gate < 1:
            raise ConfigurationError(f"gate={gate!r}: at least one call must be allowed", code="config/gate")
        self.name = options.get("name") or self.provider
        self._base_url = options.get("base_url")
        self._api_key = options.get("api_key")
        self._own_clocks = options.get("clocks")
        clocks_of(self._own_clocks)  # refuses anything but clocks
        self._retry = retry_of(options.get("retry"))
        self._gate = gate
        self._prices = options.get("prices") or Prices()
        self._rates = options.get("rates")
        self._settings = options.get("settings") or {}
        self._stated = options.get("traits")
        if self._stated is not None:
            stated_traits(self._stated)  # refuses unknown traits and values
        caps = [value for name in CAP_SETTINGS if type(value := self._settings.get(name)) is int]
        self._cap = min(caps, default=None)
        self._transport = options.get("transport")
        self._aiohttp = options.get("aiohttp")
        self._opened = Openings(self._open, lambda: self._gate_size, self.name)
        self._forms: dict[Any, Any] = {}

    @abstractmethod
    def profile(self, model: str) -> ModelProfile: ...

    async def warm(self) -> None:
        """Import the SDK on a thread, and open a connection to a server on another machine, so that the first call takes no longer
        than the second. A server that does not answer is not an error here. Raises ConfigurationError if no client can be made."""
        opened = await self._opened.ready(running_loop())
        if self._transport is None and not self.traits.own:
            with suppress(*opened.sdk.transport):  # the first call says it, with its own attempts
                async with asyncio.timeout(self._clocks.connect_s):
                    await opened.clients.connect()

    @abstractmethod
    def _open(self) -> tuple[ClientPool, Sdk]:
        """Build the first SDK client, and the parts of the SDK that the exchange needs. Blocking (imports, certificates):
        runs on a worker thread."""

    def _http_clients(self, sdk: Any) -> tuple[Callable[[], Any], int]:
        """The factory of HTTP clients for ``sdk``, and the number of connections of each. Blocking."""
        from agentflow.providers import transport

        return transport.http_clients(
            sdk,
            self._clocks,
            self._gate_size,
            address=self._address,
            transport=self._transport,
            aiohttp=self._aiohttp,
        )

    @abstractmethod
    def _encode(self, request: ModelRequest, wire: Wire, streaming: bool) -> tuple[str, dict[str, Any]]:
        """The path and the JSON body of a request."""

    @abstractmethod
    def _decoder(self, call: HttpCall) -> Decoder:
        """A new decoder for one answer."""

    def _plain(self, request: ModelRequest) -> bool:
        """Whether a request without observers may be sent without streaming."""
        return True

    def _written(
        self, request: ModelRequest, wire: Wire, streaming: bool, headers: dict[str, str]
    ) -> tuple[str, dict[str, Any]]:
        """The path and the body to send: without fields that the server refuses, with the native settings over them.

        ``extra_headers`` of the settings go to ``headers``. A setting of None leaves its field out.
        """
        path, data = self._encode(request, wire, streaming)
        for name in wire.traits.omit:
            data.pop(name, None)
        settings = {**self._settings, **request.settings} if self._settings else request.settings
        if settings:
            if (extra := settings.get("extra_headers")) is not None:
                check_headers(extra, self.name)
                headers.update(extra)
            capped = request.max_output_tokens is not None
            for name, value in settings.items():
                if value is None:
                    data.pop(name, None)
                elif name != "extra_headers" and not (capped and name in _LENGTHENING):
                    data[name] = value
        return path + self._split_address[1], data

    address: ClassVar[str] = ""
    """The vendor's own address, where no ``base_url`` is given."""
    hosts: ClassVar[tuple[str, ...]] = ()
    """The domains of the vendor: its keys from the environment are sent to no others."""
    address_variable: ClassVar[str] = ""
    """The variable of the environment that holds an address instead."""
    _needed: ClassVar[frozenset[str]] = frozenset()
    """Further request fields of the dialect that no request can do without."""
    shown_headers: ClassVar[Mapping[str, str]] = {}
    """Headers of every request for display: with a shell variable in place of the key."""

    @cached_property
    def _address(self) -> str:
        """The requested address: the one that was set, the environment's, or the vendor's own. Raises ConfigurationError."""
        variable = self.address_variable
        address = self._base_url or os.environ.get(variable) or self._own_address()
        check_base_url(address, variable if not self._base_url and address == os.environ.get(variable) else "")
        return address

    def _own_address(self) -> str:
        return self.address

    @cached_property
    def _split_address(self) -> tuple[str, str]:
        """The address without its query, and the query, which goes behind each path."""
        return split_query(self._address)

    @cached_property
    def _clocks(self) -> Clocks:
        """The clocks of each call: as stated, over those usual for the server."""
        return clocks_of(self._own_clocks, OWN_CLOCKS if self.traits.own else Clocks())

    @property
    def _gate_size(self) -> int:
        """The most calls in flight: as stated, as many as the server is said to answer at once, or as is usual for it."""
        return self._gate or self.traits.slots or (OWN_GATE if self.traits.own else DEFAULT_GATE)

    @property
    def _is_vendors(self) -> bool:
        """Whether the address is one of the vendor's own."""
        return is_host_of(self._address, self.hosts)

    @property
    def _takes_keys(self) -> bool:
        """Whether the vendor's keys of the environment are for this address: it is the vendor's, or the vendor's variable names it."""
        return not self._base_url or self._is_vendors

    @property
    def _client_address(self) -> str | None:
        """The address for the SDK's client; None where that knows it by itself."""
        stated = self._base_url or os.environ.get(self.address_variable)
        return self._split_address[0] if stated else None

    @cached_property
    def traits(self) -> Traits:
        """The traits of this adapter's server: stated, known or guessed, without the fields that it has refused."""
        traits = traits_of(self.route, self._address, self._stated)
        # the target of a transport, for example a cassette, is not known by its address
        return traits if self._transport is None or "own" in traits.stated else replace(traits, own=False)

    @cached_property
    def issuer(self) -> str:
        """Who issues the ids and signatures of its answers; see :func:`~agentflow.providers.dialects.traits.issuer_of`."""
        return issuer_of(self.route, self._address, self._organisation)

    @property
    def _organisation(self) -> str:
        """The organisation of the account, where the request names one."""
        return ""

    def _wire(self, request: ModelRequest, traits: Traits | None = None) -> Wire:
        """A request on the wire to a server of ``traits`` (None: those of this adapter)."""
        in_prompt = request.output_schema is not None and not self.profile(request.model).native_json_schema
        return Wire(request, traits or self.traits, self.issuer, self._forms, in_prompt=in_prompt)

    def _bounded(self, request: ModelRequest) -> ModelRequest:
        """``request`` with a maximum of output tokens if none is stated and the server has no default."""
        if not self.traits.own or request.max_output_tokens is not None:
            return request
        if any([name in self._settings or name in request.settings for name in CAP_SETTINGS]):
            return request
        return replace(request, max_output_tokens=OWN_LIMIT + thinking_tokens({**self._settings, **request.settings}))

    def described(self, request: ModelRequest) -> dict[str, Any]:
        """The HTTP request for ``request`` as ``url``, ``headers`` and ``body``, with a variable in place of the key."""
        request = self._bounded(request)
        headers: dict[str, str] = {"content-type": "application/json", **self.shown_headers}
        path, body = self._written(request, self._wire(request), request.stream, headers)
        return {"url": self._split_address[0] + path, "headers": headers, "body": body}

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelDelta, None]:
        """Make one model call; see :class:`agentflow.core.ports.ports.ProviderAdapter`."""
        loop = running_loop()
        if (notice := self._import_notice()) is not None:
            yield ModelDelta(notice=notice)
        opened = self._opened.get(loop) or await self._opened.ready(loop)
        own = self.traits.own
        if own:
            request = self._bounded(request)
        if request.tools and not self.traits.tools:
            raise _no_tools(self.name, request)
        call = HttpCall(request, self._clocks, self.name, self._wire(request))
        watch = call.watch
        number = 0
        refused: list[str] = []
        try:
            # a server of one's own continues a plain answer after its caller has left, and so keeps its slot
            call.streaming = request.stream or own or not self._plain(request)
            if request.idempotency_key:
                call.headers["Idempotency-Key"] = request.idempotency_key
            await self._write(call)
            for notice in call.wire.notices:
                yield ModelDelta(notice=notice)
            tokens = 0 if self._rates is None else request.input_tokens or estimate_tokens(request)
            while True:
                number += 1
                delivered = False
                attempt = Attempt(number, self.name, request.model, server=opened.clients.server)
                paused = loop.time()
                yield ModelDelta(attempt=attempt)
                call.resume(paused)  # the consumer may have had to wait for its budget
                try:
                    async with aclosing(self._attempt(opened, call, tokens)) as batches:
                        async for batch in batches:
                            for delta in batch:
                                if delta.response is not None:
                                    if self._rates is not None:
                                        self._rates.correct(self._key(call), delta.response.usage.total_tokens - tokens)
                                    if refused:
                                        self.traits = refused_fields.learned(self.traits, refused)
                                    yield ModelDelta(attempt=self._ended(attempt, call))
                                delivered = delivered or delta.wait is None
                                yield delta
                                if watch.over and delta.response is None:
                                    raise call.timed_out(CallTimeout, "the answer of the model was consumed too slowly")
                    return
                except ProviderError as error:
                    self._complete(error, call, number)
                    again = not delivered and await self._without(error, call, refused)
                    # a prompt that it may still be reading is not sent to it a second time
                    silent = own and isinstance(error, FirstByteTimeout | IdleTimeout)
                    if silent:
                        error.hint = opened.observed.silence(self._clocks.first_byte_s, opened.gate.size)
                    over = delivered or silent
                    wait = 0.0 if again else None if over else self._retry.wait(error, number, call.remaining)
                    if self._rates is not None and isinstance(error, RateLimited):
                        self._rates.hold(self._key(call), error.retry_after or wait or 0.0)
                    if wait is None:
                        wire_faults.describe_attempts(error)
                    yield ModelDelta(attempt=self._ended(attempt, call, error, wait))
                    if wait is None:
                        raise
                    if again:
                        for notice in (refused_fields.notice(error, refused[-1], request.model), *call.wire.notices):
                            yield ModelDelta(notice=notice)
                await asyncio.sleep(wait)
        finally:
            call.watch.close()

    async def _without(self, error: ProviderError, call: HttpCall, refused: list[str]) -> bool:
        """Write a call again without the field that the server named as it refused the request, if the traits were a guess."""
        field = refused_fields.refused_field(error, call.fields, self._needed)
        if field is None:
            return False
        settings = {**self._settings, **call.request.settings}
        traits = call.wire.traits
        error.hint = refused_fields.hint(field, traits, settings)
        if (fitting := refused_fields.fitting(traits, field, settings, refused)) is None:
            return False
        refused.append(field)
        call.wire = self._wire(call.request, fitting)
        await self._write(call)
        return True

    async def _write(self, call: HttpCall) -> None:
        """Write the path and the body of a call, by the traits of its wire."""
        request = call.request
        if not call.wire.plain:
            await in_slices(call.wire.write())
        call.path, data = self._written(request, call.wire, call.streaming, call.headers)
        call.fields = frozenset(data)
        call.body = await body_of(request, data)

    batch_api: ClassVar[str] = ""
    """The vendor's interface for batches: ``openai``, ``anthropic`` or none."""

    @cached_property
    def batches(self) -> BatchApi | None:
        if not self.batch_api:
            return None
        from agentflow.providers import batch_calls  # few flows send any

        async def opened() -> tuple[ClientPool, Sdk]:
            ready = await self._opened.ready(running_loop())
            return ready.clients, ready.sdk

        kind = batch_calls.AnthropicBatches if self.batch_api == "anthropic" else batch_calls.OpenAIBatches
        return kind(opened, self.name)

    async def batch_body(self, request: ModelRequest) -> tuple[str, str]:
        request = replace(self._bounded(request), stream=False)
        call = HttpCall(request, self._clocks, self.name, self._wire(request))
        try:
            await self._write(call)
        finally:
            call.watch.close()
        if call.headers:
            raise ConfigurationError(
                "extra_headers= cannot be sent with a call in a batch",
                code="config/option",
                hint="leave out batch= of this task, or extra_headers of its settings",
            )
        return call.path, call.body.decode()

    def batch_answer(self, request: ModelRequest, answer: BatchAnswer) -> ModelResponse:
        if answer.status >= 400:
            raise wire_faults.from_status(
                answer.status, answer.body, {}, provider=self.name, model=request.model, request_id=None
            )
        if not answer.status:
            raise wire_faults.from_stream(answer.body, provider=self.name, model=request.model)
        request = replace(self._bounded(request), stream=False)
        call = HttpCall(request, self._clocks, self.name, self._wire(request))
        try:
            decoder = self._decoder(call)
            response = self._finished(call, decoder, decoder.body, answer.body)[-1].response
        finally:
            call.watch.close()
        assert response is not None
        return replace(response, cost_usd=batched_cost(response.cost_usd))

    async def count_tokens(self, request: ModelRequest) -> int:
        """Input tokens of ``request``, estimated at four bytes per token."""
        return estimate_tokens(request)

    async def look(self, path: str) -> Any:
        """The JSON that the server has at ``path``, from its root; None if it has none or does not answer in time. Asks no model."""
        opened = await self._opened.ready(running_loop())
        call = HttpCall(ModelRequest((), stream=False), LOOK_CLOCKS, self.name, self._wire(ModelRequest(())))
        call.path = self._split_address[0].removesuffix("/v1") + path
        try:
            return parse_json(await self._whole(opened, call), "an answer of the server")
        except ProviderError:
            return None
        finally:
            call.watch.close()

    async def _whole(self, opened: OpenedClients, call: HttpCall) -> bytes:
        """The whole body that answers a call which asks no model."""
        pooled = opened.clients.take()
        try:
            answer = await send(pooled, opened.sdk, call)
            try:
                return await read_whole(answer, b"")
            finally:
                await answer.aclose()
        finally:
            pooled.active -= 1

    async def slots(self) -> int:
        """The calls that the server says it answers at once; 0 if it does not say."""
        for path in (*SLOTS, MODELS):
            if count := slots_of(path, await self.look(path)):
                return count
        return 0

    async def _ask_slots(self, opened: OpenedClients) -> None:
        """Set the gate to the number of slots that your own server reports, once, when a call would have to wait and the
        number is unknown."""
        if opened.observed.asked or not self.traits.own or self._gate or self.traits.slots:
            return
        opened.observed.asked = True
        if count := await self.slots():
            opened.gate.resize(count)

    async def _count(self, request: ModelRequest, path: str, fields: tuple[str, ...]) -> int:
        """``input_tokens`` from a counting endpoint, which is sent ``fields`` of the body; an estimate if the server has none."""
        opened = await self._opened.ready(running_loop())
        call = HttpCall(replace(request, stream=False), self._clocks, self.name, self._wire(request))
        try:
            body = self._written(request, call.wire, False, call.headers)[1]
            call.path = path + self._split_address[1]
            call.body = await body_of(request, {name: body[name] for name in fields if name in body})
            await opened.gate.take(request.priority)
            try:
                return int(parse_json(await self._whole(opened, call), "a token count")["input_tokens"])
            finally:
                opened.gate.release()
        except ProviderError as error:
            if error.status in (404, 405, 501):
                return estimate_tokens(request)
            self._complete(error, call, 1)
            raise
        except (KeyError, TypeError, ValueError):
            raise ProtocolError("the token count does not have the expected shape", code="provider/bad-event") from None
        finally:
            call.watch.close()

    async def aclose(self) -> None:
        """Close all connections, those of other live loops on theirs. The adapter reopens when it is used again."""
        await self._opened.aclose()

    def _import_notice(self) -> Notice | None:
        """The notice to show before the SDK is imported, which takes about a second on a thread, once per process."""
        if is_imported(self.provider):
            return None
        return Notice(f"importing the {self.provider} SDK, on a thread; the call's clocks start after it")

    def _key(self, call: HttpCall) -> str:
        """The key of the call's model for its rate."""
        return f"{self.route or self.provider}:{call.request.model}"

    async def _attempt(
        self, opened: OpenedClients, call: HttpCall, tokens: int
    ) -> AsyncGenerator[list[ModelDelta], None]:
        """Make one attempt with about ``tokens``, once the rate admits it; yields the deltas in batches, one per network chunk."""
        call.request_id = call.status = None
        call.decoder = decoder = self._decoder(call)
        rates, gate, priority = self._rates, opened.gate, call.request.priority
        if rates is not None and not rates.ready(self._key(call), tokens):
            call.pause()
            yield [ModelDelta(wait=Waiting("rate"))]
            await rates.take(self._key(call), tokens, priority)
            yield [ModelDelta(wait=Waiting("rate", True))]
            call.go_on()
        entered = gate.take_free()
        try:
            if not entered:
                call.pause()
                yield [ModelDelta(wait=Waiting("gate"))]
                await self._ask_slots(opened)
                await gate.take(priority)
                entered = True
                yield [ModelDelta(wait=Waiting("gate", True))]
                call.go_on()
            await opened.throttle.take()
            if self.traits.own:
                call.wait_while_heard(opened.observed)
            pooled = opened.clients.take()
            try:
                answer = await send(pooled, opened.sdk, call)
                try:
                    if rates is not None:
                        rates.learn(self._key(call), answer.headers)
                    opening = await answer.opening()
                    if self.traits.own:
                        opened.observed.begin(call)
                    if self._is_stream(answer, opening, call.streaming):
                        async with aclosing(self._read_events(answer, opening, call, decoder)) as batches:
                            async for batch in batches:
                                yield batch
                    else:
                        yield await self._read_body(answer, opening, call, decoder)
                finally:
                    opened.observed.answering.discard(call)
                    await answer.aclose()
            finally:
                pooled.active -= 1
        finally:
            if entered:
                gate.release()

    def _is_stream(self, answer: ResponseBody, opening: bytes, streaming: bool) -> bool:
        """Whether a body is a stream of events rather than JSON."""
        return is_event_stream(answer, opening, streaming)

    def _parser(self, answer: ResponseBody) -> EventParser:
        """A new parser of a stream of events."""
        return SseParser()

    async def _read_events(
        self, answer: ResponseBody, chunk: bytes, call: HttpCall, decoder: Decoder
    ) -> AsyncGenerator[list[ModelDelta], None]:
        parser = self._parser(answer)
        started = False
        while chunk:
            batch: list[ModelDelta] = []
            moved = parser.pending > _PING_SIZE
            for name, data in parser.feed(chunk):
                moved = self._decode(decoder, name, data, batch) or moved
                if decoder.done:
                    break
                if batch and not started:
                    # Yield the first word before decoding the rest of the chunk: it decides the latency that users see.
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
            if decoder.done:
                break
            chunk = await answer.read()
        if decoder.halves is not None:
            batch = []
            for data in decoder.halves.rest():
                self._decode(decoder, b"", data, batch)
            yield batch
        last = self._finished(call, decoder, decoder.finish, answer.framed)
        await answer.drain()
        yield last

    def _decode(self, decoder: Decoder, name: bytes, data: bytes, batch: list[ModelDelta]) -> bool:
        if not data:
            return False
        try:
            if decoder.halves is not None:
                data = decoder.halves.joined(data)
            return decoder.event(name, data, batch)
        except ProtocolError as error:
            if error.code != "provider/bad-json" or decoder.halves is not None or whole_json(data) is None:
                raise
            decoder.halves = Halves()
            return self._decode(decoder, name, data, batch)
        except _MALFORMED as error:
            excerpt = data[:200].decode("utf-8", "backslashreplace")
            raise self._malformed("an event", f"{describe(error)}): {excerpt}") from error

    async def _read_body(
        self, answer: ResponseBody, opening: bytes, call: HttpCall, decoder: Decoder
    ) -> list[ModelDelta]:
        """The answer to a plain request, or a plain answer to a request for a stream."""
        data = parse_whole(await read_whole(answer, opening))
        last = self._finished(call, decoder, decoder.body, data)
        response = last[-1].response
        return [*deltas_of(response.parts), *last] if call.streaming and response is not None else last

    def _finished(
        self, call: HttpCall, decoder: Decoder, read: Callable[[Any], ModelResponse], what: Any
    ) -> list[ModelDelta]:
        """The last deltas of an answer: notices of anomalies, and the decoder's response, completed by the adapter."""
        try:
            response = read(what)
        except _MALFORMED as error:
            raise self._malformed("the answer", f"{describe(error)})") from error
        model = response.model or call.request.model
        response = replace(
            response,
            model=model,
            provider=self.name,
            request_id=call.request_id or response.request_id,
            cost_usd=self._prices.cost(self.route or self.provider, model, response.usage, asked=call.request.model),
        )
        notices = [*decoder.notices, *_at_limit(call.request, response), *unread(response)]
        return [*(ModelDelta(notice=notice) for notice in notices), ModelDelta(response=response)]

    def _malformed(self, what: str, why: str) -> ProtocolError:
        return ProtocolError(
            f"{what} does not have the shape that {self.dialect} defines ({why}", code="provider/bad-event"
        )

    def _complete(self, error: ProviderError, call: HttpCall, number: int) -> None:
        error.attempts = number
        if isinstance(error, AuthenticationFailed) and not (self._api_key or self._takes_keys):
            error.hint = f"keys of the environment go to {' and '.join(self.hosts)} alone: pass api_key=..., or set AGENTFLOW_API_KEY"
        if self._api_key and len(self._api_key) >= _KEY_LENGTH and self._api_key in error.message:
            error.message = error.message.replace(self._api_key, "***")
            error.args = (error.message,)
        wire_faults.complete(
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


def _no_tools(provider: str, request: ModelRequest) -> BadRequest:
    names = ", ".join([tool.name for tool in request.tools[:5]])
    return BadRequest(
        f"the model is not known to call tools, and the call offers it {names}",
        code="provider/no-tools",
        hint="offer it none: tools=[] in Python, (tools) in a task; or name a model that was trained for them",
        provider=provider,
        model=request.model,
    )


def _at_limit(request: ModelRequest, response: ModelResponse) -> list[Notice]:
    """A notice for an answer as long as allowed, yet reported complete: some servers do not report a cut-off."""
    limit, used = request.max_output_tokens, response.usage.output_tokens
    if limit is None or used < limit or response.stop_reason != "end":
        return []
    message = f"the answer has the maximum of {limit} tokens, but the server reports it as complete: it may be cut off"
    return [Notice(message, code="provider/at-limit", details={"limit": limit, "used": used})]
