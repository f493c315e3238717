"""Runs waiting after their request has ended with a question: the next request brings the answer and resumes the run."""

from __future__ import annotations

import asyncio
import time
from typing import Generic, TypeVar

from agentflow.core.data.errors import cut
from agentflow.serve.error_responses import RequestError
from agentflow.serve.keys import APPROVAL_TTL, Key
from agentflow.serve.served_runs import ServedRun

T = TypeVar("T")


def seconds_of(run: ServedRun) -> float | None:
    """Seconds that a run with a question is kept; None for a durable run, parked until it is answered."""
    if run.lasting:
        return None
    return APPROVAL_TTL if run.key.approval_ttl is None else run.key.approval_ttl


class WaitingRuns(Generic[T]):
    """Runs with questions, each with the state that its next request needs.

    A run is cancelled some time after its client left for good, unless it is durable.
    """

    def __init__(self) -> None:
        self._runs: dict[str, tuple[ServedRun, T, asyncio.TimerHandle | None]] = {}

    def put(self, run: ServedRun, state: T) -> None:
        """Keep a run with ``state`` for as long as its questions stay open."""
        over = time.time() - APPROVAL_TTL
        for run_id in [each.run_id for each, _, _ in self._runs.values() if (each.ended or over) < over]:
            del self._runs[run_id]  # it was answered through another route and has ended since
        seconds = seconds_of(run)
        timer = None
        if seconds is not None:
            timer = asyncio.get_running_loop().call_later(seconds, self._abandon, run.run_id)
        self._runs[run.run_id] = run, state, timer

    def find(self, run_id: str, key: Key) -> T | None:
        """Take the state of a run of ``key``; the caller then handles the run to its end. None if there is none."""
        entry = self._runs.get(run_id)
        if entry is None or entry[0].key is not key:
            return None
        del self._runs[run_id]
        if entry[2] is not None:
            entry[2].cancel()
        return entry[1]

    def take(self, run_id: str, key: Key) -> T:
        """As :meth:`find`. Raises RequestError (404, ``serve/unknown-run``) if no run with this id waits for this key."""
        kept = self.find(run_id, key)
        if kept is None:
            raise nobody_waits(run_id)
        return kept

    def _abandon(self, run_id: str) -> None:
        run = self._runs.pop(run_id)[0]
        if run.task is not None:
            run.task.cancel()


def nobody_waits(run_id: str) -> RequestError:
    """The error for an answer to a run that does not wait."""
    return RequestError(
        f"no run '{cut(run_id, 100)}' waits for an answer here",
        code="serve/unknown-run",
        status=404,
        hint="it may have been answered before, or the time for an answer is over: start again",
    )
