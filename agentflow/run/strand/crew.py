"""Concurrent work under the permits of a run: the branches of a form, or the tool calls of an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from time import monotonic
from typing import Any, Generic, TypeVar

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import RunStopped
from agentflow.run.strand.budget import Budget, waiting

T = TypeVar("T")

BEGUN_AT_ONCE = 8
"""Workers started before any has run. When all of them wait for something, as many again are started."""


class Crew(Generic[T]):
    """Workers that process ``items``, as many at once as ``width`` and the run's permits allow.

    The first worker uses the permit of the caller of :meth:`run`, and returns it when all have ended. Another starts
    only when there is a permit for it and the workers before it wait for something: memory depends on the workers, not on
    the items, and items that never wait are processed by few workers. Between two items a worker passes its permit on if a
    strand waits for one, and pauses when the run's slice of the loop is used up.

    ``call`` is the call that they are part of.
    """

    def __init__(self, budget: Budget, items: Iterable[T], width: int, call: CallContext) -> None:
        self._permits = budget.permits
        self._slices = budget.root.slices
        self._items = iter(items)
        self._width = width
        self._call = call
        self._tasks: list[asyncio.Task[None]] = []
        self._held = 1
        self._working = 0
        self._away = 0
        self._pausing = 0
        self._waiter: asyncio.Future[bool] | None = None
        self._closed = False
        self._settled = False
        self._error: Exception | None = None

    async def run(self, step: Callable[[T], Awaitable[object]]) -> None:
        """Call ``step`` with every item until none is left or the crew is settled; return when every worker has ended.

        An exception of ``step`` settles the crew. Raises the error that it was settled with.
        """
        most = BEGUN_AT_ONCE
        try:
            # The tasks of the group never fail themselves, so the group never cancels the task that waits for it.
            async with asyncio.TaskGroup() as group:
                while len(self._tasks) < self._width and not self._closed:
                    if len(self._tasks) == most:
                        await asyncio.sleep(0)
                        if not self._pausing:
                            most *= 2
                        continue
                    if self._held <= self._working:
                        if not (self._permits.take_free() or await self._queue()):
                            break
                        if self._closed:  # while the permit was on its way
                            self._permits.give()
                            break
                        self._held += 1
                    self._working += 1
                    self._tasks.append(group.create_task(self._work(step)))
        finally:
            if not self._held:
                self._permits.take_anyway()
            while self._held > 1:
                self._held -= 1
                self._permits.give()
        if self._error is not None:
            raise self._error from self._error.__cause__

    def settle(self, error: Exception | None = None) -> None:
        """End the work, with or without an error: cancel the other workers.

        Only the first call counts, except that a limit of the run takes precedence over any other error.
        """
        if self._settled:
            if isinstance(error, RunStopped) and not isinstance(self._error, RunStopped | None):
                self._error = error
            return
        self._settled = True
        self._error = error
        self._close()
        me = asyncio.current_task()
        for task in self._tasks:
            if task is not me:
                task.cancel()

    @property
    def settled(self) -> bool:
        """Whether :meth:`settle` was called."""
        return self._settled

    def _close(self) -> None:
        """Begin no more workers."""
        self._closed = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(False)

    async def _queue(self) -> bool:
        """Wait for a permit for another worker; False if no more may start."""
        self._waiter = self._permits.queue(self._call)
        with waiting(self._call):
            return await self._permits.wait(self._waiter)

    async def _work(self, step: Callable[[T], Awaitable[object]]) -> None:
        permits, slices = self._permits, self._slices
        queue = permits.root.waiting
        holding = True
        try:
            for item in self._items:
                if monotonic() > slices.end:
                    self._pausing += 1
                    try:
                        await slices.pause()
                    finally:
                        self._pausing -= 1
                try:
                    await step(item)
                except Exception as error:  # noqa: BLE001 - the first failure of any kind is raised, once all have ended
                    self.settle(error)
                if self._settled:
                    return
                if queue and permits.wanted(self._waiter):
                    self._working -= 1
                    self._held -= 1
                    self._away += 1
                    holding = False
                    permits.give()
                    try:
                        await permits.take(self._call)
                    finally:
                        self._away -= 1
                    self._working += 1
                    self._held += 1
                    holding = True
            if not self._closed:
                self._close()
        finally:
            if holding:
                self._working = working = self._working - 1
                # The last permit is the crew's, unless one of its own has to come back for it.
                if self._held > working and (working or self._away):
                    self._held -= 1
                    permits.give()


async def together(budget: Budget, work: Sequence[Callable[[], Awaitable[T]]], call: CallContext) -> list[T]:
    """Await all of ``work`` concurrently and return the results in order. ``call`` is the call that they are part of.

    The first failure cancels the others and is raised when they have ended; a limit of the run takes precedence.
    """
    results: list[Any] = [None] * len(work)

    async def one(index: int) -> None:
        results[index] = await work[index]()

    await Crew(budget, range(len(work)), len(work), call).run(one)
    return results
