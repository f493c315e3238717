"""What the code of Python texts is made of: members of the strand, functions of the package, and native operations of one table."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

import pytest

from agentflow.core.data.known_names import UNKNOWN
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang import abi
from agentflow.lang.kernel.text_generator import TextGenerator
from agentflow.lang.kernel.text_native import (
    NATIVE_BINARY,
    NATIVE_CALLS,
    NATIVE_ELEMENTS,
    NATIVE_EQUALITY,
    NATIVE_ORDER,
)
from agentflow.lang.python import compiling
from tests.lang.python.test_python_oracle import CASES
from tests.support.python_texts import Author

RUNTIME = {name for name in vars(abi.Runtime) if not name.startswith("_")} | set(abi.Runtime.__annotations__)
CELLS_AND_WORK = {"v", "work"}
"""The attributes of cells, and of work that is to be carried out in slices."""
INTEGER = "integer"
"""The end of names that stand for parameters where they were tested to be integers."""
LISTS = {"append"}
"""The method that is called on lists that the code has made itself."""
NATIVE = "xs = [1]\nd = {'k': 2}\nxs.append(len(xs))\nd['k'] = d.get('k', 0) + xs[0] + d['k']\nf'{xs[-1]}, {d}'"
CERTAIN = """
def f(n, m=3):
    total, at = 0, 0
    total = 0
    words = [1, 2]
    counts = {"k": 1}
    many = []
    line = "x"
    end = len(words)
    for i in range(n):
        total += i
        many.append(i % 9)
        line = f"{i}: {line} {at} {total} {n} {words[0]} {counts['k']} {counts.get(line, 0)}"
        end = end + 1 if i < n else i * 2
    while end > m and m < n - m:
        end -= 1
    return [total, words, counts, many, line, end, n + 1, n < 2, m + n, end + m, words[0], counts["k"], counts.get("k")]
f(3)
"""
"""Variables of one type, and parameters that are asked for it once."""
RECURSIVE = """
def f(n, m, other):
    k = n - 1
    while k > m and k % 2 < 1:
        k -= 1
        m_now = m + k
    line = f"{k} {n} {m_now}"
    return f(k, m - 1, line) + f(n - 2, m - n, k) + k if n > m else n * m - n
f(3, 1, 2)
"""
"""A function that is written a second time for parameters that are integers."""
LEFT = """
def f(n):
    a = b = c = e = x = 0
    xs = []
    try:
        n += 1
    finally:
        a = (b := n)
        c: int = 2
        c += 1
        for x in range(2):
            xs.append(x)
        e, *xs = xs
        if (y := a) and (z := b):
            del n
        try:
            del c
        except ValueError as n:
            def e():
                nonlocal a
                a = 3
        while (x := x - 1) > 0:
            del z
    return [a, b, e, x, xs, y]
