"""Parts of programs: whole forms that are compiled together, and the code of all in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.lang.abi import Code, Runtime
from agentflow.lang.analyzer import nodes_in
from agentflow.lang.calling import TAIL, bounce
from agentflow.lang.ir import IR, Seq

PART_NODES = 2_500
"""Number of nodes of a part, unless it is a single form, about 1,000 statements. More code is compiled in pieces."""


@frozen
class Part:
    """A compiled part: ``link`` makes its code, a coroutine function ``(rt, d)``, from the environment and its ``cells`` (name, own)."""

    link: Callable[..., Code]
    cells: tuple[tuple[str, bool], ...]


def split(tree: Seq) -> list[tuple[Seq, int]]:
    """The forms of a program in parts of at most :data:`PART_NODES` nodes, with the number of each; a small program is one part."""
    total = nodes_of(tree.items)
    if total <= PART_NODES:
        return [(tree, total)]
    parts: list[list[IR]] = [[]]
    sizes: list[int] = [0]
    for item in _flat(tree):
        nodes = nodes_in(item.at)
        if parts[-1] and sizes[-1] + nodes > PART_NODES:
            parts.append([])
            sizes.append(0)
        parts[-1].append(item)
        sizes[-1] += nodes
    return [(Seq(items[-1].at, items), size) for items, size in zip(parts, sizes, strict=True)]


def nodes_of(items: Sequence[IR]) -> int:
    """The number of nodes of forms."""
    return sum([nodes_in(item.at) for item in items])


def _flat(tree: Seq) -> list[IR]:
    """The forms in order, those within ``begin`` too."""
    flat: list[IR] = []
    pending = list(reversed(tree.items))
    while pending:
        item = pending.pop()
        if isinstance(item, Seq) and item.items:
            pending.extend(reversed(item.items))
        else:
            flat.append(item)
    return flat


def in_order(codes: Sequence[Code]) -> Code:
    """One code that runs all of these, and returns the value of the last."""
    if len(codes) == 1:
        return codes[0]

    async def main(rt: Runtime, d: int) -> Any:
        value: Any = None
        for code in codes:
            value = await code(rt, d)
            if value is TAIL:
                value = await bounce(rt, d)
        return value

    return main
