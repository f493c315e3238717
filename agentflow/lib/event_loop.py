"""The running event loop, with an error for programs that run none or another kind; and a table of tasks.

The tasks of a table work for as long as the object that holds it lives, and the end of one does not affect the others.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from heapq import heappop, heappush, heapreplace
from typing import Any, Generic, TypeVar

import anyio

from agentflow.core.data.errors import ConfigurationError


class TaskTable:
    """The tasks of one event loop without individual waiters; they are kept until they end.

    Unlike in a task group, a task that fails ends alone: its error goes to the loop's exception handler.
    """

    __slots__ = ("_tasks", "loop")

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, None], name: str | None = None) -> asyncio.Task[None]:
        """Start ``work``, in a task with this name."""
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def wait(self) -> None:
        """Wait until all have ended, also those that others begin meanwhile. A cancellation cancels them, and is raised when they have."""
        cancelled: asyncio.CancelledError | None = None
        while self._tasks:
            try:
                await asyncio.wait(self._tasks)
            except asyncio.CancelledError as error:
                cancelled = error
                for task in self._tasks:
                    task.cancel()
        if cancelled is not None:
            raise cancelled

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(
            error, KeyboardInterrupt
        ):  # which has ended the loop's own turn by then
            context = {"message": f"{task.get_name()} ended with an error", "exception": error, "task": task}
            self.loop.call_exception_handler(context)


PER_ITERATION = 12
"""Starts per iteration of the loop; building and sending one request takes half a millisecond of CPU."""


class StartThrottle:
    """Lets a few calls start in each iteration of the event loop; the others start in later ones, in order."""

    __slots__ = ("_begun", "_loop", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._begun = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Return now, or in a later iteration if this one has enough starts."""
        if self._begun < PER_ITERATION and not self._waiting:
            if self._begun == 0:
                self._loop.call_soon(self._next)
            self._begun += 1
            return
        waiter = self._loop.create_future()
        self._waiting.append(waiter)
        await waiter

    def _next(self) -> None:
        self._begun = 0
        waiting = self._waiting
        while waiting and self._begun < PER_ITERATION:
            waiter = waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._begun += 1
        if self._begun:
            self._loop.call_soon(self._next)


T = TypeVar("T")


class WaitQueue(Generic[T]):
    """A queue on one event loop, for waits for a permit, a budget, a rate or a connection.

    The highest ``priority`` goes first; of equal ones the deepest in its run, so that started work ends before more starts;
    then the first come. ``entries`` is the heap; it is true while there may be waiters.
    """

    __slots__ = ("_order", "entries")

    def __init__(self) -> None:
        self._order = itertools.count()
        self.entries: list[tuple[int, int, int, T, asyncio.Future[bool]]] = []

    def join(self, item: T, priority: int = 0, depth: int = 0) -> asyncio.Future[bool]:
        """Add a waiter for ``item``: a future set to True when it is served; cancelled or set otherwise, it has left."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        heappush(self.entries, (-priority, -depth, next(self._order), item, waiter))
        return waiter

    def first(self) -> asyncio.Future[bool] | None:
        """The next waiter; None without one."""
        entries = self.entries
        while entries:
            waiter = entries[0][4]
            if not waiter.done():
                return waiter
            heappop(entries)
        return None

    def send_back(self) -> None:
        """Put the first behind its equals."""
        priority, depth, _, item, waiter = self.entries[0]
        heapreplace(self.entries, (priority, depth, next(self._order), item, waiter))

    def serve(self, goes: Callable[[T], bool | None]) -> None:
        """Serve, in order, the waiters with an item where ``goes`` returns True.

        False skips a waiter, None stops. An error of ``goes`` is raised to the waiter.
        """
        entries = self.entries
        stay: list[tuple[int, int, int, T, asyncio.Future[bool]]] = []
        while entries:
            entry = heappop(entries)
            item, waiter = entry[3:]
            if waiter.done():
                continue
            try:
                verdict = goes(item)
            except Exception as error:  # noqa: BLE001 - it belongs to the waiter
                waiter.set_exception(error)
                continue
            if verdict:
                waiter.set_result(True)
                continue
            stay.append(entry)
            if verdict is None:
                break
        for entry in stay:
            heappush(entries, entry)


class Gate:
    """Lets ``size`` at a time through; the others wait."""

    __slots__ = ("_free", "_queue", "size")

    def __init__(self, size: int) -> None:
        self.size = self._free = size
        self._queue: WaitQueue[None] = WaitQueue()

    def take_free(self) -> bool:
        """Pass if there is room and no waiter."""
        if self._free <= 0 or self._queue.first() is not None:
            return False
        self._free -= 1
        return True

    async def take(self, priority: int = 0) -> None:
        """Pass, waiting for room if needed."""
        if self.take_free():
            return
        waiter = self._queue.join(None, priority)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self.release()
            raise

    def release(self) -> None:
        """Make room for the next."""
        waiter = self._queue.first()
        if waiter is None or self._free < 0:
            self._free += 1
        else:
            waiter.set_result(True)

    def resize(self, size: int) -> None:
        """Let ``size`` at a time through from now on. Those already through stay."""
        more = size - self.size
        self.size = size
        self._free += more
        while self._free > 0 and (waiter := self._queue.first()) is not None:
            self._free -= 1
            waiter.set_result(True)


class KeyLocks:
    """One lock for each key in use, on one event loop. Locks are not reentrant."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def hold(self, key: str) -> AsyncGenerator[None]:
        """A block that has ``key`` to itself."""
        lock, users = self._locks.setdefault(key, (asyncio.Lock(), []))
        users.append(None)
        try:
            async with lock:
                yield
        finally:
            users.pop()
            if not users and self._locks.get(key, (None,))[0] is lock:
                del self._locks[key]

    def clear(self) -> None:
        """Forget all locks of a closed event loop."""
        self._locks.clear()


def running_loop() -> asyncio.AbstractEventLoop:
    """The running asyncio loop. Raises ConfigurationError if there is none, as under Trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError(
            "no asyncio event loop is running: agentflow runs on asyncio, not on Trio",
            code="config/no-asyncio",
            hint="start it with asyncio.run(...), or under Trio inside of trio_asyncio.open_loop()",
        ) from None


async def outlast(task: asyncio.Task[Any], *, cancel: bool = False) -> asyncio.CancelledError | None:
    """Wait for the end of ``task``, through any number of cancellations of the waiter; give the first of those cancellations.

    With ``cancel`` the task is cancelled too, once. Its result or error is left in it, and marked as seen.
    """
    # A run, a tool or a hook that starts in a handler of Starlette or an MCP session has a task of its own: on CPython 3.11
    # and 3.12 a task group with a failed child leaves its parent's cancelling() count at 1, which breaks anyio's scope around it.
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            if cancelled is None:
                await asyncio.wait([task])
            else:
                # a cancelled anyio scope of the host cancels again and again until the task gives in
                with anyio.CancelScope(shield=True):
                    await asyncio.wait([task])
        except asyncio.CancelledError as error:
            if cancel and cancelled is None:
                task.cancel()
            cancelled = cancelled or error
    if not task.cancelled():
        task.exception()
    return cancelled
