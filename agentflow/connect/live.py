"""An open connection: the SDK's client over one transport, and the handlers for unsolicited messages of the server."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from httpx2 import Auth
from mcp import Client
from mcp.client.extension import advertise
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl

from agentflow.connect.http import http_streams
from agentflow.connect.in_flight import DECLINED, REJECTED, InFlight
from agentflow.connect.items import EXTENSION, check_items
from agentflow.connect.listing import ListedTool
from agentflow.connect.servers import McpServer, McpStdio
from agentflow.connect.size_limits import MAX_ASKED, MAX_PARTS
from agentflow.connect.stdio import ENDED, stdio_streams
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.ports.service_port import ServiceCommand, ServicePort, ServiceProcess
from agentflow.lib.distribution import own_version
from agentflow.lib.redact import secrets_of

_DATA = frozenset({"structuredContent", "inputSchema", "outputSchema", "requestedSchema", "_meta", "data"})
"""Fields with contents that the SDK does not parse into objects."""


@asynccontextmanager
async def read_streams(
    streams: AbstractAsyncContextManager[tuple[Any, Any]], version: Callable[[], str | None]
) -> AsyncGenerator[tuple[Any, Any]]:
    """The two streams of messages. ``version()`` is the revision spoken, None before it is known.

    In the newer revision, and before, a result without a type is taken to be complete. Wrong items of a result are left out.

    At most :data:`MAX_ASKED` unanswered requests of the server are accepted: the SDK starts a task for each, so a server
    that sends them endlessly and reads no answers would fill the memory.
    """
    async with streams as (incoming, outgoing):
        asked: set[str] = set()
        sent: dict[str, str] = {}
        yield _Incoming(incoming, version, asked, sent), _Outgoing(outgoing, asked, sent)


class _Stream:
    """A ``stream`` of messages in one direction.

    ``asked`` holds the ids of the server's unanswered requests, ``sent`` the methods of ours by their ids.
    """

    def __init__(self, stream: Any, asked: set[str], sent: dict[str, str]) -> None:
        self._stream = stream
        self._asked = asked
        self._sent = sent

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stream.aclose()


class _Incoming(_Stream):
    """Messages from a server."""

    def __init__(self, stream: Any, version: Callable[[], str | None], asked: set[str], sent: dict[str, str]) -> None:
        super().__init__(stream, asked, sent)
        self._version = version

    @property
    def last_context(self) -> Any:
        """The context of the last message sent, if the stream records it."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        while not self._is_let_in(item := await self._stream.receive()):
            pass
        return self._complete(item)

    def __aiter__(self) -> _Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._is_let_in(item := await self._stream.__anext__()):
            pass
        return self._complete(item)

    def _is_let_in(self, item: SessionMessage | Exception) -> bool:
        message = None if isinstance(item, Exception) else item.message
        if isinstance(message, JSONRPCRequest | JSONRPCNotification) and _is_crowded(message.params):
            return False
        if isinstance(message, JSONRPCRequest):
            if len(self._asked) >= MAX_ASKED or str(message.id) in self._asked:
                return False
            self._asked.add(str(message.id))
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._asked.discard(
                str((message.params or {}).get("requestId"))
            )  # the SDK sends no answer to a cancelled request
        return True

    def _complete(self, item: SessionMessage | Exception) -> SessionMessage | Exception:
        if not isinstance(item, SessionMessage) or not isinstance(item.message, JSONRPCResponse | JSONRPCError):
            return item
        method = self._sent.pop(str(item.message.id), None)
        if isinstance(item.message, JSONRPCError):
            return item
        if _is_crowded(item.message.result):
            error = ErrorData(code=PARSE_ERROR, message=f"the answer has more than {MAX_PARTS:,} parts")
            return SessionMessage(JSONRPCError(jsonrpc="2.0", id=item.message.id, error=error), item.metadata)
        version = self._version()
        if version is None or version in MODERN_PROTOCOL_VERSIONS:
            item.message.result.setdefault("resultType", "complete")
        if version is not None and method is not None:
            check_items(method, version, item.message.result)
        return item


