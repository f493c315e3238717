"""The sign-ins of the person at the command line: ``agentflow mcp sign-in`` makes them, and the flows of other commands use them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from agentflow.cli.shared.common import UsageError

if TYPE_CHECKING:
    from agentflow.connect.servers import McpServer
    from agentflow.connect.sign_in import SignIn

USER = "local"
"""The user of these sign-ins in the store."""
PORT = 48_763
"""The port of this machine at which a sign-in ends: always the same one, since some authorization servers compare it."""
_PATH = "/callback"
_HEAD_S = 10.0
_PAGE = "<!doctype html><meta charset=utf-8><title>agentflow</title><p>{}"


def own_sign_in(port: int = PORT) -> SignIn:
    """A sign-in that ends at this machine, with its tokens in agentflow's state directory."""
    from agentflow.connect.sign_in import SignIn
    from agentflow.connect.token_store import FileTokens

    return SignIn(
        user=lambda ctx: USER, redirect_uri=f"http://127.0.0.1:{port}{_PATH}", tokens=FileTokens(), lists_as=USER
    )


def with_own_sign_ins(servers: Iterable[McpServer]) -> list[McpServer]:
    """The servers, with credentials for those at whose addresses the person has signed in, unless they have some or a header for them."""
    from agentflow.connect.servers import McpHttp
    from agentflow.connect.token_store import FileTokens, tokens_key

    tokens = FileTokens()

    def own(server: McpServer) -> McpServer:
        if not isinstance(server, McpHttp) or server.credentials is not None:
            return server
        if any([name.lower() == "authorization" for name in server.headers]) or not tokens.holds(
            tokens_key(server.url, USER)
        ):
            return server
        return replace(server, credentials=own_sign_in())

    return [own(server) for server in servers]


class Callbacks:
    """The requests of a browser that comes back from a sign-in."""

    def __init__(self) -> None:
        self._came: asyncio.Queue[dict[str, str]] = asyncio.Queue()

    async def next(self) -> dict[str, str]:
        """The parameters of the next one."""
        return await self._came.get()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a request. Only its first line is read."""
        try:
            async with asyncio.timeout(_HEAD_S):
                line = (await reader.readuntil(b"\r\n")).decode("latin-1").split(" ")
            target = urlsplit(line[1]) if len(line) == 3 and line[0] == "GET" else None
            if target is None or target.path != _PATH:
                status, said = "404 Not Found", "This is not the address of a sign-in."
            else:
                self._came.put_nowait(dict(parse_qsl(target.query)))
                status, said = "200 OK", "You may close this window and return to the terminal."
            body = _PAGE.format(said).encode()
            head = f"HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        except (OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a browser
        finally:
            writer.close()


@asynccontextmanager
async def listening(port: int) -> AsyncGenerator[Callbacks]:
    """A block in which browsers of this machine may come back from sign-ins. Raises UsageError for a port in use."""
    callbacks = Callbacks()
    try:
        server = await asyncio.start_server(callbacks.answer, "127.0.0.1", port)
    except OSError as error:
        raise UsageError(
            f"port {port} of this machine cannot be used: {error.strerror or error}", hint="--port names another one"
        ) from error
    async with server:
        yield callbacks
