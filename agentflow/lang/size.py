"""The size of a program in nodes, for its limit.

Compiling a node of code takes about 50 us and a kilobyte, whatever its kind; a node of quoted data takes much less. So
a limit on nodes bounds both the time and the memory that a text can take before it runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.source import Source
from agentflow.lang.syntax import Atom, Form, Name, Node, head_name

DATA_PER_NODE = 5
"""Number of nodes of quoted data that count as one node of code."""


def check_nodes(source: Source, parts: Iterable[tuple[Sequence[Node], bool]], limit: int, dropped: int) -> None:
    """Refuse a text with too many nodes: forms, names and literals. ``dropped`` forms were read but discarded.

    ``parts`` are nodes in the order of the text, each with whether it is data. Raises LimitExceeded (``limits/nodes``)
    at the first node past ``limit``.
    """
    allowed = limit * DATA_PER_NODE
    total = dropped
    for nodes, data in parts:
        pending = [(iter(nodes), data)]
        while pending:
            rest, data = pending[-1]
            weight = 1 if data else DATA_PER_NODE
            for at in rest:
                total += weight
                if total > allowed:
                    raise _too_many(source, at.start, at.end, limit)
                if type(at) is not Atom and type(at) is not Name:
                    pending.append((iter(cast(Form, at).items), data or head_name(at) == "quote"))
                    break
            else:
                pending.pop()
    if total > allowed:
        raise _too_many(source, 0, 1, limit)


def _too_many(source: Source, start: int, end: int, limit: int) -> LimitExceeded:
    return LimitExceeded(
        f"the program has more than {limit:,} nodes: forms, names and literals",
        limit="nodes",
        allowed=limit,
        used=limit + 1,
        span=source.span(start, end),
        hint=f"give it data by bindings or as a string, quote it ({DATA_PER_NODE} nodes of quoted data count as one), "
        "call other programs, or raise Limits(nodes=...)",
    )