f(3)
"""
"""Each way to assign a variable, where another function of the code does it: ``finally`` is one."""
TEXTS = [NATIVE, CERTAIN, RECURSIVE, LEFT, *CASES.values(), *(Author(seed).text() for seed in range(20))]


def code_of(text: str) -> ast.AST | None:
    """The tree that a text is rebuilt as; None for one that is refused."""
    limits = Limits()
    try:
        g = compiling.lowering_of(Source("text.py", text, "python"), lambda _: UNKNOWN, limits, None, None)
    except Exception:
        return None
    root = compiling.whole(g)
    if root is None or g.errors:
        return None
    return compiling.text_link(TextGenerator(g), root)


@pytest.fixture(scope="module", name="codes")
def _codes() -> list[list[ast.AST]]:
    """All nodes of the code of many texts, text by text."""
    trees = [code_of(text) for text in TEXTS]
    assert sum(tree is not None for tree in trees) > len(CASES)
    return [list(ast.walk(_told_apart(tree))) for tree in trees if tree is not None]


def _told_apart(tree: ast.AST) -> ast.AST:
    """The tree with other names for the variables in bodies that are written a second time, for parameters that are integers.

    Such a body is the first choice of its function, never ends in the other, and assigns none of the parameters that were tested.
    """
    for function in [each for each in ast.walk(tree) if isinstance(each, ast.AsyncFunctionDef)]:
        for node in [each for each in function.body if isinstance(each, ast.If) and len(each.body) > 1]:
            tests = node.test.values if isinstance(node.test, ast.BoolOp) else [node.test]
            tested = [ast.unparse(each) for each in tests]
            parameters = [each.arg for each in function.args.args if f"type_({each.arg}) is T_int" in tested]
            if not parameters or len(parameters) < len(tested) or not isinstance(node.body[-1], ast.Return):
                continue
            names = [each for part in node.body for each in ast.walk(part) if isinstance(each, ast.Name)]
            assert not [each for each in names if isinstance(each.ctx, ast.Store) and each.id in parameters]
            for each in {id(each): each for each in names}.values():
                if each.id.startswith("v_"):
                    each.id += f"_{INTEGER if each.id in parameters else 'again'}"
    return tree


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
    """The types that a test of types compares with; ``i_x`` remembers whether the parameter ``x`` is an integer."""
    for node in ast.walk(test):
        if isinstance(node, ast.Name) and node.id.startswith("i_"):
            yield "int"
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


def _stored(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions within."""
    pending = list(ast.iter_child_nodes(function))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.AsyncFunctionDef):
            pending.extend(ast.iter_child_nodes(node))


def test_a_variable_is_one_wherever_it_is_assigned(codes: list[list[ast.AST]]) -> None:
    """A variable of the text belongs to one function of the code; every other that assigns or deletes it says so."""
    elsewhere = 0
    for nodes in codes:
        owners: dict[str, str] = {}
        for function in nodes:
            if not isinstance(function, ast.AsyncFunctionDef):
                continue
            inside = list(_stored(function))
            foreign = {name for each in inside if isinstance(each, ast.Nonlocal) for name in each.names}
            stored = {each.id for each in inside if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)}
            stored |= {each.arg for each in function.args.args}
            elsewhere += len(stored & foreign)
            for name in stored - foreign:
                if name.startswith("v_") and not name.endswith("_again"):
                    assert owners.setdefault(name, function.name) == function.name, name
    assert elsewhere


Exact = dict[str, str]
"""The exact types of variables of the code, by their names."""
_GIVES = {
    **dict.fromkeys(("B_len_f", "N_len", "len_"), "int"),
    **dict.fromkeys(("N_str", "JOIN", "P_joined", "P_formatted", "P_whole_text"), "str"),
    "P_gathered": "list",
    "P_entries": "dict",
}
"""Functions of one result type."""
_OF_INTEGERS = ("P_add", "P_subtract", "P_multiply", "P_floor_divide", "P_modulo", "P_bounded")
"""Functions that give integers of integers."""


def _exact(code: list[ast.AST]) -> Exact:
    """The variables of a text's code that are assigned values of one exact type alone, found in the code, and not as its author finds them.

    Each is assumed to have that of an assignment whose form says it; those with an assignment of another are dropped until there are none.
    """
    _note_sources(code)
    assigned: dict[str, list[ast.AST | None]] = {}
    seen: set[ast.AST] = set()
    for node in code:
        pairs: list[tuple[ast.expr, ast.AST]] = []
        if isinstance(node, ast.Assign):
            declared = isinstance(node.value, ast.Constant) and node.value.value is None  # under 'if False'
            seen.update(node.targets if declared else ())
            pairs = [] if declared else [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.NamedExpr):
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.For):
            pairs = [(node.target, node)]
        for target, value in pairs:
            if isinstance(target, ast.Name):
                assigned.setdefault(target.id, []).append(value)
                seen.add(target)
    for node in code:
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and node not in seen:
            assigned.setdefault(node.id, []).append(None)
        elif isinstance(node, ast.arg):
            assigned.setdefault(node.arg, []).append(None)
    collecting = {node.name: _kind_of(node.body[0].value, {}) for node in code if _is_comprehension(node)}
    exact: Exact = {}
    for name, values in assigned.items():
        forms = {_kind_of(each, collecting) for each in values} - {None}
        if len(forms) < 2 and None not in values:
            exact[name] = forms.pop() if forms else "int"  # type: ignore[assignment]
    exact |= {name: kind for name, kind in collecting.items() if kind is not None}
    while True:
        wrong = [
            name
            for name, kind in exact.items()
            if name not in collecting and any(_kind_of(each, exact) != kind for each in assigned[name])
        ]
        if not wrong:
            return exact
        for name in wrong:
            del exact[name]


