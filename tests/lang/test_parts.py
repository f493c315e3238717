"""Large programs are compiled in parts, and nothing else of them is different."""

from __future__ import annotations

import gc
import time

import pytest

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.ir import Seq
from agentflow.lang.kernel.cutting import PART_NODES, nodes_of, split
from agentflow.lang.program import compile_program
from agentflow.lang.reader import read
from tests.support.fake_run import FakeFlow, evaluate

COUNT = 600
CHAIN = "".join(
    f"(define (f{n} x) (if (> x {n}) (+ x {n}) {f'(f{n - 1} (+ x 1))' if n else 'x'}))\n" for n in range(COUNT)
)
"""Procedures each of which calls the one before it: some ten thousand nodes, so several parts."""


def tree(text: str) -> Seq:
    """A program whose forms stand for themselves."""
    return Seq(read(Source("x", text))[0], [Seq(node, []) for node in read(Source("x", text))])


def test_a_small_program_is_one_part_and_no_part_is_large() -> None:
    """Parts are groups of whole forms in their order."""
    small = tree("(+ 1 2) (+ 3 4)")
    assert [each for each, _ in split(small)] == [small]
    parts = [each for each, _ in split(tree(CHAIN))]
    assert len(parts) > 3
    assert all(nodes_of(part.items) <= PART_NODES for part in parts)
    starts = [item.at.start for part in parts for item in part.items]
    assert starts == sorted(starts) and len(starts) == COUNT


async def test_parts_share_their_variables() -> None:
    """A form calls what an earlier part defined, changes it, and is called by a procedure that was defined before it."""
    last = COUNT - 1
    text = f"(define total 0) (define (late) (f{last} 1)) {CHAIN} (set! total (late)) (define (again n) (if (= n 0) total (again (- n 1))))"
    flow = FakeFlow()
    value = await flow(f"{text} (list total (again 20000))")
    assert value[0] == value[1] == flow.env.lookup("total") > 0


async def test_begin_is_no_wall() -> None:
    """Forms within a ``begin`` at top level are parts like others, and the last value is the program's."""
    text = "(begin " + " ".join(f"(define v{n} (+ {n} 1))" for n in range(1_500)) + ") (+ v0 v1499)"
    assert await evaluate(text) == 1_501


async def test_an_error_in_a_later_part_has_its_place() -> None:
    """Spans and the calls an error went through are those of the text."""
    text = f"{CHAIN}(define (broken x) (+ x 'a))\n(begin (broken 1) 2)"
    with pytest.raises(SexpEvaluationError) as caught:
        await evaluate(text)
    assert caught.value.span is not None and caught.value.span.text == "'a"
    assert caught.value.span.line == COUNT + 1


async def test_a_large_program_is_compiled_in_short_stretches() -> None:
    """The whole takes long, but no call of Python's compiler holds the interpreter for more than 30 ms (margin 3)."""
    limits = Limits(nodes=15_000)
    longest = 0.0
    for part, _ in split(tree(CHAIN)):
        text = CHAIN[part.items[0].at.start : part.items[-1].at.end]
        gc.disable()  # its pauses grow with what else this process holds
        try:
            began = time.thread_time()
            compile_program(text, limits=limits)
            longest = max(longest, time.thread_time() - began)
        finally:
            gc.enable()
    # All of compiling a part takes about four times what Python's compiler does.
    assert longest < 4 * 0.030 * 3
