"""A strand as primitives see it: its limits, and a count of what was charged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agentflow.core.data.limits import Limits
from agentflow.lang.builtins import Primitive
from agentflow.lang.calling import Sliced


@dataclass
class Bounds:
    """Has no end of steps; ``charged`` counts them."""

    limits: Limits = field(default_factory=Limits)
    charged: int = 0

    def charge(self, steps: int) -> None:
        self.charged += steps

    def allocate(self, count: int) -> None:
        """Memory is not counted."""

    def fresh_name(self, stem: str) -> str:
        return f"{stem}%1"

    def call(self, primitive: Primitive, *arguments: Any) -> Any:
        """The value of a primitive that calls no procedures; long work is carried out and charged."""
        value = primitive.function(self, *arguments) if primitive.needs_rt else primitive.function(*arguments)
        if type(value) is not Sliced:
            return value
        while True:
            try:
                self.charge(next(value.work))
            except StopIteration as done:
                return done.value
