"""What the language knows of its functions, methods, forms and primitives is said once, in a row at its definition, and a change of it is read."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Provenance, ScriptedProvider, Sink, lang
from agentflow.core.data.values import OrderedSet
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.python import builtins, methods, rows, text_methods
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.methods import ALL_METHODS, METHOD_ROWS, METHODS
from agentflow.lang.python.rows import Row
from tests.support import language_rows
from tests.support.python_texts import run_text

ROOM = Path(lang.__file__).parent
RECEIVERS: dict[type[Any], str] = {
    str: '"bob"',
    list: '["bob", "al"]',
    tuple: '("bob",)',
    dict: '{"bob": 1}',
    OrderedSet: 'set(["bob"])',
}
CASES = [(kind, row) for kind, named in METHODS.items() for row in named.values()]
each_method = pytest.mark.parametrize(
    ("kind", "row"), CASES, ids=[f"{kind.__name__}.{row.name}" for kind, row in CASES]
)


def test_rows_are_those_that_were_read_over() -> None:
    """Each row is as in ``rows.json``; ``python -m tests.support.language_rows --write`` writes it again, to be reviewed."""
    assert language_rows.text() == language_rows.FILE.read_text("utf-8")


def test_every_function_and_method_is_in_one_row() -> None:
    """What texts call is written as a function that takes the strand: each of them declares its row, and no name is declared twice for a type."""
    for module in (methods, text_methods, builtins):
        for name, each in vars(module).items():
            own = inspect.isfunction(each) and each.__module__ == module.__name__ and not name.startswith("_")
            if own and next(iter(inspect.signature(each).parameters), None) == "rt":
                assert hasattr(each, "__row__") or each is methods.method, name
    with pytest.raises(TypeError, match="two functions have one name"):
        rows.rows_in([text_methods.find, rows.on(str, changes=None, name="find")(lambda rt, value: value)], str)


def test_code_calls_each_function_by_a_name_of_its_own() -> None:
    """Generated code has its functions as globals, by their names: two functions of one name would be one of them."""
    rooms = [importlib.import_module(f"agentflow.lang.python.{each}") for each in language_rows.MODULES]
    named = Counter(
        name
        for room in rooms
        for name, each in vars(room).items()
        if inspect.isfunction(each) and each.__module__ == room.__name__ and not name.startswith("_")
    )
    assert len(named) > 100 and not [name for name, count in named.items() if count > 1]


TABLES = {
    "bounds/guards.py": ["_OPPOSITE", "_MIRRORED", "_AGAINST_ZERO", "_OF_ONE", "_RELATIONS"],
    "bounds/nodes.py": ["HIGHER"],
    "bounds/python/code.py": ["_SIZED"],
    "builtins/strict.py": ["_LOOKED_AT"],
    "kernel/generate_values.py": ["_ARITHMETIC", "_COMPARE"],
    "kernel/text_native.py": ["NATIVE_ORDER"],
    "answers.py": ["_AS_IT_IS"],
    "python/builtins.py": ["KINDS"],
    "python/calls.py": ["_OF_LISTS"],
    "python/compare.py": ["_SYMBOLS"],
    "python/declarations.py": ["_PLAIN"],
    "python/text_methods.py": ["_CASES", "_TESTS"],
}
"""The tables of names of functions that are left: each is said nowhere else, most are rules or signs and no facts."""


def test_no_module_keeps_a_list_of_functions_of_its_own() -> None:
    """A fact about functions is a column of their rows: a table of their names is a second place, which is forgotten when a function is added."""
    names = {*PRIMITIVES, *BUILTINS, *ALL_METHODS}
    found: dict[str, list[str]] = {}
    for file in ROOM.rglob("*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                named = list(_keys(node.value))
                if len(named) > 1 and len(names.intersection(named)) >= 0.7 * len(named):
                    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                    found.setdefault(str(file.relative_to(ROOM)), []).append(ast.unparse(target))
    assert {file: sorted(tables) for file, tables in found.items()} == {f: sorted(t) for f, t in TABLES.items()}


def _keys(node: ast.expr) -> Iterator[str]:
    """The texts that a table lists, or has as its keys."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    listed = node.keys if isinstance(node, ast.Dict) else node.elts if isinstance(node, ast.Set | ast.Tuple) else []
    yield from (each.value for each in listed if isinstance(each, ast.Constant) and isinstance(each.value, str))


