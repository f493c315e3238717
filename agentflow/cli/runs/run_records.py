"""A durable run as its records tell it, where its events were not kept: what its expressions and its tasks did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from agentflow.core.data.money import added
from agentflow.core.data.source import Source, Span
from agentflow.core.events.journal import EffectRow, EffectState
from agentflow.durable.values.codec import read_usage
from agentflow.durable.values.record_values import span_of
from agentflow.observe.run_view import RunView, Site, Tally

_WAITS = frozenset({"question", "approval", "timer"})
_How = Literal["ok", "failed", "suspended", "running"]


def fold_records(records: Sequence[EffectRow], source: Source, view: RunView) -> None:
    """Count the ``records`` of a run among the tasks and the expressions of ``view``; ``source`` is its program.

    An expression whose effect waits is suspended; one whose effect began, or has steps, and has not ended is running. One
    without records was not reached, or holds nothing that is recorded.
    """
    keys = {each.key for each in records}
    begun: set[bytes] = set()
    for each in records:
        if each.state == EffectState.LOST:
            continue
        if each.kind in ("task", "tool"):
            _count(each, _how(each), view.tasks.setdefault(f"{each.kind} {each.name}", Tally(each.name)))
        site = _site_of(each, source)
        if site is None:
            continue
        if each.leaf is None:
            _count(each, _how(each), view.sites.setdefault(site, Tally(each.name)))
        elif each.leaf not in keys and each.leaf not in begun:  # a step of a task that has not ended
            begun.add(each.leaf)
            tally = view.sites.setdefault(site, Tally())
            tally.calls += 1
            tally.running += 1


def _how(record: EffectRow) -> _How:
    match record.state:
        case EffectState.OPEN:
            return "suspended" if record.kind in _WAITS else "running"
        case EffectState.OK:
            return "ok"
        case _:
            return "failed"


def _count(record: EffectRow, how: _How, tally: Tally) -> None:
    usage = read_usage(record.usage)
    tally.input_tokens += usage.input_tokens
    tally.cached_tokens += usage.cache_read_tokens
    tally.output_tokens += usage.output_tokens
    tally.cost_usd = added(tally.cost_usd, record.cost)
    tally.calls += 1
    if how == "running":
        tally.running += 1
        return
    tally.outcomes[how] = tally.outcomes.get(how, 0) + 1
    if how != "suspended":
        tally.seconds += (record.ended or 0.0) - (record.started or 0.0)
    if how == "failed":
        tally.error = tally.error or _message(record.value)


def _site_of(record: EffectRow, source: Source) -> Site | None:
    site = span_of(record)
    if site is None or site[1] > len(source.text):
        return None
    span = Span(source, *site)
    return Site(source.name, span.line, span.column, span.end_line, span.end_column)


def _message(value: Any) -> str | None:
    """Why a recorded effect failed: the message of its error, or that of its FAILED result."""
    match value:
        case {"error": [_, {"message": str(message)}, *_]}:
            return message
        case {"ok": {"$r": [_, _, _, _, {"error": {"message": str(message)}}, *_]}}:
            return message
        case {"ok": {"$r": [_, str(content), *_]}}:
            return content
        case _:
            return None


__all__ = ["fold_records"]
