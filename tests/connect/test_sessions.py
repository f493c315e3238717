"""Sessions that a server at an address forgets: after a restart, when they were idle, when a credential ran out."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from agentflow.events import Warning
from agentflow.mcp import McpHttp
from tests.connect.flows import flow_with, seen
from tests.connect.http_servers import running

READS = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
WRITES = {"name": "write", "inputSchema": {"type": "object"}}


def body(code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}


REFUSALS: dict[str, Callable[[], Response]] = {
    "404 with JSON-RPC": lambda: JSONResponse(body(-32001, "Session not found"), 404),
    "404 with another error": lambda: JSONResponse(body(-32600, "Bad Request"), 404),
    "404 with text": lambda: PlainTextResponse("Not Found", 404),
    "404 with nothing": lambda: Response(status_code=404),
    "400 with JSON-RPC": lambda: JSONResponse(body(-32000, "Bad Request: unknown session"), 400),
    "400 with text": lambda: PlainTextResponse("No valid session ID provided", 400),
    "401": lambda: JSONResponse({"error": "invalid_token"}, 401),
    "410": lambda: Response(status_code=410),
}


class Sessions:
    """A server of the older revision that knows its sessions; ``refusal`` is the answer to those that it forgot."""

    def __init__(self, refusal: Callable[[], Response]) -> None:
        self.refusal = refusal
        self.known: set[str] = set()
        self.begun = 0
        self.called: list[str] = []
        self.forgets = False
        self.going = asyncio.Event()

    async def answer(self, request: Request) -> Response:
        if request.method != "POST":
            return Response(status_code=405 if request.method == "GET" else 200)
        message, session = await request.json(), request.headers.get("mcp-session-id")
        method = message["method"]
        if method == "initialize":
            self.begun += 1
            self.known.add(str(self.begun))
            info = {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "s", "version": "1"},
            }
            return self.result(message, info, {"mcp-session-id": str(self.begun)})
        if method == "server/discover" or session is None:
            return JSONResponse(body(-32601, "Method not found"), 404)
        if session not in self.known:
            return self.refusal()
        if "id" not in message:
            return Response(status_code=202)
        if method == "tools/list":
            return self.result(message, {"tools": [READS, WRITES]})
        name = message["params"]["name"]
        if self.forgets:
            self.known.clear()
            return self.refusal()
        self.called.append(name)
        if message["params"].get("arguments", {}).get("wait"):
            await self.going.wait()
        return self.result(message, {"content": [{"type": "text", "text": f"{name} {session}"}]})

    @staticmethod
    def result(message: Any, value: Any, headers: dict[str, str] | None = None) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": value}, headers=headers)

    @asynccontextmanager
    async def served(self) -> AsyncIterator[McpHttp]:
        routes = [Route("/mcp", self.answer, methods=["GET", "POST", "DELETE"])]
        async with running(Starlette(routes=routes)) as port:
            yield McpHttp("s", f"http://127.0.0.1:{port}/mcp", timeout_s=5, approve="none")


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_an_expired_session_is_renewed_and_the_call_repeated(refusal: str, tmp_path: Path) -> None:
    """However the server says it. A call that was refused was not carried out, so a tool that writes is called, too, once."""
    sessions = Sessions(REFUSALS[refusal])
    async with sessions.served() as server, flow_with(tmp_path, server) as flow:
        assert (await flow.run("(content (s:look))")).value == "look 1"
        for number, name in enumerate(("look", "write", "look"), 2):
            sessions.known.clear()
            value, events = await seen(flow, f"(content (s:{name}))")
            assert value == f"{name} {number}"
            assert [event.code for event in events if isinstance(event, Warning)] == ["mcp/reconnected"]
        assert sessions.called == ["look", "look", "write", "look"]


async def test_many_calls_share_one_new_session(tmp_path: Path) -> None:
    """Fifty calls at once on a session that was forgotten."""
    sessions = Sessions(REFUSALS["404 with JSON-RPC"])
    async with sessions.served() as server, flow_with(tmp_path, server) as flow:
        await flow.run("(s:look)")
        sessions.known.clear()
        values = (await flow.run("(pmap (lambda (i) (content (s:write))) (range 50))")).value
        assert set(values) == {"write 2"} and sessions.begun == 2 and sessions.called.count("write") == 50


async def test_a_call_under_way_ends_on_the_session_it_began_with(tmp_path: Path) -> None:
    """Its answer comes although another call was told that the session is over."""
    sessions = Sessions(REFUSALS["404 with JSON-RPC"])
    async with sessions.served() as server, flow_with(tmp_path, server) as flow:
        long = asyncio.ensure_future(flow.call_tool("s:write", wait=True))
        while not sessions.called:
            await asyncio.sleep(0.01)
        sessions.known.clear()
        assert (await flow.run("(content (s:look))")).value == "look 2"
        sessions.going.set()
        assert await long == "write 1"


async def test_a_server_that_forgets_each_session_is_left_alone(tmp_path: Path) -> None:
    """One repetition, and then the error says what happened."""
    sessions = Sessions(REFUSALS["404 with JSON-RPC"])
    async with sessions.served() as server, flow_with(tmp_path, server) as flow:
        sessions.forgets = True
        error = ((await flow.run("(s:look)")).value).notes.error
        assert error.details["code"] == "mcp/connection-lost" and "Session terminated" in error.message
        assert sessions.begun == 2


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (JSONResponse(body(-32602, "unknown chess session"), 400), "mcp/-32602"),
        (JSONResponse(body(-32601, "Method not found"), 404), "mcp/-32601"),
        (JSONResponse(body(-32000, "the disk is full"), 500), "mcp/-32000"),
        (PlainTextResponse("Bad Gateway", 502), "mcp/-32603"),
        (PlainTextResponse("too many", 429), "mcp/-32603"),
    ],
    ids=["arguments", "method", "500", "502", "429"],
)
async def test_other_refusals_are_of_the_call(refused: Response, code: str, tmp_path: Path) -> None:
    """They end no session, and where the body says nothing, the status is the message."""
    sessions = Sessions(lambda: refused)
    async with sessions.served() as server, flow_with(tmp_path, server) as flow:
        before = set(sessions.known)
        sessions.known.clear()
        error = ((await flow.run("(s:look)")).value).notes.error
        sessions.known |= before
        assert error.details["code"] == code and sessions.begun == 1
        if code == "mcp/-32603":
            assert (
                error.message
                == f"HTTP {refused.status_code} " + {502: "Bad Gateway", 429: "Too Many Requests"}[refused.status_code]
            )
        assert (await flow.run("(content (s:look))")).value == "look 1"
    assert json.dumps(sessions.called) == '["look"]'
