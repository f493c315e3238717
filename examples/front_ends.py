"""A flow behind front ends: AG-UI (CopilotKit and others) and the AI SDK's ``useChat``. Needs no key.

    pip install 'agentflow[serve]'
    uvicorn examples.front_ends:server        # http://localhost:8000/agui/refund and /ui/refund, /agui/guide

Without a server, as below, the file sends what such front ends send. A run that asks ends its stream, and the next request answers. The page
of the second agent has a tool of its own, and shares a state with the agent's tools.
"""

import asyncio
import json
import os

import httpx2

from agentflow import AgentFlow, CallContext, ScriptedProvider, tool
from agentflow.serve import Export, FlowServer

REFUND = """(defatom thank (params (what string)) (instructions "Thank for {{what}}."))
            (let ((paid (pay (order message))))
              (if (failed? paid) "Nothing was paid." (value-of (thank (what (content paid))))))"""


@tool(approval=True)
def pay(order: str) -> str:
    """Pay an order back."""
    return f"the refund of {order}"


@tool
async def plan(steps: list[str], ctx: CallContext) -> str:
    """Show the steps of a plan on the page."""
    ctx.state["steps"] = steps
    return f"{ctx.state['user']} sees them"


def model(request):  # a stand-in; AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 asks a real one
    if "plan" in [each.name for each in request.tools]:
        results = [part.text for part in request.messages[-1].parts if part.type == "tool_result"]
        calls = [("plan", {"steps": ["open", "pay"]}), ("go_to", {"page": "orders"})]
        return ", and ".join(results) or {"tool_calls": [{"name": name, "arguments": each} for name, each in calls]}
    return f"Thank you for waiting: {request.messages[-1].text[10:-1]} is on its way."


real = "AGENTFLOW_MODEL" in os.environ
flow = AgentFlow(provider=None if real else ScriptedProvider(model), tools=[pay])
refund = Export(program=REFUND, allow=["pay", "thank", "defatom"])  # untrusted, so its calls need the approval


@flow.task(tools=[plan])
async def guide(message: str) -> str:
    """{{message}}"""


server = FlowServer(flow, {"refund": refund, "guide": guide}, hosts=["app"])


async def post(client: httpx2.AsyncClient, path: str, body: dict) -> list[dict]:
    """The events that a request is answered with."""
    print(f"POST {path}")
    text = (await client.post(path, json=body)).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def agui(client: httpx2.AsyncClient) -> None:
    said = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "order 17"}]}
    events = await post(client, "/agui/refund", said)
    [asked] = events[-1]["outcome"]["interrupts"]
    print(" ", asked["reason"], "|", asked["message"].splitlines()[0])
    answer = {"interruptId": asked["id"], "status": "resolved", "payload": True}
    events = await post(client, "/agui/refund", {**said, "runId": "r2", "resume": [answer]})
    print(" ", *dict.fromkeys(event["type"] for event in events))
    print(" ", "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"))


async def use_chat(client: httpx2.AsyncClient) -> None:
    said = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "order 18"}]}
    events = await post(client, "/ui/refund", {"id": "c1", "messages": [said]})
    call = next(event for event in events if event["type"] == "tool-input-available")
    asked = next(event for event in events if event["type"] == "tool-approval-request")
    print(" ", call["toolName"], "|", call["input"])
    part = {"type": "tool-pay", "toolCallId": call["toolCallId"], "state": "approval-responded"}
    answered = {
        "id": "m2",
        "role": "assistant",
        "parts": [{**part, "approval": {"id": asked["approvalId"], "approved": False}}],
    }
    events = await post(client, "/ui/refund", {"id": "c1", "messages": [said, answered]})
    print(" ", *dict.fromkeys(event["type"] for event in events))
    print(" ", "".join(event["delta"] for event in events if event["type"] == "text-delta"))


async def page_with_tools(client: httpx2.AsyncClient) -> None:
    go_to = {"type": "object", "properties": {"page": {"type": "string"}}, "required": ["page"]}
    said = {
        "threadId": "t2",
        "state": {"user": "Ada"},
        "messages": [{"id": "m1", "role": "user", "content": "My orders?"}],
    }
    tools = [{"name": "go_to", "description": "Show a page.", "parameters": go_to}]
    events = await post(client, "/agui/guide", {**said, "runId": "r1", "tools": tools})
    print(" ", [each["delta"] for each in events if each["type"] == "STATE_DELTA" and "steps" in str(each)])
    [call] = [each for each in events if each["type"] == "TOOL_CALL_START" and each["toolCallName"] == "go_to"]
    print(" ", call["toolCallName"], "|", events[-1]["type"], events[-1]["outcome"])
    result = {"id": "m2", "role": "tool", "toolCallId": call["toolCallId"], "content": "the page of orders is shown"}
    events = await post(client, "/agui/guide", {**said, "runId": "r2", "messages": [*said["messages"], result]})
    print(" ", "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"))


async def main() -> None:
    async with (
        flow,
        server,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(server), base_url="http://app") as client,
    ):
        await agui(client)
        await use_chat(client)
        await page_with_tools(client)


if __name__ == "__main__":
    asyncio.run(main())
