"""A large program is compiled in pieces, and means what its parts mean."""

from __future__ import annotations

import builtins
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError
from agentflow.core.data.source import Source
from agentflow.lang.portable import dump_closure, load_closure
from agentflow.lang.program import compile_program
from tests.lang.fuzz import text_of
from tests.support.fake_run import FakeFlow, evaluate
from tests.support.kernel.compared import LIMITS, TIMED, outcome_of

WIDE: dict[str, tuple[str, str, str, int]] = {
    "operands": ("(list ", "(if (> 1 2) 'a (let ((x {n})) (lambda (y) (+ x y))))", ")", 700),
    "calls": ("(define (f a b) a) (list ", "(f (f 1 {n}) (f 3 4))", ")", 1_400),
    "named or not": ("(define (f . x) x) (list ", "(f (a (b (c 1))) (d {n}))", ")", 1_000),
    "let*": ("(define (f x) x) (let* (", "(v{n} (f {n}))", ") v3)", 2_900),
    "branches": ("(parallel ", "(+ 1 {n})", ")", 2_800),
    "try": ("(list ", "(try (+ 1 2) (catch (e) (get-field e 'code)) (finally (log-message {n})))", ")", 700),
    "procedures": ("(define (main) ", "(define (g{n} x) (if (> x {n}) (+ x {n}) x))", "(g3 1))", 700),
    "data": ("(list ", "(list 'a{n} 'b (lambda (x) x))", ")", 1_000),
    "a dict": ("(define (f x) x) {", '"k{n}" (f (+ {n} (f 1)))', "}", 1_500),
    "forms": ("", "(define (f{n} x) (if (> x {n}) (+ x {n}) x))", "(f3 1)", 700),
}
"""Programs near the limit of a program's nodes: what stands before, what is repeated, what stands after, how often."""


@contextmanager
def compiler_watched() -> Iterator[list[float]]:
    """Collect how much processor time each call of Python's compiler takes, on any thread that starts meanwhile."""
    holds: list[float] = []
    began: dict[int, float] = {}

    def watch(frame: FrameType, event: str, function: Any) -> None:
        if function is builtins.compile:
            now = time.thread_time()
            if event == "c_call":
                began[threading.get_ident()] = now
            else:
                holds.append(now - began[threading.get_ident()])

    threading.setprofile(watch)
    sys.setprofile(watch)
    try:
        yield holds
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", WIDE)
def test_no_program_holds_the_interpreter_for_long_while_it_is_compiled(name: str) -> None:
    """However large a program or a form of it is, no call of Python's compiler takes more than 30 ms (margin 3)."""
    before, each, after, count = WIDE[name]
    text = before + " ".join(each.format(n=n) for n in range(count)) + after
    with compiler_watched() as holds:
        compile_program(text)
    assert len(holds) > 5
    assert max(holds) < 0.030 * 3


