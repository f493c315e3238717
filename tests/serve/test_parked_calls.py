"""Durable runs that clients of AG-UI, ``useChat`` and MCP began: parked while they wait, gone on with by the client's own way."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, tool
from agentflow.serve import Export
from tests.support.serve_clients import answer_of, frames_of, mcp_client, request_of, text_of
from tests.support.served import Served, served

ASKING = """(defatom say (params (what)) (instructions "{{what}}"))
  (define paid (pay (amount 7)))
  (define who (ask-human "Who?" {"type" "string"}))
  (value-of (say (what (list (content paid) who))))"""
PAY = Export(program=ASKING, allow=["pay", "ask-human", "defatom", "say"])


class Bank:
    """A tool that needs an approval, and counts how often it paid."""

    def __init__(self) -> None:
        self.paid: list[int] = []

    def tool(self) -> Any:
        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        return pay


def flow_of(path: Path, *tools: Any) -> AgentFlow:
    model = ScriptedProvider(lambda request: f"said {request.messages[-1].text}")
    return AgentFlow(provider=model, tools=tools, durable=f"sqlite:///{path}/runs.db", record=True)


async def parked(flow: AgentFlow, run_id: str) -> str:
    """Wait until a run is out of the memory; the key of what it asks, if it asks something."""
    while (info := await flow.find_run(run_id)) is None or info.status != "waiting":
        await asyncio.sleep(0.005)
    questions = await flow.questions(run_id)
    return questions[0].key if questions else ""


async def begin(server: Served, route: str, export: str) -> tuple[str, list[dict[str, Any]]]:
    path, body = request_of(route, export)
    answer = await server.post(path, body)
    return answer.headers["x-request-id"], frames_of(answer.text)


@pytest.mark.parametrize("route", ["agui", "ui"])
async def test_a_run_that_asks_is_parked_and_goes_on_with_the_next_request(tmp_path: Path, route: str) -> None:
    """It is in nobody's memory while its client is asked, and has no end to its time; wrong answers are asked for again."""
    bank = Bank()
    async with flow_of(tmp_path, bank.tool()) as flow, served(flow, {"pay": PAY}, approval_ttl=0.01) as server:
        run_id, asked = await begin(server, route, "pay")
        key = await parked(flow, run_id)
        [run] = server.runs
        assert run.handle is not None and run.handle.status == "waiting" and not bank.paid
        assert key in str(asked) and "expiresAt" not in str(asked)

        async def answer(key: str, value: Any, *, approval: bool = False) -> list[dict[str, Any]]:
            told = await server.post(*answer_of(route, "pay", run_id, key, value, approval=approval))
            assert told.status_code == 200, told.text
            return frames_of(told.text)

        second = await answer(key, True, approval=True)
        who = await parked(flow, run_id)
        assert bank.paid == [7] and who in str(second) and who != key
        assert who in str(await answer(who, 3)), "which is not a text"
        last = await answer(who, "Ada")
        end = last[-1]
        value = end["result"] if route == "agui" else end["messageMetadata"]["value"]
        assert value == "said ['paid', 'Ada']" or "Ada" in value, value
        assert run.status == "done" and bank.paid == [7] and run.key.active == 0
        deltas = [each["delta"] for each in last if each["type"] in ("TEXT_MESSAGE_CONTENT", "text-delta")]
        assert "".join(deltas) == value, "the answer is told as it comes, in whatever slice of the run"
        late = await server.post(*answer_of(route, "pay", run_id, who, "Eve", approval=False))
        assert late.status_code == 404


@pytest.mark.parametrize("route", ["agui", "ui"])
async def test_a_client_comes_back_to_a_server_that_was_started_anew(tmp_path: Path, route: str) -> None:
    """What was asked of it before is still open: the answer is taken, and the rest of the run told; nobody else's answer is."""
    bank = Bank()
    async with flow_of(tmp_path, bank.tool()) as flow, served(flow, {"pay": PAY}) as server:
        run_id, _ = await begin(server, route, "pay")
        key = await parked(flow, run_id)
    async with (
        flow_of(tmp_path, bank.tool()) as flow,
        served(flow, {"pay": PAY, "other": "(string-append message)"}) as server,
    ):
        while not [run for run in server.runs if run.waits]:
            await asyncio.sleep(0.005)
        wrong = await server.post(*answer_of(route, "other", run_id, key, True, approval=True))
        assert wrong.status_code == 404 and not bank.paid
        told = await server.post(*answer_of(route, "pay", run_id, key, True, approval=True))
        who = await parked(flow, run_id)
        assert bank.paid == [7] and who in told.text
        told = await server.post(*answer_of(route, "pay", run_id, who, "Ada", approval=False))
        assert "Ada" in str(frames_of(told.text)[-1]) and bank.paid == [7]