def _note_sources(code: list[ast.AST]) -> None:
    """Note at the first loops of comprehensions what these are called with: that is what they go over."""
    called = {each.func.id: each for each in code if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    for node in reversed(code):  # inner ones first
        if isinstance(node, ast.AsyncFunctionDef) and node.name in called:
            for each in ast.walk(node):
                if isinstance(each, ast.For) and isinstance(each.iter, ast.Name) and not hasattr(each, "source"):
                    each.source = called[node.name].args[-1]  # type: ignore[attr-defined]


def _is_comprehension(node: ast.AST) -> bool:
    """Whether a function collects the elements of a comprehension, and returns them."""
    if not isinstance(node, ast.AsyncFunctionDef) or not node.name.startswith("comp_"):
        return False
    last = node.body[-1]
    return isinstance(last, ast.Return) and isinstance(last.value, ast.Name) and last.value.id.startswith("out_")


def _kind_of(node: ast.AST | None, exact: Exact) -> str | None:
    """The exact type of what code gives, as its form and the types of variables say."""
    if isinstance(node, ast.Constant):
        return type(node.value).__name__
    if isinstance(node, ast.Name):
        return "int" if node.id.endswith(f"_{INTEGER}") else exact.get(node.id)
    if isinstance(node, ast.For):
        source = getattr(node, "source", node.iter)
        iterator = source.func if isinstance(source, ast.Call) else None
        return "int" if isinstance(iterator, ast.Name) and iterator.id == "P_rounds" else None
    if isinstance(node, ast.NamedExpr | ast.Await):
        return _kind_of(node.value, exact)
    if isinstance(node, ast.BinOp):
        return "int" if _kind_of(node.left, exact) == _kind_of(node.right, exact) == "int" else None
    if isinstance(node, ast.IfExp):
        tested = list(_tested(node.test))
        if tested == ["Sliced"] and isinstance(node.test, ast.Compare) and isinstance(node.test.left, ast.Call):
            return _kind_of(node.test.left.args[0], exact)
        other = _kind_of(node.orelse, exact)
        narrowed = isinstance(node.body, ast.Name) and tested == [other]
        return other if narrowed or _kind_of(node.body, exact) == other else None
    if isinstance(node, ast.Call):
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        whole = all(_kind_of(each, exact) == "int" for each in node.args[1 : 2 if name == "P_bounded" else 3])
        return "int" if name in _OF_INTEGERS and whole else _GIVES.get(name) or exact.get(name)
    return {ast.List: "list", ast.Dict: "dict"}.get(type(node))  # type: ignore[arg-type]


def _is_length(node: ast.expr) -> bool:
    """Whether code counts: the length of a text or list whose type it has tested, and sums of these."""
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and _is_length(node.left) and _is_length(node.right)
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("N_len", "len_")


def test_native_operations_run_behind_tests_of_exact_types(
    codes: list[list[ast.AST]], guarded: dict[int, set[str]]
) -> None:
    """Every operator in the code stands in the table, behind a test of exactly the types that the table names, or on variables that hold these alone.

    The code's own counting (steps, depth, bounds, lengths, truth of tests) works on integers and booleans of its own.
    """
    spared = 0
    for nodes in codes:
        exact = _exact(nodes)
        for node in nodes:
            operands: list[ast.expr] = []
            wanted: set[str] = set()
            if isinstance(node, ast.BinOp):
                own = isinstance(node.left, ast.Name) and node.left.id == "d"
                steps = isinstance(node.left, ast.Attribute) and node.left.attr == "fuel"
                if not own and not steps and not isinstance(node.op, ast.BitAnd) and not _is_length(node):
                    assert type(node.op) in NATIVE_BINARY.values()
                    wanted, operands = {"int"}, [node.left, node.right]
            elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
                wanted, operands = {"dict"}, [node.comparators[0]]
                assert isinstance(node.left, ast.Constant), ast.dump(node)
            elif isinstance(node, ast.Compare) and not isinstance(node.ops[0], ast.Is | ast.IsNot):
                left = node.left.id if isinstance(node.left, ast.Name) else ""
                if left not in ("d", "f_", "LOW") and not _is_length(node.left):
                    assert type(node.ops[0]) in (*NATIVE_ORDER.values(), *NATIVE_EQUALITY.values())
                    wanted, operands = {"int"}, [node.left, *node.comparators]
            if not guarded.get(id(node), set()) >= wanted:
                assert {_kind_of(each, exact) for each in operands} == wanted, ast.dump(node)
                spared += 1
    assert spared


def test_what_code_remembers_of_a_parameter_stays_so(codes: list[list[ast.AST]]) -> None:
    """``i_x`` is assigned once, in the function whose parameter ``x`` is, by the test of its type; after its default, nothing assigns ``x``."""
    remembered = 0
    for nodes in codes:
        stores = [each for each in nodes if isinstance(each, ast.Name) and not isinstance(each.ctx, ast.Load)]
        for function in nodes:
            for node in function.body if isinstance(function, ast.AsyncFunctionDef) else ():
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                if not isinstance(target, ast.Name) or not target.id.startswith("i_"):
                    continue
                assert isinstance(function, ast.AsyncFunctionDef)
                name = target.id.removeprefix("i_")
                assert ast.unparse(node) == f"i_{name} = type_({name}) is T_int"
                assert name in {each.arg for each in function.args.args}
                assert [each.id for each in stores].count(target.id) == 1
                before = function.body[: function.body.index(node)]
                defaults = [each for part in before for each in ast.walk(part)]
                assert not [each for each in stores if each.id == name and each not in defaults]
                remembered += 1
        used = [each.id for each in nodes if isinstance(each, ast.Name) and each.id.startswith("i_")]
        assert all(used.count(each) >= 2 for each in used)
    assert remembered


def test_native_functions_are_called_behind_tests_of_exact_types(
    codes: list[list[ast.AST]], guarded: dict[int, set[str]]
) -> None:
    """Python's own functions that code calls stand in the table, and are called where the types that it names were tested, or are those of the variables."""
    seen: set[str] = set()
    for nodes in codes:
        exact = _exact(nodes)
        for node in nodes:
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if not isinstance(node, ast.Call) or not name.startswith("N_"):
                continue
            seen.add(name)
            known = {_kind_of(each, exact) for each in node.args} | guarded.get(id(node), set())
            assert known >= {kind.__name__ for kind in NATIVE_CALLS[name][1]}, ast.dump(node)
    assert seen == NATIVE_CALLS.keys()


def test_elements_are_read_of_lists_and_dicts_alone(
    nodes: list[ast.AST], codes: list[list[ast.AST]], guarded: dict[int, set[str]]
) -> None:
    """``x[i]`` in the code is of a list or dict whose type is certain, or of a tuple that the code itself has made."""
    exact = {id(node): kinds for code in codes for kinds in [_exact(code)] for node in code}
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
        known = {_kind_of(node.value, exact[id(node)])} | guarded.get(id(node), set())
        assert known >= wanted, ast.dump(node)
    assert read


def test_nothing_else_of_python_is_in_the_code(nodes: list[ast.AST]) -> None:
    """The code has no import, no class, no generator, no comprehension and no f-string, and assigns no global name."""
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
