"""Scores of live runs and of the samples of evaluations, as observers of a flow receive them."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Protocol, runtime_checkable

from agentflow.core.data.frozen import frozen


@frozen(kw_only=True)
class LiveScore:
    """A score of a live run or of a sample, for observers: its ``name`` and its ``value``, or the ``error`` of the scorer that gave
    none.

    ``run_id`` is the run that was scored. ``evaluation`` is the id of the evaluation of a sample, ``case`` and ``variant`` are its
    place there; empty for a live run.
    """

    run_id: str
    name: str
    value: float | bool | None = None
    error: str | None = None
    evaluation: str = ""
    case: str = ""
    variant: str = ""


@runtime_checkable
class ScoreObserver(Protocol):
    """An observer of a flow that receives the scores of its runs and evaluations as well: :class:`~agentflow.OpenTelemetry`."""

    def scored(self, score: LiveScore) -> Awaitable[None] | None:
        """Take a score; called on the event loop, after the score was stored. It may be async."""
        ...
