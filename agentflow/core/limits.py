"""The limits of a run."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from agentflow.core.errors import ConfigurationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a run and of everything it starts. ``None`` means unlimited.

    Program: ``steps`` (function calls, loop iterations, and the size of what primitives touch: one for 64 elements, 1 KiB
    of text or 4 Kbit of an integer), ``wall_s`` seconds, ``depth`` nested calls,
    ``collection`` elements of one list or dict, ``string`` characters of one string, ``integer_bits``,
    ``source_bytes``, ``nesting`` and ``nodes`` (forms, names and literals; five of quoted data count as one) of program
    text, ``effects`` (task, tool and host calls), ``concurrency`` branches running and effects in flight at once, in the
    whole run (what waits for others does not count), ``branches`` in all. ``memory`` bytes: a run ends when it has
    allocated more *and* the process has grown by more since it began; of several runs the one that allocated most.

    Models: ``turns`` per task's tool loop, ``tokens`` (input + output) and ``usd`` over the run, ``model_calls`` over
    the run, ``subtask_depth``, ``output_chars`` of one tool result.

    Raises ConfigurationError for a negative or non-numeric value.
    """

    steps: int | None = 10_000_000
    wall_s: float | None = None
    depth: int = 10_000
    collection: int = 1_000_000
    string: int = 8_000_000
    integer_bits: int = 200_000
    source_bytes: int = 4_000_000
    nesting: int = 200
    nodes: int = 15_000
    effects: int | None = 100_000
    branches: int | None = 1_000_000
    concurrency: int = 256
    memory: int | None = 512 * 2**20
    turns: int = 32
    tokens: int | None = None
    usd: float | None = None
    model_calls: int | None = None
    subtask_depth: int = 5
    output_chars: int = 400_000

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
                raise ConfigurationError(
                    f"Limits({f.name}={value!r}): a limit is a number that is not negative, or None",
                    code="config/limits",
                    hint=f"for example Limits({f.name}={f.default!r})",
                )

    def lowered(self, usd: float | None = None, tokens: int | None = None) -> Limits:
        """These limits with at most this money and these tokens. Raises ConfigurationError for what is no limit."""
        asked = Limits(usd=usd, tokens=tokens)
        return replace(self, usd=_least(self.usd, asked.usd), tokens=_least(self.tokens, asked.tokens))

    def within(self, outer: Limits) -> Limits:
        """These limits, none of them above ``outer``'s."""
        narrowed: dict[str, Any] = {}
        for f in fields(self):
            narrowed[f.name] = _least(getattr(self, f.name), getattr(outer, f.name))
        return Limits(**narrowed)


def _least(one: Any, other: Any) -> Any:
    """The lower of two limits; None is no limit."""
    return one if other is None else other if one is None else min(one, other)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """How much a model is sent a minute: ``requests_per_min`` and ``tokens_per_min``, input and output. None is unlimited.

    Raises ConfigurationError (``config/rate``) for what is no positive number.
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
