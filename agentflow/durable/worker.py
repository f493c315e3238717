"""Workers: carry out runs that other processes started, by claiming their jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from agentflow.core.data.errors import AgentflowError, ConfigurationError, JournalError
from agentflow.core.events.journal_rows import Claim
from agentflow.durable.runs import DurableRuns
from agentflow.durable.takeover import Trials

_AWAY_S = 5.0
_GATHER_S = 30.0

_log = logging.getLogger(__name__)


async def work_on(
    runs: DurableRuns, queues: Mapping[str, int], slots: int, stop: asyncio.Event, drain_s: float
) -> None:
    """Work on the runs of ``queues``, at most ``slots`` at a time, until ``stop`` is set.

    The number of a queue limits how many of its runs all workers together do at a time; 0: no limit. After ``stop`` no run
    is begun; runs that neither end nor wait within ``drain_s`` seconds are given up, and others resume them.
    Raises ConfigurationError (``config/worker``, ``config/where``, ``config/extra``), JournalError.
    """
    if slots < 1 or not queues or any([not name or limit < 0 for name, limit in queues.items()]):
        raise ConfigurationError(
            f"slots={slots}, queues={dict(queues)!r}: a worker does at least one run at a time, of at least one queue",
            code="config/worker",
            hint="queues={'default': 0, 'slow': 5}: at most 5 of the queue 'slow' at a time, in all workers together",
        )
    async with asyncio.TaskGroup() as group:
        beside = [
            group.create_task(work) for work in (_release_late(runs, stop, drain_s), _cancel(runs), _gather(runs))
        ]
        try:
            await runs.jobs.work(_Worker(runs).do, queues, slots, stop, runs.build())
        finally:
            for task in beside:
                task.cancel()


async def _cancel(runs: DurableRuns) -> None:
    while True:
        try:
            await runs.cancel_asked()
        except* JournalError as errors:
            _log.warning("cannot ask which runs were cancelled: %s", errors.exceptions[0])
        await asyncio.sleep(_AWAY_S)


async def _gather(runs: DurableRuns) -> None:
    """Gather the model calls that wait for batches, also those of runs that no process works on."""
    while True:
        runs.gather()
        await asyncio.sleep(_GATHER_S)


async def _release_late(runs: DurableRuns, stop: asyncio.Event, drain_s: float) -> None:
    await stop.wait()
    await asyncio.sleep(drain_s)
    while True:  # a run that was being begun just then, too
        runs.release()
        await asyncio.sleep(0.1)


class _Worker:
    """Carries out claimed jobs; a failure of one does not affect the others."""

    def __init__(self, runs: DurableRuns) -> None:
        self._runs = runs
        self._trials = Trials()

    async def do(self, claim: Claim) -> None:
        """Resume a run until it ends, waits or is given up."""
        try:
            handle = await self._runs.take(claim, self._trials)
            if handle is not None:
                await handle.wait()
        except AgentflowError as error:
            if error.code != "durable/owned":  # a late or second delivery
                _log.warning("the run '%s' cannot be resumed here: %s", claim.run, error)
        except Exception:  # noqa: BLE001 - the failure of one run must not affect the others
            _log.exception("the run '%s' cannot be resumed here", claim.run)
