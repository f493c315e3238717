"""A flow served over real TCP on the loopback, in this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import uvicorn

from agentflow import AgentFlow
from agentflow.serve import FlowServer


class Served:
    """A server that runs: its address, and a client of it."""

    def __init__(self, server: FlowServer, port: int, client: httpx2.AsyncClient) -> None:
        self.server = server
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.client = client
        self.runs = server.service.runs

    async def post(self, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        return await self.client.post(path, json=body, **options)

    async def get(self, path: str, **options: Any) -> httpx2.Response:
        return await self.client.get(path, **options)

    async def begin(self, export: str, **bindings: Any) -> str:
        """Begin a run; its id."""
        answer = await self.post("/runs", {"export": export, "bindings": bindings})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["run_id"])

    async def ended(self, run_id: str) -> dict[str, Any]:
        """A run, once it has ended."""
        async for _ in self.events(run_id):
            pass
        while (data := (await self.get(f"/runs/{run_id}")).json())["ended"] is None:
            await asyncio.sleep(0.01)
        return dict(data)

    async def until(self, run_id: str, kind: str) -> AsyncIterator[dict[str, Any]]:
        """The events of a run up to the first of a kind."""
        async with contextlib.aclosing(self.events(run_id)) as events:
            async for event in events:
                yield event
                if event["type"] == kind:
                    return

    async def events(self, run_id: str, after: str | None = None, **options: Any) -> AsyncIterator[dict[str, Any]]:
        """The events of a run as they come, each with its ``id``."""
        query = {} if after is None else {"after": after}
        async with self.client.stream("GET", f"/runs/{run_id}/events", params=query, **options) as answer:
            assert answer.status_code == 200, await answer.aread()
            at = ""
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    at = line[4:]
                elif line.startswith("data: "):
                    yield {**json.loads(line[6:]), "id": at}


@contextlib.asynccontextmanager
async def running(app: Any) -> AsyncIterator[int]:
    """The port on which an ASGI application is served meanwhile."""
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="warning", access_log=False, timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    server.capture_signals = contextlib.nullcontext  # type: ignore[method-assign, assignment] - they are the test runner's
    serving = asyncio.create_task(server.serve())
    while not server.started:
        assert not serving.done(), serving.exception()
        await asyncio.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await serving


@contextlib.asynccontextmanager
async def served(flow: AgentFlow, exports: Any, **options: Any) -> AsyncIterator[Served]:
    """A flow with a server of its own, and a client that has no key."""
    server = FlowServer(flow, exports, **options)
    async with running(server) as port:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30, limits=limits) as client:
            yield Served(server, port, client)
