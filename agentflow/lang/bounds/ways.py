"""The ways out of a part of a program, each with the cost up to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agentflow.lang.bounds.cost import FREE, Cost
from agentflow.lang.bounds.values import NEVER, Value


@dataclass(slots=True)
class WaysOut:
    """The ways out of a part, each with the cost up to it; None for a way that is never taken.

    ``falls``: to the next node, with the value ``result``; ``left``: out of the function, with ``value``; ``raised``: by an error;
    ``broke`` and ``again``: out of a loop, and to its next round.
    """

    falls: Cost | None = None
    left: Cost | None = None
    raised: Cost | None = None
    broke: Cost | None = None
    again: Cost | None = None
    value: Value = NEVER
    result: Value = NEVER

    def but_falling(self, falls: Cost | None, result: Value = NEVER) -> WaysOut:
        """The same with ``falls`` as the way to the next node, None if it is never reached."""
        return WaysOut(falls, self.left, self.raised, self.broke, self.again, self.value, result)

    @property
    def only_falls(self) -> bool:
        """Whether the only way out is to the next node."""
        return self.left is None and self.raised is None and self.broke is None and self.again is None

    def after(self, before: Cost) -> WaysOut:
        """The same after ``before``."""
        if before is FREE:
            return self
        if self.falls is not None and self.only_falls:
            return WaysOut(before.then(self.falls), value=self.value, result=self.result)
        return self.mapped(before.then)

    def mapped(self, change: Callable[[Cost], Cost]) -> WaysOut:
        """The same with the cost of each way changed."""
        falls, left, raised, broke, again = (None if each is None else change(each) for each in self.ways())
        return WaysOut(falls, left, raised, broke, again, self.value, self.result)

    def ways(self) -> tuple[Cost | None, ...]:
        """The costs of all ways."""
        return self.falls, self.left, self.raised, self.broke, self.again

    def either(self, other: WaysOut) -> WaysOut:
        """The ways out of either branch."""
        value, result = self.value.join(other.value), self.result.join(other.result)
        if self.only_falls and other.only_falls:
            return WaysOut(either(self.falls, other.falls), value=value, result=result)
        falls, left, raised, broke, again = map(either, self.ways(), other.ways())
        return WaysOut(falls, left, raised, broke, again, value, result)

    def whole(self) -> Cost:
        """The cost of the most expensive way."""
        cost: Cost | None = None
        for each in self.ways():
            cost = either(cost, each)
        return FREE if cost is None else cost


def either(a: Cost | None, b: Cost | None) -> Cost | None:
    """The cost of either way; each may be missing."""
    if a is None or b is None:
        return b if a is None else a
    return a.otherwise(b)
