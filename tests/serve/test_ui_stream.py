"""``/ui``: the AI SDK's own chat and transport, in Node, talk to exports over TCP as ``useChat`` does."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ModelDelta, ScriptedProvider, tool
from agentflow.core.data.provider_errors import Overloaded
from agentflow.serve import Export
from tests.serve.test_agui import ASKING, TEXT, delegating, look
from tests.support.node import NodeClients
from tests.support.serve_clients import Thinking, talk
from tests.support.served import Served, served

pytestmark = pytest.mark.slow


def chat(server: Served, name: str, message: str, **options: Any) -> dict[str, Any]:
    return {"url": f"{server.url}/ui/{name}", "message": message, **options}


def parts(answer: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """The parts of the last message that are of a kind."""
    return [each for each in answer["messages"][-1]["parts"] if each["type"] == kind]


async def test_a_run_as_its_client_sees_it(node_clients: NodeClients) -> None:
    """The answer as text and thinking, tasks as data with what they said, tools as calls; the value and usage with the message."""

    class Model(Thinking):
        async def stream(self, request: Any) -> Any:
            if "fail" in request.messages[-1].text:
                yield ModelDelta(text="half")
                raise Overloaded("busy")
            async for delta in super().stream(request):
                yield delta

    model = Model(lambda request: f"said {request.messages[-1].text}")
    async with AgentFlow(provider=model, tools=[look]) as flow:
        async with served(flow, {"x": TEXT, "sum": "(+ 1 (length (list message)))"}) as server:
            full, value, broken, unknown = await talk(
                node_clients,
                "ui.mjs",
                [
                    chat(server, "x", "hello"),
                    chat(server, "sum", "x"),
                    chat(server, "x", "fail"),
                    chat(server, "no", "x"),
                ],
            )
    assert full["error"] is None
    assert [each["text"] for each in parts(full, "text")] == ["said Answer hello."]
    assert [each["text"] for each in parts(full, "reasoning")] == ["hm, "]
    [call] = parts(full, "tool-look")
    assert (call["input"], call["output"]) == ({"what": "there"}, "seen there")
    tasks = [each["data"] for each in parts(full, "data-task")]
    assert [(each["name"], each["status"]) for each in tasks] == [("note", "ok"), ("note", "ok"), ("answer", "ok")]
    assert tasks[0]["text"] == "said Note one."
    metadata = full["messages"][-1]["metadata"]
    assert metadata["value"] == "said Answer hello." and metadata["usage"]["output_tokens"] > 0
    assert [each["text"] for each in parts(value, "text")] == ["2"]
    assert broken["error"].startswith("provider/overloaded") and "serve/unknown-export" in unknown["error"]


async def test_every_turn_is_a_text_of_its_own(node_clients: NodeClients) -> None:
    """What the answering task says before it calls a tool and after, and its subtask beside it."""
    call = {"text": "Let me dig.", "tool_calls": [{"name": "dig", "arguments": {"q": "gold"}}]}
    async with delegating(call) as flow, served(flow, ["ask"]) as server:
        [seen] = await talk(node_clients, "ui.mjs", [chat(server, "ask", "Where?")])
    assert seen["error"] is None and [each["text"] for each in parts(seen, "text")] == ["Let me dig.", "It is there."]
    tasks = {each["data"]["name"]: each["data"] for each in parts(seen, "data-task")}
    assert tasks.keys() == {"ask", "subtask digger", "digger"} and tasks["digger"]["text"] == "found it"
    assert {each["status"] for each in tasks.values()} == {"ok"}


@pytest.mark.parametrize("durable", [False, True])
async def test_what_is_asked_is_answered_by_the_next_request(
    node_clients: NodeClients, tmp_path: Path, durable: bool
) -> None:
    """An approval by a yes alone, a question by the output of a call; wrong answers are asked for again, declined ones end it."""
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    async with AgentFlow(tools=[pay], durable=f"sqlite:///{tmp_path}/runs.db" if durable else None) as flow:
        export = Export(program=ASKING, allow=["pay", "ask-human"])
        async with served(flow, {"pay": export}) as server:
            yes, no, gone = await talk(
                node_clients,
                "ui.mjs",
                [
                    chat(server, "pay", "go", approve=True, answers=["Ada"]),
                    chat(server, "pay", "go", approve=False, answers=[3, "Bob"]),
                    chat(server, "pay", "go", approve=True, answers=[None]),
                ],
            )
            assert not server.runs.live
    assert yes["error"] is None and no["error"] is None
    assert yes["messages"][-1]["metadata"]["value"] == ["paid", "Ada"]
    assert no["messages"][-1]["metadata"]["value"] == ["refused", "Bob"]
    assert [len(each["messages"]) for each in (yes, no)] == [2, 2], "it is one message, however often it asks"
    assert [each["toolName"] for each in parts(yes, "dynamic-tool")] == ["ask_human"]
    [call] = parts(yes, "tool-pay")
    assert (call["input"], call["output"], call["approval"]["approved"]) == ({"amount": 7}, "paid", True)
    assert parts(no, "tool-pay")[0]["state"] == "output-denied"
    assert "abort" in gone["types"] and paid == [7, 7]


async def test_a_client_that_leaves_at_any_event_leaves_nothing(node_clients: NodeClients) -> None:
    """After every event of a run, each in turn: the run is cancelled, or had ended, or waits for an answer and is given up in time."""
    model = ScriptedProvider(lambda request: f"said {request.messages[-1].text}")
    async with AgentFlow(provider=model, tools=[look]) as flow:
        text = TEXT.replace("(value-of", '(ask-human "Who?")(value-of')
        async with served(flow, {"x": TEXT, "asking": text}, approval_ttl=0.5) as server:
            chats = [chat(server, name, "hello", leave_after=at) for name in ("x", "asking") for at in range(1, 18)]
            await talk(node_clients, "ui.mjs", chats)
            for run in server.runs:
                await asyncio.wait_for(run.wait(), 10)
            assert not server.runs.live and len(list(server.runs)) == len(chats)
            assert "cancelled" in {run.status for run in server.runs}
            [key] = {run.key for run in server.runs}
            assert key.active == 0


async def test_an_answer_that_the_user_stopped_says_so_to_the_model(node_clients: NodeClients) -> None:
    """``useChat`` keeps the text of an answer that its user stops: the next request's history has it, marked as interrupted."""

    class Endless(ScriptedProvider):
        async def stream(self, request: Any) -> Any:
            if len(request.messages) == 1:
                yield ModelDelta(text="It is so")
                await asyncio.Event().wait()
            async for delta in super().stream(request):
                yield delta

    model = Endless(lambda request: " | ".join([each.text for each in request.messages]))
    text = '(defatom reply (params (text)) (instructions "{{text}}") (history_config true)) (value-of (reply (text message)))'
    async with AgentFlow(provider=model, tools=[]) as flow, served(flow, {"x": text}) as server:
        [talked] = await talk(node_clients, "ui.mjs", [chat(server, "x", "Why?", stop="text-delta", then="And?")])
    assert talked["error"] is None
    assert talked["messages"][-1]["parts"][-1]["text"] == "Why? | It is so\n\n[interrupted] | And?"
