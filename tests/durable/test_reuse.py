"""Results that other runs use again: one request for equal calls, in this process and in others."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ConfigurationError, ScriptedProvider, tool
from agentflow.core.data.durations import seconds_of
from agentflow.events import EffectReplayed, Event, TaskStarted
from tests.cli.test_command import agentflow
from tests.durable.world import Flow, World
from tests.support.values import value_of

ASK = """(defatom ask (params (q string)) (instructions "{{q}}") (reuse "1d"))"""


async def run(flow: Flow, text: str, **options: Any) -> Any:
    async with flow(**options) as opened:
        return await opened.run(text)


@pytest.mark.parametrize("durable", [False, True])
async def test_equal_calls_are_one_request(world: World, flow: Flow, durable: bool) -> None:
    """Ten at once in a pmap, again later in the run, and in other runs, durable or not: one request."""
    text = (
        f'{ASK} (list (pmap (lambda (i) (content (ask (q "one")))) \'(1 2 3 4 5 6 7 8 9 10)) (content (ask (q "one"))))'
    )
    events: list[Event] = []
    for number in range(2):
        async with flow() as opened:
            opened.subscribe(events.append)
            if durable:
                handle = await opened.start(text, run_id=f"r{number}")
                result = await handle.result()
                assert handle.replayed == (11 if number else 10) and handle.saved.requests == handle.replayed
            else:
                result = await opened.run(text)
        assert result.value == [["answer to one after 1"] * 10, "answer to one after 1"]
        assert result.usage.requests == (0 if number else 1)
    assert world.done == {"one": 1}
    replayed = [event for event in events if isinstance(event, EffectReplayed)]
    assert len(replayed) == 21 and {(each.kind, each.name, each.origin) for each in replayed} == {
        ("task", "ask", "reuse")
    }
    assert all(each.usage is not None and each.usage.requests == 1 for each in replayed)
    assert len([event for event in events if isinstance(event, TaskStarted)]) == 1


_IN_A_PROCESS = """
import asyncio, sys
from agentflow import AgentFlow

async def main():
    async with AgentFlow("offline", durable=sys.argv[1]) as flow:
        result = await flow.run(sys.argv[2])
    print(result.usage.requests, result.value["content"])

