"""Resumes durable runs after their processes have died."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from agentflow.core.data.errors import AgentflowError, JournalError
from agentflow.core.events.journal_rows import EffectState, RunRow
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.handle import DurableRun, LiveRun

LOOK_S = 0.25
"""Seconds between two queries."""
MOST_DEATHS = 2
"""Number of owners of a run that die one after the other, without a new record, before the run is taken to be the cause."""
TRIAL_S = 1.0
"""Seconds that a run with a dead owner is the only such run in a process, unless it records something earlier.

A run that kills its process mostly does so with its next call: the second time it must not take other runs along. A longer
time would delay those: a worker that dies during a hundred slow calls leaves a hundred runs.
"""
_AWAY_S = 5.0
_MOST_STEPS = 3
_PAUSE_S = 0.02

_log = logging.getLogger(__name__)


class Takeover:
    """Looks for abandoned runs in ``store``, and calls ``resume`` for each, or ``fail`` to end it."""

    def __init__(
        self,
        store: JournalStore,
        resume: Callable[[RunRow], Awaitable[DurableRun | None]],
        fail: Callable[[RunRow, JournalError], Awaitable[None]],
    ) -> None:
        self._store = store
        self._resume = resume
        self._fail = fail
        self._trials = Trials()
        self._refused: set[tuple[str, int]] = set()

    async def watch(self) -> None:
        """Look for runs until this is cancelled, or the store is closed."""
        while True:
            pause = LOOK_S
            try:
                rows = await self._store.abandoned()
            except Exception as error:  # noqa: BLE001 - else abandoned runs would wait without end
                if isinstance(error, JournalError) and error.code == "durable/closed":
                    return
                _log.warning("cannot look for runs of processes that died: %s", error)
                rows, pause = [], _AWAY_S
            random.shuffle(rows)  # so that several processes begin with different runs
            for row in rows:
                if (row.run, row.epoch) not in self._refused:
                    await self._take(row)
            await asyncio.sleep(pause)

    async def _take(self, row: RunRow) -> None:
        try:
            if row.deaths >= MOST_DEATHS:
                await self._fail(row, await poisoned(self._store, row))
            else:
                await self._trials.begin(row, lambda: self._resume(row))
        except Exception as error:  # noqa: BLE001 - the failure of one run must not affect the others
            if isinstance(error, AgentflowError) and error.code == "durable/owned":
                return  # another process was quicker
            self._refused.add((row.run, row.epoch))
            _log.warning("the run '%s' of a dead process cannot continue here: %s", row.run, error)


class Trials:
    """Begins runs with dead owners one after the other, each once the previous one has recorded something, or after
    :data:`TRIAL_S`."""

    def __init__(self) -> None:
        self._alone = asyncio.Lock()
        self._trial: asyncio.Task[None] | None = None

    async def begin(self, row: RunRow, begin: Callable[[], Awaitable[DurableRun | None]]) -> DurableRun | None:
        """Begin the run of ``row``, in its turn if its owner died. Returns and raises the outcome of ``begin``."""
        if not row.deaths:
            return await begin()
        await self._alone.acquire()
        run = None
        try:
            run = await begin()
        finally:
            self._trial = asyncio.ensure_future(self._over(run))
        return run

    async def _over(self, run: DurableRun | None) -> None:
        try:
            for _ in range(int(TRIAL_S / _PAUSE_S)):
                if not isinstance(run, LiveRun) or not run.on_trial:
                    break
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._alone.release()


async def poisoned(store: JournalStore, row: RunRow) -> JournalError:
    """The error for a run with owners that died one after the other, with the steps where they died."""
    records = await store.effects(row.run)
    steps = [f"'{record.path}'" for record in records if record.state == EffectState.OPEN]
    last = max(records, key=lambda record: record.ended or 0.0, default=None)
    where = (
        f" at {', '.join(steps[:_MOST_STEPS])}"
        if steps
        else f" after '{last.path}'"
        if last is not None
        else " at its first step"
    )
    return JournalError(
        f"{row.deaths} processes died one after the other while they worked on the run '{row.run}'{where}, and recorded"
        " nothing in between",
        code="durable/poisoned",
        hint=f"find the cause (memory, a native library); flow.resume('{row.run}') tries once more",
    )
