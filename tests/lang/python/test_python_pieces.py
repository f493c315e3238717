"""A long text in Python is compiled in pieces, and means what it means in one; neither parser nor compiler holds the interpreter for long."""

from __future__ import annotations

import ast
import gc
import threading
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError, LimitExceeded
from agentflow.core.data.labels import Following
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.kernel import nodes
from agentflow.lang.kernel.cutting import compile_in_pieces
from agentflow.lang.kernel.linking import ROOM
from agentflow.lang.kernel.text_generator import TextGenerator
from agentflow.lang.portable import dump_closure, load_closure
from agentflow.lang.program import compile_program, describer
from agentflow.lang.python.compiling import lowering_of, text_link, whole
from agentflow.lang.python.reader import check_words, children, read_python
from agentflow.run.engine import run_program
from agentflow.run.strand.budget import Budget
from tests.lang.python.test_python_oracle import CASES, normal
from tests.lang.test_cutting import compiler_watched
from tests.support.fakes import FakeRun
from tests.support.kernel.program import in_pieces
from tests.support.python_texts import LIMITS, Author, run_text
from tests.support.world import World

LARGE: dict[str, tuple[str, str, str, int]] = {
    "statements": ("x = 1\n", "x = x + {n}\n", "x", 2_800),
    "branches": ("x = 1\n", "if x > {n}:\n    x = {n}\nelse:\n    x = x + 1\n", "x", 900),
    "one list": ("x = 1\n[", "x + {n}, ", "]", 3_700),
    "one dict": ("x = 1\n{", "'k{n}': x + {n}, ", "}", 2_500),
    "texts": ("x = 1\n", "f'{{x}} {{x}} {{x}} {n}'\n", "x", 1_200),
    "functions": ("", "def f{n}(x):\n    return x + {n}\n", "f3(1)", 1_500),
    "a function with returns": ("def f(x):\n", "    if x == {n}:\n        return {n}\n", "f(7)", 1_800),
    "comprehensions": ("xs = [1]\n", "[x + {n} for x in xs if x]\n", "1", 1_000),
    "operands of or": ("x = 0\n", "x > {n} or ", "x", 2_900),
    "calls": ("def f(x):\n    return x\n", "f(f({n}))\n", "f(2)", 2_000),
}
"""Texts near the limit of a program's nodes: what stands before, what is repeated, what stands after, how often."""
HOSTILE = {
    "statements": "x=1\n" * 49_000,
    "numbers": "(" + "1," * 99_000 + ")",
    "sums": "x=" + "1+" * 99_000 + "1",
    "lists": "[" + "[]," * 66_000 + "]",
    "texts": "[" + "''," * 66_000 + "]",
    "a bracket that is not closed": "(" * 100 + "1," * 90_000,
}
"""Texts as long as one may be, of more nodes than one may have."""
PIECES = """
log = []
def note(x):
    log.append(x)
    return x
def walk(xs, n=2):
    total, seen = 0, []
    for x in xs:
        if x == 2:
            continue
        try:
            if x > 5:
                break
            total += x * n
            if x == n:
                return [total, seen, lambda: total]
        except TypeError as e:
            seen.append(e.message[:3])
        finally:
            seen.append(note(x))
    else:
        total = -1
    while True:
        total += 1
        if total % 7 == 0:
            return total
        if total > 40: break
    def bump(by):
        nonlocal total
        total += by
        return total
    return [bump(1), bump(2), total, [y for y in seen if y], n]
[walk([1, 2, 3]), walk([1, 'a']), walk([9]), walk([1, 3], 3)[:2], walk([4, 4], 4)[2](), walk([2, 1], n=5), log]
"""
"""All ways out of a loop, a ``try`` and a function, and variables that are shared."""


async def _in_pieces(text: str, room: int) -> Any:
    world, env = World(), SexpEnvironment()
    names = NamesInForce(world, env, env)
    program = compile_program(Source("text.py", text, "python"), names=names, limits=LIMITS)
    call = FakeRun(limits=LIMITS, watched=False).call()
    return await run_program(in_pieces(program, names, room), env, performer=world, call=call, budget=Budget(LIMITS))


async def _outcome(work: Any) -> object:
    try:
        return normal(await work)
    except AgentflowError as error:
        span = None if error.span is None else error.span.start
        return error.code, span, [frame.name for frame in error.frames], error.hint


