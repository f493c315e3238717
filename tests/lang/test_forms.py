"""Forms that are made of others are made of what those mean, not of their names: no variable of the program is captured."""

from __future__ import annotations

import pytest

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.limits import Limits
from agentflow.lang.closure import Closure
from tests.support.fake_run import FakeFlow, evaluate

HIDDEN = ["apply", "length", "nth", "raise", "try", "catch", "finally", "cond", "lambda", "let", "list"]
NAMES = ["=", ">=", "values", "arguments", "count", "case", "before", "body", "after", "given", "whole", *HIDDEN]
FORMS = [
    ("((case-lambda ((a) a) ((a . b) b)) 1 2)", [2]),
    ("(let-values (((a . b) '(1 2)) ((c) '(3))) `(,a ,b ,c))", [1, [2], 3]),
    ("(guard (e (false 1) ((get-field e 'value))) (error 5))", 5),
    ("(guard (e (false 1)) 4)", 4),
    ("(dynamic-wind identity-of-none identity-of-none identity-of-none)", 9),
]


@pytest.mark.parametrize(("form", "value"), FORMS, ids=[each[0] for each in FORMS])
async def test_no_name_around_a_form_changes_it(form: str, value: object) -> None:
    """Every name the forms could be written with is a number here."""
    names = " ".join(f"({name} 0)" for name in NAMES if f"({name} " not in form)
    assert await evaluate(f"(define (identity-of-none) 9) (let ({names}) {form})") == value


@pytest.mark.parametrize(("form", "value"), FORMS[:4], ids=[each[0] for each in FORMS[:4]])
async def test_nor_does_a_binding_of_the_host(form: str, value: object) -> None:
    """The same for variables of the environment."""
    assert await FakeFlow(bindings=dict.fromkeys(["apply", "length", "nth", "=", ">="], 0))(form) == value


async def test_the_operands_see_the_program_alone() -> None:
    """What the forms bind for themselves has no name that an operand could say."""
    text = """
    (define before 1) (define after 2) (define values 3) (define count 4) (define arguments 5)
    (list (dynamic-wind (lambda () after) (lambda () (list before after)) (lambda () before))
          (let-values (((a) (list values)) ((b) (list count))) (list a b values))
          ((case-lambda ((x) (list x count arguments))) 6))
    """
    assert await evaluate(text) == [[1, 2], [3, 4, 3], [6, 4, 5]]


async def test_a_wound_procedure_ends_however_it_ends() -> None:
    """``after`` is called once when the body gives a value, raises, or meets a limit; not when ``before`` raises."""
    flow = FakeFlow(limits=Limits(steps=5_000))
    program = """
    (define seen '())
    (define (note x) (lambda () (set! seen (append seen (list x))) x))
    """
    await flow(program)
    assert await flow("(dynamic-wind (note 1) (note 2) (note 3))") == 2
    assert await flow("(try (dynamic-wind (note 4) (lambda () (car '())) (note 5)) (catch (e) 'caught))") == "caught"
    with pytest.raises(SexpEvaluationError):
        await flow("(dynamic-wind (lambda () (car '())) (note 6) (note 7))")
    with pytest.raises(Exception, match="steps"):
        await flow("(define (spin) (spin)) (dynamic-wind (note 8) spin (note 9))")
    assert await flow("seen") == [1, 2, 3, 4, 5, 8, 9]


async def test_a_case_is_a_tail_call() -> None:
    """A procedure of several arities may call itself through another of its cases for ever."""
    text = """
    (define count (case-lambda ((n) (count n 0)) ((n sum) (if (= n 0) sum (count (- n 1) (+ sum 1))))))
    (count 30000)
    """
    assert await evaluate(text) == 30_000


async def test_a_procedure_within_changes_the_list_of_further_arguments() -> None:
    """The parameter after the dot is a variable as every other: ``set!`` in a procedure of its scope changes it for all that read it."""
    assert await evaluate("(define (f . more) (let ((change (lambda () (set! more 5)))) (change) more)) (f 1 2)") == 5


async def test_names_of_a_template_are_new_each_time() -> None:
    """Two uses of a macro, one inside the other, do not share a variable; nor do two programs in one environment."""
    flow = FakeFlow()
    macro = """
    (defmacro both (a b) (let ((x (gensym "x"))) `(let ((,x ,a)) (list ,x ,b ,x))))
    (defmacro keep (a) (let ((x (gensym))) `(begin (define ,x ,a) (lambda () ,x))))
    """
    assert await flow(f"{macro} (both 1 (both 2 3))") == [1, [2, 3, 2], 1]
    first = await flow(f"{macro} (define first-kept (keep 1)) first-kept")
    assert isinstance(first, Closure)
    assert await flow(f"{macro} (define second-kept (keep 2)) (list (first-kept) (second-kept))") == [1, 2]


async def test_symbols_of_a_run_are_new_and_the_same_in_each_repetition() -> None:
    """Data that is made of them can be run as a program, and the recorded value of a run can be compared with another."""
    text = "(define (fresh) (symbol->string (gensym))) (append (list (fresh) (fresh)) (parallel (fresh) (fresh)))"
    names = await evaluate(text)
    assert len(set(names)) == 4 and names == await evaluate(text)
    assert await evaluate("(let ((x (gensym))) (eval-program `(let ((,x 5)) ,x)))") == 5
