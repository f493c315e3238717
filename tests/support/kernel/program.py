"""Programs that run by the interpreter of the kernel, or compiled in small pieces, wherever compiled ones run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentflow.lang.abi import LinkableCode
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.ir import Seq
from agentflow.lang.kernel.linking import compiled
from agentflow.lang.kernel.lower_sexp import SexpLowering
from agentflow.lang.kernel.nodes import FrameLayout, Node
from agentflow.lang.program import Program, analysis_of
from agentflow.lang.python.compiling import lowering_of, text_code, whole
from agentflow.lang.python.lowering import Lowering
from agentflow.lang.reader import read
from tests.support.kernel.interpreter import Interpreter


def interpreted(program: Program, names: Any) -> Program:
    """``program``, which the compiler took, run by the interpreter; ``names`` makes the tasks that it defines."""
    root, frame, free, own = (_of_python if program.surface == "python" else _of_sexp)(program, names)

    def link(env: SexpEnvironment, *cells: Any) -> Callable[..., Any]:
        interpreter = Interpreter(env, dict(zip(free, cells, strict=True)), python=program.surface == "python")

        async def main(rt: Any, d: int) -> Any:
            return await interpreter.whole(root, frame, rt, d)

        return main

    return _with_code(program, LinkableCode(link, tuple((name, name in own) for name in free)))


def in_pieces(program: Program, names: Any, room: int) -> Program:
    """``program``, which the compiler took, compiled in pieces of some ``room`` Python nodes."""
    if program.surface == "python":
        g, root = _read_python(program, names)
        return _with_code(program, text_code(g, root, program.filename, room))
    return _with_code(program, compiled(*_analysed(program, names), program.filename, room))


def _with_code(program: Program, code: LinkableCode) -> Program:
    return Program(
        program.source,
        program.filename,
        code,
        program.free,
        program.own,
        program.allow,
        program.limits,
        doubts=program.doubts,
    )


def _analysed(program: Program, names: Any) -> tuple[Analyzer, Seq]:
    forms = read(program.source, limits=program.limits)
    describe = program.free.__getitem__
    return analysis_of(program.source, forms, describe, program.limits, program.allow, port=names)


def _of_sexp(program: Program, names: Any) -> tuple[Node, FrameLayout, list[str], set[str]]:
    analyzer, tree = _analysed(program, names)
    lowering = SexpLowering(program.source, False)
    root = lowering.whole(tree)
    return root, lowering.frame, sorted(lowering.free), set(analyzer.globals_defined)


def _read_python(program: Program, names: Any) -> tuple[Lowering, Node]:
    describe = program.free.__getitem__
    g = lowering_of(program.source, describe, program.limits, program.allow, names)
    root = whole(g)
    assert root is not None
    return g, root


def _of_python(program: Program, names: Any) -> tuple[Node, FrameLayout, list[str], set[str]]:
    g, root = _read_python(program, names)
    return root, g.frame, sorted(g.free), set(g.scopes.defined)
