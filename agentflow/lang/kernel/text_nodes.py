"""The kinds of node that only texts in Python become."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from agentflow.core.data.frozen import slotted
from agentflow.lang.kernel.nodes import FrameLayout, Node, Variable


@slotted(eq=False)
class Del(Node):
    """Takes the value of a variable away."""

    variable: Variable | str


@slotted(eq=False)
class Effect(Node):
    """A task or tool by name. ``spread`` are dicts with more arguments. ``gives``: its data, or its result."""

    name: str
    names: tuple[str, ...]
    args: list[Node]
    spread: list[Node] = field(default_factory=list[Node])
    gives: Literal["data", "outcome"] = "data"


@slotted(eq=False)
class Collect(Node):
    """A comprehension: ``body`` is a loop around a :class:`Yield`. ``any`` and ``all`` end at the value that decides."""

    kind: Literal["list", "set", "dict", "any", "all"]
    frame: FrameLayout
    body: Node


@slotted(eq=False)
class Yield(Node):
    """An element of the comprehension around it."""

    key: Node | None
    value: Node | None


@slotted(eq=False)
class Raise(Node):
    """Raises the exception that ``value`` is; without, the one in hand again."""

    value: Node | None


@slotted(eq=False)
class Leave(Node):
    """``return``, ``break``, ``continue``."""

    how: Literal["return", "break", "continue"]
    value: Node | None = None
