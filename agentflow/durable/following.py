"""Follows runs that workers carry out: one query to the store updates the handles of all of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from agentflow.core.data.errors import JournalError
from agentflow.core.data.source import Source
from agentflow.core.events.journal_rows import ENDED, EffectState, RunRow
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.change_signals import RunChanges, wait_for
from agentflow.durable.handle import LiveRun, RunEnd
from agentflow.durable.run_records import Rest, question_of

LOOK_S = 0.1
"""Seconds between two queries, where the database does not say when there is something new."""
LEAST_S = 0.02
"""Seconds between two queries, where it does."""
_AWAY_S = 5.0

_log = logging.getLogger(__name__)


class Following:
    """Asks ``store`` for the status of runs, when ``changes`` wake it and now and then; ``recorded`` returns the stored end of one."""

    def __init__(
        self, store: JournalStore, changes: RunChanges, recorded: Callable[[RunRow, Source], RunEnd | None]
    ) -> None:
        self._store = store
        self._changes = changes
        self._wake = asyncio.Event()
        self._recorded = recorded
        self._handles: dict[str, list[LiveRun]] = {}
        self._watching = False

    def add(self, handle: LiveRun) -> bool:
        """Follow a run. Returns whether :meth:`watch` has to be started."""
        handle.follow("queued")
        self._changes.add(handle.run_id, self._wake)
        self._handles.setdefault(handle.run_id, []).append(handle)
        begins, self._watching = not self._watching, True
        return begins

    def close(self) -> None:
        """Stop following runs."""
        for handles in self._handles.values():
            for handle in handles:
                handle.settle(RunEnd("queued"))
        for run in list(self._handles):
            self._drop(run)
        self._wake, self._watching = asyncio.Event(), False  # earlier waiters used a loop that may be closed

    async def watch(self) -> None:
        """Ask until no run is followed, or the store is closed."""
        try:
            while self._handles:
                pause = self._changes.pause(LOOK_S)
                try:
                    await self._look()
                except Exception as error:  # noqa: BLE001 - else the handles of all runs would wait without end
                    if isinstance(error, JournalError) and error.code == "durable/closed":
                        return
                    _log.warning("cannot ask for the status of runs of workers: %s", error)
                    pause = _AWAY_S
                await asyncio.sleep(LEAST_S)
                await wait_for(self._wake, pause)
        finally:
            self._watching = False

    async def _look(self) -> None:
        statuses = await self._store.statuses(list(self._handles))
        for run, status in statuses.items():
            rests = all([handle.resting for handle in self._handles.get(run, ())])
            if status in ENDED:
                end = await self._end(run)
                for handle in self._drop(run):
                    handle.settle(end)
            elif status not in ("waiting", "interrupted"):
                for handle in self._handles.get(run, ()):
                    handle.follow(status)
            elif not rests:
                rest = await self._rest(run)
                asks = rest.questions or rest.wake_at is not None  # else it waits for branches, which are at work
                for handle in self._handles.get(run, ()):
                    handle.follow(status if asks else "running", rest if asks else None)

    def _drop(self, run: str) -> list[LiveRun]:
        """Stop following a run. Returns its handles."""
        self._changes.remove(run, self._wake)
        return self._handles.pop(run, [])

    async def _end(self, run: str) -> RunEnd:
        row = await self._store.find(run)
        if row is None or row.status not in ENDED:
            return RunEnd("queued")
        try:
            end = self._recorded(row, Source.of(str(row.input["name"]), row.program))
        except Exception as error:  # noqa: BLE001 - an unreadable record fails this run, not the others followed with it
            return RunEnd(row.status, error=error)
        return end or RunEnd(row.status, error=no_value(run))

    async def _rest(self, run: str) -> Rest:
        row = await self._store.find(run)
        asked = [question_of(run, each) for each in await self._store.effects(run, EffectState.OPEN)]
        return Rest([each for each in asked if each is not None], None if row is None else row.wake_at)


def no_value(run: str) -> JournalError:
    """The error of a run without a stored value."""
    return JournalError(
        f"the value of the run '{run}' is not data, so it stayed with the worker",
        code="durable/no-value",
        hint=f"let the program return text, numbers, lists or dicts; flow.resume('{run}') computes its value from the records",
    )
