"""Conversations, results for reuse, events and rates in several databases."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from typing import Any

from agentflow.core.data.event_log import FIRST, EventId, LogBounds, LogEntry, LogInfo
from agentflow.core.events.journal import SessionChanges, SessionInfo, StoredResult, StoredSession
from agentflow.core.ports.store_ports import RateShare
from agentflow.journal.postgres.connection import name_of
from agentflow.journal.postgres.events import PostgresEvents, removable
from agentflow.journal.postgres.rates import PostgresRates
from agentflow.journal.postgres.sharding import Shards, best_of
from agentflow.journal.postgres.store import PostgresJournal


class ShardedSessions:
    """The :class:`~agentflow.core.ports.store_ports.SessionStore` of ``shards``; ``of`` finds the shard of a run."""

    def __init__(self, shards: Shards[PostgresJournal], of: Callable[[str], Awaitable[PostgresJournal]]) -> None:
        self._shards = shards
        self._of = of

    async def shard_of(self, name: str) -> PostgresJournal:
        """The shard of a conversation, and of all runs that continue it."""
        return await self._shards.find(name, f"session {name}", lambda shard: shard.sessions.has(name))

    async def open(self, name: str) -> StoredSession | None:
        shard = await self.shard_of(name)
        self._shards.hold(f"session {name}", shard)
        return await shard.sessions.open(name)

    async def runs(self, name: str) -> tuple[str | None, str | None]:
        return await (await self.shard_of(name)).sessions.runs(name)

    async def list(self, limit: int) -> list[SessionInfo]:
        every = await self._shards.all(lambda shard: shard.sessions.list(limit))
        return sorted([each for some in every for each in some], key=lambda each: (-each.updated, each.name))[:limit]

    async def opening(self, run: str) -> list[Any]:
        return await (await self._of(run)).sessions.opening(run)

    async def change(self, name: str, changes: SessionChanges) -> None:
        await (await self.shard_of(name)).sessions.change(name, changes)

    async def remove(self, name: str) -> bool:
        return await (await self.shard_of(name)).sessions.remove(name)

    def close(self, name: str) -> None:
        self._shards.held(f"session {name}").sessions.close(name)
        self._shards.release(f"session {name}")


class ShardedResults:
    """The :class:`~agentflow.core.ports.store_ports.ResultStore` of ``shards``."""

    def __init__(self, shards: Shards[PostgresJournal]) -> None:
        self._shards = shards

    async def find(self, content: bytes, since: float) -> StoredResult | None:
        first = await self._shards.of_key(content.hex())
        for shard in (first, *[each for each in self._shards.every if each is not first]):
            result = await shard.results.find(content, since)
            if result is not None:
                return result
        return None

    async def keep(self, content: bytes, result: StoredResult) -> None:
        await (await self._shards.of_key(content.hex())).results.keep(content, result)


class ShardedEvents:
    """The :class:`~agentflow.core.ports.store_ports.EventStore` of the databases at ``urls``: the log of a run is in one of them."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._names = [name_of(url) for url in urls]
        self._shards = [PostgresEvents(url) for url in urls]
        self._places: dict[str, PostgresEvents] = {}

    def append(self, run: str, entries: Sequence[LogEntry], *, last: bool = False) -> None:
        self._of(run).append(run, entries, last=last)
        if last:
            self._places.pop(run, None)

    def close(self) -> None:
        for shard in self._shards:
            shard.close()

    def list(self, *, limit: int | None = None) -> list[LogInfo]:
        logs = [log for shard in self._shards for log in shard.list(limit=limit)]
        return sorted(logs, key=lambda log: (-log.updated, log.run_id))[:limit]

    def find(self, run: str) -> LogInfo | None:
        return self._where(run).find(run)

    def read(self, run: str, after: EventId = FIRST) -> Iterator[dict[str, Any]]:
        return self._where(run).read(run, after)

    def gc(self, bounds: LogBounds, spare: Collection[str] = ()) -> list[str]:
        gone = removable(self.list(), bounds, spare)
        for shard in self._shards:
            shard.remove(gone)
        return gone

    def _of(self, run: str) -> PostgresEvents:
        """The shard of a run that is written to, found once."""
        if run not in self._places:
            self._places[run] = self._where(run)
        return self._places[run]

    def _where(self, run: str) -> PostgresEvents:
        first = best_of(run, self._names)
        others = [at for at in range(len(self._shards)) if at != first]
        at = next((at for at in (first, *others) if self._shards[at].find(run) is not None), first)
        return self._shards[at]


class ShardedRates:
    """The :class:`~agentflow.core.ports.store_ports.RateStore` of the databases at ``urls``: the rate of a key is in one of them."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._names = [name_of(url) for url in urls]
        self._shards = [PostgresRates(url) for url in urls]

    def share(
        self,
        key: str,
        seconds: tuple[float, float],
        burst: float,
        calls: Sequence[int],
        more: int = 0,
        hold: float = 0.0,
    ) -> asyncio.Future[RateShare]:
        return self._shards[best_of(key, self._names)].share(key, seconds, burst, calls, more, hold)

    async def aclose(self) -> None:
        for shard in self._shards:
            await shard.aclose()


__all__ = ["ShardedEvents", "ShardedRates", "ShardedResults", "ShardedSessions"]
