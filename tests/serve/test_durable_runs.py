"""Runs of a flow that stores them: parked while they wait, interrupted when the server stops, gone on with later."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, tool
from agentflow.serve import Export
from tests.support.served import served

ASKS = Export(program='(list (ask-human "How many?" {"type" "integer"}) (step))', allow=["ask-human", "step"])


class Step:
    """A tool that counts its calls, and waits where it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.go = asyncio.Event()

    def tool(self) -> Any:
        @tool
        async def step() -> str:
            """A step."""
            self.calls += 1
            await self.go.wait()
            return "stepped"

        return step


async def test_a_run_that_waits_is_parked_and_goes_on_with_its_answer(tmp_path: Path) -> None:
    """It is in nobody's memory meanwhile; its readers go on reading in the next slice, its events being one stream."""
    step = Step()
    step.go.set()
    async with AgentFlow(tools=[step.tool()], durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        async with served(flow, {"ask": ASKS}, approval_ttl=0.01) as server:
            run_id = await server.begin("ask", message="x")
            reader = asyncio.create_task(server.ended(run_id))
            while (await flow.find_run(run_id)).status != "waiting":  # type: ignore[union-attr]
                await asyncio.sleep(0.005)
            data = (await server.get(f"/runs/{run_id}")).json()
            assert data["status"] == "waiting" and data["waiting"][0]["question"] == "How many?"
            where = f"/runs/{run_id}/answers/{data['waiting'][0]['key']}"
            wrong = await server.post(where, {"answer": "x"})
            assert wrong.status_code == 400 and wrong.json()["error"]["code"] == "question/answer"
            assert (await server.post(where, {"answer": 3})).status_code == 200
            assert (await reader)["status"] == "done" and (await reader)["waiting"] == []
            events = [event async for event in server.events(run_id)]
            places = [(event["slice"], event["seq"]) for event in events]
            assert places == sorted(set(places)) and {event["slice"] for event in events} == {1, 2}
            for at in (0, len(events) // 2, len(events) - 2):
                assert [each async for each in server.events(run_id, after=events[at]["id"])] == events[at + 1 :]
            other = await server.post("/runs", {"export": "ask", "message": "y", "run_id": run_id})
            assert other.status_code == 409
        async with served(flow, {"ask": ASKS}) as later:
            other = await later.post("/runs", {"export": "ask", "message": "y", "run_id": run_id})
            assert other.status_code == 409, "what another server began is not given to whoever knows its name"
    assert step.calls == 1


async def test_the_servers_end_interrupts_and_a_cancel_is_for_good(tmp_path: Path) -> None:
    """An interrupted run is told so and goes on elsewhere; one that was cancelled does not."""
    step = Step()
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(tools=[step.tool()], durable=url) as flow:
        async with served(flow, {"step": "(content (step))"}) as server:
            cancelled = await server.begin("step", message="x")
            while not step.calls:
                await asyncio.sleep(0.002)
            data = (await server.post(f"/runs/{cancelled}/cancel")).json()
            assert data["status"] == "cancelled" and (await flow.find_run(cancelled)).status == "cancelled"  # type: ignore[union-attr]
            interrupted = await server.begin("step", message="x")
            while step.calls < 2:
                await asyncio.sleep(0.002)
            runs = server.runs
        [_, run] = runs
        assert run.status == "interrupted" and not runs.live
    step.go.set()
    async with AgentFlow(tools=[step.tool()], durable=url) as flow:
        assert (await (await flow.resume(interrupted)).result()).value == "stepped" and step.calls == 3


async def test_a_server_goes_on_with_the_runs_of_the_one_before_it(tmp_path: Path) -> None:
    """Those at work and those that wait: for whom they were begun, their events one stream from the first on."""
    step = Step()
    exports = {"ask": ASKS, "step": "(content (step))"}
    options: dict[str, Any] = {"tools": [step.tool()], "durable": f"sqlite:///{tmp_path}/runs.db", "record": True}
    async with AgentFlow(**options) as flow, served(flow, exports) as server:
        waiting = await server.begin("ask", message="x")
        working = await server.begin("step", message="x")
        while not step.calls or (await flow.find_run(waiting)).status != "waiting":  # type: ignore[union-attr]
            await asyncio.sleep(0.005)
        before = [event async for event in server.until(waiting, "wait_started")]
    step.go.set()
    async with AgentFlow(**options) as flow, served(flow, exports) as server:
        while len(list(server.runs)) < 2 or not (await server.get(f"/runs/{waiting}")).json()["waiting"]:
            await asyncio.sleep(0.005)
        done = await server.ended(working)
        assert (done["status"], done["value"], done["labels"]["export"]) == ("done", "stepped", "step")
        asked = (await server.get(f"/runs/{waiting}")).json()["waiting"][0]
        await server.post(f"/runs/{waiting}/answers/{asked['key']}", {"answer": 3})
        assert (await server.ended(waiting))["status"] == "done"
        events = [event async for event in server.events(waiting)]
        places = [(event["slice"], event["seq"]) for event in events]
        assert places == sorted(set(places)) and events[: len(before)] == before
        for at in range(0, len(events), 3):
            assert [each async for each in server.events(waiting, after=events[at]["id"])] == events[at + 1 :]
    async with AgentFlow(**options) as flow, served(flow, exports) as server:
        assert list(server.runs) == [], "what has ended is nobody's to go on with"


async def test_a_question_that_holds_a_secret_is_told_without_it(tmp_path: Path) -> None:
    """In the run's data and in errors about answers, however long the question is."""
    secret = "tomato-harbour-71-violet"
    program = '(ask-human message {"type" "integer"})'
    async with AgentFlow(api_key=secret, durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        async with served(flow, {"ask": Export(program=program, allow=["ask-human"])}) as server:
            run_id = await server.begin("ask", message=f"{'x' * 184} {secret}, {'so on ' * 50}?")
            while not (waiting := (await server.get(f"/runs/{run_id}")).json()["waiting"]):
                await asyncio.sleep(0.005)
            wrong = await server.post(f"/runs/{run_id}/answers/{waiting[0]['key']}", {"answer": "x"})
            assert wrong.status_code == 400 and "[redacted]" in waiting[0]["question"]
            assert not [text for text in (str(waiting), wrong.text) if secret[:5] in text]
            assert (await server.post(f"/runs/{run_id}/answers/{waiting[0]['key']}", {"answer": 3})).status_code == 200
            assert (await server.ended(run_id))["value"] == 3
