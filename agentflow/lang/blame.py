"""Finds the span of the argument an error is about, from the call's text, when the error is shown."""

from __future__ import annotations

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source, Span
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.reader import read_datum_nodes
from agentflow.lang.syntax import Form, Name, Node, head_name

LONGEST_CALL = 2_000
"""Maximum length of a call's text that is read again, in characters."""


def span_of_position(span: Span, procedure: str, position: int) -> Span:
    """The operand at ``position`` (from 1) of the call of a primitive at ``span``; ``span`` itself when another call is."""
    call = _call(span)
    head = head_name(call) if call is not None else None
    primitive = PRIMITIVES.get(head) if head is not None else None
    if call is None or primitive is None or procedure not in (head, primitive.canonical):
        return span
    return _within(span, call.items[position]) if 0 < position < len(call.items) else span


def span_of_name(span: Span, names: list[str]) -> Span:
    """The first argument ``(name expr)`` of the call at ``span`` that has one of the names; ``span`` itself without one."""
    call = _call(span)
    for item in call.items[1:] if call is not None else ():
        if isinstance(item, Form) and len(item.items) == 2:
            first = item.items[0]
            if (first.name if isinstance(first, Name) else getattr(first, "value", None)) in names:
                return _within(span, item)
    return span


def _call(span: Span) -> Form | None:
    if span.end - span.start > LONGEST_CALL:
        return None
    try:
        nodes = read_datum_nodes(Source(span.source.name, span.text))
    except AgentflowError:
        return None
    return nodes[0] if len(nodes) == 1 and isinstance(nodes[0], Form) else None


def _within(span: Span, node: Node) -> Span:
    return Span(span.source, span.start + node.start, span.start + node.end)
