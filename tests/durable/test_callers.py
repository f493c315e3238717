"""Several callers name one run in one process at once: each handle ends, and nobody is told of another process."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Durable, DurableRun, ScriptedProvider, tool
from agentflow.core.data.errors import AgentflowError, DataError, JournalError, SessionBusy

ASKS = '(begin (ask-human "ok?" {"type" "boolean"}) (value-of (work)))'


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else f"sqlite:///{tmp_path}/runs.db"


class Shop:
    """A flow's tool that works for a while; ``done`` counts how often, ``cleaned`` what was cleaned up."""

    def __init__(self, database: str, seconds: float = 0.05) -> None:
        self.done = 0
        self.cleaned = 0
        self.begun = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._database = database
        self._seconds = seconds

    async def work(self) -> str:
        """Work."""
        self.begun.set()
        await asyncio.sleep(self._seconds)
        await self.may_end.wait()
        self.done += 1
        return "x"

    async def tidy(self) -> str:
        """Tidy up."""
        await asyncio.sleep(0.05)
        self.cleaned += 1
        return "tidy"

    def flow(self, take_over: bool | None = None) -> AgentFlow:
        return AgentFlow(
            provider=ScriptedProvider(["x"]),
            tools=[self.work, self.tidy],
            durable=Durable(self._database, take_over=take_over),
        )


async def ended(handles: list[DurableRun[Any] | BaseException]) -> list[str]:
    """How each caller fared: the value, or the code of the error that it got. Nobody waits for ever."""
    fared: list[str] = []
    for each in handles:
        try:
            if isinstance(each, BaseException):
                raise each
            async with asyncio.timeout(20):
                fared.append((await each.result()).value)
        except AgentflowError as error:
            fared.append(error.code)
    return fared


async def test_a_run_is_started_by_many_callers(database: str) -> None:
    """Started by several callers at once, a run is carried out once, and each of them has its value."""
    shop = Shop(database)
    async with shop.flow() as flow:
        handles = await asyncio.gather(*[flow.start("(value-of (work))", run_id="r") for _ in range(5)])
        assert await ended([*handles]) == ["x"] * 5
        again = await asyncio.gather(*[flow.start("(value-of (work))", run_id="r") for _ in range(3)])
        assert await ended([*again]) == ["x"] * 3
    assert shop.done == 1


async def test_callers_of_a_run_of_another_flow_are_told(database: str) -> None:
    """While another flow works on it, each caller is told so, or waits for an end that comes."""
    shop = Shop(database)
    shop.may_end.clear()
    async with shop.flow() as owner, shop.flow() as other:
        handle = await owner.start("(value-of (work))", run_id="r")
        await shop.begun.wait()
        calls = [other.start("(value-of (work))", run_id="r") for _ in range(3)]
        handles = await asyncio.gather(*calls, other.resume("r"), return_exceptions=True)
        shop.may_end.set()
        assert (await handle.result()).value == "x"
        assert await ended([*handles]) == ["durable/owned"] * 4
        assert await ended([await other.start("(value-of (work))", run_id="r")]) == ["x"]
    assert shop.done == 1


async def test_a_run_that_waits_is_resumed_by_many_callers(database: str) -> None:
    """Each caller has a handle, none hears of another process, and the answer makes the run go on for all of them."""
    shop = Shop(database)
    async with shop.flow() as flow:
        await (await flow.start(ASKS, run_id="r")).wait()
    async with shop.flow() as flow:
        calls = [*[flow.resume("r") for _ in range(3)], flow.start(ASKS, run_id="r")]
        handles = await asyncio.gather(*calls)
        assert [await each.wait() for each in handles] == ["waiting"] * 4
        await flow.send("r", (await flow.questions("r"))[0].key, True)
        assert await ended([*handles]) == ["x"] * 4
    assert shop.done == 1


