"""Where in the text of its program an effect stands, as its record tells: for those who look at a run, never for a replay."""

from __future__ import annotations

from typing import Any, cast

from agentflow.core.journal import EffectRow
from agentflow.core.source import Span

PLACE = "at"
"""Key, in the value of a record, of the offsets at which its expression begins and ends in the stored program."""


def place_in(program: str | None, span: Span | None) -> list[int] | None:
    """The offsets of ``span`` if it is in the text with the digest ``program``; None for another text."""
    return None if span is None or span.source.digest != program else [span.start, span.end]


def placed(data: dict[str, Any] | None, site: list[int] | None) -> dict[str, Any] | None:
    """The value of a record with its place instead of any it had."""
    if site is None:
        return {key: each for key, each in data.items() if key != PLACE} if data and PLACE in data else data
    return {**(data or {}), PLACE: site}


def place_of(row: EffectRow) -> tuple[int, int] | None:
    """Where the expression of a record begins and ends, in characters of the stored program; None if it does not tell."""
    value: Any = row.value
    site: Any = cast("dict[str, Any]", value).get(PLACE) if isinstance(value, dict) else None
    if site is None:
        return None
    start, end = site
    return start, end


__all__ = ["PLACE", "place_in", "place_of", "placed"]
