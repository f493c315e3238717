"""Resumes durable runs whose processes have died."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from agentflow.core.errors import AgentflowError, JournalError
from agentflow.core.journal import RunRow
from agentflow.core.store_ports import JournalStore

LOOK_S = 0.25
"""Seconds between two queries."""
MOST_DEATHS = 10
"""Number of consecutive owners of a run that may die before the run is taken to be the cause."""
_AWAY_S = 5.0

_log = logging.getLogger(__name__)


class Takeover:
    """Looks for abandoned runs in ``store``, and calls ``resume`` for each, or ``fail`` to end it."""

    def __init__(
        self,
        store: JournalStore,
        resume: Callable[[RunRow], Awaitable[object]],
        fail: Callable[[RunRow, JournalError], Awaitable[None]],
    ) -> None:
        self._store = store
        self._resume = resume
        self._fail = fail
        self._refused: set[tuple[str, int]] = set()

    async def watch(self) -> None:
        """Look for runs until this is cancelled, or the store is closed."""
        while True:
            pause = LOOK_S
            try:
                rows = await self._store.abandoned()
            except JournalError as error:
                if error.code == "durable/closed":
                    return
                _log.warning("cannot look for runs of processes that died: %s", error.message)
                rows, pause = [], _AWAY_S
            random.shuffle(rows)  # so that several processes begin with different runs
            for row in rows:
                if (row.run, row.epoch) not in self._refused:
                    await self._take(row)
            await asyncio.sleep(pause)

    async def _take(self, row: RunRow) -> None:
        try:
            if row.deaths >= MOST_DEATHS:
                await self._fail(row, poisoned(row))
            else:
                await self._resume(row)
        except Exception as error:  # noqa: BLE001 - the failure of one run must not affect the others
            if isinstance(error, AgentflowError) and error.code == "durable/owned":
                return  # another process was quicker
            self._refused.add((row.run, row.epoch))
            _log.warning("the run '%s' of a process that died cannot go on here: %s", row.run, error)


def poisoned(row: RunRow) -> JournalError:
    """The error for a run whose owners died one after the other."""
    return JournalError(
        f"{row.deaths + 1} processes died one after the other while they worked on the run '{row.run}'",
        code="durable/poisoned",
        hint=f"see what kills them (memory, a native library); flow.resume('{row.run}') tries once more",
    )


__all__ = ["LOOK_S", "MOST_DEATHS", "Takeover", "poisoned"]
