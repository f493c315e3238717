"""What clients say to runs and send them, and the state and data that these show, over HTTP and in the front ends' protocols."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ScriptedProvider, tool
from agentflow.core.data.messages import ModelRequest
from tests.support.serve_clients import keys_of
from tests.support.served import served


def scene(place: str | None = None) -> tuple[AgentFlow, Any, asyncio.Event, list[list[str]]]:
    """A flow with a workflow that publishes, asks a model with a tool that is held, and waits for a signal."""
    go, requests = asyncio.Event(), list[list[str]]()

    def model(request: ModelRequest) -> Any:
        requests.append([each.text for each in request.messages if each.role == "user" and each.text])
        return "done" if len(requests) > 1 else {"tool_calls": [{"name": "look", "arguments": {}}]}

    @tool
    async def look(ctx: CallContext) -> str:
        """Look."""
        await go.wait()
        ctx.state["looked"] = True
        ctx.emit({"path": "a.py"}, name="found")
        return "seen"

    flow = AgentFlow(provider=ScriptedProvider(model), durable=place)

    @flow.task(tools=[look])
    async def agent(about: str) -> str:
        """{{about}}"""
        raise NotImplementedError

    @flow.workflow
    async def work(message: str) -> str:
        await flow.publish("phase", "looks")
        text = await agent(message)
        return f"{text} {await flow.signal('paid', int)}"

    return flow, work, go, requests


async def state_when(server: Any, run_id: str, key: str) -> dict[str, Any]:
    while key not in (state := (await server.get(f"/runs/{run_id}/state")).json()):
        await asyncio.sleep(0.01)
    return dict(state)


@pytest.mark.parametrize("durable", [False, True])
async def test_a_client_says_things_sends_signals_and_reads_the_state(tmp_path: Path, durable: bool) -> None:
    """In a plain run and in a durable one; what does not fit is refused, and so is everything once the run has ended."""
    flow, work, go, requests = scene(f"sqlite:///{tmp_path}/runs.db" if durable else None)
    async with flow, served(flow, [work]) as server:
        run_id = await server.begin("work", message="Review.")
        assert await state_when(server, run_id, "phase") == {"phase": "looks"}
        said = await server.post(f"/runs/{run_id}/say", {"text": "also tests/"})
        assert said.status_code == 202 and said.json()["text"] == "also tests/"
        go.set()
        while not (waiting := (await server.get(f"/runs/{run_id}")).json()["waiting"]):
            await asyncio.sleep(0.01)
        assert [(each["reason"], each["signal"]) for each in waiting] == [("signal", "paid")]
        wrong = await server.post(f"/runs/{run_id}/signals/paid", {"value": "much"})
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "signal/value")
        assert (await server.post(f"/runs/{run_id}/signals/paid", {"value": 7})).status_code == 202
        assert (await server.ended(run_id))["value"] == "done 7"
        assert requests == [["Review."], ["Review.", "also tests/"]]
        assert await state_when(server, run_id, "looked") == {"phase": "looks", "looked": True}
        late = await server.post(f"/runs/{run_id}/say", {"text": "more"})
        assert (late.status_code, late.json()["error"]["code"]) == (409, "run/ended")
        empty = await server.post(f"/runs/{run_id}/say", {})
        assert (empty.status_code, empty.json()["error"]["code"]) == (400, "serve/field")
        events = [event async for event in server.events(run_id)]
        assert [each["data"] for each in events if each["type"] == "host_data"] == [{"path": "a.py"}]
        assert [each["type"] for each in events if each["type"].startswith("text_")] == ["text_said", "text_read"]


async def test_only_the_key_of_a_run_reaches_it(tmp_path: Path) -> None:
    """Another key may neither say something to it, nor send it a signal, nor read its state."""
    flow, work, go, _ = scene()
    async with flow, served(flow, [work], keys=keys_of(tmp_path, ada="", bob="")) as server:
        ada, bob = ({"authorization": f"Bearer secret-{name}"} for name in ("ada", "bob"))
        body = {"export": "work", "bindings": {"message": "x"}}
        run_id = (await server.post("/runs", body, headers=ada)).json()["run_id"]
        for path, sent in (("say", {"text": "x"}), ("signals/paid", {"value": 1})):
            assert (await server.post(f"/runs/{run_id}/{path}", sent, headers=bob)).status_code == 403
            assert (await server.post(f"/runs/{run_id}/{path}", sent, headers=ada)).status_code == 202
        assert (await server.get(f"/runs/{run_id}/state", headers=bob)).status_code == 403
        assert (await server.get(f"/runs/{run_id}/state", headers=ada)).status_code == 200
        go.set()


async def test_the_front_ends_get_data_and_state_as_parts_of_theirs() -> None:
    """AG-UI has CUSTOM, the AI SDK data parts; a wait for a signal asks the user nothing."""
    for path, body in (
        ("/agui/work", {"threadId": "t", "runId": "r", "messages": [{"id": "1", "role": "user", "content": "x"}]}),
        ("/ui/work", {"messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": "x"}]}]}),
    ):
        flow, work, go, _ = scene()
        async with flow, served(flow, [work]) as server:
            go.set()
            asking = asyncio.create_task(server.post(path, body))
            while not server.runs.live or not server.runs.live[0].waits:
                await asyncio.sleep(0.01)
            run_id = server.runs.live[0].run_id
            await server.post(f"/runs/{run_id}/signals/paid", {"value": 1})
            text = (await asking).text
        if path.startswith("/agui"):
            assert '"type": "CUSTOM", "name": "found", "value": {"path": "a.py"}' in text
            assert "interrupt" not in text
        else:
            assert '"type": "data-found", "data": {"path": "a.py"}' in text
            assert '"data": {"phase": "looks", "looked": true}' in text
