"""Parts of programs that durable runs meet everywhere else: lookups, approvals of branches, written programs, Python workflows."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ScriptedProvider, tool
from agentflow.core.data.errors import JournalError, ResourceExhausted
from agentflow.journal.sqlite import SqliteFile, Sync
from tests.durable.world import Flow, World, interrupted


@tool(approval=True)
async def pay(to: str) -> str:
    """Pay."""
    return f"paid {to}"


@pytest.mark.parametrize(("sync", "level"), [("normal", 1), ("full", 2)])
async def test_a_commit_waits_for_the_disk_if_that_is_wanted(
    world: World, flow: Flow, tmp_path: Path, sync: Sync, level: int
) -> None:
    """``sync="full"`` is SQLite's level 2, a flush at every commit; a run goes on in either way with what was stored in the other."""
    file = SqliteFile(tmp_path / "other.db", sync)
    with_level = file._connection().db.execute("pragma synchronous").fetchone()  # pyright: ignore[reportPrivateUsage]
    file.close()
    assert with_level == (level,)
    text = '(list (content (look (at "a"))) (ask-human "go on?") (content (look (at "b"))))'
    async with flow(sync=sync) as first:
        handle = await first.start(text, run_id="r")
        assert await handle.wait() == "waiting"
        await first.send("r", handle.waiting[0].key, "yes")
    async with flow(sync="full" if sync == "normal" else "normal") as second:
        assert (await (await second.start(text, run_id="r")).result()).value == ["<a>", "yes", "<b>"]
    assert world.done == {"a": 1, "b": 1}


async def test_a_lookup_of_context_has_a_record(world: World, flow: Flow, tmp_path: Path) -> None:
    """What a lookup gave is what it gave, although the files are others when the run goes on."""
    (tmp_path / "a.txt").write_text("the flamingo")
    text = '(list (length (get_context (query "flamingo"))) (content (look (at "in"))))'
    await interrupted(world, flow, text, "in")
    (tmp_path / "b.txt").write_text("another flamingo")
    async with flow() as opened:
        handle = await opened.start(text, run_id="r")
        assert (await handle.result()).value == [1, "<in>"] and handle.replayed == 1


@pytest.mark.parametrize(
    "text",
    [
        '(pmap (lambda (to) (content (pay (to to)))) \'("a" "b"))',
        '(eval-program \'(parallel (content (pay (to "a"))) (content (pay (to "b")))) (allow pay))',
        '(value-of (solve "pay both" (allow pay)))',
    ],
    ids=["pmap", "eval-program", "solve"],
)
async def test_approvals_wait_wherever_they_are_asked_for(tmp_path: Path, text: str) -> None:
    """Those of two branches are open at once, that of a program is one; any process answers, and nothing is written twice."""
    written: list[str] = []

    def model(request: Any) -> str:
        written.append("program")
        return '```\n(parallel (content (pay (to "a"))) (content (pay (to "b"))))\n```'

    def opened() -> AgentFlow:
        return AgentFlow(
            provider=ScriptedProvider(model), tools=[pay], durable=f"sqlite:///{tmp_path}/r.db", root=tmp_path
        )

    async with opened() as first:
        handle = await first.start(text, run_id="r", allow=["pay", "eval-program", "solve"])
        assert await handle.wait() == "waiting"
        asked = {question.question: question.key for question in handle.waiting}
        if "pmap" in text:
            assert list(asked) == ['pay {"to": "a"}', 'pay {"to": "b"}']
        else:
            assert ["unasked then  pay" in each for each in asked] == [True], "the program is approved as a whole"
    async with opened() as second:
        for key in reversed(asked.values()):
            await second.send("r", key, True)
        assert (await (await second.resume("r")).result()).value == ["paid a", "paid b"]
    assert len(written) == ("solve" in text)


async def test_the_program_of_a_decomposed_task_is_not_written_again(world: World, tmp_path: Path) -> None:
    """A task that ran out of context is split by a program that a model wrote: interrupted in it, the run asks nobody again."""
    asked: Counter[str] = Counter()

    def model(request: Any) -> str:
        text = request.messages[-1].text
        kind = "whole" if text == "read" else "program"
        asked[kind] += 1
        if kind == "whole":
            raise ResourceExhausted("too much", resource="context", used=2, limit=1)
        return '```\n(string-append (content (look (at "one"))) (content (look (at "two"))))\n```'

    def opened() -> AgentFlow:
        flow = AgentFlow(
            provider=ScriptedProvider(model), tools=[world.look], durable=f"sqlite:///{tmp_path}/r.db", root=tmp_path
        )
        task = {"name": "reads", "params": {}, "instructions": "read", "tools": ["look"], "decompose": 1}
        flow.task_system.register_template(task)
        return flow

    text = "(content (reads))"
    world.hold.add("two")
    world.awaited = "two"
    async with opened() as first:
        await first.start(text, run_id="r")
        await world.reached.wait()
    world.hold.clear()
    async with opened() as second:
        assert (await (await second.resume("r")).result()).value == "<one><two>"
    assert asked["program"] == 1 and world.done == {"one": 1, "two": 1}


async def test_steps_of_a_workflow_are_not_done_again_after_a_pause(tmp_path: Path) -> None:
    """What ``flow.step`` gave before a Python workflow waited and lost its process is there when it goes on."""
    done: list[str] = []

    def opened() -> tuple[AgentFlow, Any]:
        async def consult(ctx: CallContext) -> str:
            """Ask somebody."""
            return str(await ctx.ask_human("go on?"))

        flow = AgentFlow(
            provider=ScriptedProvider([]), tools=[consult], durable=f"sqlite:///{tmp_path}/r.db", root=tmp_path
        )

        async def fetch(what: str) -> str:
            done.append(what)
            return f"<{what}>"

        @flow.workflow
        async def gather() -> list[Any]:
            first = await flow.step(fetch, "before")
            await flow.sleep(0)
            answer = await flow.call_tool("consult")
            return [first, answer, await flow.step(fetch, "after")]

        return flow, gather

    first, gather = opened()
    async with first:
        handle = await first.start(gather(), run_id="r")
        assert await handle.wait() == "waiting" and done == ["before"]
        await first.send("r", handle.waiting[0].key, "yes")
    second, gather = opened()
    async with second:
        run = await second.start(gather(), run_id="r")
        assert (await run.result()).value == ["<before>", "yes", "<after>"]
    assert done == ["before", "after"]


async def test_an_owner_that_lost_its_run_stores_nothing_more(world: World, flow: Flow, tmp_path: Path) -> None:
    """Where the lock of an owner is gone another process takes the run over; what the first then does ends it, unrecorded."""
    text = '(list (content (look (at "a"))) (content (look (at "b"))) (content (look (at "c"))))'
    release = asyncio.Event()
    seen: list[str] = []

    async def slow(at: str) -> str:
        """Look, once it may."""
        seen.append(at)
        if at == "b":
            world.reached.set()
            await release.wait()
        return f"stale {at}"

    slow.__name__ = "look"
    async with flow(tools=[slow]) as stale:
        handle = await stale.start(text, run_id="r")
        await world.reached.wait()
        for lock in (tmp_path / "runs.db.owners").iterdir():
            lock.unlink()
        async with flow() as other:
            taken = await other.start(text, run_id="r")
            assert (await taken.result()).value == ["stale a", "<b>", "<c>"]
        release.set()
        with pytest.raises(JournalError) as caught:
            await handle.result()
        assert caught.value.code == "durable/owned" and seen == ["a", "b"]
    async with flow() as later:
        assert (await (await later.start(text, run_id="r")).result()).value == ["stale a", "<b>", "<c>"]
