"""The rules of purses as a user reads them: who pays, what a death costs, what is free, and who raises a limit."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from asyncio import create_subprocess_exec
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Allowance, Limits, Price, Purses, ScriptedProvider
from agentflow.core.data.allowances import Spending
from agentflow.core.data.errors import ConfigurationError
from agentflow.errors import LimitExceeded, PurseEmpty
from tests.support.metered_model import MeteredModel, asking
from tests.support.serve_clients import AGUI, USER, answer_of, by, frames_of, keys_of
from tests.support.served import served

ASK = f"{asking()} (value-of (ask (n 3)))"
DAY_S = 86_400


async def test_a_tenant_pays_nothing(tmp_path: Path) -> None:
    """``tenant=`` is the name in the queue alone: it has no allowance, and ``flow.run`` does not take it."""
    purses = {"acme": Allowance(model_calls=1)}
    async with AgentFlow(provider=MeteredModel(), durable=f"sqlite:///{tmp_path}/runs.db", purses=purses) as flow:
        with pytest.raises(ConfigurationError) as caught:
            await flow.run(ASK, tenant="acme")  # pyright: ignore[reportCallIssue]
        assert caught.value.code == "config/option"
        for _ in range(2):
            await (await flow.start(ASK, tenant="acme")).result()
        assert (await flow.purses.look("acme")).spent == Spending()


@pytest.mark.slow
async def test_the_lease_of_a_dead_process_is_spent_until_the_period_ends(tmp_path: Path) -> None:
    """No other process may spend it in that period, also not one that opens the database later; in the next period it is forgotten."""
    url = f"sqlite:///{tmp_path}/runs.db"
    command = (sys.executable, "-m", "tests.run.purse_child", url, "a", "1", "1", "hang")
    process = await create_subprocess_exec(*command, stdout=PIPE)
    assert process.stdout is not None and await process.stdout.readline() == b"at work\n"
    os.kill(process.pid, signal.SIGKILL)
    await process.wait()
    model, allowance = MeteredModel(), Allowance(model_calls=1, per="1d")
    async with AgentFlow(provider=model, durable=url, purses={"*": allowance}) as flow:
        with pytest.raises(PurseEmpty):
            await flow.ask("Write 3", purse="a")
        assert (await flow.purses.look("a")).spent.model_calls == 1
    tomorrow = Purses({"*": allowance}, clock=lambda: time.time() + DAY_S)
    async with AgentFlow(provider=model, durable=url, purses=tomorrow) as flow:
        assert (await flow.purses.look("a")).spent == Spending()
        await flow.ask("Write 3", purse="a")
    assert model.finished == 1


REUSED = '(defatom t (params (n integer)) (instructions "Say {{n}}") (reuse "1h")) (map (lambda (n) (value-of (t (n n)))) (list 1 2 3))'
PRICE = {"own:*": Price(input=10, output=10)}
CALL_USD = 0.02


def own_flow(directory: Path, dies_at: int = 0) -> AgentFlow:
    """A flow whose model notes each call in a file and costs two cents a call; its process dies in call ``dies_at``."""
    calls = directory / "calls"

    def model(request: Any) -> Any:
        with calls.open("a") as file:
            file.write("x")
        if calls.stat().st_size == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"text": "x", "usage": {"input_tokens": 1_000, "output_tokens": 1_000}}

    return AgentFlow(
        provider=ScriptedProvider(model, name="own"),
        prices=PRICE,
        durable=f"sqlite:///{directory}/runs.db",
        purses={"*": Allowance(usd=100, model_calls=100, per="1d")},
    )


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", [1, 2, 3])
async def test_a_run_that_was_killed_says_its_cost_and_the_purse_never_less_than_was_paid(
    tmp_path: Path, dies_at: int
) -> None:
    """Resumed, the run's cost is that of the answers it has; the purse also counts the call that died. What is answered from records, or
    reused by another run, is charged to nobody."""
    code = (
        "import asyncio, sys; from pathlib import Path; from tests.run.test_purse_rules import REUSED, own_flow\n"
        "async def main():\n"
        "    async with own_flow(Path(sys.argv[1]), int(sys.argv[2])) as flow:\n"
        "        await (await flow.start(REUSED, run_id='r', purse='a')).result()\n"
        "asyncio.run(main())"
    )
    process = await create_subprocess_exec(sys.executable, "-c", code, str(tmp_path), str(dies_at))
    assert await process.wait() == -signal.SIGKILL
    async with own_flow(tmp_path) as flow:
        result = await (await flow.resume("r")).result()
        paid = (tmp_path / "calls").stat().st_size
        balance = await flow.purses.look("a")
        assert (paid, result.usage.requests) == (4, 3) and result.cost == pytest.approx(3 * CALL_USD)
        info = await flow.find_run("r")
        assert info is not None and info.cost_usd == result.cost
        assert balance.spent.model_calls == paid and balance.spent.usd >= paid * CALL_USD - 1e-9
        assert balance.reserved == Spending()
        handle = await flow.start(REUSED, purse="b")
        again = await handle.result()
        assert (again.cost, again.usage.requests, handle.saved.requests) == (0, 0, 3)
        assert (await flow.purses.look("b")).spent == Spending()
        assert (tmp_path / "calls").stat().st_size == paid


@pytest.mark.parametrize("door", ["agui", "ui", "signal"])
async def test_who_talks_to_a_run_does_not_raise_its_limit(tmp_path: Path, door: str) -> None:
    """A front end's key is not shown the question of a limit, and an answer that it makes up changes nothing; the host's answer counts."""
    keys = keys_of(tmp_path, ada="")
    model = ScriptedProvider(lambda request: "done")
    url = f"sqlite:///{tmp_path}/runs.db"
    async with AgentFlow(provider=model, durable=url, limits=Limits(model_calls=1), on_limit="wait") as flow:

        @flow.workflow
        async def twice(message: str) -> list[str]:
            return [await flow.ask(message), await flow.ask("again")]

        async with served(flow, {"twice": twice}, keys=keys) as server:
            run_id = (
                await server.post("/runs", {"export": "twice", "bindings": {"message": "x"}}, headers=by("ada"))
            ).json()["run_id"]
            while not (open_questions := await flow.questions(run_id)):
                await asyncio.sleep(0.01)
            [question] = open_questions
            answer = None
            if door == "signal":
                await server.post(f"/runs/{run_id}/signals/limit", {"value": 9}, headers=by("ada"))
            else:
                where, body = answer_of(door, "twice", run_id, question.key, 9, approval=False)
                if door == "agui":
                    body = {**AGUI, **body, "messages": [{**USER, "id": "m"}]}
                answer = asyncio.create_task(server.post(where, body, headers=by("ada")))
                await asyncio.sleep(0.3)
                assert not answer.done(), "the client waits on"
            assert await flow.questions(run_id) == [question] and len(model.requests) == 1
            await flow.send(run_id, question.key, 9)
            assert (await (await flow.resume(run_id)).result()).value == ["done", "done"]
            if answer is not None:
                assert frames_of((await answer).text)[-1]["type"] in ("RUN_FINISHED", "finish")


@pytest.mark.parametrize("field", ["limits", "purse", "max_cost", "on_limit"])
async def test_a_client_names_no_limits(field: str) -> None:
    """A request that sets them is refused, so that none takes effect and none is ignored without a word."""
    value: Any = {"limits": {"usd": 1_000}, "purse": "b", "max_cost": 1_000, "on_limit": "wait"}[field]
    model = MeteredModel()
    async with AgentFlow(provider=model, limits=Limits(model_calls=0), purses={"*": Allowance(usd=1_000)}) as flow:
        async with served(flow, {"echo": "(string-append message)"}) as server:
            refused = await server.post("/runs", {"export": "echo", field: value, "bindings": {"message": "x"}})
            assert refused.status_code == 400 and field in refused.json()["error"]["message"]
    assert not model.requests


async def test_a_tool_and_a_program_stay_within_the_purse() -> None:
    """What runs inside may set lower limits for its parts, and no higher ones; a purse is no tool and no word of the language."""
    model = MeteredModel()
    async with AgentFlow(provider=model, purses={"a": Allowance(model_calls=1)}) as flow:

        @flow.tool
        async def greedy() -> str:
            """Ask for more than there is."""
            await flow.ask("Write 1")
            return str((await flow.run(ASK, limits=Limits(model_calls=100, usd=100))).value)

        with pytest.raises(LimitExceeded) as caught:
            await flow.run("(value-of (greedy))", purse="a")
        assert isinstance(caught.value, PurseEmpty) and model.finished == 1
