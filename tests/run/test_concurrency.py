"""How many strands of a run are active at once: never more than its limit, whatever is nested in what."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow import (
    AgentFlow,
    AgentflowError,
    CallContext,
    Limits,
    ModelRequest,
    ScriptedProvider,
    SexpEnvironment,
    TaskError,
    TaskResult,
)
from agentflow.core.events.events import WaitFinished, WaitStarted
from agentflow.run.strand.crew import BEGUN_AT_ONCE


class Gauge:
    """Tools that count how many of their calls are in flight; those that wait for the run itself do not count."""

    def __init__(self, limit: int, seed: int = 0, reply: Callable[[ModelRequest], Any] | None = None) -> None:
        self.now = self.most = self.calls = 0
        self._chance = random.Random(seed)
        self.flow = AgentFlow(
            provider=ScriptedProvider(reply or []),
            tools=[self.leaf, self.fail, self.back],
            limits=Limits(concurrency=limit),
        )

    async def leaf(self, n: int = 0) -> int:
        """Be in flight for some iterations of the loop."""
        self.calls += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            for _ in range(self._chance.randrange(4)):
                await asyncio.sleep(0)
        finally:
            self.now -= 1
        return n

    async def fail(self) -> TaskResult:
        """Fail after some iterations of the loop."""
        await self.leaf()
        return TaskResult.failure("tool_execution_error", "no")

    async def back(self, ctx: CallContext, fs: list[Any]) -> int:
        """Call procedures of the program, all at once, in one of the ways there are.

        Args:
            fs: the procedures
        """
        ways = [ctx.call, self.flow.call]
        calls = (ways[number % 2](each) for number, each in enumerate(fs))
        await asyncio.gather(*calls, return_exceptions=True)
        return len(fs)


def programs() -> st.SearchStrategy[str]:
    """Nests of the forms that make branches or bound them, over tools that call the program back."""
    leaves = st.sampled_from(["(leaf)", "(leaf)", "(fail)", "(value-of (fail))", "1", "(error 'no)"])

    def nest(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        several = st.lists(inner, min_size=1, max_size=4).map(" ".join)
        thunks = st.lists(inner.map("(lambda () {})".format), min_size=1, max_size=4).map(" ".join)
        return st.one_of(
            several.map("(parallel {})".format),
            several.map("(race {})".format),
            several.map("(begin {})".format),
            thunks.map("(back (fs (list {})))".format),
            inner.map("(timeout 30 {})".format),
            inner.map("(try (timeout 0.001 {}) (catch (e) 0))".format),
            inner.map("(try {} (catch (e) 0))".format),
            inner.map("(retry 1 {})".format),
            inner.map("(eval-program '{} (allow leaf fail back))".format),
            st.tuples(inner, st.integers(0, 6), st.sampled_from(["", " 2"])).map(
                lambda made: f"(pmap (lambda (x) {made[0]}) (range {made[1]}){made[2]})"
            ),
        )

    return st.recursive(leaves, nest, max_leaves=12)


@settings(max_examples=75, deadline=None)
@given(programs(), st.sampled_from([1, 2, 3, 256]), st.integers(0, 1000))
def test_no_nest_passes_the_limit_or_waits_for_ever(text: str, limit: int, seed: int) -> None:
    """Whatever is nested in what: it ends, never more effects are in flight than the limit, and every permit is back."""
    gauge = Gauge(limit, seed)

    async def run() -> None:
        async with gauge.flow as flow, asyncio.timeout(60), flow.engine.open("test") as (run, call):
            env = SexpEnvironment()
            with contextlib.suppress(AgentflowError):
                await flow.engine.evaluate(flow.compile(text), env, call)
            assert run.budget.permits.active == 1
            assert not run.budget.permits.wanted()

    asyncio.run(run())
    assert gauge.most <= limit


async def test_nested_pmap_shares_the_limit() -> None:
    """3,600 calls in a nest of two: ``concurrency`` of them do come to be in flight at once, and never more."""
    gauge = Gauge(256)
    met = asyncio.Event()

    async def meet() -> None:
        """Be in flight until 256 are."""
        gauge.now += 1
        gauge.most = max(gauge.most, gauge.now)
        if gauge.now == 256:
            met.set()
        await met.wait()
        await asyncio.sleep(0)
        gauge.now -= 1

    async with gauge.flow as flow, asyncio.timeout(60):
        flow.tool(meet)
        assert (
            await flow.run("(length (pmap (lambda (i) (pmap (lambda (j) (meet)) (range 60))) (range 60)))")
        ).value == 60
    assert gauge.most == 256


@pytest.mark.parametrize("limit", [1, 2, 256])
async def test_a_wait_for_a_permit_is_a_pair_of_events(limit: int) -> None:
    """Where there is none free; where there are enough nobody waits, and nothing is published."""
    gauge = Gauge(limit)
    waits: list[WaitStarted | WaitFinished] = []
    nest = "(parallel (leaf (n 1)) (leaf (n 2)))"
    async with gauge.flow as flow, flow.stream(f"(parallel {nest} {nest} {nest})") as run:
        async for event in run:
            if isinstance(event, WaitStarted | WaitFinished):
                waits.append(event)
    started = [each for each in waits if isinstance(each, WaitStarted)]
    assert {each.reason for each in waits} == ({"permit"} if limit < 256 else set())
    assert len(started) * 2 == len(waits) and bool(started) is (limit < 256)


async def test_tool_calls_of_answers_share_the_limit() -> None:
    """So do the tool calls that models ask for, in tasks that run side by side."""

    def reply(request: ModelRequest) -> Any:
        if len(request.messages) == 1:
            return {"tool_calls": [{"name": "leaf", "arguments": {"n": n}} for n in range(20)]}
        return "done"

    gauge = Gauge(7, reply=reply)
    async with gauge.flow as flow:
        text = '(defatom t (params) (instructions "x")) (map content (pmap (lambda (i) (t)) (range 10)))'
        assert (await flow.run(text)).value == ["done"] * 10
    assert gauge.calls == 200
    assert gauge.most == 7


async def test_a_narrower_part_has_fewer_permits() -> None:
    """A program that a tool runs with a lower limit keeps to it, and to the run's."""
    gauge = Gauge(3)

    async def part(text: str) -> int:
        """Run a program.

        Args:
            text: the program
        """
        return (await gauge.flow.run(text, limits=Limits(concurrency=2))).value

    async with gauge.flow as flow:
        flow.tool(part)
        inner = "(length (pmap (lambda (i) (leaf)) (range 30)))"
        assert ((await flow.run(f"(value-of (part (text {inner!r})))".replace("'", '"'))).value) == 30
        assert gauge.most == 2
        text = f"(pmap (lambda (i) (part (text {inner!r}))) (range 9))".replace("'", '"')
        assert len((await flow.run(text)).value) == 9
        assert gauge.most == 3