SNIPPETS = [
    "(let loop ((i 0) (fs nil)) (if (= i 3) (map (lambda (f) (f)) fs) (loop (+ i 1) (cons (lambda () i) fs))))",
    "(let ((t 0)) (for-each (lambda (x) (set! t (+ t x))) (list 1 2 3)) t)",
    "(letrec ((even (lambda (n) (if (= n 0) true (odd (- n 1))))) (odd (lambda (n) (if (= n 0) false (even (- n 1)))))) (even 1000))",
    "(do ((i 0 (+ i 1)) (s nil (cons i s))) ((= i 4) s))",
    "(try (begin (+ 1 2) (raise 'x)) (catch (e) (get-field e 'code)) (finally (+ 1 1)))",
    "(cond ((assoc 'b (list (list 'a 1) (list 'b 2))) => first) (else 3))",
    "(and (or false 0 3) (or nil 4))",
    "(parallel (+ 1 2) (let ((x 1)) (begin (set! x 5) x)))",
    "((case-lambda ((a) (list a)) ((a . b) b)) 1 2 3)",
    "(let ((f (lambda (a . r) r))) (f (abs 1) (abs 2)))",
    "(let* ((a 1) (b (+ a 1)) (c (list a b))) (begin (define d (lambda () c)) (d)))",
    "(let-values (((a b) (list 1 2)) ((c) (list 3))) (list c b a))",
    '(let ((n "shout")) (try (n (text "a")) (catch (e) 0)))',
    "(dynamic-wind (lambda () 1) (lambda () (retry 2 (+ 1 1))) (lambda () 3))",
    "(loop 3 (timeout 5 (+ 1 2)))",
    "(case 3 ((1 2) 'low) ((3 4) (list 'high)) (else 'none))",
    '{"a" (+ 1 1) "b" (list 1 2)}',
    "`(1 ,(+ 1 1) ,@(list 3 4))",
]
"""Expressions that use no variable of the program around them."""
PAD = "(if (> x 1) (x (x (x (x 1))) (x (x 2)))) " * 50
"""What is much code and does nothing where the variable ``x`` is 0 or 1."""
_ALL = " ".join(SNIPPETS)
_NAMES = [f"v{n}" for n in range(len(SNIPPETS))]
_INITS = " ".join(f"({name} {each})" for name, each in zip(_NAMES, SNIPPETS, strict=True))
_CLAUSES = " ".join(f"((= n {n}) {each})" for n, each in enumerate(SNIPPETS))
_ITEMS = " ".join(f"'{name} {each}" for name, each in zip(_NAMES, SNIPPETS, strict=True))
_EVERY = f"(map (lambda (n) (g n 1)) (range {len(SNIPPETS)}))"
PLACES = {
    "operands": f"(list {_ALL} ((lambda (x) {PAD} 1) 1))",
    "operands of a call": f"(define (f . all) all) (f {_ALL} ((lambda (x) {PAD} 1) 1))",
    "variables": f"(let ((x 0)) {PAD} (let* ({_INITS}) (list {' '.join(_NAMES)} 1)))",
    "clauses": f"(define (g n x) {PAD} (cond {_CLAUSES} (else 1))) (append {_EVERY} (list 1))",
    "and": f"(define (f x) {PAD} (and x (list {_ALL} 1))) (f 1)",
    "or": f"(define (f x) {PAD} (or (= x 0) {' '.join(['false'] * 600)} (list {_ALL} 1))) (f 1)",
    "a loop": f"(let go ((n 0) (x 0) (all nil)) {PAD} (if (= n 3) all (go (+ n 1) x (list {_ALL} 1))))",
    "a branch": f"(first (parallel (let ((x 1)) {PAD} (list {_ALL} 1)) (let ((x 1)) {PAD} x)))",
    "a dict": f"(define d (dict {_ITEMS} 'x ((lambda (x) {PAD} 1) 1))) (map (lambda (k) (get-field d k)) (keys d))",
}


@pytest.mark.parametrize("place", PLACES)
async def test_pieces_mean_what_they_mean_alone(place: str) -> None:
    """Wherever in a large form they stand."""
    flow = FakeFlow()
    alone = [await flow(each) for each in SNIPPETS]
    assert repr(await flow(PLACES[place])) == repr([*alone, 1])


async def test_tail_calls_out_of_pieces_take_constant_space() -> None:
    """A procedure too large for one piece still calls itself and others a hundred thousand times."""
    text = f"(define (f x n) {PAD} (if (= n 0) 'done (g x (- n 1)))) (define (g x n) (begin {PAD} (f x n))) (f 0 2000)"
    assert str(await evaluate(text)) == "done"
    loop = f"(define (f x n) {PAD} (if (= n 0) 'done (begin {PAD} (f x (- n 1))))) (f 0 2000)"
    assert str(await evaluate(loop)) == "done"


