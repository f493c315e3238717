"""The calls in tail position, whose result is the program's value: their output may be streamed as the answer."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.ir import IR

_AS_IT_IS = frozenset({"value-of", "content"})
"""Primitives that return the text of their operand."""


def answering(tree: IR) -> list[tuple[int, int]]:
    """The spans of the calls in tail position of the program ``tree``; one of them, run once, gives its value.

    Calls within procedures do not count, since those may be called any number of times; nor does what may be repeated or
    abandoned (``retry``, ``race``, ``try``).
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
        elif isinstance(node, ir.Let | ir.Apart | ir.NamedLoop):
            pending.append(node.body)
    return calls


__all__ = ["answering"]
