"""A page with its own tools, and a state that it shares with an agent, over AG-UI. You need no key.

    pip install 'agentflow[serve]'
    uvicorn examples.front_end_tools:server        # http://localhost:8000/agui/guide, for CopilotKit and others

Without a server, as below, the file sends the requests of such a page: first the user's message, then the result of a tool.
"""

import asyncio
import json
import os

import httpx2

from agentflow import AgentFlow, CallContext, ScriptedProvider, tool
from agentflow.serve import FlowServer


@tool
async def plan(steps: list[str], ctx: CallContext) -> str:
    """Show the steps of a plan on the page."""
    ctx.state["steps"] = steps
    return f"{ctx.state['user']} sees them"


def model(request):  # a stand-in; AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 asks a real one
    results = [part.text for part in request.messages[-1].parts if part.type == "tool_result"]
    calls = [("plan", {"steps": ["open", "pay"]}), ("go_to", {"page": "orders"})]
    return ", and ".join(results) or {"tool_calls": [{"name": name, "arguments": each} for name, each in calls]}


flow = AgentFlow(provider=None if "AGENTFLOW_MODEL" in os.environ else ScriptedProvider(model))


@flow.task(tools=[plan])
async def guide(message: str) -> str:
    """{{message}}"""


server = FlowServer(flow, [guide], hosts=["app"])
GO_TO = {
    "name": "go_to",
    "description": "Show a page of the shop.",
    "parameters": {"type": "object", "properties": {"page": {"type": "string"}}, "required": ["page"]},
}


async def post(client: httpx2.AsyncClient, run_id: str, messages: list[dict]) -> list[dict]:
    """The events that a request of the page is answered with."""
    body = {"threadId": "t1", "runId": run_id, "messages": messages, "tools": [GO_TO], "state": {"user": "Ada"}}
    text = (await client.post("/agui/guide", json=body)).text
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    print(run_id, *dict.fromkeys([each["type"] for each in events if not each["type"].startswith("STEP")]))
    return events


async def main() -> None:
    transport = httpx2.ASGITransport(server)
    async with flow, server, httpx2.AsyncClient(transport=transport, base_url="http://app") as client:
        messages = [{"id": "m1", "role": "user", "content": "Where are my orders?"}]
        events = await post(client, "r1", messages)
        for event in events:
            if event["type"] == "STATE_DELTA" and event["delta"][0]["path"] == "/steps":
                print("  the page shows", event["delta"][0]["value"])
            if event["type"] == "TOOL_CALL_START" and event["toolCallName"] == "go_to":
                print("  the page carries out", event["toolCallName"])
                shown = {"role": "tool", "toolCallId": event["toolCallId"], "content": "the page of orders is shown"}
                events = await post(client, "r2", [*messages, {"id": "m2", **shown}])
        print("  " + "".join([each["delta"] for each in events if each["type"] == "TEXT_MESSAGE_CONTENT"]))


if __name__ == "__main__":
    asyncio.run(main())
