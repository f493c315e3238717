"""What in a program gives its value: the calls in tail position, whose words a reader of the program may be shown."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.ir import IR

_AS_IT_IS = frozenset({"value-of", "content"})
"""Primitives that give what their operand says."""


def answering(tree: IR) -> list[tuple[int, int]]:
    """Where in the text the calls begin and end of which one, made once, gives the value of the program ``tree``.

    Calls within procedures are none of them, since nobody knows here how often those are called; nor is what may be done
    again or undone (``retry``, ``race``, ``try``).
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