def _is_crowded(value: Any) -> bool:
    """Whether a message has more than :data:`MAX_PARTS` objects that the SDK would parse at once."""
    left = MAX_PARTS
    pending = [value]
    while pending:
        each = pending.pop()
        if isinstance(each, list):
            pending += cast("list[Any]", each)
        elif isinstance(each, dict):
            left -= 1
            if left < 0:
                return True
            pending += [part for key, part in cast("dict[str, Any]", each).items() if key not in _DATA]
    return False


class _Outgoing(_Stream):
    """Messages to a server."""

    async def send(self, item: SessionMessage) -> None:
        if isinstance(item.message, JSONRPCRequest):
            self._sent[str(item.message.id)] = item.message.method
        elif isinstance(item.message, JSONRPCNotification) and item.message.method == "notifications/cancelled":
            self._sent.pop(str((item.message.params or {}).get("requestId")), None)  # no answer is waited for
        await self._stream.send(item)
        if isinstance(item.message, JSONRPCResponse | JSONRPCError):
            self._asked.discard(str(item.message.id))


CREDENTIALS = frozenset({"authorization", "cookie", "proxy-authorization"})
"""The names of headers whose values are secrets."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_REFERENCE = re.compile(r"\$(?:\$|\{(\w+)\}|([A-Za-z_]\w*))")


def expand(
    table: Mapping[str, str], environ: Mapping[str, str], secret: Callable[[str], None], server: str
) -> dict[str, str]:
    """Return ``table`` with ``$NAME`` and ``${NAME}`` in its values replaced from ``environ``; ``$$`` is a dollar.

    ``secret`` takes each replaced value, and each value with a name that denotes a credential. ``server`` is named in errors.
    Raises ConfigurationError (``mcp/variable``) for an unset variable.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name is None:
            return "$"
        value = environ.get(name)
        if not value:
            raise ConfigurationError(
                f"the MCP server '{server}' uses ${name}, which is not set",
                code="mcp/variable",
                hint=f"set the variable {name}, or write $$ for a dollar",
            )
        secret(value)
        return value

    values = {name: _REFERENCE.sub(value_of, text) for name, text in table.items()}
    for name, value in values.items():
        for credential in value.split()[-1:] if name.lower() in CREDENTIALS else secrets_of(name, value):
            secret(credential)
    return values


def expand_headers(
    table: Mapping[str, str], environ: Mapping[str, str], secret: Callable[[str], None], server: str
) -> dict[str, str]:
    """Do the same for headers. Raises ConfigurationError (``mcp/variable``) also for names and values no header can hold."""
    values = expand(table, environ, secret, server)
    for name, value in values.items():
        if not _HEADER.fullmatch(name) or not (value.isascii() and value.isprintable()):
            raise ConfigurationError(  # no value: it may be a secret
                f"the MCP server '{server}' cannot be sent the header {clip(repr(name), 80)}",
                code="mcp/variable",
                hint="names have no blanks; values have no line ends and only ASCII characters: check the variable",
            )
    return values


STOP_S = 1.0
"""Seconds a program has to exit after its input is closed."""
LOST_S = 0.2
"""Seconds a program has to exit after its connection was lost."""
CLOSED = "it was closed"
"""The reason for an end that was requested."""
EXPIRED = "its session expired"
"""The reason for the end of a connection after the server has forgotten its session."""


def was_closed(error: MCPError) -> bool:
    """Whether an error is the SDK's for a connection that was lost, and not a server's own, which may have the same code."""
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


