"""A server that is asked to stop while streams are read: each stream hears of it, and says how its run ended."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from agentflow.serve.server import hearing

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGTERM")
CHAT = {"messages": [{"role": "user", "content": "x"}], "stream": True}
AGUI = {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "x"}]}
UI = {"id": "c", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "x"}]}]}
STREAMS: dict[str, tuple[str, str, Any]] = {
    "events": ("GET", "/runs/slow/events", None),
    "events of a run that asks": ("GET", "/runs/asks/events", None),
    "chat": ("POST", "/v1/chat/completions", {"model": "slow", **CHAT}),
    "a chat that is not streamed": ("POST", "/v1/chat/completions", {"model": "slow", **CHAT, "stream": False}),
    "responses": ("POST", "/v1/responses", {"model": "slow", "input": "x", "stream": True}),
    "agui": ("POST", "/agui/slow", AGUI),
    "agui of a run that asks": ("POST", "/agui/ask", AGUI),
    "useChat": ("POST", "/ui/slow", UI),
}
MCP_STREAMS: dict[str, tuple[str, str, Any]] = {
    "mcp": ("GET", "/mcp", None),
    "a call over mcp": ("POST", "/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "slow", "arguments": {"message": "x"}}}),
}  # fmt: skip
if importlib.util.find_spec("mcp"):  # without the extra a server has no such front
    STREAMS |= MCP_STREAMS


@contextlib.asynccontextmanager
async def hosted() -> AsyncIterator[tuple[subprocess.Popen[str], httpx2.AsyncClient]]:
    """uvicorn with the application, in a process of its own, with no option that has to do with stopping."""
    code = (
        "import socket, uvicorn; from tests.serve.stopping_host import app; s = socket.create_server(('127.0.0.1', 0));"
        "print(s.getsockname()[1], flush=True); uvicorn.Server(uvicorn.Config(app, log_level='error')).run([s])"
    )
    command = [sys.executable, "-c", code]
    host = await asyncio.to_thread(subprocess.Popen, command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert host.stdout is not None
        port = int(await asyncio.to_thread(host.stdout.readline))
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}/f", timeout=60) as client:
            yield host, client
    finally:
        host.kill()
        host.wait()


async def mcp_session(client: httpx2.AsyncClient, headers: dict[str, str]) -> str:
    """The id of a session that is begun as a client begins one."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    begun = await client.post("/mcp", json=first, headers=headers)
    session = begun.headers["mcp-session-id"]
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await client.post("/mcp", json=ready, headers={**headers, "mcp-session-id": session})
    return session


async def test_every_stream_ends_and_the_application_cleans_up() -> None:
    """uvicorn waits for open responses before it tells an application that it stops: with one stream it waited for ever."""
    async with hosted() as (host, client):
        for name, export in (("slow", "slow"), ("asks", "ask")):
            await client.post("/runs", json={"export": export, "message": "x", "run_id": name})
        headers = {"accept": "application/json, text/event-stream"}
        if "mcp" in STREAMS:
            headers["mcp-session-id"] = await mcp_session(client, headers)
        said: dict[str, str] = {}
        opened = asyncio.Semaphore(0)

        async def read(name: str) -> None:
            method, path, body = STREAMS[name]
            if name == "a chat that is not streamed":
                opened.release()
            with contextlib.suppress(httpx2.HTTPError):
                async with client.stream(method, path, json=body, headers=headers) as response:
                    opened.release()
                    said[name] = ""
                    async for line in response.aiter_lines():
                        said[name] += line + "\n"

        async with asyncio.TaskGroup() as group:
            for name in STREAMS:
                group.create_task(read(name))
            for _ in STREAMS:
                await opened.acquire()
            while len((await client.get("/runs")).json()["runs"]) < len(STREAMS) - 1:
                await asyncio.sleep(0.02)
            host.send_signal(signal.SIGTERM)
            out, _ = await asyncio.to_thread(host.communicate, None, 45)
        assert out == "CLEANED UP\n" and set(said) == set(STREAMS)
        for name in ("events", "events of a run that asks"):
            last = json.loads(said[name].rpartition("data: ")[2])
            assert (last["type"], last["outcome"]) == ("run_finished", "cancelled")


async def test_a_second_signal_waits_for_no_run() -> None:
    """As for ``agentflow serve``: whoever asks twice is in a hurry; the handlers that were there are called each time."""
    asked: list[str] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: asked.append("host"))
    try:
        with hearing(lambda: asked.append("flow")):
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)
                await asyncio.sleep(0)
                await asyncio.sleep(0)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert sorted(asked) == ["flow", "flow", "host", "host", "host"]


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.SIG_IGN, signal.default_int_handler], ids=str)
async def test_signals_that_nobody_handles_stay_as_they_are(handler: Callable[..., Any] | signal.Handlers) -> None:
    """A signal that ends the process at once, or is ignored, goes on doing so."""
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with hearing(lambda: None):
            assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
