"""The administration of a flow's stored data, behind ``flow.store``."""

from __future__ import annotations

import sys

from agentflow.core.data.durations import seconds_of
from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal_rows import FleetCounts, QueueLoad, Schedule, SessionInfo, WorkerInfo
from agentflow.core.ports.store_ports import PurseStore, ResultStore
from agentflow.durable.handle import PastRun
from agentflow.durable.runs import DurableRuns


class FlowStore:
    """Lists, counts and removes stored data of a flow: ``flow.store``.

    Runs themselves are started, found and answered by methods of the flow. Every method raises JournalError
    (``durable/database``) when the database cannot be used. Queues, workers and schedules exist in PostgreSQL only: their
    methods raise ConfigurationError (``config/where``) elsewhere.
    """

    def __init__(self, runs: DurableRuns) -> None:
        self._runs = runs

    async def remove_runs(
        self,
        older_than: str | None = None,
        *,
        keep: int | None = None,
        megabytes: float | None = None,
        forget: str | None = None,
    ) -> int:
        """Remove durable runs that ended longer ago than ``older_than`` (``30d``), and older results for reuse.

        Then the oldest of the remaining runs are removed until at most ``keep`` are left, and the database takes at most
        ``megabytes``. A run that waits, works or can be resumed stays, and so does a run with records that such a run may need.
        Returns the number of runs removed. A summary of each is kept (:meth:`past_runs`) until it ended longer ago than
        ``forget``. Raises ValueError for an invalid duration.
        """
        bounds = None
        if keep is not None or megabytes is not None:
            size = sys.maxsize if megabytes is None else round(megabytes * 1_000_000)
            bounds = LogBounds(bytes=size, runs=sys.maxsize if keep is None else keep)
        before, past = [None if each is None else seconds_of(each) for each in (older_than, forget)]
        return await self._runs.gc(before, bounds, past)

    async def past_runs(self, limit: int = 100) -> list[PastRun]:
        """The summaries of at most ``limit`` removed runs, the last changed first. Their ids are free for other runs."""
        return await self._runs.past(limit)

    async def sessions(self, limit: int = 100) -> list[SessionInfo]:
        """At most ``limit`` stored conversations, the last changed first."""
        return await self._runs.sessions.list(limit)

    async def delete_session(self, name: str, *, wait_s: float = 0.0) -> bool:
        """Delete a stored conversation with all its messages. False for an unknown name.

        Raises SessionBusy if it is still in use after ``wait_s`` seconds, or belongs to an unfinished run, and
        ConfigurationError (``config/session``) for an invalid name.
        """
        return await self._runs.sessions.remove(name, wait_s)

    async def load(self) -> list[QueueLoad]:
        """The runs that wait for workers, by queue and tenant."""
        return await self._runs.jobs.load()

    async def workers(self) -> list[WorkerInfo]:
        """The workers of the database, the first started first."""
        return await self._runs.jobs.workers()

    def counts(self) -> FleetCounts:
        """Takeovers, lost sessions and refused records that this process has seen among those that share the database."""
        return self._runs.jobs.counts()

    async def schedules(self) -> list[Schedule]:
        """The programs that ``flow.schedule`` has workers run at certain times, the next one first."""
        return await self._runs.jobs.schedules()

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule; runs that it has begun continue. False for an unknown name."""
        return await self._runs.jobs.unschedule(name)

    async def check(self, within_s: float) -> None:
        """Check that the database can be written to, and wait for that for at most ``within_s`` seconds.

        Raises JournalError: ``durable/database`` if it cannot, ``durable/other-loop`` if runs are at work on another loop.
        """
        await self._runs.check(within_s)

    @property
    def results(self) -> ResultStore:
        """The results for reuse, stored with the runs."""
        return self._runs.results

    @property
    def purses(self) -> PurseStore:
        """The purses stored with the runs; those of the flow itself are at ``flow.purses``."""
        return self._runs.purses

    @property
    def has_workers(self) -> bool:
        """Whether workers can carry out runs: the database is PostgreSQL."""
        return self._runs.has_workers
