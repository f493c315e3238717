"""A strand as primitives see it: its limits, and a count of what was charged."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentflow.core.limits import Limits


@dataclass
class Bounds:
    """Has no end of steps; ``charged`` counts them."""

    limits: Limits = field(default_factory=Limits)
    charged: int = 0

    def charge(self, steps: int) -> None:
        self.charged += steps