class Live:
    """A connection: opening, open, or over.

    Attributes: ``tools`` are those last listed; ``in_flight`` the requests under way; ``over`` is set when the connection is
    lost or to be closed, and ``ending`` is the reason; ``retired``: it is to be closed after the requests under way;
    ``closed`` is set once it is closed; ``news`` when the tools changed.
    """

    def __init__(self) -> None:
        self.tools: Mapping[str, ListedTool] = {}
        self.in_flight: set[InFlight] = set()
        self.over = asyncio.Event()
        self.news = asyncio.Event()
        self.closed = asyncio.Event()
        self.ending = ""
        self.retired = False
        self.process: ServiceProcess | None = None
        self._client: Client | None = None

    @property
    def session(self) -> ClientSession:
        """The SDK's session."""
        assert self._client is not None
        return self._client.session

    @property
    def client(self) -> Client:
        """The SDK's client."""
        assert self._client is not None
        return self._client

    @property
    def modern(self) -> bool:
        """Whether the server speaks the newer revision, with independent requests."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def leave(self, request: InFlight) -> None:
        """Note that ``request`` has ended; it may have been the last one of a connection to be closed."""
        self.in_flight.discard(request)
        if self.retired and not self.in_flight:
            self.end(EXPIRED)

    def end(self, reason: str) -> None:
        """Mark the connection as over, for ``reason``."""
        self.ending = self.ending or reason
        self.over.set()

    @asynccontextmanager
    async def opened(
        self,
        server: McpServer,
        services: ServicePort,
        secret: Callable[[str], None],
        roots: tuple[str, ...],
        auth: Auth | None,
    ) -> AsyncGenerator[None]:
        """Connect to ``server`` for the duration of a block. Parameters as for :class:`~agentflow.connect.server_connection.Connection`."""
        if not isinstance(server, McpStdio):
            headers = expand_headers(server.headers, os.environ, secret, server.name)
            async with self._build(http_streams(server.url, headers, auth), server, ()) as self._client:
                yield
            return
        self.process = await services.start(
            ServiceCommand(
                argv=tuple(server.command),
                env=expand(server.env, os.environ, secret, server.name),
                network=server.network,
                writable=tuple(server.writable),
                readable=tuple(server.readable),
            )
        )
        try:
            async with self._build(stdio_streams(self.process, self.end), server, roots) as self._client:
                yield
        finally:
            ending = await self.process.stop(STOP_S if self.ending == CLOSED else LOST_S)
            if self.ending == ENDED:
                self.ending = ending

    def _build(self, streams: Any, server: McpServer, roots: tuple[str, ...]) -> Client:
        def asking() -> InFlight | None:
            # a request of the server does not say which call it belongs to, so the answer is clear only for a single call in progress
            return next(iter(self.in_flight)) if len(self.in_flight) == 1 else None

        async def elicit(context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult | ErrorData:
            request = asking()
            return DECLINED if request is None else cast("ElicitResult | ErrorData", await request.asked(params))

        async def sample(
            context: ClientRequestContext, params: CreateMessageRequestParams
        ) -> CreateMessageResult | ErrorData:
            request = asking()
            if request is None:
                return ErrorData(code=REJECTED, message="it is unclear which call the request is for")
            return cast("CreateMessageResult | ErrorData", await request.asked(params))

        async def tell_roots(context: ClientRequestContext) -> ListRootsResult:
            return ListRootsResult(roots=[Root(uri=FileUrl(Path(path).as_uri())) for path in roots])

        async def log(params: LoggingMessageNotificationParams) -> None:
            for request in tuple(self.in_flight):
                request.logged(params)

        async def notice(message: object) -> None:
            if isinstance(message, ToolListChangedNotification):
                self.news.set()

        def spoken() -> str | None:
            # the first answer arrives before the revision is negotiated
            return None if self._client is None else self._client.protocol_version

        return Client(
            read_streams(streams, spoken),
            client_info=Implementation(name="agentflow", version=own_version()),
            elicitation_callback=elicit,
            sampling_callback=sample if server.sampling else None,
            list_roots_callback=tell_roots if roots else None,
            logging_callback=log,
            log_level="info",
            message_handler=notice,
            cache=None,
            extensions=[advertise(EXTENSION)],
        )
