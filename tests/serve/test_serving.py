"""The command as a process, the server inside other applications, and how both stop."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.routing import Mount

from agentflow import AgentFlow, ScriptedProvider, tool
from agentflow.cli.admin.serve import serve_flow
from agentflow.cli.shared.host_options import ServeOptions
from agentflow.core.data.errors import AgentflowError
from agentflow.serve import FlowServer
from agentflow.serve.keys import new_key
from agentflow.serve.server import Readiness, is_ready
from tests.support.served import running, served

MCP_SERVER = Path(__file__).parents[1] / "connect" / "server.py"


@contextlib.asynccontextmanager
async def command(*words: str, cwd: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """``agentflow serve`` on a free port: the process and its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agentflow", "serve", "--port", "0", *words, cwd=cwd, stderr=subprocess.PIPE
    )
    try:
        assert process.stderr is not None
        line = (await process.stderr.readline()).decode()
        found = re.search(r"http://\S+", line)
        assert found, line + (await process.stderr.read()).decode()
        yield process, found[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.slow
async def test_the_command_serves_and_stops_in_order(tmp_path: Path) -> None:
    """A run at work when it is asked to stop may end, its reader sees that; a second one is cancelled when the time is up."""
    (tmp_path / "quick.sexp").write_text("(begin (sleep 1) message)")
    (tmp_path / "long.sexp").write_text("(begin (sleep 60) message)")
    async with command("--grace", "2", "--model", "offline", str(tmp_path), cwd=tmp_path) as (process, url):
        async with httpx2.AsyncClient(base_url=url, timeout=20) as client:
            assert (await client.get("/ready")).json() == {
                "ready": True,
                "flow": "ok",
                "model": "ok",
                "index": "ok",
                "mcp": {},
                "stopping": False,
                "runs": 0,
            }
            ends: list[dict[str, Any]] = []

            async def read(name: str) -> None:
                begun = await client.post("/runs", json={"export": name, "bindings": {"message": "x"}})
                async with client.stream("GET", f"/runs/{begun.json()['run_id']}/events") as answer:
                    async for line in answer.aiter_lines():
                        if line.startswith("data: "):
                            ends.append(json.loads(line[6:]))
                            started.release()

            started = asyncio.Semaphore(0)
            reading = asyncio.gather(read("quick"), read("long"))
            await started.acquire()
            await started.acquire()
            process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.3)
            assert (await client.get("/ready")).status_code == 503
            refused = await client.post("/runs", json={"export": "quick", "bindings": {"message": "x"}})
            assert refused.status_code == 503 and refused.json()["error"]["code"] == "serve/stopping"
            await reading
        assert [each["outcome"] for each in ends if each["type"] == "run_finished"] == ["ok", "cancelled"]
        assert await process.wait() == 0


async def test_what_cannot_be_served_is_said(tmp_path: Path) -> None:
    """Before anything listens: an address of others without keys, nothing to serve, files that are none."""
    program = tmp_path / "a.sexp"
    await asyncio.to_thread(program.write_text, "(string-append message)")
    file = str(program)
    cases: list[tuple[list[str], dict[str, Any], str]] = [
        ([file], {"host": "0.0.0.0"}, "serve/open"),
        ([], {}, "cli/usage"),
        ([str(tmp_path / "none.sexp")], {}, "program/unreadable"),
        ([file], {"keys": str(tmp_path / "none.toml")}, "serve/keys"),
        ([file], {"on_disconnect": "x"}, "cli/usage"),
        ([file], {"host": "192.0.2.1", "keys": "KEYS"}, "serve/address"),
    ]
    await asyncio.to_thread((tmp_path / "keys.toml").write_text, new_key("ada")[1])
    for paths, options, code in cases:
        if options.get("keys") == "KEYS":
            options["keys"] = str(tmp_path / "keys.toml")
        with pytest.raises(AgentflowError) as caught:
            await serve_flow(paths, ServeOptions(root=str(tmp_path), record=False, port=0, **options))
        assert caught.value.code == code


