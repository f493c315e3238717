"""Clients that leave, at every event and by every way; and limits of a key while a hundred MCP calls race."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from agentflow import AgentFlow
from agentflow.serve import Export
from tests.run.test_reservation import DOLLAR
from tests.serve.test_runs import LOOP, Steps
from tests.support.metered_model import MeteredModel, asking
from tests.support.serve_clients import ROUTES, keys_of, mcp_client, request_of, text_of
from tests.support.served import served

EVENTS = 11
"""Events that a run of LOOP has before its end is certain."""


@pytest.mark.parametrize("route", ROUTES)
async def test_a_run_goes_on_without_its_client_where_the_server_says_so(route: str) -> None:
    """With ``on_disconnect="continue"`` a client that leaves ends nothing: the run is done, and its key has its place back."""
    steps = Steps()
    async with AgentFlow(tools=[steps.step]) as flow:
        async with served(flow, {"loop": LOOP}, on_disconnect="continue") as server:
            path, body = request_of(route, "loop")
            async with server.client.stream("POST", path, json=body) as answer:
                run = server.runs.find(answer.headers["x-request-id"], next(iter(server.runs)).key)
                while not steps.calls:
                    await asyncio.sleep(0.001)
            for _ in range(4):
                steps.gate.release()
            await run.wait()
            assert run.status == "done" and steps.calls == steps.ended == 4 and run.key.active == 0


@pytest.mark.parametrize("mode", ["2026-07-28", pytest.param("legacy", marks=pytest.mark.slow)])
async def test_a_tool_call_that_is_cancelled_at_any_event(mode: str) -> None:
    """Its run is cancelled wherever it was, what the run does ends with it, and the connection goes on working."""
    steps = Steps()
    exports = {"loop": Export(program=LOOP), "add": Export(program="(+ 1 2)", parameters={})}
    async with AgentFlow(tools=[steps.step]) as flow, served(flow, exports) as server:
        async with mcp_client(server, mode) as client:
            for at in range(EVENTS):
                steps.gate = asyncio.Semaphore(max(0, at - 1) // 2)
                known = len(list(server.runs))
                calling = asyncio.create_task(client.call_tool("loop", {"message": "x"}))
                while len(list(server.runs)) == known:
                    await asyncio.sleep(0.001)
                run = list(server.runs)[-1]
                while len(run.log) <= at and run.ended is None:
                    await asyncio.sleep(0.001)
                calling.cancel()
                await asyncio.wait([calling])
                await run.wait()
                assert run.status in ("cancelled", "done") and run.key.active == 0 and steps.calls == steps.ended
            assert (await client.call_tool("add", {})).structured_content["value"] == 3
            assert [each.status for each in server.runs].count("cancelled") >= EVENTS - 2


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["tokens_per_day = 1000", "concurrent = 3"])
async def test_a_hundred_tool_calls_that_race_never_pass_a_keys_limits(tmp_path: Path, rule: str) -> None:
    """What the model was paid is within the limit, and so are runs at once; the others are told so by the tool's error."""
    model = MeteredModel()
    keys = keys_of(tmp_path, ada=rule)
    async with AgentFlow(provider=model, prices=DOLLAR) as flow:
        async with served(flow, {"ask": f"{asking()} (value-of (ask (n 36)))"}, keys=keys) as server:
            [key] = keys
            most = 0

            async def watch() -> None:
                nonlocal most
                while True:
                    most = max(most, key.active)
                    await asyncio.sleep(0)

            async with mcp_client(server, "2026-07-28", "secret-ada") as client:
                watching = asyncio.create_task(watch())
                answers = await asyncio.gather(*[client.call_tool("ask", {"message": "x"}) for _ in range(100)])
                watching.cancel()
            refusal = "limits/purse" if "tokens" in rule else "serve/concurrent"
            refused = [each for each in answers if each.is_error]
            assert all(text_of(each).startswith(refusal) for each in refused)
            assert 0 < len(refused) < 100 and key.active == 0
            if "tokens" in rule:
                assert model.paid <= 1_000 and key.purse is not None and key.purse.used_tokens == model.paid
            else:
                assert most <= 3 and len(list(server.runs)) == 100 - len(refused)


WITHOUT_MCP = """
import asyncio, sys
import httpx2
sys.modules["mcp"] = None  # as where the extra is not installed
from agentflow import AgentFlow
from agentflow.serve import app

async def main(operator):
    async with AgentFlow() as flow, app(flow, {"add": "(+ 1 2)"}, hosts=["app"], fleet=operator) as server:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(server), base_url="http://app") as client:
            for method in ("POST", "GET", "DELETE"):
                answer = await client.request(method, "/mcp", json={})
                error = answer.json()["error"]
                assert (answer.status_code, error["code"]) == (501, "serve/no-mcp")
                assert ("agentflow[mcp]" in error["message"]) == operator
            assert (await client.get("/health")).status_code == 200

for operator in (True, False):
    asyncio.run(main(operator))
"""


@pytest.mark.slow
def test_mcp_without_its_extra_says_what_to_install() -> None:
    """501, with the command for operators, whatever is asked of ``/mcp``; the other routes go on."""
    subprocess.run([sys.executable, "-c", WITHOUT_MCP], check=True)
