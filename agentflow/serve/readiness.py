"""Checks whether a flow can execute runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from agentflow.app import AgentFlow
from agentflow.core.data.errors import AgentflowError, ConfigurationError
from agentflow.spec.memory import MemorySystem

OK = "ok"
STORE_S = 2.0
"""Seconds within which the store of durable runs has to answer."""
PACE_S = 1.0
"""Seconds for which a check is not repeated, however often it is asked for."""


class Readiness:
    """Whether ``flow`` can execute runs: at most one check a second, which starts nothing and connects to no server of MCP."""

    def __init__(self, flow: AgentFlow, clock: Callable[[], float] = time.monotonic) -> None:
        self._flow = flow
        self._clock = clock
        self._checking = asyncio.Lock()
        self._needs: dict[str, Any] = {}
        self._over = -PACE_S

    async def needs(self) -> dict[str, Any]:
        """``flow`` (runs can begin in it, and their store can be written), ``model``, ``index`` and ``mcp`` (by server): each is ``ok`` or an error code. Optional servers are left out."""
        async with self._checking:
            if self._clock() - self._over >= PACE_S:
                self._needs = {
                    "flow": await _flow(self._flow),
                    "model": _model(self._flow),
                    "index": await _index(self._flow),
                    "mcp": self._flow.mcp.states(),
                }
                self._over = self._clock()
            return self._needs


def is_ready(needs: dict[str, Any]) -> bool:
    """Whether every result of :meth:`Readiness.needs` is ``ok``."""
    return all([each == OK for each in (needs["flow"], needs["model"], needs["index"], *needs["mcp"].values())])


async def _flow(flow: AgentFlow) -> str:
    if flow.engine.closed:
        return "flow/closed"
    try:
        if flow.is_durable:
            await flow.store.check(STORE_S)
    except AgentflowError as error:
        return error.code
    return OK


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
