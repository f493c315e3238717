"""A program that dies of the walls is told apart: the error names the path and the option that gives it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.policy import CommandPolicy
from agentflow.mcp import McpStdio
from tests.hostile.backends import CONFINING, needed

PYTHON = getattr(sys, "_base_executable", sys.executable)
SCRIPTS = {
    "cat": "cat {}",
    "sh": "sh {}",
    "a path with a space": "python3 -c 'open(\"{}\")'",
    "python": "python3 -c 'open(\"{}\")'",
    "node": "printf \"Error: EACCES: permission denied, open '{}'\\n    at run (node:1:2)\\n\\nNode.js v20\\n\" >&2; exit 1",
}


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "my files").mkdir()
    (tmp_path / "outside").write_text("here")
    (tmp_path / "my files" / "x").write_text("here")
    return tmp_path / "outside"


@pytest.mark.parametrize("backend", CONFINING)
@pytest.mark.parametrize("name", SCRIPTS)
async def test_a_command_says_which_path_it_was_refused(name: str, backend: str, outside: Path) -> None:
    """By what it wrote itself, in the words of whatever it is written in; the option is for the developer."""
    needed(backend)
    path = outside.parent / "my files" / "x" if "space" in name else outside
    command = SCRIPTS[name].format(path)
    async with CommandExecutor(outside.parent / "root", policy=CommandPolicy(shell=True), sandbox=backend) as executor:
        result = await executor.execute_command_safely(["sh", "-c", command])
        assert not result.success and repr(str(path)) in (result.error or ""), result
        assert f"readable=[{str(path)!r}]" in (result.hint or "")
        own = await executor.execute_command_safely(["sh", "-c", "cat missing; cat /etc/shadow; cat ./a/b /usr/none"])
        assert not own.success and own.hint is None and "read here" not in (own.error or "")


@pytest.mark.parametrize("backend", CONFINING)
async def test_nothing_is_said_of_files_that_are_not_there(backend: str, outside: Path) -> None:
    """What exists outside and what does not is refused alike: an error is no way to look around."""
    needed(backend)
    async with CommandExecutor(outside.parent / "root", policy=CommandPolicy(shell=True), sandbox=backend) as executor:
        said = []
        for path in (outside, outside.parent / "nowhere"):
            lie = f'echo "x: {path}: No such file or directory" >&2; exit 1'
            result = await executor.execute_command_safely(["sh", "-c", lie])
            said.append((result.error or "").replace(str(path), "PATH"))
        assert said[0] == said[1] and "read here" in said[0]


@pytest.mark.parametrize("backend", CONFINING)
async def test_a_server_says_which_path_it_was_refused(backend: str, outside: Path) -> None:
    """When it cannot start for that."""
    needed(backend)
    server = McpStdio("s", [PYTHON, "-c", f"open({str(outside)!r})"], connect_s=20)
    with pytest.raises(AgentflowError) as caught:
        async with AgentFlow(root=outside.parent / "root", model="offline", mcp=[server], sandbox=backend):
            pass
    assert f"McpStdio(..., readable=[{str(outside)!r}])" in str(caught.value.hint)


DIES = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    match message.get("method"):
        case "initialize":
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        case "tools/list":
            result = {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": open(sys.argv[1]).read()}]}
        case "server/discover":
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
            continue
        case _:
            continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@pytest.mark.parametrize("backend", CONFINING)
async def test_a_server_that_dies_of_a_refusal_says_which_path(backend: str, outside: Path) -> None:
    """A server that started well and died while it was called: the lost connection names the path and the option, and with the
    option of the flow the same call works, of the same server and of a command."""
    needed(backend)
    (outside.parent / "root" / "dies.py").write_text(DIES)
    server = McpStdio("s", [PYTHON, "dies.py", str(outside)], connect_s=20)
    options: dict[str, Any] = {"root": outside.parent / "root", "model": "offline", "mcp": [server], "sandbox": backend}
    async with AgentFlow(**options) as flow:
        error = ((await flow.run("(s:look)")).value).notes.error
        assert error.details["code"] == "mcp/connection-lost", error
        assert f"McpStdio(..., readable=[{str(outside)!r}])" in error.details["hint"]
    async with AgentFlow(**options, readable=outside) as flow:
        assert (await flow.run("(content (s:look))")).value == "here"
        assert (await flow.commands.execute_command_safely(["cat", str(outside)])).stdout == "here"


def test_what_cannot_be_read_since_it_is_not_there(outside: Path) -> None:
    """A path that was mistyped is an error, and not a file that is refused later; the home may be written as ``~``."""
    with pytest.raises(AgentflowError, match=r"readable names .*nowhere, which does not exist") as caught:
        AgentFlow(root=outside.parent, model="offline", readable=[outside.parent / "nowhere"])
    assert caught.value.code == "config/directory" and "--readable" in str(caught.value.hint)
    assert AgentFlow(root=outside.parent, model="offline", readable="~").commands.readable == (
        str(Path.home().resolve()),
    )
