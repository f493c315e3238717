"""What the value of a record says beside its data: the span of its effect, for whoever looks at the run, and its sources."""

from __future__ import annotations

from typing import Any, cast

from agentflow.core.call.reading import Reading
from agentflow.core.data.source import Span
from agentflow.core.events.journal import EffectRow

SPAN = "at"
"""Key, in the value of a record, of the offsets at which its expression begins and ends in the stored program."""

SOURCES = "from"
"""Key, in the value of a record, of where what was given came from, in a flow with a policy."""

MARKS = "of"
"""Key, in the value of a record, of the marks of what was asked; see :func:`agentflow.durable.values.fingerprints.marks_of`."""


def marks_in(row: EffectRow) -> str:
    """The marks of what a record answers; empty if it has none."""
    value: Any = row.value
    return cast("dict[str, Any]", value).get(MARKS, "") if isinstance(value, dict) else ""


def with_marks(data: dict[str, Any], marks: str) -> dict[str, Any]:
    """The value of a record with the marks of what was asked, if there are any."""
    return {**data, MARKS: marks} if marks else data


def sources_in(row: EffectRow) -> frozenset[str] | None:
    """Where what a record gives came from; None if it was made without a policy, so that nobody knows."""
    value: Any = row.value
    sources: Any = cast("dict[str, Any]", value).get(SOURCES) if isinstance(value, dict) else None
    return None if sources is None else frozenset(sources)


def with_sources(data: dict[str, Any], reading: Reading | None) -> dict[str, Any]:
    """The value of a record with where it came from, in a flow with a policy."""
    return data if reading is None else {**data, SOURCES: sorted(reading.given())}


def offsets_in(program: str | None, span: Span | None) -> list[int] | None:
    """The offsets of ``span`` if it is in the text with the digest ``program``; None for another text."""
    return None if span is None or span.source.digest != program else [span.start, span.end]


def with_span(data: dict[str, Any] | None, site: list[int] | None) -> dict[str, Any] | None:
    """The value of a record with the offsets of its span instead of any it had."""
    if site is None:
        return {key: each for key, each in data.items() if key != SPAN} if data and SPAN in data else data
    return {**(data or {}), SPAN: site}


def span_of(row: EffectRow) -> tuple[int, int] | None:
    """Where the expression of a record begins and ends, in characters of the stored program; None if it does not tell."""
    value: Any = row.value
    site: Any = cast("dict[str, Any]", value).get(SPAN) if isinstance(value, dict) else None
    if site is None:
        return None
    start, end = site
    return start, end


__all__ = [
    "MARKS",
    "SOURCES",
    "SPAN",
    "marks_in",
    "offsets_in",
    "sources_in",
    "span_of",
    "with_marks",
    "with_sources",
    "with_span",
]