async def test_the_first_of_several_answers_counts(database: str) -> None:
    """Answers that come at once, beside callers that resume the run: one counts, the others are told, the run ends once."""
    shop = Shop(database)
    async with shop.flow() as flow:
        handle = await flow.start(ASKS, run_id="r")
        await handle.wait()
        key = handle.waiting[0].key
        sent = [flow.send("r", key, True) for _ in range(3)]
        got = await asyncio.gather(*sent, flow.resume("r"), flow.start(ASKS, run_id="r"), return_exceptions=True)
        refused = [each for each in got if isinstance(each, BaseException)]
        assert [each.code for each in refused if isinstance(each, DataError)] == ["question/unknown"] * 2
        assert len(refused) == 2
        assert await ended([handle, *[each for each in got if isinstance(each, DurableRun)]]) == ["x"] * 3
    assert shop.done == 1


@pytest.mark.parametrize("waits", [False, True])
async def test_cancelling_is_idempotent(database: str, waits: bool) -> None:
    """Cancelled by several callers at once, at work or waiting, a run cleans up once, every cancel returns, every handle ends."""
    shop = Shop(database, 30.0)
    inner = '(ask-human "ok?")' if waits else "(work)"
    text = f"(try {inner} (finally (tidy)))"
    async with shop.flow() as flow:
        handle = await flow.start(text, run_id="r")
        await (handle.wait() if waits else shop.begun.wait())
        async with asyncio.timeout(20):
            calls = [
                flow.cancel("r"),
                handle.cancel(),
                flow.cancel("r"),
                flow.resume("r"),
                flow.start(text, run_id="r"),
            ]
            got = await asyncio.gather(*calls)
        assert (
            await ended([handle, *[each for each in got if isinstance(each, DurableRun)]]) == ["durable/cancelled"] * 3
        )
        await flow.cancel("r")
        await handle.cancel()
        assert handle.status == "cancelled" and [row.status for row in await flow.runs()] == ["cancelled"]
    assert shop.cleaned == 1


