"""The protocol's own conformance scenarios for servers, run by the checker of its authors against a served flow."""

from __future__ import annotations

import asyncio
import re
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
        "dns-rebinding-protection", "server-sse-multiple-streams", "tools-call-simple-text", "tools-call-error",
    ],
    "2026-07-28": [
        "tools-list", "prompts-list", "resources-list", "dns-rebinding-protection", "http-header-validation", "caching",
        "server-sse-multiple-streams", "tools-call-simple-text", "tools-call-error", "sep-2164-resource-not-found",
        "input-required-result-request-state", "input-required-result-multi-round", "input-required-result-result-type",
        "input-required-result-missing-input-response", "input-required-result-tampered-state",
        "input-required-result-unsupported-methods", "input-required-result-ignore-extra-params",
        "input-required-result-validate-input",
    ],
}  # fmt: skip
"""Those that a server can pass whose tools are workflows: the others want tools and resources of a certain content.

``input-required-result-basic-elicitation`` wants its question under the very key ``user_name``. A flow's questions have keys by
which their answers find the run and the question again, as the protocol leaves to the server; the flow it tests is that of
``multi-round``, which passes.
"""

NAME = '(ask-human "Name?" {"type" "object" "properties" {"name" {"type" "string"}} "required" (list "name")})'
OK = '(ask-human "Sure?" {"type" "object" "properties" {"ok" {"type" "boolean"}} "required" (list "ok")})'
COLOUR = '(ask-human "Colour?" {"type" "object" "properties" {"color" {"type" "string"}} "required" (list "color")})'
FIXTURES = {
    "simple_text": '(string-append "This is a simple text response for testing.")',
    "error_handling": '(raise "This tool intentionally returns an error for testing")',
    "input_required_result_elicitation": f'(string-append "Hello, " (get-field {NAME} "name"))',
    "input_required_result_request_state": f'(begin {OK} "state-ok")',
    "input_required_result_tampered_state": f'(begin {OK} "done")',
    "input_required_result_multi_round": f'(begin {NAME} {COLOUR} "done")',
}


@pytest.mark.slow
@pytest.mark.parametrize("revision", SCENARIOS)
async def test_scenarios_pass(node_clients: NodeClients, revision: str) -> None:
    """Each has checks, of which none fails."""
    exports = {f"test_{name}": Export(program=program, parameters={}) for name, program in FIXTURES.items()}
    async with AgentFlow("offline") as flow, served(flow, exports) as server:
        process = await asyncio.create_subprocess_exec(
            *node_clients.program("@modelcontextprotocol/conformance", "dist/index.js", "server"),
            *("--url", f"http://localhost:{server.port}/mcp", "--suite", "all", "--spec-version", revision),
            cwd=node_clients.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        said = (await process.communicate())[0].decode()
    passed = {
        name for name, count in re.findall(r"^✓ (\S+): (\d+) passed, 0 failed", said, re.MULTILINE) if count != "0"
    }
    assert passed >= set(SCENARIOS[revision]), said
