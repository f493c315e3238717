"""What may not be repeated: what becomes of it when its run was interrupted, and the keys by which services know repeats."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    AgentFlow,
    CallContext,
    ConfigurationError,
    Durable,
    LimitExceeded,
    Limits,
    ScriptedProvider,
    TaskResult,
    tool,
)
from agentflow.core.data.errors import JournalError
from agentflow.core.data.messages import ModelRequest
from agentflow.core.events.journal_rows import EffectRow, EffectState, NewRun, OnInflight
from agentflow.events import Event, Warning
from agentflow.journal.sqlite import SqliteJournal
from tests.support.model_server import ModelServer
from tests.support.sqlite_runs import change_run

PROGRAM = '(list (pay (to "a")) (pay (to "b")) (content (look (at "c"))))'


class Bank:
    """A tool that may not be repeated, and one that may; ``hangs`` is the call that never ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.began: Counter[str] = Counter()
        self.keys: list[str] = []
        self.hangs = ""
        self.reached = asyncio.Event()

    async def work(self, what: str) -> str:
        self.began[what] += 1
        if what == self.hangs:
            self.reached.set()
            await asyncio.Event().wait()
        return f"<{what}>"

    async def look(self, at: str) -> str:
        """Look at something."""
        return await self.work(at)

    def flow(self, on_inflight: Any = "retry", **options: Any) -> AgentFlow:
        async def pay(to: str, ctx: CallContext) -> str:
            """Pay somebody."""
            self.keys.append(ctx.idempotency_key)
            return await self.work(to)

        arguments: dict[str, Any] = {"provider": ScriptedProvider([]), "root": self.directory, **options}
        return AgentFlow(
            tools=[tool(idempotent=False)(pay), self.look],
            durable=Durable(f"sqlite:///{self.directory}/runs.db", on_inflight=on_inflight),
            **arguments,
        )

    async def interrupt(self, at: str, program: str = PROGRAM, **options: Any) -> None:
        """Start a run and end its process while ``at`` is at work."""
        self.hangs = at
        self.reached.clear()
        async with self.flow(**options) as flow:
            await flow.start(program, run_id="r")
            await self.reached.wait()
        self.hangs = ""


@pytest.fixture
def bank(tmp_path: Path) -> Bank:
    return Bank(tmp_path)


def contents(value: Any) -> list[str]:
    return [each.content if isinstance(each, TaskResult) else each for each in value]


async def test_it_is_repeated_unless_somebody_says_otherwise(bank: Bank) -> None:
    """``retry``: it is carried out again, with the key it had, and a warning; what had ended is not."""
    await bank.interrupt("b")
    warned: list[Event] = []
    async with bank.flow() as flow:
        flow.subscribe(lambda event: warned.append(event) if isinstance(event, Warning) else None)
        assert contents((await (await flow.start(PROGRAM, run_id="r")).result()).value) == ["<a>", "<b>", "<c>"]
    assert bank.began == {"a": 1, "b": 2, "c": 1} and bank.keys[1] == bank.keys[2] != bank.keys[0]
    assert [each.code for each in warned if isinstance(each, Warning)] == ["durable/in-flight"]


async def test_it_fails_if_that_is_wanted(bank: Bank) -> None:
    """``fail``: it is not carried out, has FAILED with a code, which is recorded, and the program goes on."""
    await bank.interrupt("b")
    for _ in range(2):
        async with bank.flow(on_inflight="fail") as flow:
            value = (await (await flow.start(PROGRAM, run_id="r")).result()).value
        assert value[1].failed and value[1].notes.error.details["code"] == "durable/in-flight"
        assert [value[0].content, value[2]] == ["<a>", "<c>"]
    assert bank.began == {"a": 1, "b": 1, "c": 1}


