"""The methods of :class:`agentflow.AgentFlow` for runs that workers do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from agentflow.arguments import check_run
from agentflow.core.data.event_log import FIRST, EventId
from agentflow.core.data.limits import Limits
from agentflow.core.events.journal import FleetCounts, QueueLoad, Schedule, WorkerInfo
from agentflow.core.ports.store_ports import EventStore
from agentflow.flow.program_files import ProgramLike
from agentflow.flow.python import FlowCall
from agentflow.flow_durable import DurableMethods
from agentflow.journal.urls import is_postgres, open_events
from agentflow.run.run import check_name

DRAIN_S = 30.0
"""Seconds that runs may take to end after a worker was told to stop."""

DEFAULT_QUEUES: Mapping[str, int] = MappingProxyType({"default": 0})
"""The queues of a worker that is given none."""


class WorkerMethods(DurableMethods):
    """Does, watches and schedules runs of workers. A base of :class:`agentflow.AgentFlow`, which builds what the methods use."""

    _watched: EventStore | None = None

    async def work(
        self,
        queues: Mapping[str, int] = DEFAULT_QUEUES,
        *,
        slots: int = 100,
        stop: asyncio.Event | None = None,
        drain_s: float = DRAIN_S,
    ) -> None:
        """Do runs that were started with ``where="workers"``, at most ``slots`` at a time, until ``stop`` is set.

        ``queues`` are those whose runs it takes; the number of a queue is how many of its runs all workers together do at a
        time (0: any number). After the stop nothing is begun, and what has not ended or come to wait within ``drain_s``
        seconds goes on elsewhere. Within the flow's ``async with``, runs of workers that died are taken over.
        Raises ConfigurationError (``config/worker``, ``config/where``, ``config/extra``), and as :meth:`start`.
        """
        from agentflow.durable.worker import work_on

        await work_on(self._durable_runs(), queues, slots, stop or asyncio.Event(), drain_s)

    async def load(self) -> list[QueueLoad]:
        """What workers have to do, by queue and tenant. Raises ConfigurationError (``config/where``), and as :meth:`start`."""
        return await self._durable_runs().jobs.load()

    async def workers(self) -> list[WorkerInfo]:
        """The workers of the database, the first started first. Raises as :meth:`load`."""
        return await self._durable_runs().jobs.workers()

    def counts(self) -> FleetCounts:
        """What has happened to this process among those that share the database: takeovers, lost sessions, refused records.

        Raises ConfigurationError (``config/where``, ``config/durable``).
        """
        return self._durable_runs().jobs.counts()

    async def schedule(
        self,
        cron: str,
        program: ProgramLike | FlowCall[Any],
        bindings: Mapping[str, Any] | None = None,
        *,
        name: str,
        zone: str = "UTC",
        limits: Limits | None = None,
        allow: Iterable[str] | None = None,
        labels: Mapping[str, str] | None = None,
        queue: str = "default",
        priority: int = 0,
        tenant: str = "",
    ) -> Schedule:
        """Have workers run a program at certain times: ``cron`` is a line of cron's, ``0 7 * * *``, in the time zone ``zone``.

        A run is called ``name@time``, as ``daily@20261124T0700Z``, in UTC; it begins once, whatever number of workers there is,
        and late if there is none. Of times that have passed then the first counts. A schedule of the same ``name`` is replaced.
        The other parameters are as for :meth:`start`. Raises ConfigurationError (``config/schedule``, ``config/where``,
        ``config/extra``, ``config/run-id`` for what is no name or contains a secret), and as :meth:`start`.
        """
        runs = self._durable_runs()
        check_name(f"{name}@20261124T0700Z", None, self.redactor)
        check_run(program, limits)
        compiled, values = await self._to_store(program, bindings, allow, limits)
        new = await runs.new_run(
            compiled,
            await self.engine.given(values),
            limits=limits,
            allow=allow,
            labels=labels,
            priority=priority,
            tenant=tenant,
            queue=queue,
        )
        return await runs.jobs.schedule(name, cron, zone, new)

    async def schedules(self) -> list[Schedule]:
        """The programs that workers run at certain times, the next one first. Raises as :meth:`schedule`."""
        return await self._durable_runs().jobs.schedules()

    async def unschedule(self, name: str) -> bool:
        """Remove a schedule; its runs go on. False if there is none of this name. Raises as :meth:`schedule`."""
        return await self._durable_runs().jobs.unschedule(name)

    async def watch(self, run_id: str, after: EventId = FIRST) -> AsyncGenerator[dict[str, Any]]:
        """The events of a durable run as they are recorded, in whatever process it is worked on, until it has ended.

        Each is the JSON data of an event; those after ``after``, its ``(slice, seq)``, where that is given. A run is recorded
        where its flow has ``record=True``; deltas are not stored while it works, so that text comes whole. Raises as
        :meth:`resume`.
        """
        runs = self._durable_runs()
        assert self.database is not None
        if self._watched is None:
            self._watched = open_events(self.database)
        async with contextlib.aclosing(runs.events(run_id, self._watched, after)) as events:
            async for event in events:
                yield event

    @property
    def has_workers(self) -> bool:
        """Whether runs may be left to workers: the flow stores them in PostgreSQL."""
        return self.database is not None and is_postgres(self.database)

    async def _close_watched(self) -> None:
        """Close what :meth:`watch` reads from."""
        if self._watched is not None:
            await asyncio.to_thread(self._watched.close)
