"""The code of programs under a strict policy: lowered, and carried out by the :class:`~agentflow.lang.kernel.machine.Machine`."""

from __future__ import annotations

from agentflow.lang.abi import Code, LinkableCode
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.environment import Cell, SexpEnvironment
from agentflow.lang.ir import Seq
from agentflow.lang.kernel import door, machine_calls, machine_control, machine_variables
from agentflow.lang.kernel.lower_sexp import SexpLowering
from agentflow.lang.kernel.machine import Machine
from agentflow.lang.kernel.nodes import Node
from agentflow.lang.python.lowering import Lowering
from agentflow.lib.text.stack import on_fresh_stack

RULES = (door, machine_calls, machine_control, machine_variables)
"""The modules that make nodes ready; importing them declares these functions."""
_SHALLOW = 10
"""Levels of nesting that are lowered on the caller's stack."""


def python_code(g: Lowering, root: Node) -> LinkableCode:
    """The code of a text in Python."""
    return _code(root, g, set(g.scopes.defined), python=True, deep=g.deepest > _SHALLOW)


def sexp_code(analyzer: Analyzer, tree: Seq) -> LinkableCode:
    """The code of an analysed program."""
    lowering = SexpLowering(analyzer.source, "strict")
    root = lowering.whole(tree)
    deep = analyzer.deepest > _SHALLOW
    return _code(root, lowering, set(analyzer.globals_defined), python=False, deep=deep)


def _code(
    root: Node, lowering: Lowering | SexpLowering, defined: set[str], *, python: bool, deep: bool
) -> LinkableCode:
    free, frame = sorted(lowering.free), lowering.frame

    def link(env: SexpEnvironment, *cells: Cell) -> Code:
        machine = Machine(env, dict(zip(free, cells, strict=True)), python=python)
        return on_fresh_stack(lambda: machine.whole(root, frame)) if deep else machine.whole(root, frame)

    return LinkableCode(link, tuple([(name, name in defined) for name in free]))