async def test_pieces_share_the_variables_around_them() -> None:
    """What one sets the next reads, a procedure that was created before sees it, and so do branches."""
    sets = " ".join(f"(set! total (+ total {n}))" for n in range(600))
    text = f"(define (f total x) (define (now) total) {PAD} {sets} {PAD} (list total (now) (parallel (now) total))) (f 0 1)"
    total = sum(range(600))
    assert await evaluate(text) == [total, total, [total, total]]


async def test_an_error_in_a_piece_has_its_span_and_the_calls_it_went_through() -> None:
    """Nested functions of the compiler are not calls of the program."""
    text = f"(define (inner x)\n {PAD} (+ x\n 'a)) (define (outer x) {PAD} (list (inner x)\n {PAD})) (outer 1)"
    with pytest.raises(SexpEvaluationError) as caught:
        await evaluate(text)
    assert caught.value.span is not None and caught.value.span.text == "'a"
    assert [frame.name for frame in caught.value.frames] == ["inner", "outer"]


async def test_a_variable_read_too_early_is_said_so_in_a_piece() -> None:
    """A body's variable has no value before its definition, also where both stand in different pieces."""
    text = f"(define (f x) (define (g) late) {PAD} (g) {PAD} (define late 1) (g)) (f 1)"
    with pytest.raises(SexpEvaluationError) as caught:
        await evaluate(text)
    assert caught.value.code == "binding/uninitialised"


async def test_a_procedure_of_a_large_form_can_be_dumped() -> None:
    """It captured data like any other."""
    value = await evaluate(f"(define (f x) {PAD} (let ((y (+ x 1))) {PAD} (lambda (z) (+ x y z)))) (f 1)")
    assert await evaluate("(h 10)", bindings={"h": load_closure(dump_closure(value))}) == 13


@pytest.mark.parametrize("room", [60, pytest.param(240, marks=pytest.mark.slow)])
async def test_programs_mean_the_same_in_pieces(room: int) -> None:
    """Values, errors with their spans and hints, effects, variables and steps: the same, wherever a program is cut."""
    deep = replace(LIMITS, depth=100_000)  # a piece that a call goes through counts as a call, too
    for number in range(room * 2):
        text = text_of(number, "sexp")
        if any(word in text for word in TIMED):
            continue
        source = Source("<text>", text)
        try:
            whole = await outcome_of(source, deep)
        except AgentflowError:
            continue
        assert await outcome_of(source, deep, room=room) == whole, text


CHAIN = "".join(
    f"(define (f{n} x) (if (> x {n}) (+ x {n}) {f'(f{n - 1} (+ x 1))' if n else 'x'}))\n" for n in range(600)
)
"""Procedures each of which calls the one before it: some ten thousand nodes."""


async def test_forms_of_a_large_program_share_their_variables() -> None:
    """A form calls what an earlier one defined, changes it, and is called by a procedure that was defined before it."""
    again = "(define (again n) (if (= n 0) total (again (- n 1))))"
    flow = FakeFlow()
    value = await flow(
        f"(define total 0) (define (late) (f599 1)) {CHAIN} (set! total (late)) {again} (list total (again 20000))"
    )
    assert value[0] == value[1] == flow.env.lookup("total") > 0


async def test_begin_is_no_wall() -> None:
    """Forms within a ``begin`` at top level are forms like others, and the last value is the program's."""
    text = "(begin " + " ".join(f"(define v{n} (+ {n} 1))" for n in range(1_500)) + ") (+ v0 v1499)"
    assert await evaluate(text) == 1_501


async def test_an_error_in_a_later_form_has_its_place() -> None:
    """Spans and the calls an error went through are those of the text."""
    text = f"{CHAIN}(define (broken x) (+ x 'a))\n(begin (broken 1) 2)"
    with pytest.raises(SexpEvaluationError) as caught:
        await evaluate(text)
    assert caught.value.span is not None and caught.value.span.text == "'a"
    assert caught.value.span.line == 601
    assert [frame.name for frame in caught.value.frames] == ["broken"]