@pytest.mark.parametrize("decision", ["retry", "fail"])
async def test_somebody_is_asked(bank: Bank, decision: OnInflight) -> None:
    """``ask``: the run stops before anything else happens, as often as it is gone on with, until somebody decides."""
    await bank.interrupt("b")
    async with bank.flow(on_inflight="ask") as flow:
        for _ in range(2):
            handle = await flow.start(PROGRAM, run_id="r")
            with pytest.raises(JournalError) as caught:
                await handle.result()
            assert caught.value.code == "durable/in-flight" and caught.value.details["name"] == "pay"
            assert handle.status == "interrupted" and [run.status for run in await flow.runs()] == ["interrupted"]
        assert bank.began == {"a": 1, "b": 1}
        value = (await (await flow.resume("r", on_inflight=decision)).result()).value
        assert value[1].failed == (decision == "fail") and value[2] == "<c>"
    assert bank.began["b"] == (2 if decision == "retry" else 1)


async def test_nobody_is_asked_about_others(bank: Bank) -> None:
    """A tool that may be repeated is; so is one that was cancelled, or had not begun, before the interruption."""
    program = """
    (list (try (timeout 0.05 (pay (to "b"))) (catch (e) (get-field e 'code)))
          (content (look (at "c"))) (content (pay (to "d"))))
    """
    bank.hangs = "b"
    async with bank.flow(on_inflight="ask") as flow:
        handle = await flow.start(program, run_id="first")
        assert (await handle.result()).value == ["timeout/elapsed", "<c>", "<d>"]
    bank.hangs = "c"
    bank.reached.clear()

    async with bank.flow(on_inflight="ask") as flow:
        await flow.start('(list (look (at "c")) (content (pay (to "d"))))', run_id="r")
        await bank.reached.wait()
    bank.hangs = ""
    async with bank.flow(on_inflight="ask") as flow:
        handle = await flow.start('(list (look (at "c")) (content (pay (to "d"))))', run_id="r")
        assert (await handle.result()).value[1] == "<d>"
    assert bank.began["c"] == 3


async def test_a_tool_that_a_model_asked_for(bank: Bank) -> None:
    """The same within a task: the model is told that the tool has failed, and asked for nothing twice."""
    asked: list[ModelRequest] = []

    def answer(request: ModelRequest) -> Any:
        asked.append(request)
        return "done" if len(request.messages) > 1 else {"tool_calls": [{"name": "pay", "arguments": {"to": "b"}}]}

    program = '(defatom work (params) (instructions "work") (tools (pay))) (content (work))'
    await bank.interrupt("b", program, provider=ScriptedProvider(answer))
    async with bank.flow(provider=ScriptedProvider(answer), on_inflight="fail") as flow:
        assert (await (await flow.start(program, run_id="r")).result()).value == "done"
    assert bank.began == {"b": 1} and len(asked) == 2
    assert "its progress is unknown" in str(asked[-1].messages[-1].parts[0])


async def test_commands_and_writes_are_marked(bank: Bank) -> None:
    """What changes the world from the system tools is never repeated unasked; what only looks is not recorded twice."""
    async with bank.flow() as flow:
        marks = {name: each.idempotent for name in flow.tools.names() if (each := flow.tools.find(name)) is not None}
    assert [name for name, mark in marks.items() if mark is False] == [
        "pay",
        "system:execute_shell_command",
        "system:write_file",
    ]
    with pytest.raises(ConfigurationError) as caught:
        bank.flow(on_inflight="perhaps")
    assert caught.value.code == "config/on-inflight"


@pytest.mark.parametrize("dialect", ["anthropic:m", "openai:m", "openai-chat:m"])
async def test_model_calls_of_durable_runs_have_keys(tmp_path: Path, dialect: str) -> None:
    """Through the real SDKs: each call has a key of its own, the same in a repetition; calls of other runs have none."""
    program = """
    (defatom ask (params (q string)) (instructions "{{q}}") (history_config (quote ((use_session_history false)))))
    (begin (ask (q "one")) (ask (q "two")))
    """
    keys: list[list[str | None]] = []
    for number in range(2):
        async with ModelServer(["an answer"], repeat=True) as server:
            path = tmp_path / str(number)
            path.mkdir()
            async with AgentFlow(
                dialect, base_url=server.url, api_key="k", root=path, durable=f"sqlite:///{path}/r.db"
            ) as flow:
                await (await flow.start(program, run_id="r")).result()
                await flow.run(program)
            keys.append([each.headers.get("idempotency-key") for each in server.requests])
    assert keys[0] == keys[1] and keys[0][2:] == [None, None]
    assert len({*keys[0][:2]}) == 2 and all(key is not None and len(key) == 32 for key in keys[0][:2])


