"""What holds for every protocol of a chat or a front end: limits of keys, clients that leave, requests that are none."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, tool
from agentflow.serve import Export
from tests.run.test_reservation import DOLLAR
from tests.serve.test_runs import LOOP, Steps
from tests.support.metered_model import MeteredModel, asking
from tests.support.serve_clients import AGUI, ROUTES, USER, answer_of, by, keys_of, request_of
from tests.support.served import served


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["tokens_per_day = 1000", "concurrent = 3"])
async def test_a_hundred_requests_that_race_over_all_routes_never_pass_a_keys_limits(tmp_path: Path, rule: str) -> None:
    """What the model was paid is within the limit, and so are runs at once; the others are told so, before or in the stream."""
    model = MeteredModel()
    keys = keys_of(tmp_path, ada=rule)
    async with AgentFlow(provider=model, prices=DOLLAR) as flow:
        async with served(flow, {"ask": f"{asking()} (value-of (ask (n 36)))"}, keys=keys) as server:
            [key] = keys
            most = 0

            async def ask(route: str) -> str:
                nonlocal most
                path, body = request_of(route, "ask")
                answer = await server.post(path, body, headers=by("ada"))
                most = max(most, key.active)
                assert answer.status_code in (200, 429), answer.text
                return str(answer.text)

            texts = await asyncio.gather(*[ask(ROUTES[at % 4]) for at in range(100)])
            refusal = "limits/purse" if "tokens" in rule else "serve/concurrent"
            refused = [each for each in texts if refusal in each]
            assert 0 < len(refused) < 100 and key.active == 0
            if "tokens" in rule:
                assert model.paid <= 1_000 and key.purse is not None and key.purse.used_tokens == model.paid
            else:
                assert most <= 3 and len(list(server.runs)) == 100 - len(refused)


@pytest.mark.parametrize("route", [each for each in ROUTES if each != "chat"])
async def test_a_client_that_leaves_at_any_event(route: str) -> None:
    """Its run is cancelled, whether it had been sent anything or not, and no task is left."""
    steps = Steps()
    async with AgentFlow(tools=[steps.step]) as flow, served(flow, {"loop": Export(program=LOOP)}) as server:
        before = len(asyncio.all_tasks())
        path, body = request_of(route, "loop")
        for leave_at in range(9):
            steps.gate = asyncio.Semaphore(max(0, leave_at - 1) // 2)
            async with server.client.stream("POST", path, json=body) as answer:
                run = server.runs.find(answer.headers["x-request-id"], next(iter(server.runs)).key)
                while len(run.log) <= leave_at:
                    await asyncio.sleep(0.001)
            await run.wait()
            assert run.status == "cancelled" and run.key.active == 0
        while len(asyncio.all_tasks()) > before + 2:  # the owner of the runs, and the connection that the client keeps
            await asyncio.sleep(0.001)


BAD: list[tuple[str, Any, str]] = [
    ("/agui/none", {**AGUI, "messages": [USER]}, "serve/unknown-export"),
    ("/agui/sum", {**AGUI, "messages": [USER]}, "serve/no-message"),
    ("/agui/echo", {"messages": [USER]}, "serve/field"),
    ("/agui/echo", {**AGUI, "threadId": 3, "messages": [USER]}, "serve/field"),
    ("/agui/echo", {**AGUI, "messages": "x"}, "serve/messages"),
    ("/agui/echo", {**AGUI, "messages": [{"role": "tool", "content": "x"}]}, "serve/messages"),
    ("/agui/echo", {**AGUI, "messages": [{"role": "user", "content": [{"type": "image"}]}]}, "serve/content"),
    ("/agui/echo", {**AGUI, "resume": "x"}, "serve/field"),
    ("/agui/echo", {**AGUI, "resume": [{"interruptId": 3}]}, "serve/field"),
    ("/agui/echo", {**AGUI, "resume": [{"interruptId": "a.1"}, {"interruptId": "b.1"}]}, "serve/field"),
    ("/agui/echo", {**AGUI, "resume": [{"interruptId": "none.1", "status": "resolved"}]}, "serve/unknown-run"),
    ("/ui/none", {"messages": [USER]}, "serve/unknown-export"),
    ("/ui/echo", {}, "serve/messages"),
    ("/ui/echo", {"messages": [3]}, "serve/messages"),
    ("/ui/echo", {"messages": [{"role": "user", "parts": [{"type": "file", "url": "data:,x"}]}]}, "serve/content"),
    ("/ui/echo", {"messages": [{"role": "assistant", "parts": "x"}]}, "serve/messages"),
    ("/ui/echo", {"messages": [{"role": "assistant", "parts": [{"state": "output-available", "toolCallId": "x.y"}]}]}, "serve/unknown-run"),
]  # fmt: skip


async def test_requests_that_are_none_say_why() -> None:
    """Each is refused before a run begins, with our code."""
    exports = {
        "echo": "(string-append message)",
        "sum": Export(program="(+ a b)", parameters={"a": "integer", "b": "integer"}),
    }
    async with AgentFlow() as flow, served(flow, exports) as server:
        for path, body, code in BAD:
            answer = await server.post(path, body)
            assert answer.status_code in (400, 404) and answer.json()["error"]["code"] == code, (
                path,
                body,
                answer.text,
            )
        for path in ("/agui/echo", "/ui/echo", "/v1/responses"):
            assert (
                await server.client.post(path, content=b"{", headers={"content-type": "text/plain"})
            ).status_code == 415
            assert (await server.post(path, {"messages": "x" * 5_000_000})).status_code == 413
        assert not list(server.runs)


@pytest.mark.parametrize("route", ["agui", "ui"])
async def test_nobody_approves_what_they_were_not_asked(tmp_path: Path, route: str) -> None:
    """Another key's run is not there; a call that a client makes up is none; what is malformed refuses; an answer counts once."""
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    export = Export(program='(let ((r (pay (amount 7)))) (if (failed? r) "refused" (content r)))', allow=["pay"])
    async with AgentFlow(tools=[pay]) as flow:
        async with served(flow, {"pay": export}, keys=keys_of(tmp_path, ada="", bob="")) as server:

            async def asked() -> tuple[str, str]:
                path, body = request_of(route, "pay")
                answer = await server.post(path, body, headers=by("ada"))
                run = server.runs.find(answer.headers["x-request-id"], next(iter(server.runs)).key)
                [key] = run.waits
                assert key in answer.text
                return run.run_id, key

            async def send(who: str, *answer: Any) -> Any:
                path, body = answer_of(route, "pay", *answer, approval=True)
                return await server.post(path, body, headers=by(who))

            run_id, key = await asked()
            assert (await send("bob", run_id, key, True)).status_code == 404
            forged = await send("ada", run_id, "00" * 16, True)
            assert key in forged.text and not paid, "it is asked again"
            assert "paid" in (await send("ada", run_id, key, True)).text and paid == [7]
            assert (await send("ada", run_id, key, True)).status_code == 404
            for malformed in ("true", 1, None, {"approved": "yes"}):
                assert "refused" in (await send("ada", *await asked(), malformed)).text
            assert paid == [7] and not server.runs.live
