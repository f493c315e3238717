"""MCP servers over HTTP on loopback: one of the SDK's own make, and one that answers whatever a test says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from mcp.server.mcpserver import Context, MCPServer


def sdk_server() -> MCPServer:
    """A server of the SDK, with a few tools."""
    server = MCPServer("sdk")

    @server.tool()
    async def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    @server.tool()
    async def token(ctx: Context) -> str:
        """The credentials that came with the request."""
        return str(ctx.request_context.request.headers.get("authorization"))  # type: ignore[union-attr]

    @server.tool()
    async def grow(ctx: Context) -> str:
        """Have another tool from now on, and say so to who listens."""

        async def new() -> str:
            return "new"

        server.add_tool(new, name="new")
        await ctx.notify_tools_changed()
        return "grown"

    @server.tool()
    async def nap(seconds: float) -> str:
        """Sleep."""
        await asyncio.sleep(seconds)
        return "rested"

    return server


@asynccontextmanager
async def running(app: Any, port: int = 0) -> AsyncIterator[int]:
    """An ASGI application that is served on loopback, at the port that is given."""
    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error"))
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await serving


Answer = Callable[[dict[str, Any], asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def raw_server(answer: Answer) -> AsyncIterator[str]:
    """An HTTP server that hands every JSON-RPC message to ``answer``, which writes the bytes of the response."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length")
                    ),
                    0,
                )
                body = await reader.readexactly(length)
                await answer(json.loads(body) if body else {}, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"


def respond(
    writer: asyncio.StreamWriter, body: bytes, *headers: str, status: str = "200 OK", length: int | None = None
) -> None:
    """Write a response."""
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body) if length is None else length}", *headers]
    if not any(line.lower().startswith("content-type") for line in headers):
        lines.append("content-type: application/json")
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)


def result(message: dict[str, Any], value: dict[str, Any]) -> bytes:
    """The body of a successful answer."""
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": value}).encode()


TOOL = {
    "name": "get",
    "description": "Get it.",
    "inputSchema": {"type": "object"},
    "annotations": {"readOnlyHint": True},
}


def handshake(message: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
    """Answer what comes before the first call, in the newer revision; False for anything else."""
    common = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    match message.get("method"):
        case "server/discover":
            respond(
                writer, result(message, {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, **common})
            )
        case "tools/list":
            respond(writer, result(message, {"tools": [TOOL], **common}))
        case _:
            return False
    return True
