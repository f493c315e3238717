"""Hints for those who come from other languages, and for misspelt names."""

from __future__ import annotations

import pytest

from agentflow import AgentFlow, SexpEvaluationError
from agentflow.core.data.source import Source
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.checks import ELSEWHERE
from agentflow.lang.diagnosis import diagnose
from agentflow.lang.forms import FORMS
from tests.support.kernel.compared import difference


def test_no_word_of_the_language_is_foreign() -> None:
    """What is a form or a primitive here needs no hint; a new one takes its word out of the table."""
    assert not ELSEWHERE.keys() & {*PRIMITIVES, *FORMS}


@pytest.mark.parametrize(
    ("program", "mend"),
    [
        ('(print "hi")', "log-message"),
        ("(defun f (x) x)", "(define (name"),
        ("(setq a 1)", "set!"),
        ("None", "nil"),
        ("(map (lambda (x) (return x)) (list 1))", "last form"),
        ('(len "abc")', "length"),
    ],
)
async def test_a_word_of_another_language_is_translated(program: str, mend: str) -> None:
    """It is unbound like any other name, and the hint says what to write; ``check`` says so of what is called."""
    async with AgentFlow() as flow:
        with pytest.raises(SexpEvaluationError) as caught:
            await flow.run(program)
        assert mend in (caught.value.hint or "")
        assert (await flow.run("(define (print x) x) (print 1)")).value == 1
    if program[0] == "(":
        assert any(mend in (each.error.hint or "") for each in diagnose(Source("p", program)))
    assert not diagnose(Source("p", "(+ count 1)")), "a word that a host may well bind"


async def test_one_letter_resembles_no_other() -> None:
    """A variable of one letter that is not bound is not meant as ``*``."""
    async with AgentFlow() as flow:
        with pytest.raises(SexpEvaluationError) as caught:
            await flow.run("(+ 1 a)")
        assert caught.value.hint is None
        with pytest.raises(SexpEvaluationError, match="X") as caught:
            await flow.run("(define x 1) (+ 1 X)")
        assert caught.value.hint == "did you mean 'x'?"


@pytest.mark.parametrize(
    ("program", "meant"),
    [
        ("(define (f total) (+ 1 totla)) (f 1)", "total"),
        ("(define (f callback) (calback 1)) (f abs)", "callback"),
        ("(let ((value 1)) (list valeu))", "value"),
        ("(define (f name) (map (lambda (x) (list name nmae x)) (list 1))) (f 1)", "name"),
        ("(define (f text) (let loop ((rest-of 1)) (if (= rest-off 1) text (loop 2)))) (f 1)", "rest-of"),
    ],
)
async def test_a_misspelt_local_variable_is_suggested_when_it_is_reached(program: str, meant: str) -> None:
    """As it is by a check: a name of the procedure around it goes before one from elsewhere."""
    async with AgentFlow() as flow:
        with pytest.raises(SexpEvaluationError) as caught:
            await flow.run(program)
    assert caught.value.hint == f"did you mean '{meant}'?"
    assert await difference(program) is None, "interpretation suggests the same"


@pytest.mark.parametrize(
    "program",
    [
        "(totla 1) (let ((total 1)) total)",
        "(list totla) (let ((total 1)) total)",
        "(define (f x) (let ((total 1)) total) (totla x)) (f 1)",
        "(define (f total) total) (list totla)",
        "(define (f x) (list (totla (x (g (y 1)))))) (define (h total) total) (f 1)",
        "(let go ((total 1)) 1) (list totla)",
    ],
)
async def test_a_variable_that_is_out_of_sight_is_not_suggested(program: str) -> None:
    """Only names that could be written there are suggested, compiled and interpreted."""
    async with AgentFlow() as flow:
        with pytest.raises(SexpEvaluationError, match="totla") as caught:
            await flow.run(program)
    assert "total" not in (caught.value.hint or "")
    assert await difference(program) is None, "interpretation suggests the same"
