"""Limits: exact, repeatable, never caught by a program; and no program keeps others from running."""

from __future__ import annotations

import asyncio
import sys

import pytest

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.lang.program import compile_program
from tests.support.fake_run import FakeFlow
from tests.support.spending import at_most

SPIN = "(define (spin n) (spin (+ n 1))) (spin 0)"


async def limit_of(text: str, **limits: int | float) -> LimitExceeded:
    flow = FakeFlow(limits=Limits(**limits))  # type: ignore[arg-type]
    with pytest.raises(LimitExceeded) as caught:
        await flow(text)
    return caught.value


async def ticks_beside(task: asyncio.Task[object]) -> None:
    """Tick ten times, 10 ms apart, while ``task`` spins: it may spend 0.1 s of processor time between two ticks, thrice that here."""
    with at_most(10 * 0.1 * 3, "ten ticks"):
        for _ in range(10):
            await asyncio.sleep(0.01)
    assert not task.done()


@pytest.mark.parametrize("steps", [0, 1, 7, 32, 33, 1_000, 4_321])
async def test_steps_are_exact_and_repeatable(steps: int) -> None:
    """The same program stops at the same step each time: one more round needs one more step."""
    for _ in range(2):
        flow = FakeFlow(limits=Limits(steps=steps))
        with pytest.raises(LimitExceeded) as caught:
            await flow("(define n 0) (while true (set! n (+ n 1)))")
        assert caught.value.code == "limits/steps"
        assert caught.value.span is not None
        assert flow.env.lookup("n") == steps
        assert flow.budget.steps_used == steps
        assert await FakeFlow(limits=Limits(steps=steps))(f"(loop {steps} 1)") in (1, [])


async def test_steps_are_exact_across_branches() -> None:
    """Whichever branch meets the limit, all together have taken exactly as many steps as were allowed."""
    flow = FakeFlow(limits=Limits(steps=5_000), tools={"pause": lambda: asyncio.sleep(0)})
    with pytest.raises(LimitExceeded):
        await flow("(pmap (lambda (i) (while true (pause))) (range 7))")
    assert flow.budget.steps_used == 5_000


async def test_unused_steps_are_given_back() -> None:
    """What was used is what was taken, not what was granted."""
    flow = FakeFlow()
    await flow("(loop 100 1)")
    assert flow.budget.steps_used == 100
    await flow("(pmap (lambda (x) (loop 10 x)) (range 5))")
    assert flow.budget.steps_used == 5 + 50


@pytest.mark.parametrize(
    "text", ["(try {} (catch (e) 'caught))", "(retry 3 {})", "(race {} {})", "(parallel {})", "(timeout 60 {})"]
)
async def test_a_program_cannot_catch_a_limit(text: str) -> None:
    """try, retry and race let it through."""
    error = await limit_of("(define (spin n) (spin (+ n 1))) " + text.replace("{}", "(spin 0)"), steps=500)
    assert error.code == "limits/steps"


async def test_depth_is_exact() -> None:
    """As many nested calls as are allowed, and not one more."""
    text = "(define (f n) (if (= n 0) 0 (+ 1 (f (- n 1))))) (f {})"
    for depth in (1, 100, 149, 150, 151, 299, 300, 301, 1_000):
        flow = FakeFlow(limits=Limits(depth=depth))
        assert await flow(text.format(depth - 1)) == depth - 1
        error = await limit_of(text.format(depth), depth=depth)
        assert error.code == "limits/depth"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("(range 1000000000000)", "limits/collection"),
        ("(define x '(1)) (loop 100 (set! x (append x x)))", "limits/collection"),
        ('(define x "a") (loop 100 (set! x (string-append x x)))', "limits/string"),
        ("(define x 2) (loop 100 (set! x (* x x)))", "limits/integer-bits"),
        ("(define (f x n) (if (= n 0) x (f (* x x) (- n 1)))) (f 3 60)", "limits/integer-bits"),
        ("(define (f x n) (if (= n 0) x (f (+ x x) (- n 1)))) (f 1 3000000)", "limits/integer-bits"),
        (SPIN, "limits/steps"),
        ("(define (f n) (+ 1 (f n))) (f 0)", "limits/depth"),
        ("(define (f n) (car (map f (list n)))) (f 0)", "limits/depth"),
        ("(define (f) (parallel (f) (f))) (f)", "limits/"),
        ("(pmap identity (range 2000))", "limits/branches"),
        ("(loop 1000 (log-message 1))", "limits/effects"),
    ],
)
async def test_growth_without_end_meets_a_limit(text: str, code: str) -> None:
    """Sizes are charged before anything is allocated; everything that can go on for ever is counted."""
    error = await limit_of(
        text,
        steps=3_000_000,
        depth=500,
        effects=500,
        branches=1_000,
        collection=1_000_000,
        string=1_000_000,
        integer_bits=100_000,
    )
    assert error.code.startswith(code)
    assert error.span is not None


