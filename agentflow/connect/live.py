"""An open connection: the SDK's client over one transport, and the handlers for what the server sends unasked."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from mcp import Client
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.shared.exceptions import MCPError
from mcp_types import (
    CONNECTION_CLOSED,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ErrorData,
    Implementation,
    ListRootsResult,
    LoggingMessageNotificationParams,
    Root,
    ToolListChangedNotification,
)
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import FileUrl

from agentflow.connect.http import http_streams
from agentflow.connect.in_flight import DECLINED, InFlight
from agentflow.connect.incoming import read_streams
from agentflow.connect.listing import ListedTool
from agentflow.connect.sampling import REJECTED
from agentflow.connect.secrets import expand, expand_headers
from agentflow.connect.servers import McpServer, McpStdio
from agentflow.connect.stdio import ENDED, stdio_streams
from agentflow.core.ports.service_port import ServiceCommand, ServicePort, ServiceProcess

STOP_S = 1.0
"""Seconds a program has to exit after its input is closed."""
LOST_S = 0.2
"""Seconds a program has to exit after its connection was lost."""
CLOSED = "it was closed"
"""The reason for an end that was requested."""
EXPIRED = "its session expired"
"""The reason for the end of a connection whose session the server does not know any more."""


def was_closed(error: MCPError) -> bool:
    """Whether an error is the SDK's for a connection that was lost, and not a server's own, which may have the same code."""
    return error.code == CONNECTION_CLOSED and error.message == "Connection closed"


class Live:
    """A connection that is opening, open, or over.

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
        """Whether the server speaks the newer revision, in which each request stands alone."""
        return self.client.protocol_version in MODERN_PROTOCOL_VERSIONS

    def leave(self, request: InFlight) -> None:
        """Note that ``request`` has ended; it may have been the last one of a connection that is to be closed."""
        self.in_flight.discard(request)
        if self.retired and not self.in_flight:
            self.end(EXPIRED)

    def end(self, reason: str) -> None:
        """Mark the connection as over, for ``reason``."""
        self.ending = self.ending or reason
        self.over.set()

    @asynccontextmanager
    async def opened(
        self, server: McpServer, services: ServicePort, secret: Callable[[str], None], roots: tuple[str, ...]
    ) -> AsyncGenerator[None]:
        """Connect to ``server`` for the duration of a block. Parameters as for :class:`~agentflow.connect.connection.Connection`."""
        if not isinstance(server, McpStdio):
            headers = expand_headers(server.headers, os.environ, secret, server.name)
            async with self._build(http_streams(server.url, headers), server, ()) as self._client:
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
            # a request of the server does not say which call it belongs to, so only a single call under way tells
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
            client_info=Implementation(name="agentflow", version=version("agentflow")),
            elicitation_callback=elicit,
            sampling_callback=sample if server.sampling else None,
            list_roots_callback=tell_roots if roots else None,
            logging_callback=log,
            log_level="info",
            message_handler=notice,
            cache=None,
        )


__all__ = ["CLOSED", "EXPIRED", "Live", "was_closed"]
