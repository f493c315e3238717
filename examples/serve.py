"""Serves a flow from FastAPI: as a model for OpenAI's clients, as runs, and as a page. You need no key.

    pip install 'agentflow[serve]' fastapi
    uvicorn examples.serve:app        # then open http://localhost:8000/flows/, or point a chat client at /flows/v1

Without a server, as below, the file calls the application directly.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from fastapi import FastAPI

from agentflow import AgentFlow, Limits, ScriptedProvider
from agentflow.serve import FlowServer


def model(request):  # a stand-in; AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 asks a real one
    return f"I was asked: {request.messages[-1].text}"


real = "AGENTFLOW_MODEL" in os.environ
flow = AgentFlow(provider=None if real else ScriptedProvider(model), limits=Limits(wall_s=60))


@flow.task
async def capital(country: str) -> str:
    """What is the capital of {{country}}?"""
    ...


@flow.workflow
async def compare(first: str, second: str) -> str:
    """Compare two countries."""
    return str(await flow.ask(f"Which is larger, {first} or {second}?"))


server = FlowServer(flow, {"capital": capital, "compare": compare}, hosts=["localhost", "127.0.0.1", "app"])


@asynccontextmanager
async def lifespan(_app: object) -> AsyncIterator[None]:
    async with flow, server:  # runs end, then connections close
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/flows", server)


async def main() -> None:
    async with flow, server, httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://app") as client:
        models = (await client.get("/flows/v1/models")).json()["data"]
        print("models:", ", ".join(each["id"] for each in models))
        body = {"model": "capital", "messages": [{"role": "user", "content": "France"}]}
        chat = (await client.post("/flows/v1/chat/completions", json=body)).json()
        print("chat:", chat["choices"][0]["message"]["content"])
        run = {"export": "compare", "bindings": {"first": "Chile", "second": "Peru"}}
        begun = await client.post("/flows/runs", json=run)
        await client.get(f"{begun.headers['location']}/events")  # the events, until the run has ended
        ended = (await client.get(begun.headers["location"])).json()
        print("run:", ended["status"], ended["value"])


if __name__ == "__main__":
    asyncio.run(main())
