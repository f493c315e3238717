"""Text nested as deep as is allowed compiles and runs, whatever the form: no stack of Python's or C's overflows."""

from __future__ import annotations

import pytest

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.lang.program import compile_program
from tests.support.fake_run import FakeFlow

FORMS = {
    "call": ("(identity ", ")", 1),
    "add": ("(+ 1 ", ")", None),
    "add-left": ("(+ ", " 1)", None),
    "list": ("(list 1 ", ")", None),
    "list-left": ("(list ", " 2)", None),
    "dict": ('{"k" ', "}", None),
    "if-then": ("(if 1 ", " 2)", 1),
    "if-else": ("(if 0 2 ", ")", 1),
    "if-test": ("(if ", " 1 2)", 1),
    "when": ("(when 1 ", ")", 1),
    "unless": ("(unless 0 ", ")", 1),
    "cond": ("(cond (0 1) (else ", "))", 1),
    "cond-test": ("(cond (", " 1) (else 2))", 1),
    "cond-arrow": ("(cond (1 => (lambda (x) ", ")))", 1),
    "case": ("(case 1 ((1) ", ") (else 2))", 1),
    "case-key": ("(case ", " ((1) 1) (else 2))", 1),
    "and": ("(and 1 ", ")", 1),
    "or": ("(or 0 ", ")", 1),
    "and-first": ("(and ", " 1)", 1),
    "progn": ("(progn 0 ", ")", 1),
    "let": ("(let ((x 1)) ", ")", 1),
    "let-init": ("(let ((x ", ")) x)", 1),
    "let-captured": ("(let ((x 1)) (lambda () x) ", ")", 1),
    "let*": ("(let* ((x 1) (y x)) ", ")", 1),
    "letrec": ("(letrec ((f (lambda () f))) ", ")", 1),
    "define-body": ("(let () (define a 1) ", ")", 1),
    "lambda-call": ("((lambda (x) ", ") 1)", 1),
    "lambda-argument": ("((lambda (x) x) ", ")", 1),
    "named-let": ("(let go ((i 0)) (if (< i 1) (go (+ i 1)) ", "))", 1),
    "named-let-first": ("(let go ((i 0)) (if (< i 1) (progn ", " (go (+ i 1))) 1))", 1),
    "named-let-captured": ("(let go ((i 0)) (lambda () i) (if (< i 1) (go (+ i 1)) ", "))", 1),
    "named-let-init": ("(let go ((i ", ")) i)", 1),
    "loop": ("(loop 1 ", ")", 1),
    "loop-count": ("(loop ", " 1)", 1),
    "loop-captured": ("(loop 1 (let ((x 1)) (lambda () x) ", "))", 1),
    "while": ("(let ((n 1)) (while n (set! n 0) ", ") 1)", 1),
    "while-test": ("(progn (while (not ", ") 1) 1)", 1),
    "do": ("(do ((i 0 (+ i 1))) ((= i 1) ", "))", 1),
    "do-body": ("(do ((i 0 (+ i 1))) ((= i 1) 1) ", ")", 1),
    "set!": ("(let ((x 0)) (set! x ", ") x)", 1),
    "try": ("(try ", " (catch (e) 2))", 1),
    "try-handler": ('(try (error "x") (catch (e) ', "))", 1),
    "try-finally": ("(try ", " (finally 2))", 1),
    "finally": ("(try 1 (finally ", "))", 1),
    "try-both": ("(try ", " (catch (e) 2) (finally 3))", 1),
    "guard": ("(guard (e (else 2)) ", ")", 1),
    "guard-clause": ("(guard (e (else ", ')) (error "x"))', 1),
    "dynamic-wind": ("(dynamic-wind (lambda () 0) (lambda () ", ") (lambda () 0))", 1),
    "let-values": ("(let-values (((a) (list 1)) ((b . c) (list 2 3))) ", ")", 1),
    "let-values-init": ("(let-values (((a) (list ", "))) a)", 1),
    "case-lambda": ("((case-lambda (() ", ") ((x) x)))", 1),
    "apply": ("(apply identity (list ", "))", 1),
    "timeout": ("(timeout 100 ", ")", 1),
    "retry": ("(retry 1 ", ")", 1),
    "parallel": ("(car (parallel ", "))", 1),
    "race": ("(race ", ")", 1),
    "pmap": ("(car (pmap (lambda (x) ", ") (list 1)))", 1),
    "map": ("(car (map (lambda (x) ", ") (list 1)))", 1),
    "quasiquote": ("(car `(,", "))", 1),
    "quote": ("(quote ", ")", None),
    "task": ("(value-of (echo (x ", ")))", 1),
    "dynamic": ("(let ((f identity)) (f ", "))", 1),
    "dynamic-pair": ("(let ((f identity)) (f (identity ", ")))", 1),
    "unknown-pair": ("(if 0 (unheard-of (identity ", ")) 1)", 1),
    "eval": ("(eval-program '", ")", 1),
    "throwing": ("(if 1 ", ' (error "no"))', 1),
    "director": (
        "(director-evaluator-loop (max-iterations 1) (initial-director-input 1) (director (lambda (x i) x))"
        " (executor (lambda (p i) ",
        ")) (evaluator (lambda (r p i) r)) (controller (lambda (f p r i) (list 'stop r))))",
        1,
    ),
}


