"""Writes and compiles the code of an analysed program, a part at a time."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType
from typing import Any, cast

from agentflow.core.data.labels import Following
from agentflow.lang import emit_calls, emit_control, emit_values
from agentflow.lang.abi import Code
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.calling import NOTHING
from agentflow.lang.codegen import Generator
from agentflow.lang.cutting import compile_in_pieces
from agentflow.lang.generated import RETURN
from agentflow.lang.hoisting import hoist
from agentflow.lang.ir import DefineGlobal, Seq
from agentflow.lang.parts import Part, nodes_of
from agentflow.lang.stack import on_fresh_stack
from agentflow.lang.syntax import Node
from agentflow.lang.trace import CodeInfo, stamp

EMITTERS = (emit_calls, emit_control, emit_values)
"""The modules whose functions write code for the nodes of a program; importing them is what declares them."""
_SHALLOW = 30
_MAYBE_LARGE = 500
"""Nodes of program text from which on it is worth looking how much code they are."""
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
        if g.strict is not None:
            g.strict.enter(tree)
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