def test_a_method_must_say_what_it_changes() -> None:
    """A row of a method without ``changes`` is an error where it is declared: what is forgotten would count as harmless, or as harm."""
    with pytest.raises(TypeError, match="changes"):
        rows.on(list)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", sorted({row.name for row in METHOD_ROWS}))
def test_methods_of_one_name_agree(name: str) -> None:
    """The analyses know the name of a method and not the type of its value, so what they ask of rows of one name is the same."""
    containers = [row for row in METHOD_ROWS if row.name == name and str not in row.kinds]
    assert len({(row.changes, row.flow, row.keys) for row in containers}) <= 1
    assert len({(row.size, row.puts) for row in METHOD_ROWS if row.name == name}) == 1


@each_method
async def test_a_method_does_to_its_value_what_its_row_says(kind: type[Any], row: Row) -> None:
    """One that changes nothing leaves its value as it was, and one that puts nothing in keeps no argument, whatever it is called with."""
    changed, held = False, False
    for arguments in (
        '"x"',
        '"bob"',
        "0",
        '["x"]',
        '{"x": "x"}',
        '[("x", "x")]',
        '"bob", "x"',
        '0, "x"',
        '"bob", "x", 1',
        "",
    ):
        text = (
            f"v = {RECEIVERS[kind]}\nbefore = repr(v)\ntry:\n    v.{row.name}({arguments})\n    done = True\n"
            "except Exception:\n    done = False\n[before != repr(v), done and 'x' in repr(v)]"
        )
        results = await run_text(text)
        changed, held = changed or results[0], held or results[1]
    assert changed == (row.changes is not None), "it changes its value" if changed else "it changes nothing"
    assert held == row.puts, "it puts something in" if held else "it puts nothing in"


async def fetch(url: str) -> str:
    """Read a page."""
    return "x"


async def send(to: str, text: str) -> str:
    """Send a text."""
    return "sent"


def mailing() -> AgentFlow:
    rules = Provenance(rules=[Sink("send", "to", allow=["user"])], sources={"fetch": "web"})
    return AgentFlow(provider=ScriptedProvider(["x"]), tools=[fetch, send], provenance=rules)


@each_method
async def test_the_forecast_refuses_after_a_method_that_puts_and_no_other(kind: type[Any], row: Row) -> None:
    """A value that a method was called on may hold its arguments only if the method puts them in."""
    if row.positional == 0:
        return
    arguments = ", ".join(["page"] * max(row.least, 1))
    text = f'page = fetch(url="u")\nv = {RECEIVERS[kind]}\nv.{row.name}({arguments})\nsend(to=str(v), text="hi")'
    async with mailing() as flow:
        (sink,) = (await flow.bounds(text, surface="python")).authority.sinks
    assert bool(sink.refused) == row.puts, str(sink)


@pytest.mark.parametrize("method", ["find", "rfind", "removeprefix", "lstrip", "partition", "rsplit"])
async def test_a_text_that_only_reads_a_page_is_foretold_to_run(method: str) -> None:
    """``name.rfind(page)`` is harmless: the forecast says so, and the run sends."""
    text = f'page = fetch(url="u")\nname = "bob"\nn = name.{method}(page)\nsend(to=name, text="hi")'
    async with mailing() as flow:
        (sink,) = (await flow.bounds(text, surface="python")).authority.sinks
        assert not sink.refused
        assert (await flow.run(text, surface="python")).value == "sent"
