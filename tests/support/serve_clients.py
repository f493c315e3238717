"""Clients of a served flow: their requests as data, the SDKs that talk to it, and the keys they have."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest

from agentflow import ModelDelta, ScriptedProvider
from agentflow.serve import Keys, read_keys
from agentflow.serve.keys import digest_of
from tests.support.node import NodeClients
from tests.support.served import Served

if TYPE_CHECKING:
    import mcp
    from mcp_types import CallToolResult

ROUTES = ("chat", "responses", "agui", "ui")
"""The protocols of chats and front ends, all of which stream."""
USER = {"role": "user", "content": "x"}
AGUI = {"threadId": "t", "runId": "r"}


def keys_of(path: Path, clock: Any = None, **rules: str) -> Keys:
    """Keys by name, each with these lines of its table; their tokens are ``secret-NAME``."""
    file = path / "keys.toml"
    text = "".join(f'[keys.{name}]\ndigest = "{digest_of(f"secret-{name}")}"\n{rules[name]}\n' for name in rules)
    file.write_text(text)
    return read_keys(file, approval_ttl=30, **({} if clock is None else {"clock": clock}))


def by(name: str) -> dict[str, str]:
    """The headers of a request with the key of this name."""
    return {"authorization": f"Bearer secret-{name}"}


def request_of(route: str, export: str) -> tuple[str, dict[str, Any]]:
    """The path and the body of a request that is streamed an export's answer to "x"."""
    match route:
        case "chat":
            return "/v1/chat/completions", {"model": export, "messages": [USER], "stream": True}
        case "responses":
            return "/v1/responses", {"model": export, "input": "x", "stream": True}
        case "agui":
            return f"/agui/{export}", {**AGUI, "messages": [{**USER, "id": "m"}]}
        case _:
            message = {"id": "m", "role": "user", "parts": [{"type": "text", "text": "x"}]}
            return f"/ui/{export}", {"id": "c", "messages": [message], "trigger": "submit-message"}


def answer_of(route: str, export: str, run_id: str, key: str, answer: Any, *, approval: bool) -> tuple[str, Any]:
    """The path and the body of the request that answers what a run asked through AG-UI or ``useChat``."""
    name = f"{run_id}.{key}"
    if route == "agui":
        entry = {"interruptId": name, "status": "resolved", "payload": answer}
        return f"/agui/{export}", {**AGUI, "messages": [USER], "resume": [entry]}
    if approval:
        call = {"type": "dynamic-tool", "toolName": "pay", "state": "approval-responded", "input": {"amount": 9}}
        part = {**call, "toolCallId": "c", "approval": {"id": name, "approved": answer}}
    else:
        part = {"type": "dynamic-tool", "state": "output-available", "toolCallId": name, "output": answer}
    return f"/ui/{export}", {"messages": [{"id": "a", "role": "assistant", "parts": [part]}]}


def frames_of(text: str) -> list[dict[str, Any]]:
    """The events of a stream that has ended, those that are JSON objects."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: {")]
    return [json.loads(line) for line in lines]


def openai_client(server: Served, key: str = "none", **options: Any) -> openai.AsyncOpenAI:
    """OpenAI's SDK, which tries nothing again."""
    return openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0, **options)


@contextlib.asynccontextmanager
async def mcp_client(server: Served, mode: str, token: str | None = None, **options: Any) -> AsyncIterator[mcp.Client]:
    """The MCP SDK's client, connected to ``/mcp`` in one revision of the protocol; without the extra the test skips."""
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with httpx2.AsyncClient(headers=headers, timeout=30) as http:
        transport = streamable_http_client(f"{server.url}/mcp", http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


def text_of(result: CallToolResult) -> str:
    """The text of a tool's result."""
    [block] = result.content
    assert block.type == "text"
    return block.text


async def talk(node: NodeClients, script: str, talks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a client in Node made of each talk: ``agui.mjs`` of threads, ``ui.mjs`` of chats."""
    process = await asyncio.create_subprocess_exec(
        *node.script(script, json.dumps(talks)), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    return [json.loads(line) for line in out.splitlines()]


class Thinking(ScriptedProvider):
    """A model that thinks before it speaks."""

    async def stream(self, request: Any) -> Any:
        yield ModelDelta(thinking="hm, ")
        async for delta in super().stream(request):
            yield delta
