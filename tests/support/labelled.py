"""Programs in which every literal stands in a box, as if all of it came from somewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

from agentflow.core.data.labels import Label
from agentflow.core.data.source import Source
from agentflow.lang import ir

LITERAL = frozenset({"literal"})


def label_literals(source: Source, tree: Any) -> None:
    """A pass over an analysed program that puts the value of each literal in a box."""
    seen: set[int] = set()
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, list | tuple):
            pending += [each for each in node if not isinstance(each, str)]
        elif isinstance(node, dict):
            pending += node.values()
        elif isinstance(node, ir.Const | ir.Quote):
            if type(node.value) is not Label:
                node.value = Label(node.value, LITERAL)
        elif type(node).__module__ == ir.__name__:
            pending += [getattr(node, name, None) for name in _fields(node)]


def _fields(node: Any) -> list[str]:
    if dataclasses.is_dataclass(node):
        return [each.name for each in dataclasses.fields(node)]
    names: list[str] = []
    for kind in type(node).__mro__:
        names += getattr(kind, "__slots__", ())
    return [*names, *getattr(node, "__dict__", {})]
