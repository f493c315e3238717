"""Runs by their ids, read from the event logs, which record runs, and from the journal, which resumes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.data.batches import BatchWait
from agentflow.core.data.errors import JournalError
from agentflow.core.data.event_log import FIRST, EventId, LogBounds, LogInfo, event_id
from agentflow.core.data.frozen import frozen
from agentflow.core.events.events import Outcome
from agentflow.core.events.journal_rows import ENDED, EffectRow, EffectState, RunRow, RunStatus
from agentflow.core.events.questions import Question
from agentflow.core.ports.store_ports import EventStore, JournalStore
from agentflow.durable.change_signals import RunChanges, wait_for
from agentflow.durable.handle import cost_of
from agentflow.durable.run_filter import ANY, batches_of, fits, listed, scores_of
from agentflow.durable.run_records import question_of
from agentflow.lib.text.filters import Filter

_LOOK_S = 0.2
_LATE_LOOKS = 10
"""Number of polls without a new event before an ended run counts as complete."""
RunState: TypeAlias = Outcome | RunStatus | Literal["unfinished"]
"""The status of a durable run, else the outcome of a recorded one; ``unfinished``: its log has no end."""


@frozen(kw_only=True)
class RunSummary:
    """A run in a listing.

    ``started`` and ``updated`` are unix seconds; ``duration_s`` is the length of its last slice in seconds, ``usage`` and
    ``cost_usd`` (US dollars) are totals of the whole run. ``error`` is the message of its failure; ``slices`` the number of
    times it was started or resumed. ``recorded`` says that its events can be read, from ``where``; ``durable`` that it can
    be resumed. ``scores`` are read for one run, and where a filter names one;
    ``batches``, its model calls that wait for batches, for one run.
    """

    run_id: str
    state: RunState
    name: str
    started: float
    updated: float
    duration_s: float | None = None
    usage: Mapping[str, Any] | None = None
    cost_usd: float | None = None
    error: str | None = None
    slices: int = 1
    labels: Mapping[str, str] | None = None
    scores: Mapping[str, float] = field(default_factory=dict[str, float])
    batches: Sequence[BatchWait] = ()
    recorded: bool = False
    durable: bool = False
    where: str | None = None


class RunCatalogue:
    """All runs of some event stores and a journal, joined by run id.

    Events are read from the logs; resuming a run needs the journal.
    """

    def __init__(self, stores: Sequence[EventStore] = (), journal: JournalStore | None = None) -> None:
        self._stores = tuple(stores)
        self._journal = journal

    async def list(self, *, limit: int = 100, where: Filter = ANY) -> list[RunSummary]:
        """At most ``limit`` runs that fit, the last changed first. Raises OSError and JournalError for a store that cannot be
        read."""
        logs: dict[str, RunSummary] = {}
        for store in self._stores:  # they keep as many logs as requested, and select none
            for log in await asyncio.to_thread(store.list, limit=None if where else limit):
                logs.setdefault(log.run_id, summary_of(log))
        runs: list[RunSummary] = []
        if self._journal is not None:
            runs = await listed(self._journal, where, limit, lambda row: _of_row(row, logs.pop(row.run, None)))
            if where:
                stored = await self._journal.statuses([run for run, each in logs.items() if fits(each, where)])
                logs = {run: each for run, each in logs.items() if run not in stored}
        runs += [each for each in logs.values() if fits(each, where)]
        return sorted(runs, key=lambda run: -run.updated)[:limit]

    async def find(self, run: str) -> RunSummary:
        """The run with this id, or the only one with an id that begins or ends with it. Raises JournalError (``durable/unknown-run``)."""
        exact = await self._find(run)
        if exact is not None:
            return exact
        every = await self.list(limit=1_000) if run else []
        begun = [each for each in every if each.run_id.startswith(run) or each.run_id.endswith(run)]
        if len(begun) == 1:
            return begun[0]
        raise JournalError(
            f"there is no run '{run}'" if not begun else f"{len(begun)} runs begin or end with '{run}'",
            code="durable/unknown-run",
            hint="agentflow runs lists all runs",
        )

    async def events(self, run: str, after: EventId = FIRST) -> list[dict[str, Any]]:
        """The JSON data of a run's recorded events after ``after``, in order; none for a run that was not recorded."""

        def read() -> list[dict[str, Any]]:
            for store in self._stores:
                if (events := list(store.read(run, after))) or store.find(run) is not None:
                    return events
            return []

        return await asyncio.to_thread(read)

    async def follow(
        self, run: str, after: EventId = FIRST, *, changes: RunChanges | None = None
    ) -> AsyncGenerator[dict[str, Any]]:
        """Like :meth:`events`, and then new events as they are recorded, by any process, until the run has ended.

        A waiting run, or one with a dead process, may be resumed, so the stream stays open. ``changes`` signals new events.
        """
        changes = changes or RunChanges(None)
        quiet = 0
        with changes.of(run) as wake:
            while True:
                row = await self.row(run)
                events = await self.events(run, after)
                ended = False
                for event in events:
                    after = event_id(event)
                    ended = event["type"] == "run_finished" and event.get("outcome") != "suspended"
                    yield event
                quiet = 0 if events else quiet + 1
                over = row is not None and row.status in ENDED
                if ended if row is None else over and (ended or quiet > _LATE_LOOKS):
                    return
                await wait_for(wake, _LOOK_S if over else changes.pause(_LOOK_S))

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncGenerator[RunChanges]:
        """The signal for new events of a run, for :meth:`follow`; never set without a queue of workers."""
        jobs = None if self._journal is None else self._journal.jobs
        changes = RunChanges(jobs)
        if jobs is None:
            yield changes
            return
        async with asyncio.TaskGroup() as group:
            listens = group.create_task(changes.listen())
            try:
                yield changes
            finally:
                listens.cancel()

    async def gc(self, bounds: LogBounds) -> list[str]:
        """Remove the oldest logs of each store beyond ``bounds``, but never that of a run that can be resumed."""
        spare: set[str] = set()
        if self._journal is not None:
            spare = {row.run for row in await self._journal.list(limit=1_000_000) if row.status not in ENDED}
        gone: list[str] = []
        for store in self._stores:
            gone += await asyncio.to_thread(store.gc, bounds, spare)
        return gone

    async def row(self, run: str) -> RunRow | None:
        """The journal's row of a run; None without one."""
        return None if self._journal is None else await self._journal.find(run)

    async def effects(self, run: str) -> list[EffectRow]:
        """The records of a durable run, in the order they began; none for any other run."""
        return [] if self._journal is None or await self.row(run) is None else await self._journal.effects(run)

    async def questions(self, run: str) -> list[Question]:
        """The open questions and approvals of a durable run, in the order they were asked."""
        row = await self.row(run)
        if self._journal is None or row is None or row.status in ENDED:
            return []
        asked = [question_of(run, each) for each in await self._journal.effects(run, EffectState.OPEN)]
        return [question for question in asked if question is not None]

    async def aclose(self) -> None:
        """Close the stores."""
        for store in self._stores:
            await asyncio.to_thread(store.close)
        if self._journal is not None:
            await self._journal.aclose()

    async def _find(self, run: str) -> RunSummary | None:
        logs = [await asyncio.to_thread(store.find, run) for store in self._stores]
        log = next((summary_of(each) for each in logs if each is not None), None)
        row = await self.row(run)
        if row is None or self._journal is None:
            return log
        scores, batches = await scores_of(self._journal, run), await batches_of(self._journal, row)
        return replace(_of_row(row, log), scores=scores, batches=batches)