@pytest.mark.parametrize("route", ["agui", "ui"])
async def test_a_long_sleep_is_spent_outside_of_the_memory_and_ends_with_the_client(tmp_path: Path, route: str) -> None:
    """The stream stays open meanwhile; whoever leaves it has the run cancelled, as any other run."""
    async with flow_of(tmp_path) as flow, served(flow, {"nap": "(sleep 600) message"}) as server:
        path, body = request_of(route, "nap")
        async with server.client.stream("POST", path, json=body) as answer:
            run_id = answer.headers["x-request-id"]
            assert await parked(flow, run_id) == ""
            [run] = server.runs
            assert run.handle is not None and run.handle.wake_at is not None and run.status == "running"
        await run.wait()
        assert run.status == "cancelled" and (await flow.find_run(run_id)).status == "cancelled"  # type: ignore[union-attr]


async def test_what_its_client_watched_is_not_gone_on_with_by_the_next_server(tmp_path: Path) -> None:
    """The server's end is the end of the connection: a run that asks stays, one that is at work or sleeps is cancelled.

    A server that was killed could not do so: the next one does.
    """
    began = asyncio.Event()

    @tool
    async def work() -> str:
        """Work."""
        began.set()
        await asyncio.sleep(600)
        return "worked"

    exports = {"work": "(content (work))", "asks": '(ask-human "Who?")'}
    async with flow_of(tmp_path, work) as flow:
        async with served(flow, exports) as server:
            path, body = request_of("agui", "work")
            streaming = asyncio.create_task(server.post(path, body))
            await began.wait()
            asks, _ = await begin(server, "agui", "asks")
            await parked(flow, asks)
            await server.server.aclose()
            ended = frames_of((await streaming).text)[-1]
            assert ended["outcome"] == {"type": "cancelled"}
            by_status = {run.export: run.status for run in server.runs}
            assert by_status == {"work": "cancelled", "asks": "interrupted"}
        labels = {"export": "work", "key": "anyone", "attended": "yes"}
        killed = await flow.start("(content (work))", run_id="killed", labels=labels)
        began.clear()
        await began.wait()
    assert killed.status == "queued"
    async with flow_of(tmp_path, work) as flow, served(flow, exports) as server:
        while (info := await flow.find_run("killed")) is None or info.status != "cancelled":
            await asyncio.sleep(0.005)
        await parked(flow, asks)


mcp_types = pytest.importorskip("mcp_types", reason="the extra mcp is not installed")


@pytest.mark.parametrize("mode", ["2026-07-28", pytest.param("legacy", marks=pytest.mark.slow)])
async def test_a_tool_call_that_asks_is_parked_until_its_form_is_answered(tmp_path: Path, mode: str) -> None:
    """In both revisions: whether the question ends the request or is asked beside it."""
    bank = Bank()
    async with flow_of(tmp_path, bank.tool()) as flow:
        async with served(flow, {"pay": PAY}) as server:

            async def reply(context: object, form: Any) -> Any:
                [run] = server.runs
                key = await parked(flow, run.run_id)
                field = "approve" if run.waits[key].reason == "approval" else "answer"
                return mcp_types.ElicitResult(action="accept", content={field: True if field == "approve" else "Ada"})

            async with mcp_client(server, mode, elicitation_callback=reply) as client:
                answer = await client.call_tool("pay", {"message": "x"})
            assert "Ada" in text_of(answer) and not answer.is_error and bank.paid == [7]
            [run] = server.runs
            assert run.status == "done" and run.key.active == 0


@pytest.mark.parametrize("mode", ["2026-07-28", pytest.param("legacy", marks=pytest.mark.slow)])
async def test_a_client_without_forms_is_told_that_a_run_waits(tmp_path: Path, mode: str) -> None:
    """The call ends with the run's id and what it asks, and the run goes on when that is answered by another way."""
    bank = Bank()
    async with flow_of(tmp_path, bank.tool()) as flow, served(flow, {"pay": PAY}) as server:
        async with mcp_client(server, mode) as client:
            told = await client.call_tool("pay", {"message": "x"})
            data = told.structured_content
            assert not told.is_error and data["value"] is None and data["run_id"] in text_of(told)
            [asked] = data["waiting"]
            assert asked["reason"] == "approval" and "pay" in asked["question"] and not bank.paid
            run_id = data["run_id"]
            for value in (True, "Ada"):
                where = f"/runs/{run_id}/answers/{await parked(flow, run_id)}"
                assert (await server.post(where, {"answer": value})).status_code == 200
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(server.runs.find(run_id, next(iter(server.runs)).key).wait(), 0.5)
            assert "Ada" in (await server.ended(run_id))["value"] and bank.paid == [7]
            resource = await client.read_resource(f"agentflow://runs/{run_id}")
            assert '"run_finished"' in resource.contents[0].text  # type: ignore[union-attr]
