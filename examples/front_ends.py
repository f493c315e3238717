"""A flow behind front ends: AG-UI (CopilotKit and others) and the AI SDK's ``useChat``. You need no key.

    pip install 'agentflow[serve]'
    uvicorn examples.front_ends:server        # http://localhost:8000/agui/refund and /ui/refund

Without a server, as below, the file sends the requests of such front ends. A question ends the stream, and the next request answers it.
"""

import asyncio
import json
import os

import httpx2

from agentflow import AgentFlow, ScriptedProvider, tool
from agentflow.serve import FlowServer


@tool(approval=True)
def pay(order: str) -> str:
    """Pay an order back."""
    return f"the refund of {order}"


def model(request):  # a stand-in; AGENTFLOW_MODEL=anthropic:claude-sonnet-5-5 asks a real one
    last = request.messages[-1]
    if last.text:
        return {"tool_calls": [{"name": "pay", "arguments": {"order": last.text}}]}
    return (
        "Nothing was paid." if last.parts[0].is_error else f"Thank you for waiting: {last.parts[0].text} is on its way."
    )


real = "AGENTFLOW_MODEL" in os.environ
flow = AgentFlow(provider=None if real else ScriptedProvider(model))


@flow.task(tools=[pay])
async def refund(message: str) -> str:
    """{{message}}"""
    ...


server = FlowServer(flow, {"refund": refund}, hosts=["app"])


async def post(client: httpx2.AsyncClient, path: str, body: dict) -> list[dict]:
    """The events that a request is answered with."""
    print(f"POST {path}")
    text = (await client.post(path, json=body)).text
    return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]


async def agui(client: httpx2.AsyncClient) -> None:
    said = {"threadId": "t1", "runId": "r1", "messages": [{"id": "m1", "role": "user", "content": "order 17"}]}
    events = await post(client, "/agui/refund", said)
    if not (interrupts := events[-1]["outcome"].get("interrupts")):
        return  # another model may not ask for the refund
    [asked] = interrupts
    print(" ", asked["reason"], "|", asked["message"].splitlines()[0])
    answer = {"interruptId": asked["id"], "status": "resolved", "payload": True}
    events = await post(client, "/agui/refund", {**said, "runId": "r2", "resume": [answer]})
    print(" ", *dict.fromkeys(event["type"] for event in events))
    print(" ", "".join(event["delta"] for event in events if event["type"] == "TEXT_MESSAGE_CONTENT"))


async def use_chat(client: httpx2.AsyncClient) -> None:
    said = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "order 18"}]}
    events = await post(client, "/ui/refund", {"id": "c1", "messages": [said]})
    call = next((event for event in events if event["type"] == "tool-input-available"), None)
    if call is None:
        return
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


async def main() -> None:
    async with (
        flow,
        server,
        httpx2.AsyncClient(transport=httpx2.ASGITransport(server), base_url="http://app") as client,
    ):
        await agui(client)
        await use_chat(client)


if __name__ == "__main__":
    asyncio.run(main())