def summary_of(log: LogInfo) -> RunSummary:
    """The summary of a run from its log."""
    end = log.finished or {}
    error = None if end.get("outcome") == "suspended" else end.get("error")
    return RunSummary(
        run_id=log.run_id,
        state=end.get("outcome", "unfinished"),
        name=str(log.started.get("name") or ""),
        started=float(log.started.get("time") or log.updated),
        updated=log.updated,
        duration_s=end.get("duration_s"),
        usage=end.get("usage"),
        cost_usd=end.get("cost_usd"),
        error=str(cast("dict[str, Any]", error).get("message")) if isinstance(error, dict) else None,
        slices=end.get("slice", log.started.get("slice", 1)),
        labels=log.started.get("labels"),
        recorded=True,
        where=log.where,
    )


def _of_row(row: RunRow, log: RunSummary | None) -> RunSummary:
    summary = log or RunSummary(run_id=row.run, state=row.status, name="", started=row.created, updated=row.updated)
    return replace(
        summary,
        state=row.status,
        name=str(row.input.get("name", "")) or summary.name,
        started=row.created,
        updated=max(row.updated, summary.updated),
        error=row.error[1].get("message") if row.error else summary.error,
        cost_usd=summary.cost_usd if row.result is None else cost_of(row),
        slices=row.slice,
        labels=summary.labels or row.input.get("labels"),
        durable=True,
    )