def nested(form: str, limit: int = 200) -> str:
    """``form`` inside itself until the text is nested as deep as is allowed."""
    before, after, _ = FORMS[form]
    per_level = sum(before.count(c) for c in "({'`,") - before.count(")") - before.count("}")
    per_level -= 1 if before.startswith("(quote") else 0
    times = (limit - 6) // max(1, per_level)
    return before * times + "1" + after * times


@pytest.mark.parametrize("form", sorted(FORMS))
async def test_every_form_nests_as_deep_as_is_allowed(form: str) -> None:
    """A form nested in itself up to the nesting limit compiles and gives its value."""
    flow = FakeFlow(tasks={"echo": lambda x: x}, limits=Limits(depth=100_000))
    expected = FORMS[form][2]
    text = nested(form)
    assert len(text) > 200
    value = await flow(text)
    if expected is not None:
        assert value == expected


@pytest.mark.parametrize("opening", ["(", "[", "{", "'", "`", "#;", "(a "])
def test_deeper_text_is_refused_with_its_place(opening: str) -> None:
    """Past the limit, the error names the limit and the place; two million levels cost no more than two hundred."""
    with pytest.raises(LimitExceeded) as caught:
        compile_program(opening * 1_000_000, limits=Limits(source_bytes=10_000_000))
    assert caught.value.code == "limits/nesting"
    assert caught.value.span is not None


async def test_wide_forms_are_no_deeper_than_narrow_ones() -> None:
    """Thousands of clauses, operands or bindings side by side are compiled flat."""
    flow = FakeFlow(limits=Limits(nodes=100_000))
    clauses = " ".join(f"((= x {i}) {i})" for i in range(3_000))
    assert await flow(f"(define x 2999) (cond {clauses})") == 2999
    assert await flow(f"(list (cond {clauses}))") == [2999]
    assert await flow(f"(let* ({' '.join(f'(a{i} {i})' for i in range(2_000))}) a1999)") == 1999
    assert len(await flow(f"(list {' '.join('(identity 1)' for _ in range(5_000))})")) == 5_000
    assert await flow(f"(and {' '.join('(let ((y 1)) y)' for _ in range(1_000))})") == 1
    assert await flow(f"(or {' '.join('(progn 0 0)' for _ in range(1_000))} 7)") == 7
    assert await flow(f"(+ {' '.join('1' for _ in range(5_000))})") == 5_000
    cases = " ".join(f"(({i}) {i})" for i in range(1_000))
    assert await flow(f"(case 999 {cases})") == 999
