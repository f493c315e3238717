"""Procedures are data: they print as their source, and go through JSON when what they captured is data."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from agentflow.core.data.errors import DataError, SexpEvaluationError
from agentflow.core.data.values import Symbol
from agentflow.lang.closure import Closure
from agentflow.lang.portable import dump_closure, load_closure
from agentflow.lang.printer import print_value
from tests.support.fake_run import FakeFlow


async def through_json(text: str, *arguments: Any) -> Any:
    """The value of a program's closure, called after a round trip through JSON text."""
    closure = await FakeFlow()(text)
    again = load_closure(json.loads(json.dumps(dump_closure(closure))))
    return await FakeFlow(bindings={"f": again, "args": list(arguments)})("(apply f args)")


async def test_a_closure_prints_as_its_source() -> None:
    """The text is that of the program, comments and layout included."""
    assert print_value(await FakeFlow()("(lambda (x)  ; twice\n (* 2 x))")) == "(lambda (x)  ; twice\n (* 2 x))"


async def test_captured_data_of_every_kind_goes_along() -> None:
    """Numbers, text, symbols, lists, dicts with odd keys, none and infinity come back as they were."""
    text = """(let ((a 1) (b "t") (c 'sym) (d (list 1.5 (list none true))) (e {"$x" 1 "k" (list)}) (g +inf.0))
                (lambda () (list a b c d e g)))"""
    value = await through_json(text)
    assert value == [1, "t", Symbol("sym"), [1.5, [None, True]], {"$x": 1, "k": []}, float("inf")]
    assert isinstance(value[2], Symbol)


async def test_recursive_and_mutually_recursive_procedures_go_along() -> None:
    """Whether at top level, in a body or by a named let, the procedures a closure calls come with it."""
    assert await through_json("(define (fact n) (if (= n 0) 1 (* n (fact (- n 1))))) fact", 5) == 120
    mutual = """(let () (define (ev n) (if (= n 0) true (od (- n 1)))) (define (od n) (if (= n 0) false (ev (- n 1))))
                  (lambda (n) (ev n)))"""
    assert await through_json(mutual, 10) is True
    assert await through_json("(let ((k 3)) (let go ((i 0)) (if (= i 2) go go)))", 2) is not None


async def test_primitives_and_rest_parameters_go_along() -> None:
    """A primitive captured as a value is written by name; the parameter list keeps its rest parameter."""
    assert await through_json("(let ((op +)) (lambda (a . more) (apply op a more)))", 1, 2, 3) == 6


async def test_what_is_no_data_is_named() -> None:
    """A host object in a captured variable is refused with the variable's name."""
    closure = await FakeFlow(bindings={"host": object()})("(lambda () host)")
    with pytest.raises(SexpEvaluationError) as caught:
        dump_closure(closure)
    assert caught.value.code == "closure/not-data"
    assert "'host'" in caught.value.message


async def test_a_closure_made_by_a_macro_is_refused() -> None:
    """Its text would call a macro that is not there."""
    closure = await FakeFlow()("(defmacro twice (x) `(+ ,x ,x)) (lambda (y) (twice y))")
    with pytest.raises(SexpEvaluationError) as caught:
        dump_closure(closure)
    assert caught.value.code == "closure/macro"


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"v": 2},
        {"v": 3, "root": 0, "closures": []},
        {"v": 1, "root": 0, "closures": [{}]},
        {"v": 2, "root": 0, "closures": [{}]},
        [],
        None,
        "x",
    ],
)
def test_other_data_is_refused(data: Any) -> None:
    """Anything that dump_closure did not write is a DataError, never another exception."""
    with pytest.raises(DataError):
        load_closure(data)


async def test_it_runs_in_another_process() -> None:
    """The JSON is all another process needs."""
    closure = await FakeFlow()("(define base 40) (define (add n) (+ base n)) add")
    assert isinstance(closure, Closure)
    script = """
import asyncio, json, sys
from agentflow.lang.portable import load_closure
from tests.support.fake_run import FakeFlow
f = load_closure(json.loads(sys.stdin.read()))
print(asyncio.run(FakeFlow(bindings={"f": f})("(f 2)")))
"""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", script],
        input=json.dumps(dump_closure(closure)),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "42"