async def test_a_caller_that_gives_up_takes_nothing_from_the_others(database: str) -> None:
    """A caller that is cancelled while it begins a run leaves it to the next one, whose handle ends."""
    shop = Shop(database)
    async with shop.flow() as flow:
        for turns in range(12):
            first = asyncio.ensure_future(flow.start("(value-of (work))", run_id=f"r{turns}"))
            second = asyncio.ensure_future(flow.start("(value-of (work))", run_id=f"r{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            first.cancel()
            handles = await asyncio.gather(first, second, return_exceptions=True)
            assert await ended([each for each in handles if not isinstance(each, asyncio.CancelledError)]) != []
            assert isinstance(handles[1], DurableRun)
            assert (await handles[1].result()).value == "x"


async def test_a_handle_ends_when_its_flow_is_closed_meanwhile(database: str) -> None:
    """Callers that come while the flow is closed get an error or a handle that ends."""
    shop = Shop(database, 5.0)
    flow = shop.flow()
    handle = await flow.start("(value-of (work))", run_id="r")
    await shop.begun.wait()
    closing = asyncio.ensure_future(flow.aclose())
    calls = [flow.start("(value-of (work))", run_id=each) for each in ("r", "s", "t")]
    handles = await asyncio.gather(*calls, flow.resume("r"), return_exceptions=True)
    await closing
    fared = await ended([handle, *handles])
    assert set(fared) <= {"durable/interrupted", "durable/closed"}


async def test_what_a_flow_takes_over_is_its_callers(database: str) -> None:
    """A service that restarts takes runs over while its callers name them: nobody is refused, and each run is carried out once."""
    shop = Shop(database, 30.0)
    names = [f"r{number}" for number in range(6)]
    first = shop.flow()
    for name in names:
        await first.start("(value-of (work))", run_id=name)
    await first.aclose()
    await left_dead(database)
    shop = Shop(database, 0.05)
    async with shop.flow(take_over=True) as flow:
        calls: list[Any] = []
        for name in names[:-1]:
            calls += [flow.start("(value-of (work))", run_id=name), flow.resume(name)]
            await asyncio.sleep(0.003)
        handles = await asyncio.gather(*calls, flow.cancel(names[-1]))
        assert await ended(handles[:-1]) == ["x"] * 10
    assert shop.done == 5


async def test_a_run_that_was_taken_over_is_taken_on_by_its_generation(database: str) -> None:
    """A service that restarts with an edited program goes on with it, also where the run was taken over before."""
    shop = Shop(database, 30.0)
    first = shop.flow()
    await first.start("(value-of (work))", run_id="r")
    await first.aclose()
    await left_dead(database)
    shop = Shop(database, 30.0)
    async with shop.flow(take_over=True) as flow:
        await shop.begun.wait()
        handle = await flow.resume("r", program="(+ 1 2)")
        assert (await handle.result()).value == 3
        assert [row.status for row in await flow.runs()] == ["done", "cancelled"]


async def left_dead(database: str) -> None:
    """Leave the runs of a closed flow as a process leaves them that is killed."""
    if database.startswith("sqlite"):
        import sqlite3

        from tests.support.sqlite_runs import change_run

        with sqlite3.connect(database.removeprefix("sqlite:///"), isolation_level=None) as db:
            for (run,) in db.execute("select run from af_run").fetchall():
                change_run(db, run, 0.0, status="running", owner="gone:1")
        db.close()
        return
    import asyncpg  # pyright: ignore[reportMissingTypeStubs]

    connection: Any = await asyncpg.connect(database)  # pyright: ignore[reportUnknownMemberType]
    await connection.execute("update af_run set status = 'running', owner = 1")
    await connection.close()


OWNER = """
import asyncio, os, sys, time
from agentflow import AgentFlow, ScriptedProvider

async def work() -> str:
    "Work."
    child = os.fork()
    if child == 0:
        os.setsid()
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    await asyncio.sleep(60)
    return "x"

async def main():
    async with AgentFlow(provider=ScriptedProvider(["x"]), tools=[work], durable=sys.argv[1]) as flow:
        async with flow.session("user") as session:
            await (await flow.start("(value-of (work))", run_id="r")).result()

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no process forks there")
def test_a_forked_child_inherits_no_locks(tmp_path: Path) -> None:
    """A run, and its conversation, are free when their process was killed, whatever child of it lives on."""
    url = f"sqlite:///{tmp_path}/runs.db"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, url], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    child = int(owner.stdout.readline())
    owner.kill()
    owner.wait()
    owner.stdout.close()

    async def next_process() -> None:
        shop = Shop(url)
        async with shop.flow() as flow:
            assert (await (await flow.start("(value-of (work))", run_id="r")).result()).value == "x"
            async with flow.session("user"):
                pass

    try:
        asyncio.run(next_process())
    finally:
        os.kill(child, signal.SIGKILL)


async def test_wrong_lines_are_said(tmp_path: Path) -> None:
    """A run at work takes no other limits, one of another text is none of theirs, and what is in use says by whom."""
    shop = Shop(f"sqlite:///{tmp_path}/runs.db", 0.2)
    async with shop.flow() as flow, shop.flow() as other:
        handle = await flow.start("(value-of (work))", run_id="r")
        await shop.begun.wait()
        with pytest.raises(JournalError) as mismatch:
            await flow.start("(+ 1 2)", run_id="r")
        with pytest.raises(JournalError) as owned:
            await other.resume("r")
        assert (mismatch.value.code, owned.value.code) == ("durable/mismatch", "durable/owned")
        assert "a second one of this process" in owned.value.message
        async with flow.session("user"):
            with pytest.raises(SessionBusy):
                async with other.session("user"):
                    pass
        assert (await handle.result()).value == "x"


async def test_an_approver_reaches_a_run_at_work(tmp_path: Path) -> None:
    """``approve=`` of a later call decides what the run, which is at work, asks from then on."""
    began, goes_on = asyncio.Event(), asyncio.Event()

    async def hold() -> str:
        """Hold."""
        began.set()
        await goes_on.wait()
        return "held"

    @tool(approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    model = ScriptedProvider([{"tool_calls": [{"name": "pay", "arguments": {}}]}, "done"])
    async with AgentFlow(provider=model, tools=[hold, pay], durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        text = '(begin (hold) (defatom buy (params) (instructions "buy") (tools (pay))) (value-of (buy)))'
        handle = await flow.start(text, run_id="r")
        await began.wait()
        assert await flow.resume("r", approve=lambda request: True) is handle
        goes_on.set()
        assert (await handle.result()).value == "done"
