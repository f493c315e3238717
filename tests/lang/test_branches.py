"""parallel, pmap, race, timeout and retry: order, failure, isolation, and what a branch may change."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentflow.core.data.errors import SexpEvaluationError, TaskError
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from tests.support.fake_run import FakeFlow, evaluate


def slow_tools() -> tuple[dict[str, Any], list[str]]:
    """``nap``: sleeps and gives its name; ``fail``: sleeps and raises; and a log of what happened."""
    log: list[str] = []

    async def nap(s: float, name: str) -> str:
        log.append(f"+{name}")
        try:
            await asyncio.sleep(s)
            return name
        finally:
            log.append(f"-{name}")

    async def fail(s: float) -> str:
        await asyncio.sleep(s)
        raise TaskError("no", reason="llm_error")

    return {"nap": nap, "fail": fail}, log


async def test_values_come_in_the_order_written() -> None:
    """Whatever order the branches finish in."""
    tools, _ = slow_tools()
    flow = FakeFlow(tools=tools)
    text = '(map content (parallel (nap (s 0.03) (name "a")) (nap (s 0.01) (name "b")) (nap (s 0) (name "c"))))'
    assert await flow(text) == ["a", "b", "c"]
    assert await flow("(pmap (lambda (x) (content (nap (s (* x 0.01)) (name x)))) (list 2 1 0))") == ["2", "1", "0"]
    assert await flow("(parallel)") == []
    assert await flow("(pmap identity '())") == []


async def test_the_first_failure_cancels_the_others_and_waits_for_them() -> None:
    """Every branch has ended when the error comes out, and it is the branch's own error."""
    tools, log = slow_tools()
    flow = FakeFlow(tools=tools)
    with pytest.raises(TaskError) as caught:
        await flow(
            '(parallel (nap (s 10) (name "a")) (fail (s 0.01)) (pmap (lambda (x) (nap (s 10) (name x))) (list 1 2)))'
        )
    assert caught.value.reason == "llm_error"
    assert sorted(entry[0] for entry in log) == ["+", "+", "+", "-", "-", "-"]


async def test_race_gives_the_first_success_and_ends_the_losers() -> None:
    """A failure does not win; the losers have ended before it returns."""
    tools, log = slow_tools()
    flow = FakeFlow(tools=tools)
    text = '(content (race (fail (s 0)) (nap (s 0.02) (name "a")) (nap (s 10) (name "b"))))'
    assert await flow(text) == "a"
    assert log[-1] == "-b" or log[-2] == "-b"
    with pytest.raises(SexpEvaluationError) as caught:
        await flow("(race (fail (s 0)) (fail (s 0)))")
    assert caught.value.code == "race/all-failed"
    assert len(caught.value.details["causes"]) == 2


async def test_a_failed_result_counts_as_a_failure_for_race_and_retry_only() -> None:
    """parallel and pmap give it as the value it is."""
    count = 0

    def flaky() -> TaskResult:
        nonlocal count
        count += 1
        return TaskResult.failure("llm_error", "no") if count < 3 else TaskResult.complete("ok")

    flow = FakeFlow(tools={"flaky": flaky, "bad": lambda: TaskResult.failure("llm_error", "never")})
    assert (await flow("(retry 5 (flaky))")).content == "ok"
    assert count == 3
    assert (await flow("(retry 2 (bad))")).status == "FAILED"
    assert await flow("(race (bad) 7)") == 7
    assert (await flow("(race (bad) (bad))")).status == "FAILED"
    assert [each.status for each in await flow("(parallel (bad) (bad))")] == ["FAILED", "FAILED"]


async def test_pmap_runs_at_most_limit_at_once() -> None:
    """And ten thousand branches keep no more than that in memory."""
    running = most = 0

    full = asyncio.Event()

    async def step() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 100:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        running -= 1

    flow = FakeFlow(tools={"step": step}, watched=False)
    async with asyncio.timeout(60):
        assert len(await flow("(pmap (lambda (x) (step) x) (range 10000) 100)")) == 10_000
    assert most == 100
    assert flow.budget.permits.most == 100
    for bad in ("0", "-1", "1.5", "true", "'x"):
        with pytest.raises(SexpEvaluationError):
            await flow(f"(pmap identity (list 1) {bad})")


async def test_set_across_branches_is_refused() -> None:
    """At compile time where it can be seen, else when reached; after the join closures may set freely."""
    assert_code = "concurrency/shared-set"
    for text in (
        "(define x 0) (parallel (set! x 1))",
        "(let ((x 0)) (race (set! x 1)))",
        "(define x 0) (pmap (lambda (i) (set! x i)) (list 1))",
        "(let ((x 0)) (pmap (lambda (i) (set! x i)) (list 1)))",
        "(let* ((x 0) (f (lambda () (set! x 1)))) (parallel (f)))",
        "(define x 0) (define (f) (set! x 1)) (parallel (timeout 5 (f)))",
    ):
        with pytest.raises(SexpEvaluationError) as caught:
            await evaluate(text)
        assert caught.value.code == assert_code, text
    assert await evaluate("(car (parallel (let ((x 0)) (set! x 1) x)))") == 1
    assert await evaluate("(let ((x 0)) (timeout 5 (set! x 1)) (retry 1 (set! x (+ x 1))) x)") == 2
    made = "(let ((fs (parallel (let ((x 0)) (lambda () (set! x (+ x 1)) x))))) ((car fs)) ((car fs)))"
    assert await evaluate(made) == 2
    assert await evaluate("(pmap (lambda (i) (define y i) (set! y (+ y 1)) y) (list 1 2))") == [2, 3]


