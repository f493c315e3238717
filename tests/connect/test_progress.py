"""Progress of MCP tools extends their time, and middleware is around each call of theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agentflow import ScriptedProvider
from agentflow.events import ToolProgress
from tests.connect.flows import flow_with, seen, server


async def test_progress_extends_the_time_out_up_to_a_total(root: Path, revision: str) -> None:
    """A tool that reports progress may take longer than ``timeout_s``, but not than ``total_s``; each report is an event of the
    stream."""
    steady = server(revision, timeout_s=0.6, name="steady")
    endless = server(revision, timeout_s=0.6, total_s=1.0, name="endless")
    silent = server(revision, timeout_s=0.3, name="silent")
    async with flow_with(root, steady, endless, silent) as flow:
        (value, events), (late, _), (quiet, _) = await asyncio.gather(
            seen(flow, "(content (steady:steps (times 12)))"),
            seen(flow, "(endless:steps (times 300))"),
            seen(flow, "(silent:slow (seconds 30))"),
        )
    assert value == "done"
    assert [event.message for event in events if isinstance(event, ToolProgress)] == [f"step {n}" for n in range(12)]
    errors = [each.notes.error for each in (late, quiet)]
    assert [(each.details["code"], each.details["timeout_s"]) for each in errors] == [
        ("mcp/timeout", 1.0),
        ("mcp/timeout", 0.3),
    ]
    assert "total_s=" in late.content and "without progress" in quiet.content


async def test_middleware_is_around_each_call(root: Path) -> None:
    """A call of an MCP tool, resource or prompt passes ``around_tool`` whoever makes it, a program, Python or a model, once; and
    a request of a server to the model passes ``around_model``."""
    names: list[str] = []

    async def noting(call: Any, run: Any, ctx: Any) -> Any:
        names.append(call.name)
        return await run(call)

    async def asking(request: Any, run: Any, ctx: Any) -> Any:
        names.append("model")
        return await run(request)

    model = ScriptedProvider(["an answer", {"tool_calls": [{"name": "t:echo", "arguments": {"text": "hi"}}]}, "done"])
    options: dict[str, Any] = {"model": None, "provider": model, "around_tool": [noting], "around_model": [asking]}
    async with flow_with(root, server(sampling=True, approve="none"), **options) as flow:
        await flow.run('(t:echo (text "a"))')
        await flow.call_tool("t:write", text="b")
        await flow.run('(list (t:list_resources) (t:read_resource (uri "note://1")) (t:get_prompt (name "x")))')
        assert names == ["t:echo", "t:write", "t:list_resources", "t:read_resource", "t:get_prompt"]
        names.clear()
        await flow.run("(t:sample)")
        assert names == ["t:sample", "model"]
        names.clear()
        await flow.ask("Go.", tools=["t:echo"])
        assert names == ["model", "t:echo", "model"]
