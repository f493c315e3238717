"""What an analysis finds a program to reach, and the parts of it that have no upper bound."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentflow.core.data.frozen import frozen
from agentflow.lang.syntax import Node


@frozen
class Loose:
    """A part of a program whose effects have no upper bound, and the reason."""

    at: Node
    reason: str


@dataclass(slots=True)
class Reach:
    """What a program can reach: effects by kind and name, and where a name that is data may be called."""

    effects: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    loose: list[Loose] = field(default_factory=list[Loose])
    any_name: dict[int, Node] = field(default_factory=dict[int, Node])

    def noted(self) -> int:
        """The number of reasons so far."""
        return len(self.loose)

    def forget(self, count: int) -> None:
        """Drop the reasons after the first ``count``, which a pass found that is repeated."""
        del self.loose[count:]
