"""The calls in tail position, with the program's value as their result: their output may be streamed as the answer."""

from __future__ import annotations

from agentflow.core.data.known_names import Names
from agentflow.lang import ir
from agentflow.lang.ir import IR
from agentflow.lang.program import Program, analysis_of, describer
from agentflow.lang.reader import read
from agentflow.lib.text.stack import collector_paused

_AS_IT_IS = frozenset({"value-of", "content"})
"""Primitives that return the text of their operand."""


def answer_spans(program: Program, names: Names | None = None) -> frozenset[tuple[int, int]]:
    """The spans of the calls in tail position of a program: see :func:`answering`.

    ``names`` are those that it was compiled with.
    """
    if program.source.surface != "sexp":
        return frozenset()
    describe = describer(names, frozenset(name for name, info in program.free.items() if info.kind == "variable"))
    with collector_paused():
        forms = read(program.source, limits=program.limits)
        _, tree = analysis_of(program.source, forms, describe, program.limits, program.allow, port=names)
    return frozenset(answering(tree))


def answering(tree: IR) -> list[tuple[int, int]]:
    """The spans of the calls in tail position of the program ``tree``; one of them, run once, returns its value.

    Calls within procedures do not count, since those may be called any number of times; nor do calls that may be repeated
    or abandoned (``retry``, ``race``, ``try``).
    """
    calls: list[tuple[int, int]] = []
    pending: list[IR] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ir.EffectCall | ir.Call):
            calls.append((node.at.start, node.at.end))
        elif isinstance(node, ir.PrimCall) and node.primitive.name in _AS_IT_IS and len(node.args) == 1:
            pending.append(node.args[0])
        elif isinstance(node, ir.If):
            pending += [node.then, node.other]
        elif isinstance(node, ir.Cond):
            pending += [each.body for each in node.clauses]
            pending.append(node.other)
        elif isinstance(node, ir.Seq | ir.Logic) and node.items:
            pending.append(node.items[-1])
        elif isinstance(node, ir.Let | ir.NamedLoop):
            pending.append(node.body)
    return calls
