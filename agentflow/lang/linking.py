"""Writes and compiles the code of an analysed program, a part at a time."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType
from typing import Any, cast

from agentflow.core.data.labels import Following
from agentflow.lang import emit_calls, emit_control, emit_values, ir
from agentflow.lang.abi import Code
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.calling import NOTHING
from agentflow.lang.checks import children
from agentflow.lang.codegen import Generator
from agentflow.lang.cutting import Part, compile_in_pieces, nodes_of
from agentflow.lang.generated import RETURN
from agentflow.lang.ir import IR, DefineGlobal, Seq
from agentflow.lang.stack import on_fresh_stack
from agentflow.lang.syntax import Node
from agentflow.lang.trace import CodeInfo, stamp

PIECE = 2_000
"""Number of Python nodes from which on a piece becomes a separate function."""
_CALL = 20
"""Number of Python nodes in the call of such a function."""
_VALUE = 5
"""Number of Python nodes of an operand that such a function returns together with others."""

_SIZES: dict[type[Any], int] = {
    ir.Const: 1,
    ir.Local: 1,
    ir.Prim: 1,
    ir.Global: 12,
    ir.Unknown: 7,
    ir.Seq: 0,
    ir.If: 4,
    ir.Clause: 4,
    ir.Cond: 0,
    ir.Logic: 4,
    ir.MakeDict: 3,
    ir.SetLocal: 8,
    ir.SetGlobal: 25,
    ir.DefineGlobal: 15,
    ir.Lambda: 45,
    ir.Thunk: 30,
    ir.Call: 60,
    ir.Pair: 120,
    ir.Link: 120,
    ir.PrimCall: 20,
    ir.NamedLoop: 35,
    ir.Repeat: 35,
    ir.While: 35,
    ir.Try: 50,
}
"""The inputs of a node other than its parts."""
_OTHER = 12
_OPERANDS = {
    ir.Call: "args",
    ir.PrimCall: "args",
    ir.EffectCall: "args",
    ir.RuntimeCall: "args",
    ir.MakeDict: "values",
    ir.ThunkList: "items",
    ir.NamedLoop: "inits",
}
"""The field that holds the operands, which are evaluated in order."""
_SINGLE: dict[type[Any], tuple[str, ...]] = {
    ir.If: ("test", "then", "other"),
    ir.Clause: ("test", "body"),
    ir.Cond: ("other",),
    ir.SetLocal: ("value",),
    ir.SetGlobal: ("value",),
    ir.DefineGlobal: ("value",),
    ir.Define: ("value",),
    ir.Pair: ("value", "applied"),
    ir.NamedLoop: ("body",),
    ir.Repeat: ("count", "body"),
    ir.While: ("test", "body", "result"),
    ir.Try: ("body", "handler"),
    ir.Let: ("body",),
}
"""The fields that hold one part each, which may continue in a function of its own."""
_WHOLE = (ir.Lambda, ir.Thunk, ir.ThunkList, ir.Define, ir.DefineGlobal, ir.Clause, ir.Pair, ir.Link, ir.Apart)
"""Nodes that are functions already, or not expressions."""

Groups = dict[int, list[list[Any]]]
"""Operands in groups, by the identity of their list; each group of several is evaluated in a function of its own."""


def hoist(tree: ir.Seq, limit: int) -> Groups | None:
    """Let the large pieces of ``tree`` continue in functions of their own; None if its size is below ``limit``."""
    order: list[Any] = []
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(children(node))
    order.reverse()
    if sum(_own(node) for node in order) < limit:
        return None
    hoister = _Hoister()
    for node in order:
        hoister.visit(node)
    return hoister.groups


def _own(node: Any) -> int:
    return _SIZES.get(cast("type[Any]", type(node)), _OTHER)


class _Hoister:
    """Sizes of the nodes visited, each at most one item above :data:`PIECE`; parts are visited before the whole."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.groups: Groups = {}

    def size(self, node: Any) -> int:
        return self.sizes[id(node)]

    def visit(self, node: Any) -> None:
        kind = cast("type[Any]", type(node))
        for name in _SINGLE.get(kind, ()):
            part = getattr(node, name)
            if part is not None:
                setattr(node, name, self.apart(part))
        if isinstance(node, ir.Seq):
            node.items = self.in_order([self.apart(each) for each in node.items])
        elif isinstance(node, ir.Let):
            self.scope(node)
        elif isinstance(node, ir.Logic):
            node.items = self.tested([self.apart(each) for each in node.items], node)
        elif isinstance(node, ir.Cond):
            self.clauses(node)
        elif isinstance(node, ir.Call) and node.pairs is not None:
            self.group(node.pairs)
        elif kind in _OPERANDS:
            operands = cast("list[Any]", getattr(node, _OPERANDS[kind]))
            operands[:] = [self.apart(each) for each in operands]
            self.group(operands)
        self.measure(node)

    def measure(self, node: Any) -> None:
        """Record the size of a node with final parts."""
        size = _own(node)
        if isinstance(node, ir.Lambda | ir.Thunk):
            size += self.size(node.body) if self.size(node.body) < PIECE else 0
        else:
            size += sum(self.size(each) for each in children(node))
        self.sizes[id(node)] = size

    def apart(self, node: Any) -> Any:
        """The node, or if it is large the call of a function with its code."""
        if self.size(node) < PIECE or isinstance(node, _WHOLE):
            return node
        return self.piece(node.at, node)

    def piece(self, at: Any, body: IR) -> ir.Apart:
        node = ir.Apart(at, body)
        self.sizes[id(node)] = _CALL
        return node

    def split(self, items: list[Any]) -> list[list[Any]]:
        """Neighbours in groups of about the size of a piece; a single group when the whole is not large."""
        groups: list[list[Any]] = [[]]
        size = 0
        for item in items:
            if size >= PIECE:
                groups.append([])
                size = 0
            groups[-1].append(item)
            size += self.size(item)
        return groups

    def in_order(self, items: list[Any]) -> list[Any]:
        """The items of a sequence, in pieces if they are large together."""
        groups = self.split(items)
        if len(groups) == 1:
            return items
        node = [self.sequence([*group, self.nothing(group)]) for group in groups[:-1]]
        return [*node, self.sequence(groups[-1]) if len(groups[-1]) > 1 else groups[-1][0]]

    def nothing(self, group: list[Any]) -> ir.Const:
        node = ir.Const(group[-1].at, None)
        self.sizes[id(node)] = 1
        return node

    def sequence(self, items: list[Any]) -> ir.Apart:
        whole = ir.Seq(items[0].at, items)
        self.measure(whole)
        return self.piece(whole.at, whole)

    def scope(self, node: ir.Let) -> None:
        """The variables of a scope, set in pieces if there are many."""
        inits = node.inits
        defines: list[Any] = [ir.Define(value.at, var, value) for var, value in inits]
        for define in defines:
            define.value = self.apart(define.value)
            self.measure(define)
        if sum(map(self.size, defines)) < PIECE:
            node.inits = [(var, define.value) for (var, _), define in zip(inits, defines, strict=True)]
            return
        whole = ir.Seq(node.at, [*self.in_order([*defines, self.nothing(defines)]), node.body])
        self.measure(whole)
        node.inits, node.body = [], whole

    def tested(self, items: list[Any], node: ir.Logic) -> list[Any]:
        """The items of ``and`` or ``or``, as several of them in a row if they are large together."""
        groups = self.split(items)
        if len(groups) == 1:
            return items
        tests: list[Any] = []
        for group in groups:
            part = ir.Logic(group[0].at, node.every, group)
            self.measure(part)
            tests.append(self.piece(part.at, part) if len(group) > 1 else group[0])
        return tests

    def clauses(self, node: ir.Cond) -> None:
        """The clauses of a choice; when they are large together, the later ones become the ``else`` of the first."""
        first, *others = self.split(node.clauses)
        for group in reversed(others):
            rest = ir.Cond(group[0].test.at, group, node.other)
            self.measure(rest)
            node.other = self.piece(rest.at, rest)
        node.clauses = first

    def group(self, items: list[Any]) -> None:
        """Operands in groups, if they are large together and not for their number alone."""
        if len(items) < 2 or sum(map(self.size, items)) < max(PIECE, 2 * _VALUE * len(items)):
            return
        groups = self.split(items)
        self.groups[id(items)] = groups
        for group in groups:
            if len(group) > 1:
                for each in group:
                    self.sizes[id(each)] = _VALUE


