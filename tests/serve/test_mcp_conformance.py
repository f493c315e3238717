"""The protocol's own conformance scenarios for servers, run by the checker of its authors against a served flow."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from agentflow import AgentFlow
from agentflow.serve import Export
from tests.support.node import NodeClients
from tests.support.served import served

pytest.importorskip("mcp", reason="the extra mcp is not installed")

SCENARIOS = {
    "2025-11-25": [
        "server-initialize", "ping", "server-session-lifecycle", "tools-list", "prompts-list", "resources-list",
        "dns-rebinding-protection", "server-sse-multiple-streams",
    ],
    "2026-07-28": [
        "tools-list", "prompts-list", "resources-list", "dns-rebinding-protection", "http-header-validation", "caching",
        "server-sse-multiple-streams", "sep-2164-resource-not-found",
    ],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("revision", SCENARIOS)
async def test_a_scenario_passes(node_clients: NodeClients, revision: str) -> None:
    """Each that a server without its fixture tools can pass, with no check that failed and none that was left out."""
    exports = {
        "echo": "(string-append message)",
        "add": Export(program="(+ a b)", parameters={"a": "integer", "b": "integer"}),
    }
    async with AgentFlow("offline") as flow, served(flow, exports) as server:
        for scenario in SCENARIOS[revision]:
            command = node_clients.program(
                "@modelcontextprotocol/conformance", "dist/index.js", "server",
                "--url", f"http://localhost:{server.port}/mcp", "--scenario", scenario, "--spec-version", revision,
            )  # fmt: skip
            process = await asyncio.create_subprocess_exec(
                *command, cwd=node_clients.directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
            said = (await process.communicate())[0].decode()
            assert process.returncode == 0 and "0 failed, 0 warnings" in said and "Passed: 0" not in said, said
