"""Fixtures of durable runs."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Durable, ScriptedProvider
from tests.durable.world import Flow, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def flow(world: World, tmp_path: Path) -> AsyncIterator[Flow]:
    """Opens a flow over the same database, as another process would."""

    @contextlib.asynccontextmanager
    async def open_flow(sync: Any = "normal", **options: Any) -> AsyncIterator[AgentFlow]:
        arguments = {
            "provider": ScriptedProvider(world.answer),
            "tools": [world.look],
            "durable": Durable(f"sqlite:///{tmp_path}/runs.db", sync=sync),
            "root": tmp_path,
            **options,
        }
        async with AgentFlow(**arguments) as opened:
            yield opened

    yield open_flow
