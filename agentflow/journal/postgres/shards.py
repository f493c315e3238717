"""Durable runs in several databases: each tree of runs is in one of them, and no transaction crosses two.

The key of a run is the id of the one that its tree begins with; but a run that is based on another, or continues a conversation, is
where that is.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal import (
    BranchEnd,
    EffectRow,
    EffectState,
    NewRun,
    OwnedRun,
    PastRow,
    RunRow,
    RunStatus,
    SessionChanges,
)
from agentflow.journal.cleaning import excess
from agentflow.journal.postgres.shard_jobs import ShardedQueue
from agentflow.journal.postgres.shard_stores import ShardedResults, ShardedSessions
from agentflow.journal.postgres.sharding import Shards, root_of
from agentflow.journal.postgres.store import PostgresJournal

T = TypeVar("T")


class ShardedJournal:
    """The :class:`~agentflow.core.ports.store_ports.JournalStore` over the databases at ``urls``."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._shards = Shards([PostgresJournal(url) for url in urls], lambda shard: shard.database_id())
        self.jobs = ShardedQueue(self._shards, self._of)
        self.sessions = ShardedSessions(self._shards, self._of)
        self.results = ShardedResults(self._shards)

    async def _of(self, run: str) -> PostgresJournal:
        """The shard of a run."""
        return await self._shards.find(root_of(run), run, lambda shard: shard.has(run))

    async def create(self, run: str, new: NewRun) -> tuple[RunRow, bool]:
        shard = await self._of(run)
        if not await shard.has(run):
            if new.base is not None:
                shard = await self._of(new.base)
            elif new.session is not None:
                shard = await self.sessions.shard_of(new.session)
        created = await shard.create(run, new)
        self._shards.keep(run, shard)
        return created

    async def own(self, run: str, slice: int | None = None) -> OwnedRun:
        shard = await self._of(run)
        new = self._shards.hold(run, shard)  # before it is owned: records follow at once
        try:
            return await shard.own(run, slice)
        except BaseException:  # also when cancelled: nobody here works on it, unless somebody did before
            if new:
                self._shards.release(run)
            raise

    def put(self, run: str, epoch: int, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> asyncio.Future[None]:
        return self._shards.held(run).put(run, epoch, rows, drop)

    async def park(self, run: str, epoch: int, seq: int, wake_at: float | None, *, spent_s: float = 0.0) -> bool:
        shard = await self._of(run)
        parked = True
        try:
            parked = await shard.park(run, epoch, seq, wake_at, spent_s=spent_s)
        finally:
            if parked:
                self._shards.release(run)
        return parked

    async def deliver(self, run: str, key: bytes, state: EffectState, value: Any) -> bool:
        return await (await self._of(run)).deliver(run, key, state, value)

    async def finish(
        self,
        run: str,
        epoch: int,
        status: RunStatus,
        *,
        result: Any = None,
        error: Any = None,
        spent_s: float = 0.0,
        session: SessionChanges | None = None,
        branch: BranchEnd | None = None,
    ) -> None:
        shard = await self._of(run)
        try:
            await shard.finish(
                run, epoch, status, result=result, error=error, spent_s=spent_s, session=session, branch=branch
            )
        finally:
            self._shards.release(run)

    async def find(self, run: str) -> RunRow | None:
        return await (await self._of(run)).find(run)

    async def list(self, *, limit: int = 100) -> list[RunRow]:
        rows = _joined(await self._shards.all(lambda shard: shard.list(limit=limit)))
        return sorted(rows, key=lambda row: (-row.updated, row.run))[:limit]

    async def statuses(self, runs: Sequence[str]) -> dict[str, RunStatus]:
        every = await self._shards.ask(lambda shard: shard.statuses(runs))
        return {run: status for statuses in every for run, status in statuses.items()}

    async def abandoned(self) -> list[RunRow]:
        return _joined(await self._shards.ask(lambda shard: shard.abandoned()))

    async def effects(self, run: str, state: EffectState | None = None) -> list[EffectRow]:
        return await (await self._of(run)).effects(run, state)

    async def gc(self, before: float | None, bounds: LogBounds | None = None, *, forget: float | None = None) -> int:
        count = sum(await self._shards.all(lambda shard: shard.gc(before, forget=forget)))
        if bounds is None:
            return count
        surveys = await self._shards.all(lambda shard: shard.survey())
        sizes = {run: size for each in surveys for run, size in each.sizes.items()}
        runs, results = excess(
            bounds, sizes, _joined(each.ended for each in surveys), _joined(each.results for each in surveys)
        )
        await self._shards.all(lambda shard: shard.remove(runs, results))
        return count + len(runs)

    async def past(self, *, limit: int = 100) -> list[PastRow]:
        rows = _joined(await self._shards.all(lambda shard: shard.past(limit=limit)))
        return sorted(rows, key=lambda row: (-row.updated, row.run))[:limit]

    def leave(self) -> None:
        for shard in self._shards.every:
            shard.leave()

    async def aclose(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for shard in self._shards.every:
                stack.push_async_callback(shard.aclose)


def _joined(parts: Iterable[list[T]]) -> list[T]:
    return [each for part in parts for each in part]


__all__ = ["ShardedJournal"]
