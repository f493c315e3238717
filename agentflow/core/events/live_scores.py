"""Scores of live runs, as observers of a flow receive them."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

from agentflow.core.data.frozen import frozen


@frozen(kw_only=True)
class LiveScore:
    """A score of a live run, for observers: its ``name`` and its ``value``, or the ``error`` of the scorer that gave none."""

    run_id: str
    name: str
    value: float | bool | None = None
    error: str | None = None


@runtime_checkable
class ScoreObserver(Protocol):
    """An observer of a flow that receives the scores of its runs as well: :class:`~agentflow.OpenTelemetry`."""

    def scored(self, score: LiveScore) -> Awaitable[None] | None:
        """Take a score; called on the event loop, after the score was stored. It may be async."""
        ...
