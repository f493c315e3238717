"""The cost of an effect of a durable run, without those of its steps that have records of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from agentflow.core.data.messages import Usage
from agentflow.core.data.money import NANO
from agentflow.durable.values.codec import write_usage

_FIELDS = len(fields(Usage))


class Meter:
    """Adds up the cost of the model calls within an effect, without those that have records of their own."""

    __slots__ = ("_nanos", "_outer", "_unpriced", "_usage")

    def __init__(self, outer: Meter | None) -> None:
        self._outer = outer
        self._usage: list[int] | None = None
        self._nanos = 0
        self._unpriced = 0

    def add(self, usage: Usage, cost: float | None) -> None:
        """Count a model call; ``cost`` in US dollars, None if unknown. The surrounding effects count it themselves."""
        self._count(write_usage(usage), cost, 1)

    def recorded(self, step: Meter) -> None:
        """Subtract what ``step``, an effect within this one, has recorded itself."""
        self._count(step.usage, step.cost, -1)
        if self._outer is not None:
            self._outer.recorded(step)

    def _count(self, usage: Iterable[int] | None, cost: float | None, sign: int) -> None:
        if usage is not None:
            counted = self._usage = self._usage or [0] * _FIELDS
            for at, tokens in enumerate(usage):
                counted[at] += sign * tokens
        if cost is None:
            self._unpriced += sign
        else:
            self._nanos += sign * round(cost * NANO)

    @property
    def usage(self) -> tuple[int, ...] | None:
        """The tokens in the order of the fields of Usage; None if all are zero."""
        return tuple(self._usage) if self._usage is not None and any(self._usage) else None

    @property
    def cost(self) -> float | None:
        """The cost in USD; None if a price is unknown."""
        return None if self._unpriced else self._nanos / NANO


__all__ = ["Meter"]
