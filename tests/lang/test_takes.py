"""Literal arguments of types that a function never takes are told before anything runs, and only those: what tables say is tried out."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.values import OrderedSet, Symbol
from agentflow.lang import diagnosis
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.closure import Closure
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.literals import TYPES, letter_at
from agentflow.lang.program import compile_program
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.rows import Row
from agentflow.run.engine import run_program
from agentflow.run.strand.budget import Budget
from tests.support.fakes import FakeRun
from tests.support.world import World

LIMITS = Limits(steps=3_000_000)
Samples = dict[type[Any], list[Any]]
DATA: Samples = {
    int: [2, 0],
    float: [1.5],
    bool: [True],
    type(None): [None],
    str: ["a", "[1]", "1"],
    list: [[1], ["a"], [[1, 2]], [[[1, 2], 3], 4, 5], ["+", 1]],
    dict: [{"a": 1}],
}
EMPTY: Samples = {str: [""], list: [[]], dict: [{}]}
LEAVES_OPEN = {"caddr", "apply", "reduce", "endorse", "format", "dict", "put", "symbol->string"}
"""Primitives of whose arguments the table says less than these samples: what they take depends on how many there are, and on their content."""
OPEN_IN_PYTHON = {
    "min",
    "max",
    "sum",
    "sorted",
    "math.prod",
    "json.dumps",
    "dict",
    "math.log",
    "dict.pop",
    "OrderedSet.remove",
}
"""The same: what they take depends on content, too."""
LEAST = {"map": 2}
"""Arguments with which a function does anything."""


async def outcomes(call: str, rows: list[list[Any]], surface: Surface) -> list[bool]:
    """Whether a call of ``c``, a row, gives a value, row by row."""
    if surface == "python":
        text = (
            f"def attempt(c):\n    try:\n        {call}\n        return True\n    except Exception:\n"
            "        return False\nout = []\nfor c in rows:\n    out.append(attempt(c))\nout"
        )
    else:
        text = f"(map (lambda (c) (try (begin {call} #t) (catch (e) #f))) rows)"
    env, world = SexpEnvironment({"rows": rows}), World()
    program = compile_program(Source("t", text, surface), names=NamesInForce(world, env, env), limits=LIMITS)
    call_context = FakeRun(limits=LIMITS, watched=False).call(grants=None)
    return await run_program(program, env, performer=world, call=call_context, budget=Budget(LIMITS))


async def refused(call: str, count: int, samples: Samples, surface: Surface) -> list[set[type[Any]]]:
    """Of each argument the types with which a call fails whatever the others are."""
    flat = [(kind, value) for kind, values in samples.items() for value in values]
    chosen = list(itertools.product(flat, repeat=count))
    results = await outcomes(call, [[value for _, value in each] for each in chosen], surface)
    taken: list[set[type[Any]]] = [set() for _ in range(count)]
    for each, fine in zip(chosen, results, strict=True):
        if fine:
            for at, (kind, _) in enumerate(each):
                taken[at].add(kind)
    return [samples.keys() - each for each in taken]


async def procedures() -> list[Any]:
    return await outcomes_of("[lambda x: x, lambda a, b: 1]")


async def outcomes_of(text: str) -> Any:
    env, world = SexpEnvironment(), World()
    program = compile_program(Source("t", text, "python"), names=NamesInForce(world, env, env), limits=LIMITS)
    call_context = FakeRun(limits=LIMITS, watched=False).call(grants=None)
    return await run_program(program, env, performer=world, call=call_context, budget=Budget(LIMITS))


def together(*several: Samples) -> Samples:
    return {kind: [value for each in several for value in each.get(kind, [])] for each in several for kind in each}


def says(word: str, index: int, samples: Samples) -> set[type[Any]]:
    """The types that a table calls wrong."""
    return samples.keys() - TYPES[letter_at(word, index)]


@pytest.mark.parametrize("name", [each.name for each in PRIMITIVES.values() if each.canonical == each.name])
async def test_the_table_of_primitives_is_true(name: str) -> None:
    """What the table refuses fails whatever the other arguments are, and what always fails is in the table, or named above."""
    samples = together(DATA, EMPTY, {Closure: await procedures(), Symbol: [Symbol("a")]})
    least, most = PRIMITIVES[name].arity
    for count in range(max(least, 1), min(least + 1 if most is None else most, 3) + 1):
        call = f"({name} {' '.join(f'(nth c {at})' for at in range(count))})"
        if count == 3:
            samples = {kind: values[:3] for kind, values in samples.items()}
        for index, wrong in enumerate(await refused(call, count, samples, "sexp")):
            told = says(PRIMITIVES[name].takes or ".", index, samples)
            assert told <= wrong, f"argument {index + 1} of {count}: refused without need"
            if name not in LEAVES_OPEN:
                assert wrong - {Symbol, str} <= told, f"argument {index + 1} of {count}: not in the table"


def entries() -> dict[str, tuple[Row, str]]:
    """Functions and methods by their names, and how they are called."""
    listed = {name: (row, name) for name, row in BUILTINS.items()}
    receivers = {str: "'a b'", list: "[[1, 2]]", dict: "{'a': 1}", tuple: "(1, 2)", OrderedSet: "set(['a'])"}
    for kind, methods in METHODS.items():
        for name, row in methods.items():
            listed[f"{kind.__name__}.{name}"] = (row, f"x = {receivers[kind]}\n        x.{name}")
    return listed


@pytest.mark.parametrize("name", entries())
async def test_the_tables_of_python_are_true(name: str) -> None:
    """The same for functions and methods of Python texts; what is called for each element is tried with elements."""
    entry, call = entries()[name]
    procedure = await procedures()
    samples = together(
        DATA, {Closure: procedure, tuple: [(1, 2), ("a", "b"), (("a", 1),)], OrderedSet: [OrderedSet.of({"a": None})]}
    )
    most = entry.positional if entry.positional >= 0 else entry.least + 1
    for count in range(max(LEAST.get(name, entry.least), 1), min(most, 3) + 1):
        word = (entry.alone if count == 1 else None) or entry.takes or "."
        written = f"{call}({', '.join(f'c[{at}]' for at in range(count))})"
        for index, wrong in enumerate(await refused(written, count, samples, "python")):
            told = says(word, index, samples)
            assert told <= wrong, f"argument {index + 1} of {count}: refused without need"
            if name not in OPEN_IN_PYTHON and letter_at(word, index) != ".":
                assert wrong <= told, f"argument {index + 1} of {count}: not in the table"


WRONG = {
    "sexp": [
        "(define (f x) x) (timeout (f 1) 30)",
        "(define (f x) x) (retry (f 1) 3)",
        "(define (f x) x) (pmap (list 1 2) f)",
        "(map '(1 2) (lambda (x) x))",
        "(nth 1 '(1 2))",
        '(sleep "3")',
        "(length 5)",
        '(string-append "a" 5)',
    ],
    "python": [
        "def f(x):\n    return x\ntimeout(f(1), 30)",
        "timeout(lambda: ask('a'), 30)",
        "asyncio.wait_for(30, ask('a'))",
        "def f(x):\n    return x\nretry(f(1), 3)",
        "def f(x):\n    return x\npmap([1, 2], f)",
        "def f(x):\n    return x\ndef g(xs):\n    return pmap(xs, f)\ng([1])",
        "map([1], str)",
        "filter([1], len)",
        "sorted([2, 1], key='a')",
        "len(5)",
        "sleep('3')",
        "', '.join(5)",
        "def f(xs):\n    return [*xs].join(', ')\nf([])",
        "def f(x):\n    out = []\n    out.append(x, 1)\n    return out\nf(1)",
        "def f(xs):\n    return 'total: ' + len(xs)\nf([])",
        "def f(x):\n    return 'a' + str(x) + 5\nf(1)",
        "def f(x):\n    return [*x] + 'a'\nf([])",
    ],
}
RIGHT = {
    "sexp": ["(timeout 30 (+ 1 2))", "(timeout 30 5)", "(define n 5) (timeout n 30)", "(map 'f '(1))", '(length "a")'],
    "python": [
        "timeout(30, 5)",
        "def f(n):\n    return timeout(n, 30)\nf(1)",
        "filter(None, [1])",
        "sorted([1], key=None)",
        "def f(x):\n    len = x\n    return len(5)\nf(str)",
        "'a' + str(1)",
        "[1] + list((2,))",
        "x = 5\nx = 'a'\nlen(x)",
    ],
}


@pytest.mark.parametrize(("surface", "text"), [(name, each) for name, texts in WRONG.items() for each in texts])
def test_a_literal_of_a_wrong_type_is_told_before_anything_runs(surface: Surface, text: str) -> None:
    """A diagnostic that stands at the argument and says how the function is written; an error where nothing catches it."""
    wrong = diagnosis.diagnose(Source("t", text, surface))
    assert [each.severity for each in wrong] == ["error"], [each.error.render() for each in wrong]
    assert wrong[0].error.hint


@pytest.mark.parametrize(("surface", "text"), [(name, each) for name, texts in RIGHT.items() for each in texts])
def test_what_may_be_right_is_not_told(surface: Surface, text: str) -> None:
    """Nothing is said of values that may be of any type, and of types that are taken."""
    assert not [each for each in diagnosis.diagnose(Source("t", text, surface)) if each.severity == "error"]


@pytest.mark.parametrize(
    ("surface", "text"),
    [
        ("sexp", "(try (length 5) (catch (e) 0))"),
        ("sexp", "(race (length 5) 1)"),
        ("python", "try:\n    x = len(5)\nexcept TypeError:\n    x = 0\nx"),
        ("python", "race(len(5), 1)"),
    ],
)
async def test_where_it_is_caught_it_is_a_warning(surface: Surface, text: str) -> None:
    """A text that goes on all the same is not an error, and runs."""
    assert [each.severity for each in diagnosis.diagnose(Source("t", text, surface))] == ["warning"]
