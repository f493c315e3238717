"""``/mcp``: the server over streamable HTTP. The first request imports the SDK, on a worker thread."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from importlib.util import find_spec
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from agentflow.lib.distribution import install
from agentflow.lib.own_threads import loaded
from agentflow.serve.error_responses import RequestError
from agentflow.serve.keys import KEY_IN_SCOPE, Key
from agentflow.serve.served_flow import ServedFlow

_LAST_WORDS_S = 2.0


class McpEndpoint:
    """The ASGI application behind ``/mcp``, for admitted requests. Its sessions end with :meth:`aclose`."""

    def __init__(self, service: ServedFlow, anyone: Key) -> None:
        self._service = service
        self._anyone = anyone
        self._serving: ASGIApp | None = None
        self._opening: asyncio.Lock | None = None
        self._owner: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._calls = 0
        self._idle = asyncio.Event()

    async def serve(self, scope: Scope, receive: Receive, send: Send, key: Key) -> None:
        """Answer a request of ``key``. Raises RequestError: 501 without the extra, 503 once the endpoint is closed."""
        self._opening = self._opening or asyncio.Lock()
        async with self._opening:
            serving = self._serving or await self._open()
        if self._stop.is_set():
            raise RequestError(
                "the server is stopping",
                code="serve/stopping",
                status=503,
                hint="use another server, or try again later",
            )
        scope = {**scope, KEY_IN_SCOPE: key, "user": _user(key)}
        calls = scope["method"] == "POST"
        self._calls += calls
        try:
            await serving(scope, receive, send)
        finally:
            self._calls -= calls
            if not self._calls:
                self._idle.set()

    async def _open(self) -> ASGIApp:
        if find_spec("mcp") is None:
            raise RequestError(
                "this server does not offer MCP: a package is missing",
                code="serve/no-mcp",
                status=501,
                setting=f"{install('mcp')} on the server",
            )
        await loaded("agentflow.serve.mcp.mcp_server")
        await loaded("mcp.server.streamable_http_manager")
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from agentflow.serve.mcp.mcp_server import FlowMcp

        manager = StreamableHTTPSessionManager(
            FlowMcp(self._service, self._anyone).server()
        )  # requests are admitted before they get here
        opened = asyncio.Event()
        # an empty context: sessions outlive the request that opens them
        self._owner = asyncio.create_task(
            self._own(manager, opened), name="mcp sessions", context=contextvars.Context()
        )
        await opened.wait()
        self._serving = manager.handle_request
        return manager.handle_request

    async def _own(self, manager: Any, opened: asyncio.Event) -> None:
        """Hold the sessions' task group open: it must be entered and left in one task."""
        async with manager.run():
            opened.set()
            await self._stop.wait()

    async def aclose(self) -> None:
        """End all sessions, after calls of ended runs have sent their results. Idempotent."""
        self._idle.clear()
        if self._calls and not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_WORDS_S):
                    await self._idle.wait()
        self._stop.set()
        if self._owner is not None:
            await asyncio.wait([self._owner])


def _user(key: Key) -> Any:
    """The owner of a session in the SDK's terms: only the key that opened a session may use it."""
    from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
    from mcp.server.auth.provider import AccessToken

    return AuthenticatedUser(AccessToken(token="-", client_id=key.name, scopes=[]))
