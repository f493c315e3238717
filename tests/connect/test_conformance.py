"""The protocol's own conformance scenarios for clients, run by the checker of its authors against a flow."""

from __future__ import annotations

import asyncio
import json
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.ports.ports import Tool
from agentflow.mcp import McpHttp
from tests.support.node import NodeClients

RELAY = Path(__file__).parents[1] / "support" / "relay.py"
OLD, NEW = "2025-11-25", "2026-07-28"
SCENARIOS = [
    ("initialize", OLD),
    ("tools_call", OLD),
    ("sse-retry", OLD),
    ("elicitation-sep1034-client-defaults", OLD),
    ("json-schema-2020-12-preservation", OLD),
    ("tools_call", NEW),
    ("request-metadata", NEW),
    ("http-standard-headers", NEW),
    ("http-custom-headers", NEW),
    ("http-invalid-tool-headers", NEW),
    ("json-schema-ref-no-deref", NEW),
    ("json-schema-2020-12-preservation", NEW),
    ("sep-2322-client-request-state", NEW),
]
EXAMPLES = {"number": 1, "integer": 1, "boolean": True, "object": {}, "array": []}


def arguments_of(tool: Tool) -> dict[str, Any]:
    """Arguments for what a tool requires."""
    schema = tool.spec.input_schema
    properties = schema.get("properties", {})
    return {name: EXAMPLES.get(properties.get(name, {}).get("type"), "text") for name in schema.get("required", ())}


async def use(flow: AgentFlow, wanted: list[dict[str, Any]] | None) -> None:
    """Make the calls that a scenario wants, else use everything that its server has."""
    tools = {tool.name.partition(":")[2]: tool for tool in flow.mcp.tools_of("s")}
    if wanted is not None:
        for call in wanted:
            given = {name: value for name, value in call["arguments"].items() if value is not None}
            await flow.call_tool(f"s:{call['name']}", **given)
        return
    if "json_schema_echo" in tools:
        schema = tools["json_schema_2020_12_tool"].spec.input_schema
        await flow.call_tool("s:json_schema_echo", schema=schema)
        return
    if "list_resources" in tools:
        for resource in await flow.call_tool("s:list_resources"):
            await flow.call_tool("s:read_resource", uri=resource["uri"])
    if "get_prompt" in tools:
        await flow.call_tool("s:get_prompt", name="test_prompt")
    async with asyncio.TaskGroup() as group:
        for tool in tools.values():
            if not tool.builtin:
                group.create_task(flow.call_tool(tool.name, **arguments_of(tool)))


@asynccontextmanager
async def client(root: Path) -> AsyncIterator[str]:
    """The command of a client, which is a flow in this process: it connects to an address and uses what is there."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            url, case = json.loads(await reader.readline())
            wanted = json.loads(case.get("MCP_CONFORMANCE_CONTEXT") or "{}").get("toolCalls")
            async with AgentFlow(root=root, mcp=[McpHttp("s", url)], answer=lambda question: {}) as flow:
                await use(flow, wanted)
        except Exception:
            writer.write(traceback.format_exc().encode())
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"{sys.executable} -IS {RELAY} {server.sockets[0].getsockname()[1]}"


@pytest.mark.slow
@pytest.mark.parametrize(("scenario", "revision"), SCENARIOS)
async def test_a_flow_is_a_client_as_the_protocol_wants_it(
    node_clients: NodeClients, tmp_path: Path, scenario: str, revision: str
) -> None:
    """Every check of a scenario passes."""
    async with client(tmp_path) as command:
        process = await asyncio.create_subprocess_exec(
            *node_clients.program("@modelcontextprotocol/conformance", "dist/index.js"),
            *("client", "--command", command, "--scenario", scenario, "--spec-version", revision),
            *("--output-dir", str(tmp_path / "results")),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
    assert process.returncode == 0 and "OVERALL: PASSED" in said, said
    (checks,) = (tmp_path / "results").glob("*/checks.json")
    assert "SUCCESS" in {check["status"] for check in json.loads(checks.read_text())}
