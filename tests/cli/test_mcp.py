"""MCP servers on the command line: options, a file of other programs, settings that are read only when they are trusted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow import ConfigurationError
from agentflow.cli.mcp import show_servers, trust_file
from agentflow.cli.options import FlowOptions
from agentflow.connect.config import server_of_option, servers_of_file, servers_of_table
from agentflow.mcp import McpHttp, McpStdio
from agentflow.settings import load_settings
from tests.cli.test_command import agentflow

SERVER = (Path(__file__).parents[1] / "connect" / "server.py").read_text()
PYTHON = getattr(sys, "_base_executable", sys.executable)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a server, and a state directory of its own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("AGENTFLOW_SANDBOX", "none")
    where = tmp_path / "project"
    where.mkdir()
    (where / "server.py").write_text(SERVER)
    monkeypatch.chdir(where)
    return where


def test_a_server_of_an_option() -> None:
    """``NAME=COMMAND`` is split as a shell would, ``NAME=URL`` is an address; anything else says what to write."""
    assert server_of_option("t=npx -y 'a b'") == McpStdio("t", ["npx", "-y", "a b"])
    assert server_of_option("t=https://example.com/mcp?a=b") == McpHttp("t", "https://example.com/mcp?a=b")
    for wrong in ("t", "t=", "=x", "t='x"):
        with pytest.raises(ConfigurationError) as caught:
            server_of_option(wrong)
        assert caught.value.code == "mcp/server" and caught.value.hint


def test_tables_of_other_programs_and_of_ours(tmp_path: Path) -> None:
    """A file with ``mcpServers`` is read with keys of other programs in it; a table of settings may have ours alone."""
    table: dict[str, Any] = {
        "a": {"command": "npx", "args": ["-y", "x"], "env": {"KEY": "$KEY"}, "alwaysAllow": [], "type": "stdio"},
        "b": {"url": "https://example.com/mcp", "headers": {"X": "y"}},
        "c": {"command": "off", "disabled": True},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": table}))
    a, b = servers_of_file(str(tmp_path / "mcp.json"))
    assert a == McpStdio("a", ["npx", "-y", "x"], env={"KEY": "$KEY"})
    assert b == McpHttp("b", "https://example.com/mcp", headers={"X": "y"})
    with pytest.raises(ConfigurationError, match="alwaysAllow"):
        servers_of_table(table)
    assert servers_of_table({"d": {"command": ["x"], "network": True}}) == [McpStdio("d", ["x"], network=True)]
    wrong: list[Any] = [
        {"t": 1},
        {"t": {"command": 5}},
        {"t": {"url": "https://x", "type": "sse"}},
        {"t": {"args": ["x"], "network": "yes"}},
    ]
    for each in wrong:
        with pytest.raises(ConfigurationError):
            servers_of_table(each)
    (tmp_path / "mcp.json").write_text("[]")
    with pytest.raises(ConfigurationError) as caught:
        servers_of_file(str(tmp_path / "mcp.json"))
    assert caught.value.code == "mcp/config"


def test_settings_name_servers_only_when_they_are_trusted(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A directory's file may name programs to start once the user has looked at it, and not after any change to it."""
    file = directory / "agentflow.toml"
    file.write_text(f'[mcp.t]\ncommand = ["{PYTHON}", "server.py"]\nallow = ["echo"]\n')
    with pytest.raises(ConfigurationError, match="may not set mcp") as caught:
        load_settings()
    assert "agentflow mcp trust" in str(caught.value.hint)
    assert trust_file(directory, forget=False, as_json=False) == 0
    assert f"t: {PYTHON} server.py" in capsys.readouterr().out
    assert servers_of_table(load_settings().mcp) == [McpStdio("t", [PYTHON, "server.py"], allow=["echo"])]
    trusted = file.read_text()
    file.write_text(trusted + "# changed\n")
    with pytest.raises(ConfigurationError):
        load_settings()
    file.write_text(trusted)
    load_settings()
    assert trust_file(directory, forget=True, as_json=True) == 0
    with pytest.raises(ConfigurationError):
        load_settings()


async def test_listing_says_what_each_server_has(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``mcp list`` names tools and what they may do; a server that cannot be connected is the exit code 1, and no other's end."""
    pytest.importorskip("mcp.client")
    options = FlowOptions(mcp_server=[f"t={PYTHON} server.py", "absent=no-such-program"])
    assert await show_servers(options, as_json=True) == 1
    shown = json.loads(capsys.readouterr().out)
    there, absent = shown["servers"]
    tools = {tool["name"]: tool for tool in there["tools"]}
    assert tools["t:echo"]["read_only"] and tools["t:write"]["approval"] and not tools["t:get_prompt"]["offered"]
    assert absent["error"]["code"] == "commands/not-found"
    assert await show_servers(FlowOptions(mcp_server=[f"t={PYTHON} server.py"]), as_json=False) == 0
    assert "t:write" in capsys.readouterr().out


async def test_a_program_calls_a_server_of_an_option(directory: Path, tmp_path: Path) -> None:
    """``agentflow eval --mcp``: the whole way, in the sandbox that works here."""
    pytest.importorskip("mcp.client")
    done = await agentflow(
        *("eval", "--no-record", "--mcp", f"t={PYTHON} server.py", '(content (t:echo (text "hello")))'),
        tmp_path=tmp_path,
        cwd=directory,
    )
    assert (done.code, done.out.strip()) == (0, "hello"), done.err