EMITTERS = (emit_calls, emit_control, emit_values)
"""The modules with functions that write code for the nodes of a program; importing them declares these functions."""
_SHALLOW = 30
_MAYBE_LARGE = 500
"""Nodes of program text from which on the size of their code is measured."""
_LARGE = 12_000
"""Python nodes from which on code is compiled in pieces: some 15 ms."""


def defined_in(tree: Seq) -> set[str]:
    """The variables that the forms of a part define."""
    return {item.name for item in tree.items if isinstance(item, DefineGlobal)}


def compiled_part(
    analyzer: Analyzer,
    tree: Seq,
    first: Node,
    filename: str,
    direct: set[str] | None = None,
    *,
    labelled: Following = False,
) -> Part:
    """Compile forms; calls of ``direct`` variables (None: of any) need no lookup in the environment.

    ``labelled``: its values may stand in boxes.
    """
    if labelled == "strict":
        from agentflow.lang.kernel.ready import sexp_part  # few flows have such a policy

        return sexp_part(analyzer, tree)
    groups = hoist(tree, _LARGE) if nodes_of(tree.items) + analyzer.expanded > _MAYBE_LARGE else None
    generator = Generator(analyzer.source, set(analyzer.globals_defined), groups, labelled=labelled)
    generator.global_code = {
        name: lam
        for name, lam in analyzer.global_lambdas.items()
        if analyzer.globals_defined.get(name) == 1
        and name in analyzer.global_calls
        and (direct is None or name in direct)
    }
    link = _link(generator, tree, first)
    deep = max(analyzer.deepest, generator.deepest) > _SHALLOW

    def compiler(module: ast.Module) -> CodeType:
        return _compile_module(module, filename, deep=deep)

    pieces: dict[str, CodeType] = {}
    if groups is None:
        compiled = compiler(ast.Module([link], []))
    else:
        compiled, pieces = compile_in_pieces(link, compiler)
    cells = {py: name for name, py in generator.cells.items()}
    code = stamp(compiled, CodeInfo(generator.positions, generator.names, cells, generator.lambdas), pieces)
    space: dict[str, Any] = {"__builtins__": {}}
    exec(code, space)
    return Part(
        cast("Callable[..., Code]", space["link"]),
        tuple(value for _, value in generator.constants),
        tuple((name, name in analyzer.globals_defined) for name in generator.cells),
    )


def _compile_module(module: ast.Module, filename: str, *, deep: bool) -> CodeType:
    """Python's own compiler recurses over the tree: a deep one gets a stack of its own."""

    def work() -> CodeType:
        return compile(module, filename, "exec", dont_inherit=True)

    return on_fresh_stack(work) if deep else work()


def _link(g: Generator, tree: Any, first: Node) -> ast.FunctionDef:
    g.loc = g.location_of(first)
    fn = g.fn

    def build() -> None:
        g.stmt(tree, RETURN)
        body, g.body = g.body, []
        for name in g.global_py.values():
            g.assign(name[1], g.const_param(NOTHING, "NOTHING"))
        g.body.extend(body)

    main = g.function("main", [], None, fn, build, prologue=False)
    g.constants.append(("K", tuple(g.packed)))
    params = ["E", *(name for name, _ in g.constants), *g.cells.values()]
    args = ast.arguments([], [ast.copy_location(ast.arg(each), main) for each in params], None, [], [], None, [])
    body: list[ast.stmt] = [main, ast.Return(g.name("main"), **g.loc)]
    link = ast.FunctionDef("link", args, body, [])
    ast.copy_location(link, main)
    link.type_params = []  # type: ignore[attr-defined]
    return link
