"""What the code of Python texts is made of: members of the strand, functions of the package, and native operations of one table."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from agentflow.core.limits import Limits
from agentflow.core.names import UNKNOWN
from agentflow.core.source import Source
from agentflow.lang import abi
from agentflow.lang.python import compiling
from agentflow.lang.python.expressions import NATIVE_BINARY, NATIVE_COMPARE
from tests.lang.python.test_python_oracle import CASES
from tests.support.python_texts import Author

RUNTIME = {name for name in vars(abi.Runtime) if not name.startswith("_")} | set(abi.Runtime.__annotations__)
CELLS_AND_WORK = {"v", "work"}
"""The attributes of cells, and of work that is to be carried out in slices."""
LISTS = {"append"}
"""The method that is called on lists that the code has made itself."""
TEXTS = [*CASES.values(), *(Author(seed).text() for seed in range(20))]


def code_of(text: str) -> ast.AST | None:
    """The tree that a text is rebuilt as; None for one that is refused."""
    limits = Limits()
    try:
        g = compiling.emitter_of(Source("text.py", text, "python"), lambda _: UNKNOWN, limits, None, None)
    except Exception:
        return None
    link = compiling.written(g, g.tree)
    return None if g.errors else link


@pytest.fixture(scope="module", name="nodes")
def _nodes() -> list[ast.AST]:
    """All nodes of the code of many texts."""
    trees = [code_of(text) for text in TEXTS]
    assert sum(tree is not None for tree in trees) > len(CASES)
    return [node for tree in trees if tree is not None for node in ast.walk(tree)]


def test_attributes_are_read_of_strands_and_cells_alone(nodes: list[ast.AST]) -> None:
    """No attribute is ever read from a value: only ``rt``, cells, and lists that the code makes itself have any."""
    for node in nodes:
        if isinstance(node, ast.Attribute):
            base = node.value.id if isinstance(node.value, ast.Name) else ""
            if base == "rt":
                assert node.attr in RUNTIME
            elif node.attr in LISTS:
                assert base.startswith("out_")
            else:
                assert node.attr in CELLS_AND_WORK
                assert node.attr != "v" or base.startswith("c")


def _tested(test: ast.expr) -> Iterator[str]:
    """The types that a test of types compares with."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is):
            right = node.comparators[0]
            if isinstance(right, ast.Name) and right.id.startswith("T_"):
                yield right.id.removeprefix("T_")


def test_native_operations_run_behind_tests_of_exact_types(nodes: list[ast.AST]) -> None:
    """Every operator in the code stands in the table, behind a test of exactly the types that the table names.

    The code's own counting (steps, depth, bounds, truth of tests) works on integers and booleans of its own.
    """
    guarded: dict[int, set[str]] = {}
    for node in nodes:
        if isinstance(node, ast.IfExp):
            types = set(_tested(node.test))
            for inner in ast.walk(node.body):
                guarded.setdefault(id(inner), set()).update(types)
    for node in nodes:
        if isinstance(node, ast.BinOp):
            own = isinstance(node.left, ast.Name) and node.left.id == "d"
            steps = isinstance(node.left, ast.Attribute) and node.left.attr == "fuel"
            if not own and not steps and not isinstance(node.op, ast.BitAnd):
                wanted = {kind.__name__ for kind in NATIVE_BINARY[type(node.op)]}
                assert guarded[id(node)] >= wanted, ast.dump(node)
        elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            left = node.left.id if isinstance(node.left, ast.Name) else ""
            if left not in ("d", "f_", "LOW"):
                wanted = {kind.__name__ for kind in NATIVE_COMPARE[type(node.ops[0])]}
                assert guarded[id(node)] >= wanted, ast.dump(node)


def test_nothing_else_of_python_is_in_the_code(nodes: list[ast.AST]) -> None:
    """The code has no import, no class, no generator, no comprehension, no f-string and no global name."""
    absent = (
        ast.Import,
        ast.ImportFrom,
        ast.ClassDef,
        ast.Lambda,
        ast.Yield,
        ast.YieldFrom,
        ast.JoinedStr,
        ast.ListComp,
    )
    more = (ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Global, ast.With, ast.AsyncWith, ast.AsyncFor, ast.Match)
    assert not [node for node in nodes if isinstance(node, (*absent, *more))]
