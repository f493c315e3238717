"""Durable runs that wait: for answers, approvals and times, wherever they are asked for."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, DurableRun, ScriptedProvider, tool
from agentflow.core.data.errors import AgentflowError, DataError, JournalError
from agentflow.core.events.journal_rows import EffectState
from agentflow.core.events.questions import Question
from agentflow.events import EffectReplayed, Event, RunFinished, WaitFinished, WaitStarted
from agentflow.journal.sqlite import SqliteJournal
from tests.durable.world import Flow, World, time_passes


async def at_rest(flow: AgentFlow, text: str, *, asks: int = 1, **options: Any) -> DurableRun:
    """Start the run ``r``, and wait until it only waits; nothing of it is in memory then."""
    handle = await flow.start(text, run_id="r", **options)
    assert await handle.wait() == "waiting", handle.status
    await asyncio.sleep(0)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert len(handle.waiting) == asks
    return handle


async def test_an_answer_from_another_process(world: World, flow: Flow) -> None:
    """A run leaves the memory while it waits; whoever sends the answer need not be the one who goes on."""
    text = """(list (content (look (at "a"))) (ask-human "How many?" {"type" "integer"}) (content (look (at "b"))))"""
    async with flow() as first:
        handle = await at_rest(first, text)
        (question,) = handle.waiting
        assert (question.question, question.schema, question.reason) == ("How many?", {"type": "integer"}, "question")
        assert question.path == "0/1.0" and question.run_id == "r" and handle.wake_at is None
    assert handle.status == "waiting"
    with pytest.raises(JournalError, match="waits"):
        await handle.result()
    async with flow() as second:
        assert [(run.status, run.slices) for run in await second.runs()] == [("waiting", 1)]
        assert await second.questions("r") == [question]
        await second.send("r", question.key, 3)
        assert [run.status for run in await second.runs()] == ["queued"]
    async with flow() as third:
        result = await (await third.resume("r")).result()
    assert result.value == ["<a>", 3, "<b>"] and world.done == {"a": 1, "b": 1}


async def test_a_waiting_run_wakes_by_itself(world: World, flow: Flow) -> None:
    """Answered where it waits, a run goes on at once; ``result`` waits for all of it."""
    async with flow() as opened:
        handle = await at_rest(opened, '(list (ask-human "one?") (content (look (at "a"))) (ask-human "two?"))')
        waits = asyncio.create_task(handle.result())
        await opened.send("r", handle.waiting[0].key, {"x": [1, 2.5, None]})
        assert await handle.wait() == "waiting" and handle.waiting[0].question == "two?"
        await opened.send("r", handle.waiting[0].key, "second")
        assert (await waits).value == [{"x": [1, 2.5, None]}, "<a>", "second"]
        assert handle.status == "done" and handle.waiting == [] and world.done == {"a": 1}
        (run,) = await opened.runs()
        assert run.slices == 3


async def test_a_question_stays_open_while_its_run_is_moved(flow: Flow) -> None:
    """At every turn of the loop in which a run leaves the memory or comes back, what it asks is open, and can be answered."""
    async with flow() as opened:
        handle = await opened.start('(parallel (ask-human "one?") (ask-human "two?"))', run_id="r")
        while len(handle.waiting) < 2:
            await asyncio.sleep(0)
        while handle.status != "waiting":
            assert [each.question for each in handle.waiting] == ["one?", "two?"]
            await asyncio.sleep(0)
        one, two = handle.waiting
        await opened.send("r", one.key, 1)
        while [each.question for each in handle.waiting] != ["two?"] or handle.status != "waiting":
            assert two in handle.waiting
            await asyncio.sleep(0)
        await opened.send("r", two.key, 2)
        assert (await handle.result()).value == [1, 2]
        assert handle.waiting == []


async def test_who_hears_a_question_may_answer_at_once(flow: Flow) -> None:
    """When its event is read, the run lists it as open, and its record is stored."""
    asked: asyncio.Queue[str] = asyncio.Queue()
    async with flow() as opened:
        opened.subscribe(lambda event: asked.put_nowait(event.key) if isinstance(event, WaitStarted) else None)
        handle = await opened.start('(ask-human "?")', run_id="r")
        key = await asked.get()
        assert [each.key for each in handle.waiting] == [key]
        await opened.send("r", key, "now")
        assert (await handle.result()).value == "now"


async def test_an_answer_given_elsewhere_wakes_it_too(flow: Flow) -> None:
    """A flow notices the answers that other processes give to the runs that wait in it."""
    async with flow() as opened, flow() as other:
        handle = await at_rest(opened, '(ask-human "?")')
        await other.send("r", handle.waiting[0].key, "from afar")
        assert (await handle.result()).value == "from afar"


async def test_answers_are_checked(flow: Flow) -> None:
    """An answer has to fit the schema, to be data, and to be to something that is asked."""
    async with flow() as opened:
        handle = await at_rest(opened, '(ask-human "How many?" {"type" "integer" "minimum" 1})')
        key = handle.waiting[0].key
        for wrong, code in (("three", "question/answer"), (0, "question/answer"), (object(), "question/answer")):
            with pytest.raises(DataError) as caught:
                await opened.send("r", key, wrong)
            assert caught.value.code == code
        with pytest.raises(DataError) as caught:
            await opened.send("r", "00" * 16, 3)
        assert caught.value.code == "question/unknown" and key in (caught.value.hint or "")
        with pytest.raises(JournalError, match="no durable run"):
            await opened.send("nobody", key, 3)
        assert handle.status == "waiting"
        await opened.send("r", key, 3)
        assert (await handle.result()).value == 3


async def test_the_first_of_two_answers_counts(flow: Flow) -> None:
    """Of answers that race, in two processes, one is taken, and the other sender is told."""
    async with flow() as first, flow() as second:
        handle = await at_rest(first, '(ask-human "?")')
        key = handle.waiting[0].key
        sent = await asyncio.gather(
            *(each.send("r", key, number) for number, each in enumerate((first, second, first, second))),
            return_exceptions=True,
        )
        (taken,) = [number for number, each in enumerate(sent) if each is None]
        refused = [each.code for each in sent if isinstance(each, DataError)]
        assert refused == ["question/unknown"] * 3
        assert (await handle.result()).value == taken


NESTED = """
(define (tidy name form) (try (form) (finally (look (at (string-append "tidy " name))))))
(define (ask q) (lambda () (tidy q (lambda () (ask-human q)))))
(parallel
  ((ask "a"))
  (pmap (lambda (q) ((ask q))) '("b" "c"))
  (timeout 1000 ((ask "d")))
  (eval-program '(tidy "e" (lambda () (ask-human "e"))) (bindings (dict "tidy" tidy)) (allow look ask-human))
  (tidy "f" (lambda () (sleep 1000)))
  (content (look (at "beside"))))
"""


async def test_waits_in_nested_branches_leave_nothing(world: World, flow: Flow) -> None:
    """However deep the branches that wait: no task is left, no clean-up runs, several questions are open at once."""
    events: list[Event] = []
    async with flow() as opened:
        opened.subscribe(events.append)
        before = time.time()
        handle = await at_rest(opened, NESTED, asks=5)
        assert sorted(each.question for each in handle.waiting) == ["a", "b", "c", "d", "e"]
        assert world.done == {"beside": 1}
        assert handle.wake_at is not None and before + 999 < handle.wake_at < time.time() + 1001
        assert [each.outcome for each in events if isinstance(each, RunFinished)] == ["suspended"]
        started = [each for each in events if isinstance(each, WaitStarted)]
        assert Counter(each.reason for each in started) == {"question": 5, "timer": 1}
        assert {each.key for each in started if each.reason == "question"} == {each.key for each in handle.waiting}
        assert {each.outcome for each in events if isinstance(each, WaitFinished)} == {"suspended"}
        for number, question in enumerate(handle.waiting):
            await opened.send("r", question.key, number)
            assert await handle.wait() == "waiting"
        assert handle.waiting == []
    assert world.done == {"beside": 1} | {f"tidy {each}": 1 for each in "abcde"}


async def test_a_run_is_not_idle_while_something_works(world: World, flow: Flow) -> None:
    """A branch that works keeps the run in memory: an answer then reaches the branch that waits where it is."""
    world.hold.add("work")
    release = asyncio.Event()

    async def hold() -> str:
        """Work until released."""
        world.reached.set()
        await release.wait()
        return "worked"

    async with flow(tools=[hold]) as opened:
        handle = await opened.start('(parallel (content (hold)) (ask-human "?"))', run_id="r")
        await world.reached.wait()
        while not handle.waiting:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        assert handle.status == "running"
        await opened.send("r", handle.waiting[0].key, "answered")
        while handle.waiting:
            await asyncio.sleep(0.001)
        assert handle.status == "running"
        release.set()
        assert (await handle.result()).value == ["worked", "answered"]
        assert [run.slices for run in await opened.runs()] == [1]


async def test_a_branch_that_waits_makes_room(flow: Flow) -> None:
    """Under a limit of one branch at a time all questions are open at once."""
    from agentflow import Limits

    async with flow() as opened:
        handle = await at_rest(opened, '(pmap ask-human \'("a" "b" "c"))', asks=3, limits=Limits(concurrency=1))
        for each in handle.waiting:
            await opened.send("r", each.key, each.question * 2)
        assert (await handle.result()).value == ["aa", "bb", "cc"]


@pytest.mark.slow
async def test_a_question_that_is_out_of_time_is_no_longer_asked(world: World, flow: Flow) -> None:
    """The time of a form around a wait goes on outside of the memory, and wakes the run; nobody can answer afterwards."""
    text = """(list (try (timeout 5.2 (ask-human "?")) (catch (e) (get-field e 'code))) (content (look (at "a"))))"""
    async with flow() as first:
        handle = await at_rest(first, text)
        key = handle.waiting[0].key
        assert handle.wake_at is not None
        assert (await handle.result()).value == ["timeout/elapsed", "<a>"]
        with pytest.raises(DataError):
            await first.send("r", key, 1)


async def test_the_winner_of_a_race_ends_the_questions_of_the_others(world: World, flow: Flow) -> None:
    """A question in a branch that lost is closed, and the branch cleans up."""
    text = """
    (list (race (try (ask-human "a?") (finally (look (at "tidy")))) (ask-human "b?")) (ask-human "c?"))
    """
    async with flow() as opened:
        handle = await at_rest(opened, text, asks=2)
        lost, won = handle.waiting
        await opened.send("r", won.key, "B")
        assert await handle.wait() == "waiting"
        assert [each.question for each in await opened.questions("r")] == ["c?"]
        with pytest.raises(DataError):
            await opened.send("r", lost.key, "A")
        await opened.send("r", handle.waiting[0].key, "C")
        assert (await handle.result()).value == ["B", "C"]
    assert world.done == {"tidy": 1}


@tool(approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def test_approvals_wait_and_are_not_asked_for_twice(flow: Flow) -> None:
    """Without an approver an approval waits to be sent; the tool runs with it, or gives a FAILED result without."""
    text = "(list (content (pay (amount 1))) (failed? (pay (amount 2))) (content (pay (amount 1))))"
    async with flow(tools=[pay]) as opened:
        handle = await opened.start(text, run_id="r", allow=["pay"])
        asked: list[str] = []
        for answer in (True, False, True):
            assert await handle.wait() == "waiting"
            (question,) = handle.waiting
            asked.append(question.question)
            assert question.reason == "approval"
            await opened.send("r", question.key, answer)
        assert (await handle.result()).value == ["paid 1", True, "paid 1"]
        assert asked == ['pay {"amount": 1}', 'pay {"amount": 2}', 'pay {"amount": 1}']


async def test_an_approver_is_asked_once(world: World, flow: Flow) -> None:
    """What an approver said is recorded: the tool that was interrupted after it is not asked about again."""
    asked: list[str] = []
    world.hold.add("in")

    @tool(approval=True)
    async def work() -> str:
        """Work."""
        return await world.carry_out("in")

    def approve(request: Any) -> bool:
        asked.append(request.tool)
        return True

    for last in (False, True):
        async with flow(tools=[work], approve=approve) as opened:
            await opened.start("(content (work))", run_id="r", allow=["work"])
            if last:
                world.hold.clear()
                world.reached.set()
            await world.reached.wait()
            if last:
                break
        world.hold.clear()
    assert asked == ["work"]


async def test_approvals_and_questions_within_a_turn(tmp_path: Path) -> None:
    """Tools that a model calls wait for approvals and ask themselves; the model is not called again for it."""
    done: Counter[str] = Counter()

    def model(request: Any) -> Any:
        done["model"] += 1
        if done["model"] == 1:
            calls = [{"name": "pay", "arguments": {"amount": 7}}, {"name": "wonder", "arguments": {}}]
            return {"text": "", "tool_calls": calls}
        return " and ".join(
            str(getattr(part, "content", getattr(part, "text", ""))) for part in request.messages[-1].parts
        )

    async def wonder(ctx: CallContext) -> str:
        """Ask somebody."""
        done["wonder"] += 1
        return f"they say {await ctx.ask_human('what?')}"

    text = '(defatom buy (params (q string)) (instructions "{{q}}") (tools pay wonder)) (content (buy (q "go")))'
    async with AgentFlow(
        provider=ScriptedProvider(model), tools=[pay, wonder], durable=f"sqlite:///{tmp_path}/r.db", root=tmp_path
    ) as opened:
        handle = await opened.start(text, run_id="r")
        assert await handle.wait() == "waiting"
        assert sorted(each.reason for each in handle.waiting) == ["approval", "question"]
        for each in handle.waiting:
            await opened.send("r", each.key, True if each.reason == "approval" else "so")
        assert (await handle.result()).value == "paid 7 and they say so"
    assert done["model"] == 2 and done["wonder"] >= 2, "the tool that asked was begun again"


async def test_questions_within_what_solve_wrote(tmp_path: Path) -> None:
    """A program that a model wrote asks only with the grant; it is not written again when the run goes on."""
    written: list[str] = []

    def model(request: Any) -> str:
        written.append(request.messages[-1].text)
        return '```\n(string-append "they said " (ask-human "really?"))\n```'

    async with AgentFlow(
        provider=ScriptedProvider(model), durable=f"sqlite:///{tmp_path}/r.db", root=tmp_path
    ) as opened:
        handle = await at_rest(opened, '(content (solve "find out" (allow ask-human)))')
        await opened.send("r", handle.waiting[0].key, "yes")
        assert (await handle.result()).value == "they said yes"
        assert len(written) == 1 and "asks a person" in written[0]


@pytest.mark.slow
async def test_a_long_sleep_is_spent_outside_of_the_memory(world: World, flow: Flow) -> None:
    """A run whose only wait is a time goes on by itself when it has come, here or in another process."""
    text = '(list (content (look (at "a"))) (sleep 5.3) (content (look (at "b"))))'
    async with flow() as first:
        handle = await at_rest(first, text, asks=0)
        assert handle.wake_at is not None
        (run,) = await first.runs()
        assert run.status == "waiting" and run.wake_at == handle.wake_at
    async with flow() as second:
        handle = await second.start(text, run_id="r")
        assert (await handle.result()).value == ["<a>", [], "<b>"]
        assert time.time() >= (run.wake_at or 0)
    assert world.done == {"a": 1, "b": 1}


async def test_a_sleep_that_was_interrupted_is_not_begun_again(world: World, flow: Flow, tmp_path: Path) -> None:
    """It ends when it was to end, however often the run is interrupted: one whose time has passed meanwhile waits for nothing."""
    events: list[Event] = []
    store = SqliteJournal(tmp_path / "runs.db")
    text = '(begin (sleep 4) (content (look (at "a"))))'
    async with flow() as first:
        await first.start(text, run_id="r")
        while not await store.effects("r", EffectState.OPEN):
            await asyncio.sleep(0.01)
    before = await time_passes(tmp_path / "runs.db", "timer")
    async with flow() as second:
        second.subscribe(events.append)
        handle = await second.start(text, run_id="r")
        assert (await handle.result()).value == "<a>"
    assert not [each for each in events if isinstance(each, EffectReplayed | WaitStarted)]
    [after] = [each for each in await store.effects("r") if each.kind == "timer"]
    await store.aclose()
    assert (before.state, after.state, after.started) == (EffectState.OPEN, EffectState.OK, before.started)


async def test_cancelling_a_run_that_waits(world: World, flow: Flow) -> None:
    """It ends for good; what it asked cannot be answered any more."""
    async with flow() as opened:
        handle = await at_rest(opened, '(ask-human "?")')
        key = handle.waiting[0].key
        await handle.cancel()
        assert handle.status == "cancelled"
        with pytest.raises(JournalError, match="cancelled"):
            await handle.result()
        with pytest.raises(AgentflowError):
            await opened.send("r", key, 1)


async def test_an_answerer_is_asked_at_once(flow: Flow) -> None:
    """With somebody to ask the run does not wait, and the answer is recorded."""
    asked: list[str] = []

    async def answer(question: Question) -> Any:
        asked.append(question.question)
        return len(asked)

    text = '(list (ask-human "a" {"type" "integer"}) (ask-human "b"))'
    async with flow(answer=answer) as first:
        assert (await (await first.start(text, run_id="r")).result()).value == [1, 2]
        assert ((await first.run(text)).value) == [3, 4]
    assert asked == ["a", "b", "a", "b"]


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_branch_that_waits_makes_room_in_its_own_form(world: World, flow: Flow, limit: int) -> None:
    """A branch that waits holds no place among the few that its ``pmap`` lets work at once, in nested ones either."""
    text = f"""
    (pmap (lambda (i) (pmap (lambda (j) (begin
        (if (= j 0) (ask-human (format "{{}}?" i)) #f)
        (content (look (at (format "{{}}.{{}}" i j)))))) (list 0 1 2) {limit})) (list 1 2 3) {limit})
    """
    async with flow() as opened:
        handle = await at_rest(opened, text, asks=3)
        assert world.done == {f"{i}.{j}": 1 for i in (1, 2, 3) for j in (1, 2)}
        for question in handle.waiting:
            await opened.send("r", question.key, True)
        result = await handle.result()
    assert result.value == [[f"<{i}.{j}>" for j in range(3)] for i in (1, 2, 3)]
    assert world.done == {f"{i}.{j}": 1 for i in (1, 2, 3) for j in (0, 1, 2)}


async def test_no_more_work_at_once_than_a_form_allows(flow: Flow) -> None:
    """Branches that were answered wait for their turn: at no time do more work than the limit of their ``pmap``."""
    at_work: list[int] = [0, 0]

    async def work(at: int) -> int:
        """Work."""
        at_work[0] += 1
        at_work[1] = max(at_work)
        while at_work[1] < 2:  # the first waits for a second
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        at_work[0] -= 1
        return at

    async with flow(tools=[work]) as opened:
        text = '(pmap (lambda (i) (begin (ask-human "?") (value-of (work (at i))))) (range 6) 2)'
        handle = await at_rest(opened, text, asks=6)
        for question in handle.waiting:
            await opened.send("r", question.key, True)
        assert (await handle.result()).value == list(range(6))
    assert at_work == [0, 2]
