"""What the code of Python texts is made of: members of the strand, functions of the package, and native operations of one table."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

import pytest

from agentflow.core.limits import Limits
from agentflow.core.names import UNKNOWN
from agentflow.core.source import Source
from agentflow.lang import abi
from agentflow.lang.python import compiling
from agentflow.lang.python.native import NATIVE_BINARY, NATIVE_CALLS, NATIVE_COMPARE, NATIVE_ELEMENTS
from tests.lang.python.test_python_oracle import CASES
from tests.support.python_texts import Author

RUNTIME = {name for name in vars(abi.Runtime) if not name.startswith("_")} | set(abi.Runtime.__annotations__)
CELLS_AND_WORK = {"v", "work"}
"""The attributes of cells, and of work that is to be carried out in slices."""
LISTS = {"append"}
"""The method that is called on lists that the code has made itself."""
NATIVE = "xs = [1]\nd = {'k': 2}\nxs.append(len(xs))\nd['k'] = d.get('k', 0) + xs[0] + d['k']\nf'{xs[-1]}, {d}'"
TEXTS = [NATIVE, *CASES.values(), *(Author(seed).text() for seed in range(20))]


def code_of(text: str) -> ast.AST | None:
    """The tree that a text is rebuilt as; None for one that is refused."""
    limits = Limits()
    try:
        g = compiling.emitter_of(Source("text.py", text, "python"), lambda _: UNKNOWN, limits, None, None)
    except Exception:
        return None
    link = compiling.written(g, g.tree)
    return None if g.errors else link


@pytest.fixture(scope="module", name="codes")
def _codes() -> list[list[ast.AST]]:
    """All nodes of the code of many texts, text by text."""
    trees = [code_of(text) for text in TEXTS]
    assert sum(tree is not None for tree in trees) > len(CASES)
    return [list(ast.walk(tree)) for tree in trees if tree is not None]


@pytest.fixture(scope="module", name="nodes")
def _nodes(codes: list[list[ast.AST]]) -> list[ast.AST]:
    """The nodes of all texts."""
    return [node for code in codes for node in code]


def test_pythons_compiler_warns_of_nothing(codes: list[list[ast.AST]]) -> None:
    """Warnings would go to standard error, whoever wrote the text: no code, whatever the text says, calls for one."""
    texts = ["1['k']", "None[0]", "'a'['b']", "1.5 is 1.5", "(1, 2)['a']", "[1][1.5]", "1(2)", "'a' in 1", "f'{1}'[0]"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for code in [*(code[0] for code in codes), *map(code_of, texts)]:
            assert isinstance(code, ast.FunctionDef)
            compile(ast.Module([code], []), "text", "exec")


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
            for each in node.comparators:
                if isinstance(each, ast.Name) and each.id.startswith("T_"):
                    yield each.id.removeprefix("T_")


def _is_discarded(node: ast.stmt) -> bool:
    """Whether a statement calls a function or reads an element for nothing: the ``if`` around it is a choice that was an expression."""
    value = node.value if isinstance(node, ast.Expr) else None
    call = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id.startswith("N_")
    return call or isinstance(value, ast.Subscript | ast.BinOp)


@pytest.fixture(scope="module", name="guarded")
def _guarded(nodes: list[ast.AST]) -> dict[int, set[str]]:
    """The types that have been tested where a node is evaluated, by the node's identity."""
    guarded: dict[int, set[str]] = {}

    def note(part: ast.AST, types: set[str]) -> None:
        for inner in ast.walk(part):
            guarded.setdefault(id(inner), set()).update(types)

    for node in nodes:
        if isinstance(node, ast.IfExp):
            note(node.body, set(_tested(node.test)))
        elif isinstance(node, ast.If) and _is_discarded(node.body[0]):
            note(node.body[0], set(_tested(node.test)))
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.And):
            for at, each in enumerate(node.values):
                note(each, {kind for before in node.values[:at] for kind in _tested(before)})
    return guarded


def test_comparisons_are_tested_as_they_are() -> None:
    """What is True or False whatever happens is not asked for its truth: loops and choices pay for none."""
    code = code_of(
        "def f(n, xs):\n    while n < 3 and not n == 5:\n        n += 1\n    return 1 if n in xs else 2\nf(1, [2])"
    )
    assert code is not None
    assert not [each for each in ast.walk(code) if isinstance(each, ast.Name) and each.id == "P_truth"]


