"""Streams a model's text to browsers by server-sent events, from Starlette and from FastAPI. You need no key.

    pip install starlette fastapi uvicorn
    uvicorn examples.sse:starlette_app        # or fastapi_app; then curl -N 'localhost:8000/poem?about=rain'

Without a server, as below, the file calls both applications directly. A run ends with its response: when the browser disconnects, the
model call is cancelled.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from agentflow import AgentFlow, AgentflowError, Limits, ScriptedProvider
from agentflow.events import TextDelta


def model(request):  # a stand-in; AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 asks a real one
    return f"A line {request.messages[-1].text.split('poem ')[1]}"


real = "AGENTFLOW_MODEL" in os.environ
flow = AgentFlow(provider=None if real else ScriptedProvider(model), limits=Limits(wall_s=60))


@flow.task
async def poem(about: str) -> str:
    """A short poem about {{about}}."""
    ...


async def events(about: str) -> AsyncIterator[str]:
    """What the model writes as it comes, then the whole value; or the error, which a started response has no status for."""
    async with flow.stream(poem(about)) as run:
        try:
            async for event in run:
                if isinstance(event, TextDelta):
                    yield f"data: {json.dumps(event.text)}\n\n"
            yield f"event: value\ndata: {json.dumps(await run.value())}\n\n"
        except AgentflowError as error:
            yield f"event: error\ndata: {json.dumps(str(error))}\n\n"


def stream(about: str) -> StreamingResponse:
    return StreamingResponse(events(about), media_type="text/event-stream", headers={"cache-control": "no-store"})


@asynccontextmanager
async def lifespan(_app: object) -> AsyncIterator[None]:
    async with flow:  # connections close when the server stops
        yield


async def starlette_poem(request: Request) -> StreamingResponse:
    return stream(request.query_params["about"])


starlette_app = Starlette(routes=[Route("/poem", starlette_poem)], lifespan=lifespan)
fastapi_app = FastAPI(lifespan=lifespan)


@fastapi_app.get("/poem")
async def fastapi_poem(about: str) -> StreamingResponse:
    return stream(about)


async def main() -> None:
    for app in (starlette_app, fastapi_app):
        print(type(app).__name__)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://app") as client:
            response = await client.get("/poem", params={"about": "rain"})
            print(response.text)


if __name__ == "__main__":
    asyncio.run(main())