async def test_a_define_in_a_branch_is_local() -> None:
    """It neither shows outside nor in a sibling."""
    flow = FakeFlow()
    assert await flow("(parallel (progn (define z 1) (+ z 1)) 5)") == [2, 5]
    assert "z" not in flow.env


async def test_paths_do_not_depend_on_timing() -> None:
    """The same program numbers its effects the same, whatever order the branches finish in."""

    async def keys(delays: list[float]) -> dict[str, str]:
        flow = FakeFlow(tools={"nap": lambda i: asyncio.sleep(delays[i])})
        await flow(
            "(nap (i 0)) (parallel (nap (i 1)) (progn (nap (i 2)) (parallel (nap (i 3)) (nap (i 4))))) (nap (i 0))"
        )
        return {
            key: str(effect.arguments["i"])
            for key, effect in zip(flow.performer.keys, flow.performer.effects, strict=True)
        }

    first = await keys([0, 0, 0.02, 0, 0.01])
    assert first == await keys([0, 0.03, 0, 0.02, 0])
    assert len(first) == 6


async def test_branch_events_balance_and_nest() -> None:
    """Each branch is a Started/Finished pair with its path and index, failed and cancelled ones too."""
    tools, _ = slow_tools()
    flow = FakeFlow(tools=tools)
    with pytest.raises(TaskError):
        await flow('(parallel (nap (s 10) (name "a")) (fail (s 0)))')
    started = [event for event in flow.run.events if event.type == "branch_started"]
    finished = {event.started: event.outcome for event in flow.run.events if event.type == "branch_finished"}
    assert [(event.form, event.index, event.path) for event in started] == [
        ("parallel", 0, "0/0.0"),
        ("parallel", 1, "0/0.1"),
    ]
    assert [finished[event.seq] for event in started] == ["cancelled", "error"]


async def test_sessions_fork_and_join_in_branch_order() -> None:
    """What a branch says stays in it until the join; then turns are appended in the order of the branches."""
    flow = FakeFlow()
    seen: list[int] = []

    class Noting(type(flow.performer)):  # type: ignore[misc]
        async def perform(self, effect: Any, call: Any) -> Any:
            index = effect.arguments["i"]
            await asyncio.sleep(0.02 - index * 0.01)
            seen.append(len(call.session.turns()))
            call.session.commit((f"turn {index}",))
            return index

    flow.performer = Noting(tools={"say": print})
    await flow("(parallel (say (i 0)) (say (i 1)) (say (i 2)))")
    assert flow.session.turns() == [("turn 0",), ("turn 1",), ("turn 2",)]
    assert seen == [0, 0, 0]


async def test_loop_config_never_leaks() -> None:
    """It is bound inside the phases and what they call, innermost first, and nowhere else."""
    text = """(define (config) (nth (nth *loop-config* 1) 1))
      (define (go v) (director-evaluator-loop (max-iterations 1) (initial-director-input v) (director (lambda (x i) (config)))
        (executor (lambda (p i) (list p (pmap (lambda (x) (config)) (list 1))))) (evaluator (lambda (r p i) r))
        (controller (lambda (f p r i) (list 'stop (list r (config)))))))
      (pmap go (list 1 2))"""
    assert await evaluate(text) == [[[1, [1]], 1], [[2, [2]], 2]]
    with pytest.raises(SexpEvaluationError):
        await evaluate("*loop-config*")


async def test_timeout_is_a_catchable_task_error() -> None:
    """With the reason of the specification; and it says nothing when the form is in time."""
    tools, log = slow_tools()
    flow = FakeFlow(tools=tools, limits=Limits())
    assert await flow("(timeout 10 5)") == 5
    with pytest.raises(TaskError) as caught:
        await flow('(timeout 0.02 (nap (s 10) (name "a")))')
    assert caught.value.code == "timeout/elapsed"
    assert caught.value.reason == "execution_timeout"
    assert log == ["+a", "-a"]
    assert (
        await flow('(try (timeout 0.02 (nap (s 10) (name "a"))) (catch (e) (get-field e "reason")))')
        == "execution_timeout"
    )
    for bad in ("-1", "'x", "true", "+inf.0", "+nan.0"):
        with pytest.raises(SexpEvaluationError):
            await flow(f"(timeout {bad} 1)")


async def test_a_raised_error_keeps_its_cause() -> None:
    """What a host callable raised stays behind the program's error, in a branch too."""

    def bad() -> None:
        raise KeyError("inner")

    for text in (
        "(bad)",
        "(parallel (bad))",
        "(pmap (lambda (x) (bad)) (list 1))",
        "(try (bad) (catch (e) (raise e)))",
    ):
        with pytest.raises(SexpEvaluationError) as caught:
            await evaluate(text, bindings={"bad": bad})
        assert isinstance(caught.value.__cause__, KeyError), text
