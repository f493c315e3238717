"""Checks whether a flow can execute runs."""

from __future__ import annotations

from typing import Any

from agentflow.app import AgentFlow
from agentflow.core.errors import AgentflowError, ConfigurationError
from agentflow.spec.memory import MemorySystem

OK = "ok"


async def readiness(flow: AgentFlow) -> dict[str, Any]:
    """Check ``model``, ``index`` and ``mcp`` (by server): each is ``ok`` or an error code.

    A lost connection to an MCP server is opened again; optional servers are left out.
    """
    return {"model": _model(flow), "index": await _index(flow), "mcp": await flow.mcp.check()}


def is_ready(needs: dict[str, Any]) -> bool:
    """Whether every result of :func:`readiness` is ``ok``."""
    return all([each == OK for each in (needs["model"], needs["index"], *needs["mcp"].values())])


def _model(flow: AgentFlow) -> str:
    try:
        flow.router.resolve(None)
    except ConfigurationError as error:
        return error.code
    return OK


async def _index(flow: AgentFlow) -> str:
    if not isinstance(flow.memory_system, MemorySystem):
        return OK  # the host's own memory system: nothing to check
    try:
        await flow.memory_system.index.count()
    except AgentflowError as error:
        return error.code
    return OK


__all__ = ["is_ready", "readiness"]
