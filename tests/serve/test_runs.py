"""The server's own API of runs: watched from anywhere, by many, answered, cancelled."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, tool
from agentflow.serve import Export
from tests.support.serve_clients import by, keys_of
from tests.support.served import Served, served

THREE = """(defatom say (params (n)) (instructions "{{n}}"))
(define all (pmap (lambda (n) (content (say (n n)))) (list 1 2 3)))
(string-join all message)"""


def thrice() -> ScriptedProvider:
    return ScriptedProvider(lambda request: f"word by word {request.messages[-1].text}")


async def test_a_run_is_begun_watched_and_read() -> None:
    """201 with its place; its events end with run_finished; then it has its value and what it used."""
    async with AgentFlow(provider=thrice()) as flow, served(flow, {"three": THREE}) as server:
        begun = await server.post(
            "/runs", {"export": "three", "bindings": {"message": ", "}, "run_id": "mine", "labels": {"user": "ada"}}
        )
        assert begun.status_code == 201 and begun.headers["location"] == "/runs/mine"
        kinds = [event["type"] async for event in server.events("mine")]
        assert kinds[0] == "run_started" and kinds[-1] == "run_finished" and kinds.count("task_finished") == 3
        data = (await server.get("/runs/mine")).json()
        assert data["status"] == "done" and data["value"] == "word by word 1, word by word 2, word by word 3"
        assert data["usage"]["requests"] == 3 and data["labels"] == {"user": "ada", "export": "three", "key": "anyone"}
        again = await server.post("/runs", {"export": "three", "bindings": {"message": ""}, "run_id": "mine"})
        assert again.status_code == 409 and again.json()["error"]["code"] == "serve/run-exists"
        second = await server.begin("three", message="")
        await server.ended(second)
        listed = (await server.get("/runs")).json()["runs"]
        assert [each["run_id"] for each in listed] == [second, "mine"] and "value" not in listed[0]


async def test_a_served_task_has_its_own_tools() -> None:
    """Each request runs the task with the tools that it is declared with, whatever was run before."""
    balance = {"tool_calls": [{"name": "balance"}]}
    model = ScriptedProvider([balance, "ten", "none", balance, "ten"])
    flow = AgentFlow(provider=model)

    async def own() -> int:
        return 10

    own.__name__ = "balance"

    @flow.task(tools=[own])
    async def rich() -> str:
        """How much?"""

    @flow.task
    async def poor() -> str:
        """How much?"""

    async with flow, served(flow, {"rich": rich, "poor": poor}) as server:
        for export, answer in (("rich", "ten"), ("poor", "none"), ("rich", "ten")):
            data = await server.ended(await server.begin(export))
            assert data["value"] == answer
    assert [len(request.tools) for request in model.requests] == [1, 1, 0, 1, 1]


async def test_replay_from_every_event_equals_the_tail() -> None:
    """Whichever event a reader has seen last, by ``Last-Event-ID`` or ``?after=``, it is given those after it, no other."""
    async with AgentFlow(provider=thrice()) as flow, served(flow, {"three": THREE}) as server:
        run_id = await server.begin("three", message=" ")
        await server.ended(run_id)
        whole = [event async for event in server.events(run_id)]
        assert [event["seq"] for event in whole] == sorted({event["seq"] for event in whole}) and len(whole) > 20
        for at, event in enumerate(whole):
            by_query = [each async for each in server.events(run_id, after=event["id"])]
            by_header = [each async for each in server.events(run_id, headers={"last-event-id": event["id"]})]
            assert by_query == by_header == whole[at + 1 :]
        assert [each async for each in server.events(run_id, after=str(whole[3]["seq"]))] == whole[4:]
        wrong = await server.get(f"/runs/{run_id}/events", params={"after": "x"})
        assert wrong.status_code == 400 and wrong.json()["error"]["code"] == "serve/after"


class Steps:
    """A tool that goes on when it is told to."""

    def __init__(self) -> None:
        self.gate = asyncio.Semaphore(0)
        self.calls = self.ended = 0

    async def step(self, n: int) -> int:
        """A step."""
        self.calls += 1
        try:
            await self.gate.acquire()
        finally:
            self.ended += 1
        return n


LOOP = "(define (go n) (if (= n 0) 0 (begin (step (n n)) (go (- n 1))))) (go 4)"


@pytest.mark.slow
async def test_three_hundred_readers_of_one_run() -> None:
    """Each gets every lifecycle event, in order, however late it came; the run waits for none of them."""
    steps = Steps()
    async with AgentFlow(tools=[steps.step]) as flow, served(flow, {"loop": Export(program=LOOP)}) as server:
        run_id = await server.begin("loop", message="x")

        async def read() -> list[int]:
            return [event["seq"] async for event in server.events(run_id)]

        readers = []
        for batch in range(5):
            readers += [asyncio.create_task(read()) for _ in range(60)]
            while steps.calls <= min(batch, 3):
                await asyncio.sleep(0)
            steps.gate.release()
        seen = await asyncio.gather(*readers)
        assert len(seen) == 300 and all(each == seen[0] for each in seen) and seen[0][0] == 1
        assert (await server.get(f"/runs/{run_id}")).json()["status"] == "done"


@pytest.mark.parametrize("chat", [False, True])
async def test_a_reader_that_leaves_at_any_event(chat: bool) -> None:
    """A run of /runs goes on whenever its reader leaves; one of a chat is cancelled. Neither leaves a task behind."""
    steps = Steps()
    async with AgentFlow(tools=[steps.step]) as flow, served(flow, {"loop": Export(program=LOOP)}) as server:
        before = len(asyncio.all_tasks())
        body = {"model": "loop", "messages": [{"role": "user", "content": "x"}], "stream": True}
        for leave_at in range(9):
            steps.gate = asyncio.Semaphore(max(0, leave_at - 1) // 2)
            if chat:
                async with server.client.stream("POST", "/v1/chat/completions", json=body) as answer:
                    run_id = answer.headers["x-request-id"]
                    run = server.runs.find(run_id, next(iter(server.runs)).key)
                    while len(run.log) <= leave_at:
                        await asyncio.sleep(0.001)
                await run.wait()
                assert run.status == "cancelled"
            else:
                run_id = await server.begin("loop", message="x")
                run = server.runs.find(run_id, next(iter(server.runs)).key)
                async for event in server.events(run_id):
                    if event["seq"] > leave_at:
                        break
                for _ in range(4):
                    steps.gate.release()
                await run.wait()
                assert run.status == "done" and run.result is not None and run.result.value == 0
            tail = [event async for event in server.events(run_id)]
            outcome = "cancelled" if chat else "ok"
            assert tail[-1]["type"] == "run_finished" and tail[-1]["outcome"] == outcome
        assert steps.calls == steps.ended and not server.runs.live
        for _ in range(100):
            if len(asyncio.all_tasks()) <= before + 2:  # the owner of the runs
                break
            await asyncio.sleep(0.01)
        assert len(asyncio.all_tasks()) <= before + 2


async def test_a_reader_that_is_killed_holds_nobody_up() -> None:
    """A process that reads and is killed with -9 in between leaves the run and its other readers as they are."""
    steps = Steps()
    async with AgentFlow(tools=[steps.step]) as flow, served(flow, {"loop": Export(program=LOOP)}) as server:
        run_id = await server.begin("loop", message="x")
        code = (
            "import sys, urllib.request\n"
            f"answer = urllib.request.urlopen('{server.url}/runs/{run_id}/events')\n"
            "print(answer.readline(), flush=True)\n"
            "answer.read()\n"
        )
        reader = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
        assert reader.stdout is not None and b"id: 1.1" in await reader.stdout.readline()
        other = asyncio.create_task(server.ended(run_id))
        reader.kill()
        await reader.wait()
        for _ in range(4):
            steps.gate.release()
        assert (await other)["status"] == "done"


async def test_cancelling_waits_for_the_clean_up() -> None:
    """The answer to a cancel is the cancelled run; its events end with that outcome; a second one changes nothing."""
    steps = Steps()
    cleaned: list[str] = []

    @tool
    def clean() -> str:
        """Clean."""
        cleaned.append("x")
        return "cleaned"

    export = Export(program="(try (step (n 1)) (finally (clean)))")
    async with AgentFlow(tools=[steps.step, clean]) as flow, served(flow, {"loop": export}) as server:
        run_id = await server.begin("loop", message="x")
        while not steps.calls:
            await asyncio.sleep(0.001)
        for _ in range(2):
            data = (await server.post(f"/runs/{run_id}/cancel")).json()
            assert data["status"] == "cancelled" and cleaned == ["x"] and data["error"]["code"] == "run/cancelled"
        assert [event async for event in server.events(run_id)][-1]["outcome"] == "cancelled"
        assert (await server.get("/runs/none")).json()["error"]["code"] == "serve/unknown-run"


async def asked(server: Served, run_id: str) -> dict[str, Any]:
    """The one thing that a run asks."""
    while not (open_now := (await server.get(f"/runs/{run_id}")).json()["waiting"]):
        await asyncio.sleep(0.002)
    return dict(open_now[0])


async def test_questions_and_approvals_are_answered_by_one_route() -> None:
    """An answer that does not fit a question leaves it open; an approval is given by true alone, everything else refuses it."""
    paid: list[int] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    ask = Export(program='(ask-human "How many?" {"type" "integer"})', allow=["ask-human"])
    exports = {"ask": ask, "pay": Export(program="(failed? (pay (amount 7)))", allow=["pay"])}
    async with AgentFlow(tools=[pay]) as flow, served(flow, exports) as server:
        run_id = await server.begin("ask", message="x")
        question = await asked(server, run_id)
        assert question["question"] == "How many?" and question["schema"] == {"type": "integer"}
        assert (await server.get(f"/runs/{run_id}")).json()["status"] == "waiting"
        where = f"/runs/{run_id}/answers/{question['key']}"
        for body, code in (({"answer": "x"}, "question/answer"), ({}, "serve/field"), ([], "serve/json")):
            wrong = await server.post(where, body)
            assert wrong.status_code == 400 and wrong.json()["error"]["code"] == code, wrong.text
        assert (await server.post(where, {"answer": 3})).status_code == 200
        assert (await server.ended(run_id))["value"] == 3
        late = await server.post(where, {"answer": 4})
        assert late.status_code == 404 and late.json()["error"]["code"] == "question/unknown"

        malformed: list[dict[str, Any]] = [
            {"json": {"answer": "true"}},
            {"json": {"answer": 1}},
            {"json": {"approved": True}},
            {"json": [True]},
            {"content": b'{"answer": true', "headers": {"content-type": "application/json"}},
            {"content": b'{"answer": true}', "headers": {"content-type": "text/plain"}},
            {},
        ]
        for request in malformed:
            run_id = await server.begin("pay", message="x")
            where = f"/runs/{run_id}/answers/{(await asked(server, run_id))['key']}"
            assert (await server.client.post(where, **request)).json()["answer"] is False
            assert (await server.ended(run_id))["value"] is True and not paid
        run_id = await server.begin("pay", message="x")
        approval = await asked(server, run_id)
        assert approval["reason"] == "approval" and "7" in approval["question"]
        assert (await server.post(f"/runs/{run_id}/answers/{approval['key']}", {"answer": True})).status_code == 200
        assert (await server.ended(run_id))["value"] is False and paid == [7]


async def test_what_nobody_answers_is_denied_when_its_time_is_up() -> None:
    """``approval_ttl`` bounds how long a run waits, whatever the flow itself would do."""
    export = Export(program='(try (ask-human "?") (catch (e) (get-field e "code")))', allow=["ask-human"])
    async with AgentFlow() as flow, served(flow, {"ask": export}, approval_ttl=0.05) as server:
        assert (await server.ended(await server.begin("ask", message="x")))["value"] == "question/unanswered"


async def test_sent_programs_are_refused_or_untrusted() -> None:
    """Without ``programs`` none is run; with it a program may call the names granted there, or fewer, and nothing else."""

    @tool
    def safe() -> str:
        """Safe."""
        return "safe"

    @tool
    def other() -> str:
        """Other."""
        return "other"

    async with AgentFlow(tools=[safe, other]) as flow:
        async with served(flow, {}) as server:
            refused = await server.post("/runs", {"program": "1"})
            assert refused.status_code == 403 and refused.json()["error"]["code"] == "serve/programs"
        async with served(flow, {}, programs=["safe"]) as server:

            async def value(program: str, **more: Any) -> dict[str, Any]:
                begun = await server.post("/runs", {"program": program, **more})
                return await server.ended(begun.json()["run_id"])

            assert (await value("(content (safe))"))["value"] == "safe"
            assert (await value("(+ n 1)", bindings={"n": 2}))["value"] == 3
            for program, more in (("(other)", {}), ("(safe)", {"allow": []}), ("(other)", {"allow": ["other"]})):
                refused = await server.post("/runs", {"program": program, **more})
                assert refused.status_code == 400 and refused.json()["error"]["code"].startswith("name/"), refused.text


async def test_a_sent_program_that_cannot_be_run_is_refused_with_all_that_is_wrong_with_it(tmp_path: Path) -> None:
    """400 before a run begins: code, line and hint of each mistake. No place of the key is kept, no run is there."""
    keys = keys_of(tmp_path, ada="programs = true\nconcurrent = 1")
    async with AgentFlow() as flow, served(flow, {}, keys=keys, programs=()) as server:

        async def refused(program: str, **more: Any) -> dict[str, Any]:
            answer = await server.post("/runs", {"program": program, **more}, headers=by("ada"))
            assert answer.status_code == 400, answer.text
            return dict(answer.json()["error"])

        broken = await refused("(+ 1")
        assert (broken["type"], broken["param"]) == ("invalid_request_error", "program") and broken["diagnostics"]
        several = await refused("(list message\n  (strng-append m)\n  other)", bindings={"message": 1})
        assert [(each["code"], each["span"]["line"]) for each in several["diagnostics"]] == [
            ("name/not-granted", 2), ("name/unbound", 3),
        ]  # fmt: skip
        assert all(each["hint"] for each in several["diagnostics"]) and "line 2" in several["message"]
        long = await refused(f"(list {'1 ' * 600} nothing)")
        assert long["diagnostics"][0]["code"] == "name/unbound", "which is checked beside the loop"
        assert not list(server.runs) and all(key.active == 0 for key in keys)
