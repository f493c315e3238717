"""Program text as a tree with places: what the reader makes, what macros are given, what the analyzer reads.

Offsets are character offsets into one :class:`~agentflow.core.source.Source`. Nothing here recurses.
"""

from __future__ import annotations

from typing import Any, TypeAlias, cast

from agentflow.core.values import Symbol


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
    """A dict literal: keys and values in turn."""

    __slots__ = ("end", "items", "start")

    def __init__(self, items: list[Node], start: int, end: int) -> None:
        self.items = items
        self.start = start
        self.end = end


Node: TypeAlias = Atom | Name | Form | DictForm


def head_name(node: Node) -> str | None:
    """The name a form begins with, if it does."""
    if type(node) is Form and node.items:
        first = node.items[0]
        if type(first) is Name:
            return first.name
    return None


def datum(node: Node, places: dict[int, Node] | None = None) -> Any:
    """The value a quoted ``node`` stands for, built anew.

    ``places``, when given, learns which node each list and symbol came from, by identity.
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
            if places is not None:
                places[id(symbol)] = at
            target.append(symbol)
        else:
            parts: list[Any] = []
            if kind is Form:
                target.append(parts)
                if places is not None:
                    places[id(parts)] = at
            else:
                made: dict[Any, Any] = {}
                target.append(made)
                dicts.append((made, parts))
            pending.extend((item, parts) for item in reversed(cast(Form, at).items))
            # A child appends to its own parent's list only, and siblings come off the stack in order.
    for made, parts in dicts:
        for index in range(0, len(parts), 2):
            key = parts[index]
            made[key.name if isinstance(key, Symbol) else key] = parts[index + 1]
    return out[0]


def from_datum(value: Any, place: Node, places: dict[int, Node], max_nodes: int, max_depth: int) -> Node:
    """A datum as syntax again: lists and symbols that ``places`` knows keep their place, the rest get ``place``.

    Raises ValueError for a value that is no data and OverflowError past ``max_nodes`` nodes or ``max_depth`` levels.
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
        known = places.get(id(at), place)
        start, end = known.start, known.end
        if isinstance(at, Symbol):
            target.append(Name(at.name, start, end))
        elif at is None or isinstance(at, str | int | float):
            target.append(Atom(at, start, end))
        elif isinstance(at, list):
            form = Form([], start, end)
            target.append(form)
            pending.extend((item, form.items, depth + 1) for item in reversed(cast(list[Any], at)))
        elif isinstance(at, dict):
            made = DictForm([], start, end)
            target.append(made)
            flat: list[Any] = [part for pair in cast(dict[Any, Any], at).items() for part in pair]
            pending.extend((item, made.items, depth + 1) for item in reversed(flat))
        else:
            raise ValueError(type(at).__name__)
    return out[0]
