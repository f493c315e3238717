"""The ASGI application of a flow: its routes, admission of requests, and the lifetime of its runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Mapping
from functools import partial
from os import PathLike
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agentflow.app import AgentFlow
from agentflow.core.data.errors import AgentflowError, ConfigurationError, cut
from agentflow.observe.report.html import live_html
from agentflow.serve import chat, responses, run_api, run_messages
from agentflow.serve.agui import AguiRoute
from agentflow.serve.error_responses import Reader, RequestError, error_response, is_of_server, message_of
from agentflow.serve.exports import Exportable, offers_of
from agentflow.serve.incoming import LOCAL, Door
from agentflow.serve.keys import APPROVAL_TTL, Key, Keys, read_keys
from agentflow.serve.mcp.endpoint import McpEndpoint
from agentflow.serve.served_flow import OnDisconnect, ServedFlow
from agentflow.serve.streaming import leave
from agentflow.serve.ui_stream import UiRoute
from agentflow.spec.memory import MemorySystem

OK = "ok"
STORE_S = 2.0
"""Maximum seconds for an answer of the store of durable runs."""
PACE_S = 1.0
"""Seconds before a check is repeated, no matter the number of requests for it."""


class Readiness:
    """Whether ``flow`` can execute runs: at most one check a second, which starts nothing and connects to no server of MCP."""

    def __init__(self, flow: AgentFlow, clock: Callable[[], float] = time.monotonic) -> None:
        self._flow = flow
        self._clock = clock
        self._checking = asyncio.Lock()
        self._needs: dict[str, Any] = {}
        self._over = -PACE_S

    async def needs(self) -> dict[str, Any]:
        """``flow`` (runs can begin in it, and their store can be written), ``model``, ``index`` and ``mcp`` (by server): each is ``ok`` or an error code. Optional servers are left out."""
        async with self._checking:
            if self._clock() - self._over >= PACE_S:
                self._needs = {
                    "flow": await _flow(self._flow),
                    "model": _model(self._flow),
                    "index": await _index(self._flow),
                    "mcp": self._flow.mcp.states(),
                }
                self._over = self._clock()
            return self._needs


def is_ready(needs: dict[str, Any]) -> bool:
    """Whether every result of :meth:`Readiness.needs` is ``ok``."""
    return all([each == OK for each in (needs["flow"], needs["model"], needs["index"], *needs["mcp"].values())])


async def _flow(flow: AgentFlow) -> str:
    if flow.engine.closed:
        return "flow/closed"
    try:
        if flow.is_durable:
            await flow.store.check(STORE_S)
    except AgentflowError as error:
        return error.code
    return OK


def _model(flow: AgentFlow) -> str:
    try:
        flow.router.resolve(None)
    except ConfigurationError as error:
        return error.code
    return OK


async def _index(flow: AgentFlow) -> str:
    if not isinstance(flow.memory_system, MemorySystem):
        return OK  # the host's own memory system: nothing to check
    try:
        await flow.memory_system.index.count()
    except AgentflowError as error:
        return error.code
    return OK


LAST_WORDS_S = 2.0
"""Seconds that responses have to send the end of their runs."""


@contextlib.contextmanager
def hearing(stop: Callable[[], None]) -> Generator[None, None, None]:
    """Within the block, call ``stop`` on the loop when the process is asked to end (SIGTERM, Ctrl-C).

    An already installed handler, that of the ASGI server, still runs; without one nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop, over = asyncio.get_running_loop(), False

    def chained(before: Callable[[int, FrameType | None], Any]) -> Callable[[int, FrameType | None], None]:
        def hear(number: int, frame: FrameType | None) -> None:
            if not over:
                loop.call_soon_threadsafe(stop)
            before(number, frame)

        return hear

    handlers: dict[signal.Signals, tuple[Any, Any]] = {}
    for number in (signal.SIGTERM, signal.SIGINT):
        before = signal.getsignal(number)
        if callable(before) and before is not signal.default_int_handler:
            handlers[number] = before, chained(before)
            signal.signal(number, handlers[number][1])
    try:
        yield
    finally:
        over = True
        for number, (before, ours) in handlers.items():
            if signal.getsignal(number) is ours:
                signal.signal(number, before)


class OpenResponses:
    """The requests in progress of an application. Once they are ended, each learns that its client is gone."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._over = asyncio.Event()

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Have ``app`` answer a request."""

        async def receive_until_over() -> Message:
            getting: asyncio.Task[Any] = asyncio.ensure_future(receive())  # pyright: ignore[reportArgumentType]
            ending: asyncio.Task[Any] = asyncio.create_task(self._over.wait())
            try:
                await asyncio.wait([getting, ending], return_when=asyncio.FIRST_COMPLETED)
                return cast(Message, getting.result()) if getting.done() else {"type": "http.disconnect"}
            finally:
                await leave(getting, ending)

        self._count += 1
        try:
            await app(scope, receive_until_over, send)
        finally:
            self._count -= 1
            if not self._count:
                self._idle.set()

    async def end(self) -> None:
        """End all responses, those that say how their runs ended after they have said so."""
        self._idle.clear()
        if self._count:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._idle.wait()
        self._over.set()


