"""``agentflow mcp serve``: the MCP SDK's own client starts the command and speaks to it over standard input and output."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentflowError
from agentflow.cli.admin.mcp import serve_on_stdio
from agentflow.cli.shared.common import UsageError
from agentflow.cli.shared.host_options import McpServeOptions

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import mcp_types as types
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

APP = """
import asyncio, os, pathlib, subprocess
from agentflow import AgentFlow
flow = AgentFlow("offline")

@flow.tool
async def nap(mark: str) -> str:
    "Sleep."
    print("this is not a message")
    subprocess.run(["echo", "nor this"])
    pathlib.Path(mark + ".began").touch()
    try:
        await asyncio.sleep(60)
    finally:
        pathlib.Path(mark + ".ended").touch()
"""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A flow and programs to serve."""
    (tmp_path / "own_flow.py").write_text(APP)
    (tmp_path / "greet.sexp").write_text('(string-append "Hello, " message "!")')
    (tmp_path / "ask.sexp").write_text('(ask-human "Who?" {"type" "string"})')
    saved = (
        ';;; agentflow workflow 1\n;;; {"name": "add", "params": {"a": {"type": "integer"}}, "allow": []}\n(+ a 1)\n'
    )
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "add.sexp").write_text(saved)
    return tmp_path


def command() -> list[str]:
    served = [
        "greet.sexp",
        "ask.sexp",
        "flows",
        "--app",
        "own_flow:flow",
        "--export",
        "nap",
        "--run-program",
    ]
    return [sys.executable, "-m", "agentflow", "mcp", "serve", *served]


@contextlib.asynccontextmanager
async def client_of(directory: Path, served: list[str] | None = None, **options: Any) -> AsyncIterator[Client]:
    first, *rest = served or command()
    env = {"PYTHONPATH": str(directory), "XDG_STATE_HOME": str(directory), "PATH": os.environ["PATH"]}
    started = StdioServerParameters(command=first, args=rest, cwd=str(directory), env=env)
    # its default is what was sys.stderr when the SDK was imported: before this worker was forked, and closed since
    transport = stdio_client(started, errlog=sys.__stderr__ or sys.stderr)
    async with Client(transport, **options) as client:
        yield client


@pytest.mark.slow
async def test_a_client_starts_the_command(directory: Path) -> None:
    """Tools are called, questions asked, a call is cancelled, and what tools print does not stand between messages."""

    async def say(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"answer": params.message})

    async with client_of(directory, elicitation_callback=say) as client:
        assert [each.name for each in (await client.list_tools()).tools] == [
            "nap",
            "greet",
            "ask",
            "add",
            "run_program",
        ]
        assert (await client.call_tool("add", {"a": 3})).structured_content["value"] == 4
        answer = await client.call_tool("run_program", {"program": "(+ 1 n)", "bindings": {"n": 2}})
        assert answer.structured_content["value"] == 3
        assert (await client.call_tool("greet", {"message": "Ada"})).structured_content["value"] == "Hello, Ada!"
        assert (await client.call_tool("ask", {"message": ""})).structured_content["value"] == "Who?"
        mark = directory / "cancelled"
        calling = asyncio.create_task(client.call_tool("nap", {"mark": str(mark)}))
        while not await asyncio.to_thread(mark.with_suffix(".began").exists):
            await asyncio.sleep(0.02)
        calling.cancel()
        await asyncio.wait([calling])
        while not await asyncio.to_thread(mark.with_suffix(".ended").exists):
            await asyncio.sleep(0.02)
        assert (await client.call_tool("greet", {"message": "Bob"})).structured_content["value"] == "Hello, Bob!"


@pytest.mark.slow
async def test_saved_workflows_and_tasks_are_tools(directory: Path) -> None:
    """``--workflows`` names their directory, ``--task`` a task of ``--tasks``: each with its description and its schema."""
    task = """<task name="issues"><description>List what is wrong</description>
      <parameters><parameter name="code" type="string"/><parameter name="most" type="integer" default="5"/></parameters>
      <instructions>Name at most {{most}} problems of this code: {{code}}</instructions></task>"""
    (directory / "xml").mkdir()
    (directory / "xml" / "issues.xml").write_text(task)
    options = ["--workflows", "flows", "--tasks", "xml", "--task", "issues", "--model", "offline", "--no-record"]
    async with client_of(directory, [sys.executable, "-m", "agentflow", "mcp", "serve", *options]) as client:
        tools = {each.name: each for each in (await client.list_tools()).tools}
        assert list(tools) == ["issues", "add"] and tools["issues"].description == "List what is wrong"
        assert tools["issues"].input_schema["required"] == ["code"]
        assert (await client.call_tool("add", {"a": 3})).structured_content["value"] == 4
        said = await client.call_tool("issues", {"code": "x = y"})
        assert not said.is_error and said.structured_content["usage"]["requests"] == 1
        wrong = await client.call_tool("issues", {})
        assert wrong.is_error and "'code'" in wrong.content[0].text  # type: ignore[union-attr]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["leaves", "terminates", "floods"])
async def test_a_client_that_is_gone_leaves_nothing(directory: Path, how: str) -> None:
    """When it closes our input, or asks us to stop, or sends a message without end, runs are cancelled and the process ends."""
    process = await asyncio.create_subprocess_exec(
        *command(),
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory), "XDG_STATE_HOME": str(directory)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None and process.stdout is not None

    def send(method: str, number: int | None, **params: Any) -> None:
        message = {"jsonrpc": "2.0", "method": method, "params": params, **({} if number is None else {"id": number})}
        process.stdin.write(json.dumps(message).encode() + b"\n")  # type: ignore[union-attr]

    try:
        client = {"name": "test", "version": "1"}
        send("initialize", 1, protocolVersion="2025-11-25", capabilities={}, clientInfo=client)
        assert json.loads(await process.stdout.readline())["result"]["serverInfo"]["name"] == "agentflow"
        send("notifications/initialized", None)
        mark = directory / "gone"
        send("tools/call", 2, name="nap", arguments={"mark": str(mark)})
        while not await asyncio.to_thread(mark.with_suffix(".began").exists):
            await asyncio.sleep(0.02)
        if how == "leaves":
            process.stdin.close()
        elif how == "terminates":
            process.send_signal(signal.SIGTERM)
        else:
            with contextlib.suppress(ConnectionError):
                for _ in range(10):
                    process.stdin.write(b"x" * 1_000_000)
                    await process.stdin.drain()
        code = await asyncio.wait_for(process.wait(), 20)
        assert code == (143 if how == "terminates" else 0)
        assert await asyncio.to_thread(mark.with_suffix(".ended").exists)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_nothing_to_serve_is_said(tmp_path: Path) -> None:
    """Before the client is listened to."""
    with pytest.raises(UsageError, match="nothing to serve"):
        await serve_on_stdio([], McpServeOptions(root=str(tmp_path), record=False))
    with pytest.raises(AgentflowError) as caught:
        await serve_on_stdio([], McpServeOptions(workflows=str(tmp_path), record=False))
    assert caught.value.code == "serve/export" and str(tmp_path) in caught.value.message
