"""Compiles generated code, and makes parts of programs of it."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType
from typing import Any

from agentflow.core.data.labels import Following
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.calling import NOTHING
from agentflow.lang.ir import DefineGlobal, Seq
from agentflow.lang.kernel import generate_calls, generate_control, generate_functions, generate_values
from agentflow.lang.kernel.code_writer import CodeWriter
from agentflow.lang.kernel.cutting import Part
from agentflow.lang.kernel.generator import RETURN, Generator
from agentflow.lang.kernel.lower_sexp import SexpLowering
from agentflow.lang.kernel.nodes import Node
from agentflow.lang.syntax import Node as Syntax
from agentflow.lang.trace import CodeInfo, stamp
from agentflow.lib.text.stack import on_fresh_stack

RULES = (generate_calls, generate_control, generate_functions, generate_values)
"""The modules with functions that generate code for nodes; importing them declares these functions."""
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
    size: int,
    first: Syntax,
    filename: str,
    direct: set[str] | None = None,
    *,
    labelled: Following = False,
) -> Part:
    """Compile forms of ``size`` nodes; calls of ``direct`` variables (None: of any) need no lookup in the environment.

    ``labelled``: its values may stand in boxes.
    """
    if labelled == "strict":
        from agentflow.lang.kernel.ready import sexp_part  # few flows have such a policy

        return sexp_part(analyzer, tree)
    lowering = SexpLowering(analyzer.source, labelled)
    root = lowering.whole(tree)
    groups = room = None
    if size + analyzer.expanded > _MAYBE_LARGE:
        from agentflow.lang.kernel.hoisting import hoist  # most programs are small
        from agentflow.lang.kernel.pieces import ROOM

        groups = hoist(root, _LARGE)
        room = None if groups is None else ROOM
    procedures = {
        name: lowering.procedures[id(lam)]
        for name, lam in analyzer.global_lambdas.items()
        if analyzer.globals_defined.get(name) == 1
        and name in analyzer.global_calls
        and (direct is None or name in direct)
        and id(lam) in lowering.procedures
    }
    generator = Generator(analyzer.source, set(analyzer.globals_defined), procedures, groups, labelled=labelled)
    generator.move_to(analyzer.source.span(first.start, first.end))
    link = generator.link(_main(generator, root))
    deep = max(analyzer.deepest, generator.deepest) > _SHALLOW
    return part_of(generator, link, filename, deep=deep, room=room)


def _main(g: Generator, root: Node) -> ast.AsyncFunctionDef:
    def build() -> None:
        g.stmt(root, RETURN)
        body, g.body = g.body, []
        for _, closure in g.global_names.values():
            g.assign(closure, g.const_param(NOTHING, "NOTHING"))
        g.body += body

    return g.function("main", [], g.main, build)


def part_of(writer: CodeWriter, link: ast.FunctionDef, filename: str, *, deep: bool, room: int | None = None) -> Part:
    """The compiled code of ``link``: in pieces of some ``room`` Python nodes, if given. ``deep``: on a stack of its own."""

    def compiler(module: ast.Module) -> CodeType:
        # Python's own compiler recurses over the tree.
        def work() -> CodeType:
            return compile(module, filename, "exec", dont_inherit=True)

        return on_fresh_stack(work) if deep else work()

    pieces: dict[str, CodeType] = {}
    if room is None:
        compiled = compiler(ast.Module([link], []))
    else:
        from agentflow.lang.kernel.pieces import compile_in_pieces

        compiled, pieces = compile_in_pieces(link, compiler, room)
    cells = {py: name for name, py in writer.cells.items()}
    code = stamp(compiled, CodeInfo(writer.positions, writer.names, cells, writer.lambdas), pieces)
    # A global costs a call nothing until it is read; a variable of ``link`` would be copied into every call and every procedure.
    space: dict[str, Any] = {"__builtins__": {}, "K": tuple(writer.packed), **dict(writer.constants)}
    exec(code, space)
    make: Callable[..., Any] = space.pop("link")
    return Part(make, tuple([(name, name in writer.defined) for name in writer.cells]))
