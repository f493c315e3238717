"""Compiling within a run: macros take the run's steps and time, and the loop goes on beside it."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from types import FrameType
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, LimitExceeded, Limits, ScriptedProvider
from agentflow.errors import DataError
from agentflow.lang import program
from agentflow.lang.diagnosis import check_program
from agentflow.lib.text.stack import collector_paused
from agentflow.run.strand.program_compiler import SMALL_TEXT, is_small
from agentflow.tasks.workflows import make_workflow
from tests.support.spending import at_most
from tests.support.values import value_of

SPIN = "(defmacro spin () (let loop ((i 0)) (if (< i {count}) (loop (+ i 1)) i))) "
LONG = SPIN.format(count=40_000) + "(list " + "(spin) " * 2_000 + ")"
"""Two thousand expansions, each within its own limit: a minute or two of work."""


async def test_macros_take_the_steps_of_the_run() -> None:
    """Many expansions that are each within bounds add up, and the error points at the one that was too many."""
    async with AgentFlow(limits=Limits(steps=100_000)) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(LONG)
    assert caught.value.code == "limits/steps"
    assert caught.value.span is not None and caught.value.span.text == "(spin)"


@pytest.mark.parametrize("count, code", [(40_000, "limits/steps"), (200_000, "limits/macro-steps")])
async def test_macros_of_programs_that_are_data_do_so_too(count: int, code: str) -> None:
    """In eval-program, within its own steps and the run's, and one expansion has a bound of its own."""
    text = SPIN.format(count=count) + "(spin) (spin)"
    async with AgentFlow() as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(f'(eval-program "{text}" (max-steps {60_000 if count < 100_000 else 300_000}))')
    assert caught.value.code == code


async def test_what_macros_took_counts_although_nothing_ran() -> None:
    """The steps are the run's, whether the program that was compiled then runs or is refused."""
    async with AgentFlow() as flow:
        for rest in ("(spin)", "(spin) (lambda)"):
            text = SPIN.format(count=40_000) + rest
            result = await flow.run(f'(try (eval-program "{text}") (catch (e) 0))')
            assert result.steps > 40_000


async def test_a_written_program_is_checked_within_bounds() -> None:
    """solve refuses a program whose macros do not end, and tells the model so."""
    written = SPIN.format(count=10**9) + "(spin)"
    replies: list[Any] = [f"```\n{written}\n```", '```\n(string-append "do" "ne")\n```']
    provider = ScriptedProvider(replies)
    async with AgentFlow(provider=provider) as flow:
        result = await flow.run('(content (solve "goal" (max-rounds 2)))')
    assert result.value == "done"
    assert "macro-steps" in str(provider.requests[-1].messages)


def test_check_is_bounded() -> None:
    """So is a check outside of a run, by the steps of its limits."""
    (fault,) = check_program(LONG, limits=Limits(steps=100_000))[:1]
    assert fault.code == "limits/steps"


@pytest.mark.parametrize("text", [LONG, "(eval-program text)"])
async def test_a_host_can_stop_waiting(text: str) -> None:
    """A host's time limit ends a run that is still compiling at once, and the thread with it."""
    before = threading.active_count()
    async with AgentFlow(limits=Limits(steps=None)) as flow:
        with at_most(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await flow.run(text, bindings={"text": LONG})
            await asyncio.get_running_loop().shutdown_default_executor()
    assert threading.active_count() == before


@pytest.mark.parametrize("text", [LONG, "(eval-program text)"])
async def test_the_time_of_the_run_is_over_while_compiling(text: str) -> None:
    """``wall_s`` counts what is compiled before the run begins, and what is compiled in it."""
    async with AgentFlow(limits=Limits(steps=None, wall_s=0.2)) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(text, bindings={"text": LONG})
    assert caught.value.code == "limits/wall"


@pytest.mark.parametrize(
    "limits, code", [(Limits(steps=100_000), "limits/steps"), (Limits(steps=None, wall_s=0.2), "limits/wall")]
)
async def test_macros_of_saved_workflows_take_the_steps_and_the_time_of_the_run(limits: Limits, code: str) -> None:
    """A workflow is compiled when it is called, within the run that calls it."""
    async with AgentFlow(limits=limits) as flow:
        await flow.workflows.save(make_workflow({"name": "long", "program": LONG}))
        with pytest.raises(LimitExceeded) as caught:
            await flow.run("(call-workflow long)")
    assert caught.value.code == code


async def test_a_workflow_whose_macros_do_not_end_is_not_saved() -> None:
    """One with grants is checked before, within bounds: its faults say what did not end."""
    endless = {"name": "endless", "program": SPIN.format(count=10**9) + "(spin)", "allow": []}
    async with AgentFlow() as flow:
        with pytest.raises(DataError) as caught:
            await flow.workflows.save(make_workflow(endless))
        assert flow.workflows.names() == []
    assert [fault["code"] for fault in caught.value.details["faults"]] == ["limits/macro-steps"]


async def test_macros_may_not_fill_the_memory() -> None:
    """What expansions keep is bounded like what runs keep."""
    text = "(defmacro m () (length (map (lambda (i) (range 100000)) (range 60)))) (m)"
    async with AgentFlow(limits=Limits(memory=32 * 2**20)) as flow:
        with pytest.raises(LimitExceeded) as caught:
            await flow.run(text)
    assert caught.value.code in ("limits/memory", "limits/macro-steps")


async def test_the_loop_goes_on_beside_a_compilation() -> None:
    """A long text leaves the loop its own time: between two iterations little processor time of its thread passes."""
    text = "(list " + " ".join(f"(if (> 1 2) 'a (let ((x {n})) (lambda (y) (+ x y))))" for n in range(380)) + ")"
    assert len(text) > SMALL_TEXT and not is_small("(defmacro m () 1)")
    holds: list[float] = []

    async def beside() -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            holds.append(now - before)
            before = now

    async with AgentFlow() as flow:
        await flow.run("(+ 1 2)")
        with collector_paused():  # what else the process of the tests holds takes its time
            ticker = asyncio.create_task(beside())
            await asyncio.sleep(0)
            for program in (text, f"(eval-program '{text})", "(define (broken" + text):
                try:
                    await flow.run(program)
                except AgentflowError as error:
                    assert error.code.startswith("syntax/")
            ticker.cancel()
    holds.sort()
    assert holds[-1] < 0.3
    assert holds[int(len(holds) * 0.99)] < 0.075


@pytest.mark.parametrize("entry", ["run", "call"])
async def test_a_program_that_is_evaluated_again_is_not_compiled_again(entry: str) -> None:
    """``eval-program`` of one text, in a loop, in later runs and in procedures that the host calls, compiles it once."""
    compiled = 0

    def hook(frame: FrameType, event: str, argument: object) -> None:
        nonlocal compiled
        compiled += event == "call" and frame.f_code is program._compile.__code__

    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        evaluating = '(map (lambda (n) (eval-program "(+ n 1)" (bindings {"n" n}))) (list 1 2 3))'
        procedure = (await flow.run(f"(lambda () {evaluating})")).value
        runnable = flow.compile(evaluating)
        outer = sys.getprofile()
        sys.setprofile(hook)
        try:
            for _ in range(2):
                value = await (value_of(flow.run(runnable)) if entry == "run" else flow.call(procedure))
        finally:
            sys.setprofile(outer)
    assert value == [2, 3, 4]
    assert compiled == 1
