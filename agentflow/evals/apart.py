"""Two samples of a case side by side, from the first value that differs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import dropwhile
from typing import Any, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.events.journal_rows import EffectRow
from agentflow.observe.joined_runs import Change, joined, recorded_effects
from agentflow.observe.run_view import record_message

MOST_PAIRS = 8
"""Number of effects kept of two samples that differ."""
LONGEST = 4_000
"""Characters kept of a value."""
_BEFORE = 40
"""Characters kept of a long text before the first difference."""


@frozen
class ValuePair:
    """One effect of a sample, with that of the baseline's sample.

    ``change`` is that of ``agentflow runs diff``, the baseline's sample being the first; ``base`` and ``here`` are the values
    as text, None where an effect is missing.
    """

    change: Change
    kind: str
    name: str
    path: str
    base: str | None
    here: str | None

    def to_dict(self) -> dict[str, Any]:
        """Its form in a JSON line of a report."""
        return {name: getattr(self, name) for name in ("change", "kind", "name", "path", "base", "here")}


def value_pairs(base: Iterable[EffectRow], here: Iterable[EffectRow]) -> tuple[ValuePair, ...]:
    """The effects of two samples that differ, from the first value that does: at most :data:`MOST_PAIRS`."""
    pairs = joined(recorded_effects(base, value_text), recorded_effects(here, value_text))
    texts = [(each, *[None if one is None else str(one.gave) for one in (each.first, each.second)]) for each in pairs]
    kept: list[ValuePair] = []
    for pair, one, other in dropwhile(lambda each: each[1] == each[2], texts):
        if pair.change == "same":
            continue
        effect = pair.either
        kept.append(
            ValuePair(pair.change, effect.kind, effect.name, effect.path, *beside(one, other, LONGEST)),
        )
        if len(kept) == MOST_PAIRS:
            break
    return tuple(kept)


def beside(one: str | None, other: str | None, length: int) -> tuple[str | None, str | None]:
    """Two texts cut to ``length`` characters each: of long ones that begin alike the beginning is left out."""
    texts = (one, other)
    start = 0
    if one is not None and other is not None and max(len(one), len(other)) > length:
        alike = next(
            (at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
        )
        start = max(0, alike - _BEFORE)
    cut: list[str | None] = []
    for text in texts:
        if text is not None:
            end = start + length
            text = f"{'…' if start else ''}{text[start:end]}{'…' if len(text) > end else ''}"
        cut.append(text)
    return cut[0], cut[1]


def value_text(record: Any) -> str:
    """The value or error of a recorded effect as text, without its usage and notes."""
    match record:
        case _ if (message := record_message(record)) is not None:
            return f"failed: {message}"
        case {"ok": {"$r": [_, content, *_]}}:
            return _data(content)
        case {"ok": value}:
            return _data(value)
        case _:
            return _data(record)


def _data(value: Any) -> str:
    """Stored data as text, without the marks of types and sources around the whole."""
    while isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        if entries.keys() not in ({"$t"}, {"$l"}):
            break
        value = next(iter(entries.values()))[-1]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