def _of_lists(nodes: list[ast.AST]) -> set[str]:
    """The variables that code assigns lists alone: as they are written, or those of comprehensions."""
    assigned: dict[str, list[bool]] = {}
    made: set[ast.AST] = set()
    for node in nodes:
        if isinstance(node, ast.Assign):
            called = node.value.value if isinstance(node.value, ast.Await) else None
            comprehension = isinstance(called, ast.Call) and getattr(called.func, "id", "").startswith("comp_")
            gathered = isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "P_gathered"
            plain = isinstance(node.value, ast.List) or comprehension or gathered
            unset = isinstance(node.value, ast.Constant)  # under 'if False': declares the variable
            for target in node.targets:
                if isinstance(target, ast.Name) and not unset:
                    assigned.setdefault(target.id, []).append(plain)
                    made.add(target)
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node not in made:
            assigned.setdefault(node.id, []).append(False)
        elif isinstance(node, ast.arg):
            assigned.setdefault(node.arg, []).append(False)
    return {name for name, plain in assigned.items() if all(plain)}


def _is_length(node: ast.expr) -> bool:
    """Whether code counts: the length of a text or list whose type it has tested, and sums of these."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and _is_length(node.left) and _is_length(node.right)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("N_len", "len_")


def test_native_operations_run_behind_tests_of_exact_types(nodes: list[ast.AST], guarded: dict[int, set[str]]) -> None:
    """Every operator in the code stands in the table, behind a test of exactly the types that the table names.

    The code's own counting (steps, depth, bounds, lengths, truth of tests) works on integers and booleans of its own.
    """
    for node in nodes:
        if isinstance(node, ast.BinOp):
            own = isinstance(node.left, ast.Name) and node.left.id == "d"
            steps = isinstance(node.left, ast.Attribute) and node.left.attr == "fuel"
            if not own and not steps and not isinstance(node.op, ast.BitAnd) and not _is_length(node):
                wanted = {kind.__name__ for kind in NATIVE_BINARY[type(node.op)]}
                assert guarded[id(node)] >= wanted, ast.dump(node)
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
            assert "dict" in guarded[id(node)], ast.dump(node)
            assert isinstance(node.left, ast.Constant), ast.dump(node)
        elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
            left = node.left.id if isinstance(node.left, ast.Name) else ""
            if left not in ("d", "f_", "LOW") and not _is_length(node.left):
                wanted = {kind.__name__ for kind in NATIVE_COMPARE[type(node.ops[0])]}
                assert guarded[id(node)] >= wanted, ast.dump(node)


def test_native_functions_are_called_behind_tests_of_exact_types(
    codes: list[list[ast.AST]], guarded: dict[int, set[str]]
) -> None:
    """Python's own functions that code calls stand in the table, and are called where the types that it names were tested."""
    seen: set[str] = set()
    for nodes in codes:
        lists = _of_lists(nodes)
        for node in nodes:
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if not isinstance(node, ast.Call) or not name.startswith("N_"):
                continue
            seen.add(name)
            if not (isinstance(node.args[0], ast.Name) and node.args[0].id in lists):
                assert guarded[id(node)] >= {kind.__name__ for kind in NATIVE_CALLS[name][1]}, ast.dump(node)
    assert seen == NATIVE_CALLS.keys()


def test_elements_are_read_of_lists_and_dicts_alone(nodes: list[ast.AST], guarded: dict[int, set[str]]) -> None:
    """``x[i]`` in the code is of a list or dict whose type was tested, or of a tuple that the code itself has made."""
    made = {
        node.target.id
        for node in nodes
        if isinstance(node, ast.NamedExpr) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Tuple)
    }
    read = 0
    for node in nodes:
        if not isinstance(node, ast.Subscript) or not isinstance(node.ctx, ast.Load):
            continue
        made_here = node.value.value if isinstance(node.value, ast.NamedExpr) else node.value
        own = isinstance(made_here, ast.Tuple)
        if own or (isinstance(node.value, ast.Name) and (node.value.id == "K" or node.value.id in made)):
            continue
        read += 1
        assert isinstance(node.slice, ast.Constant), ast.dump(node)
        wanted = {kind.__name__ for kind in NATIVE_ELEMENTS[type(node.slice.value)]}
        assert guarded[id(node)] >= wanted, ast.dump(node)
    assert read


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
