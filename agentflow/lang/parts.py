"""The parts that a large program is compiled in: groups of its top-level forms, each a Python module of its own.

Python's compiler holds the interpreter for as long as a module takes it, whichever thread it runs on. Top-level forms
share nothing but cells of the environment, so they can be compiled apart; a direct call of a procedure is one within its part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentflow.lang.abi import Code, Runtime
from agentflow.lang.analyzer import nodes_in
from agentflow.lang.calling import TAIL, bounce
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.ir import IR, Seq

PART_NODES = 2_500
"""Nodes of a part, unless it is a single form, about 1,000 statements. What is too much code is compiled in pieces."""


@dataclass(frozen=True, slots=True)
class Part:
    """A compiled part: ``link`` makes its code of its ``constants`` and of the environment's ``cells`` (name, own)."""

    link: Callable[..., Code]
    constants: tuple[Any, ...]
    cells: tuple[tuple[str, bool], ...]

    def code(self, env: SexpEnvironment) -> Code:
        """The part as a coroutine function ``(rt, d)`` on the variables of ``env``."""
        if not self.cells:
            return self.link(env, *self.constants)
        cells = [env.own(name) if own else env.find(name) or env.own(name) for name, own in self.cells]
        return self.link(env, *self.constants, *cells)


def split(tree: Seq) -> list[Seq]:
    """The forms of a program in parts of at most :data:`PART_NODES` nodes; a small program is one part."""
    if nodes_of(tree.items) <= PART_NODES:
        return [tree]
    parts: list[list[IR]] = [[]]
    size = 0
    for item in _flat(tree):
        nodes = nodes_in(item.at)
        if parts[-1] and size + nodes > PART_NODES:
            parts.append([])
            size = 0
        parts[-1].append(item)
        size += nodes
    return [Seq(items[-1].at, items) for items in parts]


def nodes_of(items: Sequence[IR]) -> int:
    """How many nodes forms have."""
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
    """One code that runs all of these, and gives the value of the last."""
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