async def test_a_race_starts_in_order_as_permits_allow() -> None:
    """With one permit the first to succeed is the first in the text, and what follows it never starts."""
    gauge = Gauge(1)
    async with gauge.flow as flow:
        assert (
            await flow.run("(race (value-of (fail)) (begin (leaf) 'second) (begin (leaf) 'third))")
        ).value == "second"
    assert gauge.calls == 2


async def test_what_waits_for_a_permit_can_be_cancelled() -> None:
    """A time limit holds for branches that have not begun, and leaves the permits as they were."""
    gauge = Gauge(1)
    asleep = asyncio.Event()

    async def nap() -> None:
        """Sleep for long."""
        asleep.set()
        await asyncio.sleep(30)

    async with gauge.flow as flow:
        flow.tool(nap)
        text = """
          (parallel
            (try (timeout 0.05 (parallel (nap) (leaf) (leaf))) (catch (e) (leaf)))
            (try (timeout 0.01 (parallel (leaf) (leaf))) (catch (e) (leaf))))"""
        async with flow.engine.open("test") as (run, call), asyncio.timeout(20):
            await flow.engine.evaluate(flow.compile(text), SexpEnvironment(), call)
            assert run.budget.permits.active == 1
    assert asleep.is_set()
    assert gauge.most == 1


async def test_a_million_elements_are_begun_lazily() -> None:
    """``pmap`` holds branches for what runs, not for what is to come: the hundredth failure of many ends it at once."""
    gauge = Gauge(16)
    live: list[int] = []

    async def count(n: int) -> int:
        """Count the tasks there are.

        Args:
            n: the element
        """
        live.append(len(asyncio.all_tasks()))
        if n == 1_000:
            raise TaskError("enough", reason="llm_error")
        return n

    async with gauge.flow as flow:
        flow.tool(count)
        with pytest.raises(TaskError):
            await flow.run("(pmap (lambda (x) (count (n x))) (range 1000000))")
    assert len(live) < 1_100
    assert max(live) < 40


async def test_branches_that_wait_for_nothing_take_few_tasks() -> None:
    """A worker begins when those before it wait, so work that never does is done by the first few."""
    workers: set[asyncio.Task[Any] | None] = set()

    async def at_once(n: int) -> int:
        """Be done without waiting.

        Args:
            n: the element
        """
        workers.add(asyncio.current_task())
        return n

    async with AgentFlow(tools=[at_once], limits=Limits(concurrency=100)) as flow:
        assert len((await flow.run("(pmap (lambda (x) (at_once (n x))) (range 100))")).value) == 100
    assert len(workers) <= BEGUN_AT_ONCE


async def test_branches_that_wait_for_one_another_all_begin() -> None:
    """As many branches are active at once as there are permits, however many that is."""
    everybody = asyncio.Barrier(100)

    async def meet(n: int) -> int:
        """Wait for the others.

        Args:
            n: the element
        """
        await everybody.wait()
        return n

    async with AgentFlow(tools=[meet], limits=Limits(concurrency=100)) as flow, asyncio.timeout(20):
        assert len((await flow.run("(pmap (lambda (x) (meet (n x))) (range 100))")).value) == 100


async def test_a_branch_does_not_begin_once_its_race_is_settled() -> None:
    """A permit may be on its way to the next branch while another branch wins: it began nevertheless, and the race waited for it."""
    began: list[int] = []
    async with AgentFlow(provider=ScriptedProvider([]), limits=Limits(concurrency=3)) as flow:

        async def after(gate: asyncio.Event, steps: int) -> str:
            await gate.wait()
            for _ in range(steps):
                await asyncio.sleep(0)
            return "won"

        async def late(steps: int) -> str:
            began.append(steps)
            return "late"

        async def stopped() -> str:
            await asyncio.Event().wait()
            raise AssertionError("it ends by being cancelled")

        @flow.workflow
        async def walk(steps: int) -> Any:
            gate = asyncio.Event()
            race = flow.race(after(gate, steps), stopped(), late(steps))
            asyncio.get_running_loop().call_later(0.01, gate.set)
            return await flow.parallel(after(gate, 5), race)

        for steps in range(20):
            began.clear()
            (value, won) = (await flow.run(walk(steps))).value
            assert (value, won) == ("won", "late" if began else "won")