async def test_wall_time_is_that_of_all_stretches(bank: Bank) -> None:
    """A run whose earlier stretches have used its time up goes on no further."""
    program = '(list (look (at "a")) (look (at "b")))'
    bank.hangs = "b"
    async with bank.flow() as flow:
        await flow.start(program, run_id="r", limits=Limits(wall_s=60))
        await bank.reached.wait()
    bank.hangs = ""
    with sqlite3.connect(bank.directory / "runs.db", isolation_level=None) as db:
        (spent,) = db.execute("select spent_s from af_run").fetchone()
        assert 0 < spent < 60
        change_run(db, "r", time.time(), spent_s=60.0)
    db.close()
    async with bank.flow() as flow:
        with pytest.raises(LimitExceeded) as caught:
            await (await flow.start(program, run_id="r")).result()
    assert caught.value.limit == "wall_s" and caught.value.allowed == 60


async def test_a_killed_stretch_counts_as_far_as_its_records_tell(tmp_path: Path) -> None:
    """A process that was killed could not store how long it had worked; its last record says."""
    store = SqliteJournal(tmp_path / "r.db")
    await store.create("r", NewRun(program="", digest="", input={}))
    owned = await store.own("r")
    began = owned.run.updated
    row = EffectRow(path="0/0.0", kind="tool", name="t", content=b"", state=EffectState.OK, ended=began)
    await store.put("r", owned.run.epoch, [row])
    await store.aclose()  # without an end, as after a kill
    with sqlite3.connect(tmp_path / "r.db", isolation_level=None) as db:
        db.execute("update af_run set updated = ?", (began - 7,))
    db.close()
    for _ in range(2):
        store = SqliteJournal(tmp_path / "r.db")
        assert (await store.own("r")).run.spent_s == pytest.approx(7.0)
        await store.aclose()


EDITED = '(list (look (at "first")) (pay (to "a")) (pay (to "b")) (content (look (at "c"))))'


@pytest.mark.parametrize("decision", ["retry", "fail"])
async def test_an_edited_run_asks_as_well(bank: Bank, decision: OnInflight) -> None:
    """A run that goes on with another program has not forgotten what was at work in it, wherever that stands now."""
    await bank.interrupt("b")
    async with bank.flow() as flow:
        handle = await flow.resume("r", program=EDITED, on_inflight="ask")
        with pytest.raises(JournalError) as caught:
            await handle.result()
        assert caught.value.code == "durable/in-flight" and handle.status == "interrupted"
        assert bank.began == {"a": 1, "b": 1, "first": 1}
    async with bank.flow(on_inflight="ask") as flow:
        value = (await (await flow.resume("r", program=EDITED, on_inflight=decision)).result()).value
    assert value[2].failed is (decision == "fail") and contents(value)[1] == "<a>"
    assert bank.began == {"a": 1, "b": 1 + (decision == "retry"), "first": 1, "c": 1}


async def test_what_another_program_asks_for_is_not_what_was_at_work(bank: Bank) -> None:
    """Something else that may not be repeated begins without asking, and what was at work counts once."""
    await bank.interrupt("b")
    async with bank.flow(on_inflight="ask") as flow:
        other = '(list (content (pay (to "other"))))'
        assert (await (await flow.resume("r", program=other)).result()).value == ["<other>"]
    assert bank.began == {"a": 1, "b": 1, "other": 1}
