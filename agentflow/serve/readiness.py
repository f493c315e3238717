"""Whether a flow can do runs: what they need, looked at when somebody asks."""

from __future__ import annotations

from typing import Any

from agentflow.app import AgentFlow
from agentflow.core.errors import AgentflowError, ConfigurationError
from agentflow.spec.memory import MemorySystem

OK = "ok"


async def readiness(flow: AgentFlow) -> dict[str, Any]:
    """``model``, ``index`` and ``mcp`` (by server): each ``ok``, or the code of why not.

    An MCP server whose connection was lost is connected again; one that is optional does not count.
    """
    return {"model": _model(flow), "index": await _index(flow), "mcp": await flow.mcp.check()}


def is_ready(needs: dict[str, Any]) -> bool:
    """Whether everything that :func:`readiness` looked at is there."""
    return all([each == OK for each in (needs["model"], needs["index"], *needs["mcp"].values())])


def _model(flow: AgentFlow) -> str:
    try:
        flow.router.resolve(None)
    except ConfigurationError as error:
        return error.code
    return OK


async def _index(flow: AgentFlow) -> str:
    if not isinstance(flow.memory_system, MemorySystem):
        return OK  # the host's own memory says for itself what it needs
    try:
        await flow.memory_system.index.count()
    except AgentflowError as error:
        return error.code
    return OK


__all__ = ["is_ready", "readiness"]