_log = logging.getLogger(__name__)
GRACE_S = 5.0
"""Seconds that active runs may continue in an application when its server stops."""

Handler = Callable[[ServedFlow, Request, Key], Awaitable[Response]]


class _Raw:
    """An ASGI application as an endpoint: Starlette would take a function for a request handler."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


async def _no_route(request: Request, error: Exception) -> Response:
    """The response to a request that no route answers, in the form of all errors."""
    assert isinstance(error, HTTPException)
    refusal = RequestError(
        f"{request.method} {cut(request.url.path, 200)} is not answered here",
        code="serve/no-route",
        status=error.status_code,
        hint="docs/serve.md lists the paths and their methods",
    )
    response = error_response(refusal)
    response.headers.update(error.headers or {})
    return response


async def _failed(request: Request, error: Exception) -> Response:
    _log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return error_response(error)


class FlowServer:
    """A flow as an ASGI application; you can mount it into another one.

    Parameters: ``exports`` are the offered programs: ``{"review": Path("review.sexp")}``, or a list of files, functions and
    names of tasks. ``keys`` is the keys file, or the keys read from it; None admits every caller who reaches the server.
    ``hosts`` are its host names (default: those of this machine; ``*`` is any), ``origins`` the other sites with pages that
    may use it. ``programs`` are the names that sent programs may call; None refuses sent programs. With ``fleet`` a server
    without keys shows all runs of the flow's database, also those that other processes work on; with keys the key decides.
    ``approval_ttl`` is the number of seconds that a run waits for an answer, ``on_disconnect`` decides about a run after
    its chat client disconnects. When the process is asked to end (SIGTERM, Ctrl-C), active runs have ``grace`` seconds and
    streams end; with None the host does this by calling :meth:`stop`.

    As the main application it runs its own lifespan; when you mount it, use it with ``async with`` inside the flow's block, so
    that runs end before the flow is closed. Raises ConfigurationError (``serve/export``, ``serve/keys``).
    """

    def __init__(
        self,
        flow: AgentFlow,
        exports: Mapping[str, Exportable] | Iterable[Exportable],
        *,
        keys: str | PathLike[str] | Keys | None = None,
        hosts: Iterable[str] = LOCAL,
        origins: Iterable[str] = (),
        programs: Iterable[str] | None = None,
        fleet: bool = False,
        approval_ttl: float = APPROVAL_TTL,
        on_disconnect: OnDisconnect = "cancel",
        grace: float | None = GRACE_S,
    ) -> None:
        allowed = list(origins)
        self.service = ServedFlow(
            flow, offers_of(flow, exports), None if programs is None else frozenset(programs), on_disconnect
        )
        if keys is not None and not isinstance(keys, Keys):
            keys = read_keys(Path(keys), approval_ttl=approval_ttl)
        anyone = Key("anyone", approval_ttl=approval_ttl, fleet=fleet)
        self._door = Door(anyone, keys, hosts, allowed)
        self._anyone = anyone
        self._begin()
        self._readiness = Readiness(flow)
        cors = Middleware(
            CORSMiddleware,
            allow_origins=allowed,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "mcp-session-id"],
            max_age=600,
        )
        self.grace: float | None = grace
        self._logged: set[str] = set()
        self._app = Starlette(
            routes=[
                Route("/", partial(self._at_the_door, self._page)),
                Route("/health", partial(self._at_the_door, self._health)),
                Route("/ready", partial(self._at_the_door, self._ready)),
                self._route("/v1/models", chat.list_models),
                self._route("/v1/models/{model}", chat.show_model),
                self._route("/v1/chat/completions", chat.complete, "POST"),
                self._route("/v1/responses", responses.respond, "POST"),
                self._route("/agui/{export}", AguiRoute(), "POST"),
                self._route("/ui/{export}", UiRoute(), "POST"),
                self._route("/fleet", run_api.show_fleet),
                self._route("/runs", run_api.list_runs),
                self._route("/runs", run_api.begin_run, "POST"),
                self._route("/runs/{run}", run_api.show_run),
                self._route("/runs/{run}/events", run_api.read_events),
                self._route("/runs/{run}/cancel", run_api.cancel_run, "POST"),
                self._route("/runs/{run}/answers/{key}", run_api.answer_run, "POST"),
                self._route("/runs/{run}/say", run_messages.say_to_run, "POST"),
                self._route("/runs/{run}/signals/{name}", run_messages.signal_run, "POST"),
                self._route("/runs/{run}/state", run_messages.show_state),
                Route("/mcp", _Raw(self._answer_mcp)),
            ],
            middleware=[cors] if allowed else [],
            exception_handlers={HTTPException: _no_route, Exception: _failed},
            lifespan=self._lifespan,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._responses.serve(self._app, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _begin(self) -> None:
        """Create the state of one time of serving: it ends with :meth:`aclose`, and the next may be in another event loop."""
        self._mcp = McpEndpoint(self.service, self._anyone)
        self._responses = OpenResponses()
        self._signals = contextlib.ExitStack()
        self._hurry = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self.service.runs.stopping = False

    async def __aenter__(self) -> FlowServer:
        if self.service.runs.stopping:
            self._begin()
        await self.service.runs.take_up(self._door.key_called)
        if self.grace is not None:
            self._signals.enter_context(hearing(self._asked_to_stop))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stopping is not None:
            await asyncio.wait([self._stopping])
        self._signals.close()
        await self.aclose()

    def _asked_to_stop(self) -> None:
        """Begin to stop; the second time, do not wait for runs."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self.stop(self.grace or 0.0), name="stopping")
        else:
            self.hurry()

    def hurry(self) -> None:
        """Have :meth:`stop` wait for runs no longer."""
        self._hurry.set()

    async def stop(self, grace: float) -> None:
        """Start no more runs, give the active ones ``grace`` seconds, cancel the rest, and end all responses.

        Every reader sees how its run ended.
        """
        draining = asyncio.create_task(self.service.runs.drain(grace))
        hurrying = asyncio.create_task(self._hurry.wait())
        await asyncio.wait([draining, hurrying], return_when=asyncio.FIRST_COMPLETED)
        await leave(draining, hurrying)
        await self.aclose()
        await self._responses.end()

    async def aclose(self) -> None:
        """Cancel the active runs and wait for their clean-up. No further run starts."""
        await self.service.runs.aclose()
        await self._mcp.aclose()

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncGenerator[None, None]:
        async with self:
            yield

    def _route(self, path: str, handler: Handler, method: str = "GET") -> Route:
        return Route(path, partial(self._answer, handler), methods=[method])

    async def _answer(self, handler: Handler, request: Request) -> Response:
        """The response of ``handler`` to an admitted request; errors become error responses."""
        try:
            self._door.check_site(request)
            return await handler(self.service, request, self._door.key_of(request))
        except AgentflowError as error:
            return self._refused(error, request)
        except Exception as error:  # noqa: BLE001 - the response says that the server failed, the log has the cause
            return await _failed(request, error)

    async def _answer_mcp(self, scope: Scope, receive: Receive, send: Send) -> None:
        """``/mcp``: pass admitted requests to the SDK."""
        request = Request(scope)
        try:
            self._door.check_site(request)
            await self._mcp.serve(scope, receive, send, self._door.key_of(request))
        except AgentflowError as error:
            await self._refused(error, request)(scope, receive, send)

    async def _at_the_door(self, handler: Callable[[Request], Awaitable[Response]], request: Request) -> Response:
        """The response of ``handler`` to a request that needs no key, if it is addressed to this server."""
        try:
            self._door.check_site(request)
        except AgentflowError as error:
            return self._refused(error, request)
        return await handler(request)

    def _refused(self, error: AgentflowError, request: Request) -> Response:
        """The response to a refused request. Settings to change are shown to operators only, and logged once for each code."""
        reader = Reader(operator=self._door.is_operator(request))
        to_set = is_of_server(error) or (isinstance(error, RequestError) and error.setting is not None)
        if to_set and error.code not in self._logged:
            self._logged.add(error.code)
            said = self.service.redact(message_of(error, Reader(operator=True)))
            _log.warning("%s %s was refused: %s", request.method, request.url.path, said)
        return error_response(error, body=self.service.refusal(error, reader))

    async def _page(self, request: Request) -> Response:
        """``GET /``: the live page. It contains no run data; it loads them with the key typed into it."""
        page, policy = live_html()
        headers = {
            "content-security-policy": f"{policy}; frame-ancestors 'none'",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
            "cache-control": "no-cache",
        }
        return Response(page, 200, headers, "text/html")

    async def _health(self, request: Request) -> Response:
        """``GET /health``: responds whenever the process is alive."""
        return JSONResponse({"ok": True})

    async def _ready(self, request: Request) -> Response:
        """``GET /ready``: whether runs can be started; 503 if the server is stopping or a requirement of runs is missing.

        The missing parts and the number of runs are shown to holders of keys, and by a server without keys to everyone.
        """
        needs = await self._readiness.needs()
        runs = self.service.runs
        ready = is_ready(needs) and not runs.stopping
        body: dict[str, object] = {"ready": ready}
        if self._door.knows(request):
            body |= {**needs, "stopping": runs.stopping, "runs": len(runs.live)}
        return JSONResponse(body, 200 if ready else 503)
