"""The ``none`` back-end: limits and an orderly end, but no confinement. Used only if requested by name."""

from __future__ import annotations

import sys

from agentflow.executors.sandbox.backend import Running, Spawn
from agentflow.executors.sandbox.supervised import Walls, spawn_supervised


class Unconfined:
    """Runs commands with the rights of this process. Environment, limits and process tree are handled as elsewhere."""

    name = "none"
    confines = False

    def missing(self) -> str | None:
        return None if sys.platform == "linux" else "commands need Linux"

    async def spawn(self, spawn: Spawn) -> Running:
        return await spawn_supervised(spawn, Walls(False))
