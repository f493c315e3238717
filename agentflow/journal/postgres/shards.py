"""Durable runs in several databases, *shards*: each tree of runs is in one of them, and no transaction crosses two.

The key of a run is the id of the one that its tree begins with; but a run based on another, or continuing a conversation,
is stored with it. The shard of a new thing follows from its key and from the ids of the databases (rendezvous
hashing), so that all processes agree, in any order of their names, and an added database takes its share of new things
only. Things elsewhere, because they are older or belong to something else, are searched for.

Each class below implements a port by a table: a method goes to one shard (:func:`by_run`, :func:`by_session`,
:func:`leaving`, :func:`held`) or to all of them (:func:`everywhere`, :func:`answering`). Only methods that decide on
locations have their own bodies.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from operator import attrgetter
from typing import Any, Generic, TypeVar

from agentflow.core.data.allowances import Allowance, PurseGrant, PurseUse, Spending
from agentflow.core.data.event_log import FIRST, EventId, LogBounds, LogEntry, LogInfo
from agentflow.core.events.journal_rows import (
    Claim,
    FleetCounts,
    NewRun,
    OwnedRun,
    QueueLoad,
    RunRow,
    Schedule,
    StoredResult,
    StoredSession,
    WorkerInfo,
)
from agentflow.core.ports.batch_ports import BatchStore
from agentflow.core.ports.store_ports import RateShare
from agentflow.journal.cleaning import excess
from agentflow.journal.events import removable
from agentflow.journal.postgres.connection import name_of
from agentflow.journal.postgres.events import PostgresEvents
from agentflow.journal.postgres.queue import Slots
from agentflow.journal.postgres.shared_rates import PostgresRates
from agentflow.journal.postgres.store import PostgresJournal

MAX_PLACES = 100_000
"""Number of runs with cached shards."""
PATIENCE_S = 5.0
"""Seconds that a shard may take to report pending work, before the others continue without it."""
AWAY_S = 30.0
"""Seconds until a shard that took longer is asked again."""

S = TypeVar("S")
T = TypeVar("T")


def best_of(key: str, shards: Sequence[str]) -> int:
    """The position of the shard for a key: the one with the greatest hash together with it."""

    def weight(at: int) -> bytes:
        return blake2b(f"{shards[at]}|{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()

    return max(range(len(shards)), key=weight)


def root_of(run: str) -> str:
    """The id of the first run of a tree, as far as it can be derived from the id of one of its runs: branches and scheduled
    runs extend it."""
    return run.partition(":")[0].partition("@")[0]


class Shards(Generic[S]):
    """The locations of things: ``names`` asks a shard for the id of its database."""

    def __init__(self, every: Sequence[S], name: Callable[[S], Awaitable[str]]) -> None:
        self.every = tuple(every)
        self._name = name
        self._names: list[str] = []
        self._places: dict[str, S] = {}
        self._held: dict[str, S] = {}
        self._away: dict[S, float] = {}

    async def of_key(self, key: str) -> S:
        """The shard of new things under ``key``. Raises the errors of reading ids."""
        if not self._names:
            self._names = await self.all(self._name)
        return self.every[best_of(key, self._names)]

    async def find(self, key: str, name: str, has: Callable[[S], Awaitable[bool]]) -> S:
        """The shard that holds the thing ``name``: that of ``key``, or any other one; that of ``key`` if none does."""
        shard = self._held.get(name) or self._places.get(name)
        if shard is not None:
            return shard
        first = await self.of_key(key)
        if await has(first):
            self.keep(name, first)
            return first
        for other, is_there in zip(self.every, await self.all(has), strict=True):
            if is_there:
                self.keep(name, other)
                return other
        return first

    def held(self, name: str) -> S:
        """The shard of a thing held now or earlier; for an unknown thing any shard, which does not hold it."""
        return self._held.get(name) or self._places.get(name) or self.every[0]

    def hold(self, name: str, shard: S) -> bool:
        """Remember where something is until it is released. False if it was held already."""
        new = name not in self._held
        self._held[name] = shard
        return new

    def release(self, name: str) -> None:
        """Hold something no more."""
        self._held.pop(name, None)

    def keep(self, name: str, shard: S) -> None:
        """Remember the shard of a thing; the least recently used entry is forgotten."""
        self._places.pop(name, None)
        self._places[name] = shard
        if len(self._places) > MAX_PLACES:
            del self._places[next(iter(self._places))]

    async def all(self, work: Callable[[S], Awaitable[T]]) -> list[T]:
        """The result of ``work`` for each shard, without a time limit. Raises the error of one of them."""
        return await _together([work(shard) for shard in self.every])

    async def ask(self, work: Callable[[S], Awaitable[T]]) -> list[T]:
        """The result of ``work`` for each shard that answers in time: an unreachable one delays the others only now and
        then."""
        now = time.monotonic()
        asked = [shard for shard in self.every if self._away.get(shard, 0.0) <= now]

        async def patiently(shard: S) -> list[T]:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return [await work(shard)]
            except TimeoutError:
                self._away[shard] = time.monotonic() + AWAY_S
                return []

        return [each for some in await _together([patiently(shard) for shard in asked]) for each in some]


async def _together(works: Sequence[Awaitable[T]]) -> list[T]:
    async def one(work: Awaitable[T]) -> T:
        return await work

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(work)) for work in works]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


class _Routed:
    """A method of a port, as one row of a table: ``go`` does it, with the object, the name and the arguments."""

    def __init__(self, go: Callable[..., Any]) -> None:
        self._go = go

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, sharded: Any, owner: type | None = None) -> Any:
        return partial(self._go, sharded, self._name)


def by_run() -> Any:
    """A method done by the shard of its first argument, the id of a run."""

    async def go(sharded: _ShardPart, name: str, run: str, *args: Any, **options: Any) -> Any:
        return await sharded.method(await sharded.of(run), name)(run, *args, **options)

    return _Routed(go)


def by_session() -> Any:
    """A method done by the shard of its first argument, the name of a conversation."""

    async def go(sharded: ShardedSessions, name: str, session: str, *args: Any) -> Any:
        return await sharded.method(await sharded.shard_of(session), name)(session, *args)

    return _Routed(go)


def leaving() -> Any:
    """As :func:`by_run`, of a run that this process holds no more afterwards, unless the answer is False."""

    async def go(sharded: _ShardPart, name: str, run: str, *args: Any, **options: Any) -> Any:
        shard = await sharded.of(run)
        left = True
        try:
            answer = await sharded.method(shard, name)(run, *args, **options)
            left = answer is not False
        finally:
            if left:
                sharded.shards.release(run)
        return answer

    return _Routed(go)


def held() -> Any:
    """A method done at once by the shard that holds its first argument, the id of a run, without searching for it."""

    def go(sharded: _ShardPart, name: str, run: str, *args: Any, **options: Any) -> Any:
        return sharded.method(sharded.shards.held(run), name)(run, *args, **options)

    return _Routed(go)


def everywhere(join: Callable[..., Any]) -> Any:
    """A method done by all shards, without a time limit; ``join`` makes one answer of theirs. It is given ``limit``, if there is one."""

    async def go(sharded: _ShardPart, name: str, *args: Any, **options: Any) -> Any:
        every = await sharded.shards.all(lambda shard: sharded.method(shard, name)(*args, **options))
        return join(every, limit=options["limit"]) if "limit" in options else join(every)

    return _Routed(go)


def answering(join: Callable[..., Any]) -> Any:
    """As :func:`everywhere`, without the shards that do not answer in time."""

    async def go(sharded: _ShardPart, name: str, *args: Any) -> Any:
        return join(await sharded.shards.ask(lambda shard: sharded.method(shard, name)(*args)))

    return _Routed(go)


def _joined(parts: Iterable[Iterable[T]]) -> list[T]:
    return list(chain.from_iterable(parts))


def _newest(name: str) -> Callable[..., Any]:
    """Joins lists by the time of the last change; rows of one time are in the order of their attribute ``name``."""

    def join(parts: Sequence[list[Any]], limit: int | None = None) -> list[Any]:
        return sorted(_joined(parts), key=lambda row: (-row.updated, getattr(row, name)))[:limit]

    return join


def _nothing(parts: Sequence[None]) -> None:
    """Joins methods without results."""


def _merged(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


def _loads(parts: Sequence[list[QueueLoad]]) -> list[QueueLoad]:
    joined: dict[tuple[str, str], QueueLoad] = {}
    for each in _joined(parts):
        before = joined.get((each.queue, each.tenant))
        if before is not None:
            counts = {name: getattr(before, name) + getattr(each, name) for name in ("queued", "running", "waiting")}
            each = replace(each, **counts, oldest_s=max(before.oldest_s, each.oldest_s))
        joined[each.queue, each.tenant] = each
    return [joined[key] for key in sorted(joined)]


def _schedules(parts: Sequence[list[Schedule]]) -> list[Schedule]:
    return sorted(_joined(parts), key=attrgetter("next", "name"))


def _named(parts: Sequence[list[PurseUse]]) -> list[PurseUse]:
    return sorted(_joined(parts), key=attrgetter("name"))


def _workers(parts: Sequence[list[WorkerInfo]]) -> list[WorkerInfo]:
    joined: dict[tuple[str, int], WorkerInfo] = {}
    for each in _joined(parts):
        before = joined.get((each.host, each.pid))
        joined[each.host, each.pid] = each if before is None else replace(before, runs=before.runs + each.runs)
    return sorted(joined.values(), key=attrgetter("started"))


class _ShardPart:
    """One port of all shards: ``part`` is its attribute on a shard, "" for the shard itself."""

    part = ""

    def __init__(self, shards: Shards[PostgresJournal]) -> None:
        self.shards = shards

    def method(self, shard: PostgresJournal, name: str) -> Callable[..., Any]:
        """The method ``name`` of a shard."""
        return getattr(getattr(shard, self.part) if self.part else shard, name)

    async def of(self, run: str) -> PostgresJournal:
        """The shard of a run."""
        return await self.shards.find(root_of(run), run, lambda shard: shard.has(run))


class ShardedSessions(_ShardPart):
    """The :class:`~agentflow.core.ports.store_ports.SessionStore` of all shards."""

    part = "sessions"
    runs = by_session()
    change = by_session()
    remove = by_session()
    opening = by_run()

    async def shard_of(self, name: str) -> PostgresJournal:
        """The shard of a conversation, and of all runs that continue it."""
        return await self.shards.find(name, f"session {name}", lambda shard: shard.has_session(name))

    async def list(self, limit: int) -> list[Any]:
        return _newest("name")(await self.shards.all(lambda shard: shard.sessions.list(limit)), limit)

    async def open(self, name: str) -> StoredSession | None:
        shard = await self.shard_of(name)
        self.shards.hold(f"session {name}", shard)
        return await shard.sessions.open(name)

    def close(self, name: str) -> None:
        self.shards.held(f"session {name}").sessions.close(name)
        self.shards.release(f"session {name}")


class ShardedResults(_ShardPart):
    """The :class:`~agentflow.core.ports.store_ports.ResultStore` of all shards."""

    async def find(self, content: bytes, since: float) -> StoredResult | None:
        first = await self.shards.of_key(content.hex())
        for shard in (first, *[each for each in self.shards.every if each is not first]):
            result = await shard.results.find(content, since)
            if result is not None:
                return result
        return None

    async def keep(self, content: bytes, result: StoredResult) -> None:
        await (await self.shards.of_key(content.hex())).results.keep(content, result)


class ShardedPurses(_ShardPart):
    """The :class:`~agentflow.core.ports.store_ports.PurseStore` of all shards: each period of a purse is in one of them."""

    part = "purses"
    list = everywhere(_named)

    async def _shard_of(self, name: str, starts: float) -> PostgresJournal:
        """The shard of a period: an added database has new ones only."""
        address = f"purse {name} {starts}"
        return await self.shards.find(f"purse {name}", address, lambda shard: shard.purses.has(name, starts))

    async def lease(
        self, name: str, starts: float, ends: float | None, allowance: Allowance, asked: Spending
    ) -> PurseGrant:
        return await (await self._shard_of(name, starts)).purses.lease(name, starts, ends, allowance, asked)

    async def settle(self, name: str, starts: float, ends: float | None, spent: Spending, number: int) -> None:
        await (await self._shard_of(name, starts)).purses.settle(name, starts, ends, spent, number)

    async def hold(self, name: str, starts: float, ends: float | None, id: str, held: Spending) -> None:
        await (await self._shard_of(name, starts)).purses.hold(name, starts, ends, id, held)

    async def close(self, name: str, starts: float, id: str, spent: Spending) -> None:
        await (await self._shard_of(name, starts)).purses.close(name, starts, id, spent)

    async def look(self, name: str, starts: float) -> PurseUse:
        return await (await self._shard_of(name, starts)).purses.look(name, starts)


class ShardedQueue(_ShardPart):
    """The :class:`~agentflow.core.ports.store_ports.JobQueue` of all shards: a worker takes the jobs of all, with one number of slots."""

    part = "jobs"
    prepare = everywhere(_nothing)
    cancel = by_run()
    fork = held()
    lease = held()
    give_back = held()
    give_up = held()
    cancelled = answering(_joined)
    load = everywhere(_loads)
    workers = everywhere(_workers)
    schedules = everywhere(_schedules)
    unschedule = everywhere(any)

    async def changes(self, wake: Callable[[str | None], None]) -> None:
        async with asyncio.TaskGroup() as group:
            for shard in self.shards.every:
                group.create_task(shard.jobs.changes(wake))

    def counts(self) -> FleetCounts:
        every = [shard.jobs.counts() for shard in self.shards.every]
        names = ("takeovers", "sessions_lost", "refused", "commits", "commit_s")
        return FleetCounts(**{name: sum([getattr(each, name) for each in every]) for name in names})

    async def schedule(self, name: str, cron: str, zone: str, new: NewRun) -> Schedule:
        shard = await self.shards.of_key(name)
        kept = await shard.jobs.schedule(name, cron, zone, new)
        for other in self.shards.every:  # one stored before this shard was there
            if other is not shard:
                await other.jobs.unschedule(name)
        return kept

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
            for shard in self.shards.every:
                group.create_task(shard.jobs.work_in(shared, handle, queues, stop, build))


class ShardedJournal(_ShardPart):
    """The :class:`~agentflow.core.ports.store_ports.JournalStore` over the databases at ``urls``."""

    put = held()
    deliver = by_run()
    post = by_run()
    find = by_run()
    effects = by_run()
    park = leaving()
    finish = leaving()
    list = everywhere(_newest("run"))
    past = everywhere(_newest("run"))
    statuses = answering(_merged)
    abandoned = answering(_joined)

    def __init__(self, urls: Sequence[str]) -> None:
        super().__init__(Shards([PostgresJournal(url) for url in urls], lambda shard: shard.database_id()))
        self.jobs = ShardedQueue(self.shards)
        self.sessions = ShardedSessions(self.shards)
        self.results = ShardedResults(self.shards)
        self.purses = ShardedPurses(self.shards)
        self.batches: BatchStore = self.shards.every[0].batches
        """The first database has all batches."""

    async def create(self, run: str, new: NewRun) -> tuple[RunRow, bool]:
        shard = await self.of(run)
        if not await shard.has(run):
            if new.base is not None:
                shard = await self.of(new.base)
            elif new.session is not None:
                shard = await self.sessions.shard_of(new.session)
        created = await shard.create(run, new)
        self.shards.keep(run, shard)
        return created

    async def own(self, run: str, slice: int | None = None) -> OwnedRun:
        shard = await self.of(run)
        new = self.shards.hold(run, shard)  # before it is owned: records follow at once
        try:
            return await shard.own(run, slice)
        except BaseException:  # also when cancelled: this process does not work on it, unless it did before
            if new:
                self.shards.release(run)
            raise

    async def gc(self, before: float | None, bounds: LogBounds | None = None, *, forget: float | None = None) -> int:
        count = sum(await self.shards.all(lambda shard: shard.gc(before, forget=forget)))
        if bounds is None:
            return count
        surveys = await self.shards.all(lambda shard: shard.survey())
        sizes = _merged([each.sizes for each in surveys])
        runs, results = excess(
            bounds, sizes, _joined(each.ended for each in surveys), _joined(each.results for each in surveys)
        )
        await self.shards.all(lambda shard: shard.remove(runs, results))
        return count + len(runs)

    def leave(self) -> None:
        for shard in self.shards.every:
            shard.leave()

    async def aclose(self) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for shard in self.shards.every:
                stack.push_async_callback(shard.aclose)


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
        """The shard to write a run to, found once."""
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

    def share(self, key: str, *args: Any, **options: Any) -> asyncio.Future[RateShare]:
        return self._shards[best_of(key, self._names)].share(key, *args, **options)

    async def aclose(self) -> None:
        for shard in self._shards:
            await shard.aclose()
