"""An application that mounts a flow, as somebody would write it: ``uvicorn tests.serve.stopping_host:app``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Mount

from agentflow import AgentFlow, ScriptedProvider
from agentflow.serve import FlowServer

flow = AgentFlow(provider=ScriptedProvider([]))
server = FlowServer(
    flow,
    {"slow": "(begin (sleep 600) message)", "ask": '(list (ask-human message {"type" "boolean"}))'},
    hosts=["127.0.0.1"],
    grace=0.5,
)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None, None]:
    async with flow, server:
        yield
    await asyncio.sleep(0)
    print("CLEANED UP", flush=True)


app = Starlette(routes=[Mount("/f", server)], lifespan=lifespan)
