"""Hostile text and data: a typed error, soon and small, whatever the size of the input."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.formatter import format_text
from agentflow.lang.tokens import tokens
from tests.support.spending import at_most
from tests.support.world import World

SIZE = 4_000_000
SECONDS = 3.0
"""Three times what is promised: the machine that runs the tests has other work."""

TEXTS = {
    "opening": ("(" * SIZE, "limits/nesting"),
    "closing": (")" * SIZE, "syntax/unexpected-close"),
    "mixed": ("([" * (SIZE // 2), "limits/nesting"),
    "braces": ("{" * SIZE, "limits/nesting"),
    "quotes": ("'" * SIZE, "limits/nesting"),
    "splices": (",@" * (SIZE // 2), "limits/nesting"),
    "drops": ("#;" * (SIZE // 2), "limits/nesting"),
    "block comments": ("#|" * (SIZE // 2), "syntax/unclosed-comment"),
    "comments": (";\n" * (SIZE // 2), "syntax/empty"),
    "spaces": (" " * SIZE, "syntax/empty"),
    "digits": ("9" * SIZE, "syntax/number"),
    "one name": ("a" * SIZE, "name/unbound"),
    "nulls": ("\x00" * SIZE, "syntax/character"),
    "surrogates": ("\ud800" * 100_000, "name/unbound"),
    "escapes": ('"' + "\\q" * (SIZE // 4) + '"', "syntax/escape"),
    "mistakes": ("(if)" * 7_000, "form/arity"),
    "ones": ("1 " * (SIZE // 2), "limits/nodes"),
    "empty lists": ("()" * (SIZE // 2), "limits/nodes"),
    "empty dicts": ("{}" * (SIZE // 2), "limits/nodes"),
    "quoted names": ("'a" * (SIZE // 2), "limits/nodes"),
    "one form": ("(list " + "1 " * (SIZE // 2 - 10) + ")", "limits/nodes"),
    "data": ("'(" + "()" * (SIZE // 2 - 10) + ")", "limits/nodes"),
    "dropped": ("#;a " * (SIZE // 4), "limits/nodes"),
    "unknown calls": (" ".join(f"(u{index})" for index in range(100_000)), "limits/nodes"),
    "defines": (" ".join(f"(define x{index} 1)" for index in range(100_000)), "limits/nodes"),
    "too long": (" " * (SIZE + 1), "limits/source-bytes"),
    "macro doubling": ("(defmacro m (x) `(progn ,x ,x))" + "(m " * 60 + "1" + ")" * 60, "limits/nesting"),
    "macros for ever": (
        "(defmacro a (x) `(b ,x ,x)) (defmacro b (x y) `(a (list ,x ,y))) (a 1)",
        "limits/macro-nodes",
    ),
}


@pytest.mark.parametrize("name", TEXTS)
async def test_hostile_text_is_cheap(name: str) -> None:
    """Four megabytes of anything cost no more than a second to refuse, and no memory to speak of."""
    text, code = TEXTS[name]
    with pytest.raises(AgentflowError) as caught, at_most(SECONDS):
        await World().run(text)
    assert caught.value.code == code
    assert len(caught.value.render()) < 10_000


@pytest.mark.parametrize("name", ["opening", "quotes", "mixed", "escapes", "data", "empty lists"])
def test_hostile_text_takes_no_memory(name: str) -> None:
    """Refusing takes less than 50 MB beside the text itself."""
    text, _ = TEXTS[name]
    text = text[: SIZE // 4]
    tracemalloc.start()
    try:
        with pytest.raises(AgentflowError):
            asyncio.run(World().run(text))
        assert tracemalloc.get_traced_memory()[1] < 50_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["opening", "closing", "quotes", "drops", "digits", "one name", "spaces"])
def test_the_formatter_refuses_or_formats_soon(name: str) -> None:
    """Formatting hostile text is as bounded as reading it."""
    text = TEXTS[name][0][:1_000_000]
    with at_most(SECONDS):
        try:
            format_text(text)
        except AgentflowError:
            pass
    assert sum(len(token.text) for token in tokens(text[:10_000])) == 10_000


SPINNING = {
    "loop": "(let loop () (loop))",
    "recursion": "(define (f n) (+ 1 (f n))) (f 1)",
    "mutual": "(define (f n) (g n)) (define (g n) (f n)) (f 1)",
    "while": "(while true 1)",
    "repeat": "(loop 1000000000000 1)",
    "map": "(map (lambda (x) (map (lambda (y) (list x y)) (range 100000))) (range 100000))",
    "branches": "(define (f) (parallel (f) (f))) (f)",
    "doubling": '(define (f s) (f (string-append s s))) (f "x")',
    "list doubling": "(define (f s) (f (append s s))) (f '(1))",
    "nested data": "(define (f s) (f (list s s))) (f 1)",
    "squaring": "(define (f n) (f (* n n))) (f 3)",
    "try": "(define (f) (try (f) (catch (e) (f)))) (f)",
    "sort": "(sort (range 100000) (lambda (a b) (sort '(2 1) (lambda (x y) (< x y)))))",
    "eval": "(define (f) (eval-program '(let loop () (loop)))) (f)",
}


@pytest.mark.parametrize("name", SPINNING)
async def test_hostile_programs_end_at_a_limit(name: str) -> None:
    """A program that would go on for ever, or grow without end, stops at a limit it cannot catch."""
    limits = Limits(steps=200_000, depth=2_000, collection=200_000, string=1_000_000, integer_bits=50_000, branches=200)
    with pytest.raises(AgentflowError) as caught, at_most(2 * SECONDS):
        await World().run(SPINNING[name], SexpEnvironment(), limits=limits)
    assert caught.value.code.startswith("limits/"), caught.value.render()


@pytest.mark.parametrize(
    "program", ["(map abs (range 100000))", "(reduce + (range 100000))", "(sort (range 100000) >)"]
)
async def test_primitives_given_to_primitives_count(program: str) -> None:
    """A primitive called on every element takes a step for each, so that it can be stopped and lets others run."""
    with pytest.raises(AgentflowError) as caught:
        await World().run(program, limits=Limits(steps=1_000))
    assert caught.value.code == "limits/steps"


PROBES = [
    "(get-field (lambda (x) x) '__code__)",
    "(get-field first '__globals__)",
    '(get-field (shout (text "x")) \'__class__)',
    '(get (shout (text "x")) \'__class__)',
    '(get-field (shout (text "x")) \'model_fields)',
    "(get-field (try (first nil) (catch (e) e)) '__traceback__)",
    "(get-field (try (first nil) (catch (e) e)) 'frames)",
    "(get-field (try (first nil) (catch (e) e)) 'with_traceback)",
    '(format "{x.__class__}" {"x" 1})',
    '(format "{x[0]}" {"x" \'(1)})',
    '(format "{0.__class__}" 1)',
    "(get-field 'a 'name)",
    '(get-field "a" \'upper)',
    "(get-field '(1) 'append)",
    "(get-field 1 'real)",
]


@pytest.mark.parametrize("program", PROBES)
async def test_no_way_to_python(program: str) -> None:
    """No value leads to a Python attribute, dunder, frame or format engine: nil or an error, never a value."""
    try:
        value = await World().run(program)
    except AgentflowError as error:
        assert error.code.partition("/")[0] in ("type", "format"), error.code
    else:
        assert value == []
