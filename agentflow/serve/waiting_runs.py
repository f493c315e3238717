"""Runs whose request has ended with a question: the next request brings the answer, and goes on with the run."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

from agentflow.core.errors import cut
from agentflow.serve.faults import RequestError
from agentflow.serve.keys import APPROVAL_TTL, Key
from agentflow.serve.runs import ServedRun

T = TypeVar("T")


class WaitingRuns(Generic[T]):
    """Such runs, each with what its next request needs to go on; one that nobody comes back to is cancelled in time."""

    def __init__(self) -> None:
        self._runs: dict[str, tuple[ServedRun, T, asyncio.TimerHandle]] = {}

    def put(self, run: ServedRun, state: T) -> None:
        """Keep a run that asks, as long as its questions stay open."""
        seconds = run.key.approval_ttl
        timer = asyncio.get_running_loop().call_later(
            APPROVAL_TTL if seconds is None else seconds, self._abandon, run.run_id
        )
        self._runs[run.run_id] = run, state, timer

    def take(self, run_id: str, key: Key) -> T:
        """What was kept with a run of ``key``, which is then the caller's to see to its end.

        Raises RequestError (404, ``serve/unknown-run``) where none waits under this id for this key.
        """
        entry = self._runs.get(run_id)
        if entry is None or entry[0].key is not key:
            raise RequestError(
                f"no run '{cut(run_id, 100)}' waits for an answer here",
                code="serve/unknown-run",
                status=404,
                hint="it may have been answered before, or the time to answer is over: ask again",
            )
        del self._runs[run_id]
        entry[2].cancel()
        return entry[1]

    def _abandon(self, run_id: str) -> None:
        run = self._runs.pop(run_id)[0]
        if run.task is not None:
            run.task.cancel()


__all__ = ["WaitingRuns"]