async def test_eval_program_has_steps_of_its_own() -> None:
    """max-steps bounds the inner program; its steps count for the run too."""
    flow = FakeFlow()
    with pytest.raises(LimitExceeded):
        await flow("(eval-program '(loop 1000 1) (max-steps 100))")
    assert await flow("(eval-program '(loop 50 1) (max-steps 100))") == 1
    assert flow.budget.steps_used == 50


@pytest.mark.parametrize(
    "text",
    [
        SPIN,
        "(while true 1)",
        "(map (lambda (x) (loop 100000 x)) (range 1000))",
        "(define x (range 20000)) (while true (append x x))",
        "(define (f n) (if (= n 0) 0 (+ (f (- n 1)) (f (- n 1))))) (f 100)",
    ],
)
async def test_a_spinning_program_lets_others_run(text: str) -> None:
    """While it spins, something that ticks every 10 ms goes on ticking, and cancelling it works at once."""
    flow = FakeFlow(limits=Limits(steps=None))
    task = asyncio.create_task(flow(text))
    await ticks_beside(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_recursion_limit_is_left_alone() -> None:
    """Deep programs do not raise Python's own limit."""
    before = sys.getrecursionlimit()
    flow = FakeFlow(limits=Limits(depth=200_000))
    assert await flow("(define (f n) (if (= n 0) 0 (+ 1 (f (- n 1))))) (f 100000)") == 100_000
    assert sys.getrecursionlimit() == before


async def test_tail_calls_need_no_depth() -> None:
    """Self, mutual and anonymous tail calls run in constant space, under a depth limit they would else meet."""
    flow = FakeFlow(limits=Limits(depth=200))
    assert await flow("(define (f n) (if (= n 0) 'ok (f (- n 1)))) (f 100000)") == "ok"
    assert await flow("(define (e n) (if (= n 0) 'ok (o (- n 1)))) (define (o n) (e (- n 1))) (e 100000)") == "ok"
    assert await flow("(let ((f (lambda (g n) (cond ((= n 0) 'ok) (else (g g (- n 1))))))) (f f 100000))") == "ok"
    assert (
        await flow("(define (f n k) (if (= n 0) (k) (f (- n 1) (lambda () n (k))))) (f 10000 (lambda () 'ok))") == "ok"
    )


async def test_many_spinning_branches_share_their_turns() -> None:
    """A hundred branches that never rest keep others waiting no longer than one does."""
    flow = FakeFlow(limits=Limits(steps=None))
    task = asyncio.create_task(flow("(pmap (lambda (x) (while true 1)) (range 100))"))
    await ticks_beside(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert flow.budget.root.pausing == 0


async def test_a_primitive_as_a_procedure_counts_steps() -> None:
    """So a long map over a primitive pauses and ends like one over a lambda."""
    flow = FakeFlow()
    await flow("(map abs (range 1000))")
    assert flow.budget.steps_used == 1_000 + 1_000 // 64, "the calls, and the list that range makes"


def test_an_expansion_counts_as_the_programs_own_nodes() -> None:
    """What macros expand to is bounded by the same limit as text: a short macro makes no program too wide to compile."""
    text = "(defmacro m () (cons 'list (map (lambda (i) '(lambda (x) x)) (range 15000)))) (m)"
    with pytest.raises(LimitExceeded) as caught:
        compile_program(text)
    assert caught.value.limit == "macro_nodes"
