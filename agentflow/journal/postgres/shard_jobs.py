"""The jobs of workers in several databases: a worker takes those of all of them, with one number of slots."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentflow.core.events.journal import (
    Claim,
    Deposit,
    EffectRow,
    FleetCounts,
    Leased,
    NewRun,
    QueueLoad,
    Schedule,
    WorkerInfo,
)
from agentflow.journal.postgres.queue import Slots
from agentflow.journal.postgres.sharding import Shards
from agentflow.journal.postgres.store import PostgresJournal


class ShardedQueue:
    """The :class:`~agentflow.core.ports.store_ports.JobQueue` of ``shards``; ``of`` finds the shard of a run."""

    def __init__(self, shards: Shards[PostgresJournal], of: Callable[[str], Awaitable[PostgresJournal]]) -> None:
        self._shards = shards
        self._of = of

    async def prepare(self) -> None:
        await self._shards.all(lambda shard: shard.jobs.prepare())

    async def cancel(self, run: str) -> None:
        await (await self._of(run)).jobs.cancel(run)

    async def fork(
        self,
        run: str,
        epoch: int,
        form: EffectRow,
        branches: Sequence[tuple[str, NewRun]],
        opening: Sequence[Any],
        deposit: Deposit | None = None,
    ) -> None:
        await self._shards.held(run).jobs.fork(run, epoch, form, branches, opening, deposit)

    def lease(self, run: str, usd: float, tokens: int) -> asyncio.Future[Leased]:
        return self._shards.held(run).jobs.lease(run, usd, tokens)

    def give_back(self, run: str, usd: float, tokens: int) -> asyncio.Future[None]:
        return self._shards.held(run).jobs.give_back(run, usd, tokens)

    def give_up(self, run: str, epoch: int, key: bytes) -> asyncio.Future[None]:
        return self._shards.held(run).jobs.give_up(run, epoch, key)

    async def cancelled(self) -> list[str]:
        return [run for runs in await self._shards.ask(lambda shard: shard.jobs.cancelled()) for run in runs]

    async def changes(self, wake: Callable[[str | None], None]) -> None:
        async with asyncio.TaskGroup() as group:
            for shard in self._shards.every:
                group.create_task(shard.jobs.changes(wake))

    async def load(self) -> list[QueueLoad]:
        joined: dict[tuple[str, str], QueueLoad] = {}
        for loads in await self._shards.all(lambda shard: shard.jobs.load()):
            for each in loads:
                key = each.queue, each.tenant
                joined[key] = _sum(joined[key], each) if key in joined else each
        return [joined[key] for key in sorted(joined)]

    async def workers(self) -> list[WorkerInfo]:
        joined: dict[tuple[str, int], WorkerInfo] = {}
        for workers in await self._shards.all(lambda shard: shard.jobs.workers()):
            for each in workers:
                before = joined.get((each.host, each.pid))
                joined[each.host, each.pid] = each if before is None else replace(before, runs=before.runs + each.runs)
        return sorted(joined.values(), key=lambda each: each.started)

    def counts(self) -> FleetCounts:
        every = [shard.jobs.counts() for shard in self._shards.every]
        return FleetCounts(
            takeovers=sum([each.takeovers for each in every]),
            sessions_lost=sum([each.sessions_lost for each in every]),
            refused=sum([each.refused for each in every]),
            commits=sum([each.commits for each in every]),
            commit_s=sum([each.commit_s for each in every]),
        )

    async def schedule(self, name: str, cron: str, zone: str, new: NewRun) -> Schedule:
        shard = await self._shards.of_key(name)
        kept = await shard.jobs.schedule(name, cron, zone, new)
        for other in self._shards.every:  # one that was stored before this shard was there
            if other is not shard:
                await other.jobs.unschedule(name)
        return kept

    async def schedules(self) -> list[Schedule]:
        every = await self._shards.all(lambda shard: shard.jobs.schedules())
        return sorted([each for some in every for each in some], key=lambda each: (each.next, each.name))

    async def unschedule(self, name: str) -> bool:
        return any(await self._shards.all(lambda shard: shard.jobs.unschedule(name)))

    async def work(
        self,
        handle: Callable[[Claim], Awaitable[None]],
        queues: Mapping[str, int],
        slots: int,
        stop: asyncio.Event,
        build: str = "",
    ) -> None:
        shared = Slots(slots)
        async with asyncio.TaskGroup() as group:
            for shard in self._shards.every:
                group.create_task(shard.jobs.work_in(shared, handle, queues, stop, build))


def _sum(one: QueueLoad, other: QueueLoad) -> QueueLoad:
    return QueueLoad(
        queue=one.queue,
        tenant=one.tenant,
        queued=one.queued + other.queued,
        running=one.running + other.running,
        waiting=one.waiting + other.waiting,
        oldest_s=max(one.oldest_s, other.oldest_s),
    )


__all__ = ["ShardedQueue"]