@pytest.mark.parametrize("room", [60, pytest.param(240, marks=pytest.mark.slow)])
async def test_pieces_mean_what_the_text_means(room: int) -> None:
    """Values, errors with their spans, frames and hints: the same, wherever a text is cut."""
    few = [name for at, name in enumerate(sorted(CASES)) if name != "long lists" and (room > 60 or at % 3 == 0)]
    for text in [PIECES, *(CASES[name] for name in few), *(Author(seed).text() for seed in range(room // 20))]:
        assert await _outcome(_in_pieces(text, room)) == await _outcome(run_text(text)), text


async def test_an_error_in_a_piece_has_its_span_and_the_calls_it_went_through() -> None:
    """Nested functions of the compiler are not calls of the program."""
    text = "def inner(x):\n    y = x\n    z = [y, y]\n    return y + 'a'\ndef outer(x):\n    z = x\n    return [z, inner(z), z]\nouter(1)"
    with pytest.raises(AgentflowError) as caught:
        await _in_pieces(text, 40)
    assert caught.value.span is not None and caught.value.span.text == "y + 'a'"
    assert [frame.name for frame in caught.value.frames] == ["inner", "outer"]


async def test_a_variable_that_has_no_value_yet_is_said_so_in_a_piece() -> None:
    """Also where a variable is assigned in one piece and read in another."""
    text = "def f(x):\n    if x > 1:\n        late = [x, x, x]\n    y = [x, x, x, x]\n    return [late, y]\nf(1)"
    assert await _outcome(_in_pieces(text, 40)) == await _outcome(run_text(text))
    assert (await _outcome(_in_pieces(text, 40)))[0] == "binding/uninitialised"  # type: ignore[index]


async def test_a_recursion_through_pieces_goes_as_deep_as_its_limit() -> None:
    """Each piece takes room on the stack like a call, and counts as one: it is continued on a fresh stack in time."""
    levels = 12
    lines = [f"{'    ' * at}if n > -{at}:\n{'    ' * (at + 1)}x{at} = [n, n, n, n, n, n, n]" for at in range(1, levels)]
    inner = "    " * levels
    text = "\n".join(
        ["def f(n):", *lines, f"{inner}if n == 0:", f"{inner}    return 0", f"{inner}return 1 + f(n - 1)", "f({n})"]
    )
    assert await _in_pieces(text.replace("{n}", "150"), 40) == 150
    with pytest.raises(LimitExceeded) as caught:
        await _in_pieces(text.replace("{n}", "20000"), 40)
    assert caught.value.code == "limits/depth"


async def test_a_function_of_a_long_text_can_be_dumped() -> None:
    """It captured data like any other."""
    text = f"def f(x):\n    y = x + 1\n    xs = [{'x, ' * 3_000}]\n    return lambda z: [x + y + z, len(xs)]\nf(1)"
    value = await run_text(text)
    env = SexpEnvironment({"h": load_closure(dump_closure(value))})
    assert await run_text("h(10)", env) == [13, 3_000]


@pytest.mark.parametrize(
    "name",
    [
        each
        if each in ("one list", "one dict", "a function with returns")
        else pytest.param(each, marks=pytest.mark.slow)
        for each in LARGE
    ],
)
def test_however_long_a_text_is_its_pieces_are_small(name: str) -> None:
    """Python's compiler gets no more nodes at once than take it some 15 ms: it holds the interpreter meanwhile."""
    before, each, after, count = LARGE[name]
    text = before + "".join(each.format(n=n) for n in range(count // 8)) + after
    g = lowering_of(Source.unnamed(text, "python"), describer(None), Limits(), None, None)
    root = whole(g)
    assert root is not None
    link = text_link(TextGenerator(g), root)
    sizes: list[int] = []

    def compiler(module: ast.Module) -> CodeType:
        sizes.append(sum(1 for _ in ast.walk(module)))
        return compile(module, "<text>", "exec", dont_inherit=True)

    compile_in_pieces(link, compiler, ROOM)
    assert max(sizes) < 2 * ROOM


@pytest.mark.parametrize("name", HOSTILE)
def test_a_text_of_too_many_nodes_is_refused_before_it_is_parsed(name: str) -> None:
    """Python's parser would hold the interpreter for a fifth of a second."""
    with compiler_watched() as holds, pytest.raises(LimitExceeded) as caught:
        read_python(Source.unnamed(HOSTILE[name], "python"), Limits())
    assert caught.value.code == "limits/nodes" and caught.value.span is not None
    assert holds == []


def test_words_are_no_more_than_the_nodes_of_a_text() -> None:
    """What is counted before a text is parsed never refuses one that has few enough nodes."""
    for path in (Path(__file__), Path(ast.__file__), Path(threading.__file__)):
        text = path.read_text("utf-8")
        level: list[ast.AST] = [ast.parse(text)]
        nodes = 0
        while level:
            level = [child for node in level for child in children(node)]
            nodes += len(level)
        long = text + "\n" + "#" * 2 * nodes
        check_words(Source.unnamed(long, "python"), Limits(nodes=nodes))
        with pytest.raises(LimitExceeded):
            check_words(Source.unnamed(long, "python"), Limits(nodes=nodes // 4))


def test_what_a_compilation_built_is_freed_without_the_collector() -> None:
    """A collection of all that a long text was made into would hold the interpreter for longer than any piece does."""
    text = "".join(f"def f{n}(x):\n    return [x + {n}, x, {{'k': x}}]\n" for n in range(100)) + "f1(1)"
    program = compile_program(Source.unnamed("1", "python"))

    def nodes() -> int:
        return sum(isinstance(each, ast.AST) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = nodes()  # what other tests keep in this process
        program = compile_program(Source.unnamed(text, "python"))
        left = nodes() - before
    finally:
        gc.enable()
    assert program is not None and left < 15 * 100


EVERY = """
def f(n, m=2, *, k=3):
    xs = [[x, y] for x in [z for z in range(n) if z] for y in {n, m}]
    try:
        a, *b = n, m, k
        return {"f": lambda: n, **{"xs": xs}}, any(x for x in xs), a, b
    except (ValueError, KeyError) as e:
        return e
    finally:
        n += 1
f(3, k=1)
"""
"""Scopes of every kind, functions within functions, and an iterable with a comprehension of its own."""


@pytest.mark.parametrize("follows", [False, True, "strict"])
def test_nothing_that_a_compilation_built_refers_to_itself(follows: Following) -> None:
    """No part of a text is left for the collector: not its tree, and not its nodes, which only the machine of strict policies keeps."""

    def left() -> int:
        kinds = ast.AST if follows == "strict" else ast.AST | nodes.Node
        return sum(isinstance(each, kinds) for each in gc.get_objects())

    program = compile_program(Source.unnamed(EVERY, "python"), labelled=follows)
    gc.collect()
    gc.disable()
    try:
        before = left()
        program = compile_program(Source.unnamed(EVERY + "f(1)", "python"), labelled=follows)
        assert left() <= before and program is not None
    finally:
        gc.enable()