asyncio.run(main())
"""


@pytest.mark.slow
def test_processes_share_results(tmp_path: Path) -> None:
    """What one process asked for another one has, however it orders and hashes things."""
    text = f'{ASK} (ask (q "one") (inputs \'((b 1) (a 2))))'
    said: list[list[str]] = []
    for seed in ("1", "2"):
        words = [sys.executable, "-c", _IN_A_PROCESS, f"sqlite:///{tmp_path}/runs.db", text]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        said.append(done.stdout.split(" ", 1))
    assert [requests for requests, _ in said] == ["1", "0"] and said[0][1] == said[1][1] != "\n"


async def test_what_is_asked_for_decides(world: World, flow: Flow, tmp_path: Path) -> None:
    """Another argument, template, model, history or content of a file that is named is another result."""
    (tmp_path / "a.txt").write_text("first")
    told = ASK.replace('(reuse "1d")', '(reuse "1d") (history_config true)')
    for text, asked in (
        (f'{ASK} (ask (q "one"))', 1),
        (f'{ASK} (ask (q "two"))', 1),
        (f'{ASK.replace("{{q}}", "Say {{q}}")} (ask (q "one"))', 1),
        (ASK.replace("(reuse", '(model "big") (reuse') + ' (ask (q "one"))', 1),
        (f'{ASK.replace("1d", "2w")} (ask (q "one"))', 0),
        (f'{told} (ask (q "one")) (ask (q "one"))', 2),
        (f'{told} (ask (q "one")) (ask (q "one"))', 0),
        (f'{told} (ask (q "one")) (ask (q "one")) (ask (q "one"))', 1),
        (f'{ASK} (ask (q "one") (files (list "a.txt")))', 1),
        (f'{ASK} (ask (q "one") (files (list "a.txt")))', 0),
    ):
        world.done.clear()
        await run(flow, text)
        assert sum(world.done.values()) == asked, text
    (tmp_path / "a.txt").write_text("second")
    world.done.clear()
    await run(flow, f'{ASK} (ask (q "one") (files (list "a.txt")))')
    assert sum(world.done.values()) == 1


async def test_a_result_that_is_too_old_is_made_anew(world: World, flow: Flow, tmp_path: Path) -> None:
    """``reuse`` says how old a result may be; what is not a success is not kept."""
    text = f'{ASK} (content (ask (q "one")))'
    await run(flow, text)
    with sqlite3.connect(tmp_path / "runs.db") as db:
        (age,) = db.execute("select at from af_result").fetchone()
        assert abs(age - time.time()) < 60
        db.execute("delete from af_result")
    await run(flow, text)
    assert world.done == {"one": 2}
    assert [seconds_of(each) for each in ("90s", "1.5m", "12h", "1d", "2w")] == [90, 90, 43_200, 86_400, 1_209_600]
    for wrong in ("1", "d", "0d", "-1d", "1 month"):
        with pytest.raises(ValueError, match="not a duration"):
            seconds_of(wrong)


async def test_tools_too(world: World, flow: Flow) -> None:
    """A tool of a flow, or one marked with ``@tool``: called by programs and by models; failures are tried again."""
    calls: list[str] = []

    @tool(reuse="1h", reuse_key="this test's list")
    async def fetch(url: str) -> dict[str, Any]:
        """Fetch a page."""
        calls.append(url)
        if len(calls) == 1:
            raise ValueError("away")
        return {"url": url, "number": len(calls)}

    async with flow(tools=[fetch]) as opened:

        @opened.tool(reuse="1d", reuse_key="this test's list")
        def lower(text: str) -> str:
            """Lower a text."""
            calls.append(text)
            return text.lower()

        text = '(list (status (fetch (url "u"))) (get-field (parsed-content (fetch (url "u"))) \'number) (content (lower (text "ABC"))))'
        text = text.replace("parsed-content", "value-of")
        assert (await opened.run(text)).value == ["FAILED", 2, "abc"]
        assert (await opened.run(text)).value == ["COMPLETE", 2, "abc"]
    assert calls == ["u", "u", "ABC"]


async def test_who_waits_goes_on_when_the_first_is_cancelled(world: World, flow: Flow) -> None:
    """One that is cancelled or fails gives nothing: the next carries it out. Nobody waits for itself."""
    opened: list[AgentFlow] = []

    @tool(reuse="1d", reuse_key="this world")
    async def nest(ctx: CallContext, depth: int) -> str:
        """Call itself."""
        await asyncio.sleep(0)
        world.done[f"nest {depth}"] += 1
        if world.done["nest 1"] < 2:
            return str((await opened[0].run("(content (nest (depth 1)))")).value) + "!"
        return "innermost"

    async with flow(tools=[nest, world.look]) as each:
        opened.append(each)
        each.tool(world.carry_out, reuse="1d", reuse_key="this world")
        async with asyncio.timeout(20):
            assert (await each.run("(content (nest (depth 1)))")).value == "innermost!"
            world.hold.add("x")
            first = asyncio.create_task(value_of(each.run('(content (carry_out (what "x")))')))
            await world.reached.wait()
            others = [asyncio.create_task(value_of(each.run('(content (carry_out (what "x")))'))) for _ in range(3)]
            await asyncio.sleep(0.01)
            world.hold.clear()
            first.cancel()
            assert await asyncio.gather(*others) == ["<x>"] * 3
    assert world.done["x"] == 1


async def test_waiting_leaves_its_permit(world: World, flow: Flow) -> None:
    """Under a concurrency of one, calls that wait for an equal one do not keep it from running."""
    from agentflow import Limits

    text = f'{ASK} (pmap (lambda (i) (content (ask (q "one")))) \'(1 2 3 4))'
    async with flow() as opened, asyncio.timeout(20):
        assert len((await opened.run(text, limits=Limits(concurrency=1))).value) == 4
    assert world.done == {"one": 1}


async def test_without_a_database_it_is_an_error(world: World, tmp_path: Path) -> None:
    """``reuse`` without ``durable=`` says so: for a tool when it is registered, for a task when it is called."""
    async with AgentFlow(provider=ScriptedProvider(world.answer), root=tmp_path) as opened:
        with pytest.raises(ConfigurationError) as caught:
            opened.tool(world.look, reuse="1d", reuse_key="this world")
        assert caught.value.code == "config/durable"
        opened.compile(f'{ASK} (ask (q "one"))')
        with pytest.raises(ConfigurationError) as caught:
            await opened.run(f'{ASK} (ask (q "one"))')
        assert caught.value.code == "config/durable"
        with pytest.raises(ConfigurationError, match="not a duration"):
            tool(reuse="1 month")(world.look)
    assert world.done == {}


async def test_old_runs_and_results_are_removed(world: World, flow: Flow, tmp_path: Path) -> None:
    """Those that ended long ago go, with their blobs; those to go on stay, and the run they are based on. What went is known."""
    text = f'{ASK} (list (content (ask (q "one"))) (content (look (at "x"))))'
    async with flow() as opened:
        await (await opened.start(text, {"big": "b" * 100_000}, run_id="old")).result()
        await (await opened.start(text, run_id="base")).result()
        world.hold = {"y"}
        world.reached.clear()
        await opened.resume("base", program=text.replace('"x"', '"y"'))
        await world.reached.wait()
    with sqlite3.connect(tmp_path / "runs.db") as db:
        assert db.execute("select count(*) from af_blob").fetchone() == (1,)
    async with flow() as opened:
        assert await opened.store.remove_runs("1h") == 0
        await asyncio.sleep(0.01)
        assert await opened.store.remove_runs("0.001s") == 1
        assert sorted((run.run_id[:4], run.status) for run in await opened.runs()) == [
            ("base", "done"),
            ("base", "queued"),
        ]
        assert [(run.run_id, run.status, run.usage.requests, run.error) for run in await opened.store.past_runs()] == [
            ("old", "done", 1, None)
        ]
    listed = await agentflow("runs", "past", "--db", f"sqlite:///{tmp_path / 'runs.db'}", "--json", tmp_path=tmp_path)
    assert [each["run_id"] for each in json.loads(listed.out)] == ["old"]
    with sqlite3.connect(tmp_path / "runs.db") as db:
        counts = [db.execute(f"select count(*) from {table}").fetchone()[0] for table in ("af_blob", "af_result")]
    assert counts == [0, 0]