async def test_it_mounts_into_other_applications() -> None:
    """Starlette and FastAPI mount it below a path, with middleware that runs handlers in anyio's tasks; runs end with the block."""
    began = asyncio.Event()

    @tool
    async def nap() -> str:
        """Sleep."""
        began.set()
        await asyncio.sleep(60)
        return "slept"

    for kind in ("starlette", "fastapi"):
        flow = AgentFlow(provider=ScriptedProvider(["Paris."]), tools=[nap])
        exports = {
            "capital": '(defatom c (params (q)) (instructions "{{q}}")) (content (c (q message)))',
            "nap": "(nap)",
        }
        server = FlowServer(flow, exports)

        @contextlib.asynccontextmanager
        async def lifespan(app: object, flow: AgentFlow = flow, server: FlowServer = server) -> AsyncIterator[None]:
            async with flow, server:
                yield

        async def passing(request: Any, call_next: Any) -> Any:
            return await call_next(request)

        if kind == "starlette":
            app: Any = Starlette(routes=[Mount("/flows", server)], lifespan=lifespan)
        else:
            app = FastAPI(lifespan=lifespan)
            app.mount("/flows", server)
        app.add_middleware(BaseHTTPMiddleware, dispatch=passing)
        async with running(app) as port:
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}/flows", timeout=20) as client:
                body = {"model": "capital", "messages": [{"role": "user", "content": "x"}]}
                for stream in (False, True):
                    answer = await client.post("/v1/chat/completions", json={**body, "stream": stream})
                    assert answer.status_code == 200 and ("[DONE]" if stream else "Paris.") in answer.text
                began.clear()
                asking = asyncio.create_task(client.post("/v1/chat/completions", json={**body, "model": "nap"}))
                await began.wait()
                asking.cancel()
                await asyncio.wait([asking])
                [napping] = [run for run in server.service.runs if run.export == "nap"]
                await asyncio.wait_for(napping.wait(), 10)
                assert napping.status == "cancelled"
                begun = await client.post("/runs", json={"export": "nap", "bindings": {"message": ""}})
                assert begun.headers["location"] == f"/flows/runs/{begun.json()['run_id']}"
        assert not server.service.runs.live and [run.status for run in server.service.runs][-1] == "cancelled"


@pytest.mark.slow
async def test_a_server_is_ready_when_what_its_runs_need_is_there(tmp_path: Path) -> None:
    """A dead MCP server and a closed index are named, by looks that connect nothing; one that can be tried again counts as there."""
    pytest.importorskip("mcp")
    from tests.connect.flows import server as mcp_server

    shutil.copy(MCP_SERVER, tmp_path / "server.py")
    needed = [mcp_server(name="tools", approve="none"), mcp_server(name="extra", script="none.py", optional=True)]
    async with AgentFlow("offline", root=tmp_path, sandbox="none", mcp=needed) as flow:
        clock = itertools.count(0, 10)  # each look is a check
        ready = Readiness(flow, clock.__next__)
        assert (await ready.needs())["mcp"] == {"tools": "ok"}
        await flow.run("(tools:die_writing)")
        assert is_ready(await ready.needs())
        (tmp_path / "server.py").write_text("raise SystemExit('broken')")
        async with served(flow, {"echo": "(string-append message)"}) as server:
            await flow.run("(tools:die_writing)")  # then at once: it may be tried again after a second
            assert (await ready.needs())["mcp"] == {"tools": "mcp/down"}
            answer = await server.get("/ready")
            assert (answer.status_code, answer.json()["mcp"]) == (503, {"tools": "mcp/down"})
        await flow.memory_system.index.aclose()
        assert (await ready.needs())["index"] == "memory/closed"


async def test_a_flow_in_which_no_run_can_begin_is_not_ready() -> None:
    """A server whose flow was closed refuses every run, and says so to whoever sends it requests."""
    async with AgentFlow("offline") as flow:
        ready = Readiness(flow, itertools.count(0, 10).__next__)
        assert is_ready(await ready.needs())
    assert (await ready.needs())["flow"] == "flow/closed" and not is_ready(await ready.needs())


