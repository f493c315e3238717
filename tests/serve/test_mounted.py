"""An application that is made before its flow has connected: what is checked then, and what it says of what it cannot know."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentflow import AgentFlow, tool
from agentflow.core.data.errors import AgentflowError, ConfigurationError
from agentflow.mcp import McpStdio
from agentflow.serve import Export, app

pytest.importorskip("mcp", reason="the extra mcp is not installed")


@tool
def near(n: int) -> int:
    """A tool of the flow's own."""
    return n


@pytest.mark.parametrize(
    "export", ["(papers:read_file (path message))", "papers:read_file", Export(program="(content (papers:list_files))")]
)
def test_exports_of_a_flow_that_has_not_connected_say_so(tmp_path: Path, export: object) -> None:
    """They are compiled at once, with no server started: one that needs a server's tools is told when to make the application."""
    started = tmp_path / "started"
    command = [sys.executable, "-c", f"open({str(started)!r}, 'w')"]
    flow = AgentFlow(tools=[near], mcp=[McpStdio("papers", command)], root=tmp_path)
    assert app(flow, {"near": "(near (n 1))"}).service.offers["near"].program is not None
    with pytest.raises(ConfigurationError, match="MCP server 'papers', which is not connected yet") as error:
        app(flow, {"x": export})  # type: ignore[dict-item]
    assert error.value.code == "serve/export" and "flow.connect()" in (error.value.hint or "")
    for mistake in ("(other:read (path message))", "(nearby message)"):
        with pytest.raises(AgentflowError) as wrong:
            app(flow, {"x": mistake})
        assert wrong.value.code == "name/unknown-operator", "which connecting does not mend"
    assert not started.exists()
