"""The syntax tree: produced by the reader, transformed by macros, read by the analyzer.

Offsets are character offsets into one :class:`~agentflow.core.data.source.Source`. Nothing here recurses.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.values import Symbol


class Atom:
    """A literal: integer, float, string, boolean or none."""

    __slots__ = ("end", "start", "value")

    def __init__(self, value: Any, start: int, end: int) -> None:
        self.value = value
        self.start = start
        self.end = end


class Name:
    """A symbol."""

    __slots__ = ("end", "name", "start")

    def __init__(self, name: str, start: int, end: int) -> None:
        self.name = name
        self.start = start
        self.end = end


class Form:
    """A list in parentheses; ``()`` is nil."""

    __slots__ = ("end", "items", "start")

    def __init__(self, items: list[Node], start: int, end: int) -> None:
        self.items = items
        self.start = start
        self.end = end


class DictForm:
    """A dict literal: alternating keys and values."""

    __slots__ = ("end", "items", "start")

    def __init__(self, items: list[Node], start: int, end: int) -> None:
        self.items = items
        self.start = start
        self.end = end


Node: TypeAlias = Atom | Name | Form | DictForm


def head_name(node: Node) -> str | None:
    """The name at the head of a form, or None."""
    if type(node) is Form and node.items:
        first = node.items[0]
        if type(first) is Name:
            return first.name
    return None


def datum(node: Node, origins: dict[int, Node] | None = None) -> Any:
    """A new value of a quoted ``node``.

    ``origins``, if given, is filled with the node of each list and symbol, by identity.
    """
    out: list[Any] = []
    pending: list[tuple[Node, list[Any]]] = [(node, out)]
    dicts: list[tuple[dict[Any, Any], list[Any]]] = []
    while pending:
        at, target = pending.pop()
        kind = type(at)
        if kind is Atom:
            target.append(cast(Atom, at).value)
        elif kind is Name:
            symbol = Symbol(cast(Name, at).name)
            if origins is not None:
                origins[id(symbol)] = at
            target.append(symbol)
        else:
            parts: list[Any] = []
            if kind is Form:
                target.append(parts)
                if origins is not None:
                    origins[id(parts)] = at
            else:
                result: dict[Any, Any] = {}
                target.append(result)
                dicts.append((result, parts))
            pending.extend((item, parts) for item in reversed(cast(Form, at).items))
            # A child appends to its own parent's list only, and siblings come off the stack in order.
    for result, parts in dicts:
        for index in range(0, len(parts), 2):
            key = parts[index]
            result[key.name if isinstance(key, Symbol) else key] = parts[index + 1]
    return out[0]


def from_datum(value: Any, site: Node, origins: dict[int, Node], max_nodes: int, max_depth: int) -> Node:
    """Convert a datum back to syntax: lists and symbols in ``origins`` keep their span, others get that of ``site``.

    Raises ValueError for a value other than data and OverflowError past ``max_nodes`` nodes or ``max_depth`` levels.
    """
    out: list[Node] = []
    pending: list[tuple[Any, list[Node], int]] = [(value, out, 0)]
    count = 0
    while pending:
        at, target, depth = pending.pop()
        count += 1
        if count > max_nodes:
            raise OverflowError("nodes")
        if depth > max_depth:
            raise OverflowError("depth")
        origin = origins.get(id(at), site)
        start, end = origin.start, origin.end
        if isinstance(at, Symbol):
            target.append(Name(at.name, start, end))
        elif at is None or isinstance(at, str | int | float):
            target.append(Atom(at, start, end))
        elif isinstance(at, list):
            form = Form([], start, end)
            target.append(form)
            pending.extend((item, form.items, depth + 1) for item in reversed(cast(list[Any], at)))
        elif is_dict(at):
            dict_form = DictForm([], start, end)
            target.append(dict_form)
            flat: list[Any] = [part for pair in cast(dict[Any, Any], at).items() for part in pair]
            pending.extend((item, dict_form.items, depth + 1) for item in reversed(flat))
        else:
            raise ValueError(type(at).__name__)
    return out[0]
