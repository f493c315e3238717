"""Flows that are connected to the test server, and what they are seen to do."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Event
from agentflow.mcp import McpStdio

PYTHON = getattr(sys, "_base_executable", sys.executable)


def server(*options: str, script: str = "server.py", name: str = "t", **more: Any) -> McpStdio:
    """The test server, or another script of the workspace."""
    return McpStdio(name, [PYTHON, script, *options], **{"timeout_s": 10, **more})


@asynccontextmanager
async def flow_with(root: Path, *servers: Any, **options: Any) -> AsyncIterator[AgentFlow]:
    """A flow with these servers, unconfined unless told otherwise: walls take time, and have tests of their own."""
    async with AgentFlow(root=root, mcp=servers, **{"sandbox": "none", "model": "offline", **options}) as flow:
        yield flow


async def seen(flow: AgentFlow, program: str, **options: Any) -> tuple[Any, list[Event]]:
    """The value of a program, and its events."""
    async with flow.stream(program, **options) as run:
        events = [event async for event in run]
        return await run.value(), events
