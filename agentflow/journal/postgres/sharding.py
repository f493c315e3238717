"""In which of several databases, *shards*, things are.

The shard of a new thing follows from its key and from the ids of the databases (rendezvous hashing), so that all processes agree, in
whatever order they name them, and a database that is added takes its share of new things alone. What is elsewhere, since it was there
before or belongs to something else, is looked for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Generic, TypeVar

MAX_PLACES = 100_000
"""Number of runs whose shard is remembered."""
PATIENCE_S = 5.0
"""Seconds that a shard may take to say what is to be done, before the others go on without it."""
AWAY_S = 30.0
"""Seconds for which a shard that took longer is not asked."""

S = TypeVar("S")
T = TypeVar("T")


def score(key: str, shard: str) -> bytes:
    """The weight of a shard for a key; the greatest has it."""
    return blake2b(f"{shard}|{key}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


def best_of(key: str, shards: Sequence[str]) -> int:
    """The position of the shard that has a key."""
    return max(range(len(shards)), key=lambda at: score(key, shards[at]))


def root_of(run: str) -> str:
    """The id that a tree of runs begins with, as far as the id of one of its runs tells: branches and scheduled runs extend it."""
    return run.partition(":")[0].partition("@")[0]


class Shards(Generic[S]):
    """Where things are: ``names`` asks a shard for the id of its database."""

    def __init__(self, every: Sequence[S], name: Callable[[S], Awaitable[str]]) -> None:
        self.every = tuple(every)
        self._name = name
        self._names: list[str] = []
        self._places: dict[str, S] = {}
        self._held: dict[str, S] = {}
        self._away: dict[S, float] = {}

    async def of_key(self, key: str) -> S:
        """The shard of new things under ``key``. Raises what asking for ids raises."""
        if not self._names:
            self._names = await self.all(self._name)
        return self.every[best_of(key, self._names)]

    async def find(self, key: str, name: str, has: Callable[[S], Awaitable[bool]]) -> S:
        """The shard that has the thing ``name``: that of ``key``, or whatever other one; that of ``key`` if none has."""
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
        """The shard of something that is held, or was; any, which does not have it, of what was never asked for."""
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
        """Remember where something is; what was longest not asked for is forgotten."""
        self._places.pop(name, None)
        self._places[name] = shard
        if len(self._places) > MAX_PLACES:
            del self._places[next(iter(self._places))]

    async def all(self, work: Callable[[S], Awaitable[T]]) -> list[T]:
        """What ``work`` gives for each shard, however long that takes. Raises what it raises for one of them."""
        return await _together([work(shard) for shard in self.every])

    async def ask(self, work: Callable[[S], Awaitable[T]]) -> list[T]:
        """What ``work`` gives for each shard that answers in time: one that is away keeps the others waiting once in a while."""
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


__all__ = ["Shards", "best_of", "root_of", "score"]
