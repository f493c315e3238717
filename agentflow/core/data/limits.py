"""The limits of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from math import ceil, isfinite
from typing import Any, Literal, TypeAlias

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen

NANO = 1_000_000_000
"""Nano-dollars in a US dollar."""
_MOST_USD = 4e9
"""A limit that no sum reaches and that 64 bits hold in nano-dollars."""
_GRAIN = 1e-3
"""Nano-dollars that a float of dollars may be off."""


def nanos(usd: float) -> int:
    """The nearest whole number of nano-dollars to ``usd``; of more than four billion dollars that of four billion."""
    return round(min(usd, _MOST_USD) * NANO)


def nanos_covering(usd: float) -> int:
    """The fewest whole nano-dollars to cover ``usd``."""
    return ceil(min(usd, _MOST_USD) * NANO - _GRAIN)


def added(one: float | None, other: float | None) -> float | None:
    """The sum of ``one`` and ``other`` in US dollars; None if one of them is unknown or not a number."""
    if one is None or other is None or not isfinite(one + other):
        return None
    return (round(one * NANO) + round(other * NANO)) / NANO


def total(costs: Iterable[float | None]) -> float | None:
    """The sum of ``costs`` in US dollars; None if one of them is unknown."""
    nanos = 0
    for cost in costs:
        if cost is None or not isfinite(cost):
            return None
        nanos += round(cost * NANO)
    return nanos / NANO


@frozen(kw_only=True)
class Limits:
    """Limits of a run and of everything it starts. ``None`` means unlimited.

    Raises ConfigurationError for a negative or non-numeric value.
    """

    steps: int | None = 10_000_000
    """Function calls, loop iterations, and the size of the values that primitives touch: one for 64 elements, 1 KiB of text or 4 Kbit
    of an integer."""
    wall_s: float | None = None
    """Seconds."""
    depth: int = 10_000
    """Nested calls of procedures."""
    collection: int = 1_000_000
    """Elements of one list or dict."""
    string: int = 8_000_000
    """Characters of one string."""
    integer_bits: int = 200_000
    """Bits of one integer."""
    source_bytes: int = 4_000_000
    """Bytes of a program's text."""
    nesting: int = 200
    """Nested forms in a program's text."""
    nodes: int = 15_000
    """Forms, names and literals in a program's text; five of quoted data count as one."""
    effects: int | None = 100_000
    """Task, tool and host calls."""
    branches: int | None = 1_000_000
    """Branches of ``pmap``, ``parallel`` and ``race``, in all."""
    concurrency: int = 256
    """Branches running and effects in flight at once, in the whole run; waiting ones do not count."""
    memory: int | None = 512 * 2**20
    """Bytes: a run ends when it has allocated more *and* the process has grown by more since it began; of several runs the
    one that allocated most."""
    turns: int = 32
    """Model calls of one task's tool loop."""
    tokens: int | None = None
    """Input and output tokens of the run."""
    usd: float | None = None
    """US dollars of the run; models without a price are not called then."""
    model_calls: int | None = None
    """Model calls of the run."""
    subtask_depth: int = 5
    """Subtasks within subtasks, and prompts within tools within prompts."""
    output_chars: int = 400_000
    """Characters of one tool result."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
                raise ConfigurationError(
                    f"Limits({f.name}={value!r}): a limit is a number that is not negative, or None",
                    code="config/limits",
                    hint=f"for example Limits({f.name}={0.5 if f.name == 'usd' else f.default or 1_000})",
                )

    def lowered(self, usd: float | None = None, tokens: int | None = None) -> Limits:
        """These limits with at most this money and these tokens. Raises ConfigurationError for an invalid limit."""
        asked = Limits(usd=usd, tokens=tokens)
        return replace(self, usd=_least(self.usd, asked.usd), tokens=_least(self.tokens, asked.tokens))

    def within(self, outer: Limits) -> Limits:
        """These limits, none of them above ``outer``'s."""
        narrowed: dict[str, Any] = {}
        for f in fields(self):
            narrowed[f.name] = _least(getattr(self, f.name), getattr(outer, f.name))
        return Limits(**narrowed)


def _least(one: Any, other: Any) -> Any:
    """The lower of two limits; None is not a limit."""
    return one if other is None else other if one is None else min(one, other)


OnLimit: TypeAlias = Literal["end", "wait"]
"""What a run does at a limit."""


@frozen(kw_only=True)
class Rate:
    """The maximum rate of a model: ``requests_per_min`` and ``tokens_per_min``, input and output. None is unlimited.

    Raises ConfigurationError (``config/rate``) unless both are positive numbers.
    """

    requests_per_min: float | None = None
    tokens_per_min: float | None = None

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                raise ConfigurationError(
                    f"Rate({f.name}={value!r}): a rate is a positive number a minute, or None",
                    code="config/rate",
                    hint="for example Rate(requests_per_min=60)",
                )