async def test_a_flow_whose_runs_cannot_be_stored_is_not_ready(tmp_path: Path) -> None:
    """A store that another process holds locked takes no run: the server says so, and is ready again once it does."""
    path = tmp_path / "runs.db"
    async with AgentFlow("offline", durable=f"sqlite:///{path}") as flow:
        await flow.start("1")
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("begin immediate")
            async with served(flow, {"echo": "(string-append message)"}) as server:
                answer = await server.get("/ready")
                assert (answer.status_code, answer.json()["flow"]) == (503, "durable/database")
        assert is_ready(await Readiness(flow).needs())


async def test_ready_is_paced() -> None:
    """However many ask, and at once, the flow is looked at once a second."""
    now = 0.0
    async with AgentFlow("offline") as flow:
        ready = Readiness(flow, lambda: now)
        first = await asyncio.gather(*[ready.needs() for _ in range(100)])
        assert all([each is first[0] for each in first])
        now = 0.9
        assert await ready.needs() is first[0]
        now = 1.0
        assert await ready.needs() is not first[0]


async def test_strangers_are_told_no_more_than_whether(tmp_path: Path) -> None:
    """Without a key /ready and /health are bare; with one the details are there; under another host's name nothing is."""
    (tmp_path / "keys.toml").write_text((made := new_key("ada"))[1])
    ours, other = {"authorization": f"Bearer {made[0]}"}, {"host": "rebound.example"}
    async with (
        AgentFlow() as flow,
        served(flow, {"echo": "(string-append message)"}, keys=tmp_path / "keys.toml") as server,
    ):
        for headers in ({}, {"authorization": "Bearer wrong"}):
            answer = await server.get("/ready", headers=headers)
            assert (answer.status_code, answer.json()) == (503, {"ready": False})
            assert (await server.get("/health", headers=headers)).json() == {"ok": True}
        told = (await server.get("/ready", headers=ours)).json()
        assert (told["model"], told["runs"], told["ready"]) == ("config/no-model", 0, False)
        for path in ("/ready", "/health"):
            assert (await server.get(path, headers={**ours, **other})).status_code == 421


async def test_a_server_without_a_model_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which; what needs no model can be run all the same."""
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    for flow, code in ((AgentFlow(), "config/no-model"), (AgentFlow("anthropic:claude-x"), "config/no-key")):
        async with flow, served(flow, {"echo": "(string-append message)"}) as server:
            answer = await server.get("/ready")
            assert answer.status_code == 503 and answer.json()["model"] == code
            assert (await server.ended(await server.begin("echo", message="x")))["value"] == "x"


@pytest.mark.parametrize("durable", [False, True], ids=["plain", "durable"])
@pytest.mark.parametrize("same", [False, True], ids=["another server", "the same server"])
def test_one_flow_is_served_loop_after_loop(durable: bool, same: bool, tmp_path: Path) -> None:
    """What serves it in another event loop, after the first has ended, is ready and does runs; or it says that it is not ready, and
    answers no run with a fault."""
    flow = AgentFlow(
        provider=ScriptedProvider(lambda request: "fine"),
        durable=f"sqlite:///{tmp_path / 'runs.db'}" if durable else None,
    )
    program = '(defatom ask (params) (instructions "go")) (value-of (ask))'
    servers = [FlowServer(flow, {"ask": program})] * 2 if same else [FlowServer(flow, {"ask": program}) for _ in "12"]

    async def once(server: FlowServer) -> tuple[int, Any]:
        async with running(server) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
            ready = (await client.get("/ready")).status_code
            answer = await client.post("/runs", json={"export": "ask", "bindings": {"message": "hi"}})
            if answer.status_code != 201:
                return ready, answer.status_code
            run = f"/runs/{answer.json()['run_id']}"
            while (told := (await client.get(run)).json())["ended"] is None:
                await asyncio.sleep(0.01)
            return ready, told["status"]

    assert [asyncio.run(once(server)) for server in servers] == [(200, "done")] * 2
    asyncio.run(flow.aclose())
