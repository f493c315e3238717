"""Makes code of analysed programs, and compiles generated code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType
from typing import Any

from agentflow.core.data.labels import Following
from agentflow.lang.abi import LinkableCode
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.calling import NOTHING
from agentflow.lang.ir import Seq
from agentflow.lang.kernel import generate_calls, generate_control, generate_functions, generate_values
from agentflow.lang.kernel.code_writer import CodeWriter
from agentflow.lang.kernel.generator import RETURN, Generator
from agentflow.lang.kernel.lower_sexp import SexpLowering
from agentflow.lang.kernel.nodes import Node
from agentflow.lang.trace import CodeInfo, stamp
from agentflow.lib.text.stack import on_fresh_stack

RULES = (generate_calls, generate_control, generate_functions, generate_values)
"""The modules with functions that generate code for nodes; importing them declares these functions."""
_SHALLOW = 30
_LARGE = 12_000
"""Python nodes from which on code is compiled in pieces: some 15 ms."""
ROOM = 5_500
"""Python nodes of a module, unless no nested function is left to be compiled alone: some 10 ms."""


def compiled(
    analyzer: Analyzer, tree: Seq, filename: str, room: int | None = None, *, labelled: Following = False
) -> LinkableCode:
    """The code of an analysed program. A large one is compiled in pieces of some ``room`` Python nodes (None: as many as compile quickly).

    ``labelled``: its values may stand in boxes.
    """
    if labelled == "strict":
        from agentflow.lang.kernel.ready import sexp_code  # few flows have such a policy

        return sexp_code(analyzer, tree)
    lowering = SexpLowering(analyzer.source, labelled)
    root = lowering.whole(tree)
    procedures = {
        name: lowering.procedures[id(lam)]
        for name, lam in analyzer.global_lambdas.items()
        if analyzer.globals_defined.get(name) == 1 and name in analyzer.global_calls and id(lam) in lowering.procedures
    }
    generator = Generator(analyzer.source, set(analyzer.globals_defined), procedures, labelled=labelled)
    first = tree.items[0].at
    generator.move_to(analyzer.source.span(first.start, first.end))
    link = generator.link(_main(generator, root))
    deep = max(analyzer.deepest, generator.deepest) > _SHALLOW
    # typical code has so many nodes for each of its positions and temporaries
    if room is None and 15 * len(generator.locations) + 18 * generator.counter > _LARGE:
        room = ROOM
    return linkable(generator, link, filename, deep=deep, room=room)


def _main(g: Generator, root: Node) -> ast.AsyncFunctionDef:
    def build() -> None:
        g.stmt(root, RETURN)
        body, g.body = g.body, []
        for _, closure in g.global_names.values():
            g.assign(closure, g.const_param(NOTHING, "NOTHING"))
        g.body += body

    return g.function("main", [], g.main, build)


def linkable(writer: CodeWriter, link: ast.FunctionDef, filename: str, *, deep: bool, room: int | None) -> LinkableCode:
    """The compiled code of ``link``, in pieces of some ``room`` Python nodes (None: in one). ``deep``: on a stack of its own."""

    def compiler(module: ast.Module) -> CodeType:
        # Python's own compiler recurses over the tree.
        def work() -> CodeType:
            return compile(module, filename, "exec", dont_inherit=True)

        return on_fresh_stack(work) if deep else work()

    pieces: dict[str, CodeType] = {}
    if room is None:
        whole = compiler(ast.Module([link], []))
    else:
        from agentflow.lang.kernel.cutting import compile_in_pieces  # most programs are small

        whole, pieces = compile_in_pieces(link, compiler, room)
    cells = {py: name for name, py in writer.cells.items()}
    code = stamp(whole, CodeInfo(writer.positions, writer.names, cells, writer.lambdas), pieces)
    # A global costs a call nothing until it is read; a variable of ``link`` would be copied into every call and every procedure.
    space: dict[str, Any] = {"__builtins__": {}, "K": tuple(writer.packed), **dict(writer.constants)}
    exec(code, space)
    make: Callable[..., Any] = space.pop("link")
    return LinkableCode(make, tuple([(name, name in writer.defined) for name in writer.cells]))
