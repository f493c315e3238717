"""MCP servers on the command line: options, a file of other programs, settings that are read only when they are trusted."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow import ConfigurationError
from agentflow.cli.admin.mcp import show_servers
from agentflow.cli.admin.trust import trust_file
from agentflow.cli.check.around import names_around
from agentflow.cli.check.bounds import Maxima, bounds_files
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.mcp_options import McpOptions
from agentflow.cli.shared.options import FlowOptions
from agentflow.connect.config import server_of_option, servers_of_file, servers_of_table
from agentflow.connect.recorded import MAX_RECORD, MAX_SERVERS, record, recorded
from agentflow.core.data.known_names import NameInfo
from agentflow.core.data.messages import ToolSpec
from agentflow.core.data.source import Source
from agentflow.core.ports.ports import Tool
from agentflow.lang.diagnosis import diagnose
from agentflow.lib.file_writer import state_path
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
    file.write_text(
        f'[mcp.t]\ncommand = ["{PYTHON}", "server.py"]\nallow = ["echo"]\nnetwork = true\napprove = "none"\nenv = {{A = "$B"}}\n'
    )
    with pytest.raises(ConfigurationError, match="may not set mcp") as caught:
        load_settings()
    assert "agentflow trust" in str(caught.value.hint)
    assert trust_file(directory, forget=False, as_json=False) == 0
    shown = capsys.readouterr().out
    assert f"t: {PYTHON} server.py" in shown
    for option in ('allow = ["echo"]', "network = true", 'approve = "none"', 'env = {"A": "$B"}'):
        assert option in shown, "what is trusted is shown whole"
    named = McpStdio("t", [PYTHON, "server.py"], allow=["echo"], network=True, approve="none", env={"A": "$B"})
    assert servers_of_table(load_settings().mcp) == [named]
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
    """``agentflow run --mcp``: the whole way, in the sandbox that works here."""
    pytest.importorskip("mcp.client")
    done = await agentflow(
        *("run", "--no-record", "--mcp", f"t={PYTHON} server.py", "-e", '(content (t:echo (text "hello")))'),
        tmp_path=tmp_path,
        cwd=directory,
    )
    assert (done.code, done.out.strip()) == (0, "hello"), done.err


SOURCE = Source.of("a", "(t:echo (text 5)) (t:ecko) (t:read_resource)")


async def test_checks_and_editors_say_what_a_connected_flow_says(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tools that a server was last seen to have are those a connected flow has, to the last diagnostic; nothing is started."""
    pytest.importorskip("mcp.client")
    options = FlowOptions(mcp_server=[f"t={PYTHON} server.py"])
    asked = McpOptions(mcp_server=options.mcp_server)
    unknown = names_around(asked)
    assert (
        "'t' was never connected here" in unknown.notes[0] and diagnose(SOURCE, names=unknown.names, closed=True) == []
    )
    async with open_flow(options, model="offline") as flow:
        said = [each.error.to_dict() for each in diagnose(SOURCE, names=flow.engine.names(), closed=True)]
    (directory / "server.py").write_text("raise SystemExit('was started')")
    around = names_around(asked)
    assert around.notes == () and around.names.describe("t:nothing") is None
    assert [each.error.to_dict() for each in diagnose(SOURCE, names=around.names, closed=True)] == said
    assert [each["code"] for each in said] == ["call/argument", "name/unknown-operator", "call/missing-parameter"]
    assert "in that server's words" in around.descriptions["t:echo"] and "only reads" in around.descriptions["t:echo"]
    assert "t:echo" in around.foreign and "system:read_files" not in around.foreign
    bounds = FlowOptions(mcp_server=options.mcp_server, model="offline")
    (directory / "a.sexp").write_text('(t:echo (text "x"))')
    assert await bounds_files(["a.sexp"], bounds, maxima=Maxima()) == 0
    assert "tool calls  1" in capsys.readouterr().out
    other = names_around(McpOptions(mcp_server=[f"t={PYTHON} server.py old"]))
    assert other.notes and other.names.describe("t:anything") == NameInfo("tool")


def test_what_is_named_in_settings_that_nobody_trusts(directory: Path) -> None:
    """Of such a file the names of servers are read, so that calls of their tools are not mistakes; what it names is looked up never."""
    (directory / "agentflow.toml").write_text('[mcp.t]\ncommand = ["touch", "started"]\n')
    server = McpStdio("t", ["touch", "started"])
    record(server, directory, [Tool(spec=ToolSpec("t:echo", "", {"type": "object"}), call=nobody)])
    around = names_around(McpOptions())
    assert "may not set mcp, so the tools" in around.notes[0] and around.names.describe("t:any") == NameInfo("tool")
    assert trust_file(directory, forget=False, as_json=True) == 0
    around = names_around(McpOptions())
    assert around.notes == () and around.names.describe("t:any") is None
    assert around.names.describe("t:echo") is not None
    assert not (directory / "started").exists()


async def nobody(*arguments: Any) -> Any:
    raise AssertionError


def test_lists_are_bounded_and_nobody_elses(directory: Path) -> None:
    """Schemas past a bound are left out, a file that is not a list says nothing, values of variables stand nowhere, and old lists go."""
    server = McpStdio("t", ["x"], env={"KEY": "hunter2hunter2"})
    large = {"type": "object", "properties": {"a": {"description": "x" * (MAX_RECORD - 200)}}}
    tools = [Tool(spec=ToolSpec(f"t:{index}", "", large), call=nobody) for index in range(2)]
    record(server, directory, tools)
    first, second = recorded(server, directory) or []
    assert first.spec.input_schema == large and second.spec.input_schema == {"type": "object"}
    (file,) = (state_path() / "mcp").iterdir()
    assert file.stat().st_mode & 0o77 == 0
    assert recorded(McpStdio("t", ["x"], env={"KEY": "another"}), directory) is not None
    for other in (McpStdio("t", ["y"], env={"KEY": ""}), McpStdio("t", ["x"]), McpStdio("u", ["x"], env={"KEY": ""})):
        assert recorded(other, directory) is None
    assert recorded(server, directory / "elsewhere") is None
    for text in ("{}", "[1]", '[["t:a", 1, {}, true, true]]', "[[", "[" * 100_000):
        file.write_text(text)
        assert not recorded(server, directory), text
    for index in range(MAX_SERVERS + 3):
        record(McpHttp("t", f"https://example.com/{index}"), directory, [])
    assert len(list(file.parent.iterdir())) == MAX_SERVERS
