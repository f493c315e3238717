"""Permits: how many strands of a run may be active at once.

A run begins with one active strand. A form that waits for its branches gives its permit to the first of them and takes
it back from the last (:mod:`agentflow.run.strand.crew`), and so does host code while a procedure or program that it called
runs (:class:`CallBack`). So whatever holds a permit can continue without another one, and forms nested to any depth end
under a limit of 1.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from types import TracebackType

from agentflow.core.call.call import CallContext
from agentflow.core.events.events import WaitStarted
from agentflow.lib.event_loop import WaitQueue


def waiting(call: CallContext) -> AbstractContextManager[object]:
    """A block in which ``call`` waits for a permit; publishes a pair of Wait events if somebody watches."""
    return call.scope(WaitStarted, call.path, reason="permit") if call.run.watched else nullcontext()


class Permits:
    """The permits of a run or, within ``outer`` ones, of a part of it that has fewer.

    ``active`` is the number of permits held, ``most`` the highest number so far. A permit of a part is also one of the run.
    All wait in the run's queue, ordered by priority and then by depth in the run, deepest first: what was begun ends before
    more begins, and nested forms have few waiting strands. ``idle`` of the run's permits is called when none is held, if
    only for a moment.
    """

    __slots__ = ("active", "excess", "idle", "limit", "most", "outer", "root", "waiters", "waiting")

    def __init__(self, limit: int, outer: Permits | None = None) -> None:
        self.limit = max(1, limit)
        self.outer = outer
        self.root: Permits = self if outer is None else outer.root
        self.active = 1
        self.most = 1
        self.excess = 0
        self.idle: Callable[[], None] | None = None
        self.waiters: WaitQueue[Permits] = WaitQueue()
        self.waiting = self.waiters.entries

    def within(self, limit: int) -> Permits:
        """The permits of a part that may hold ``limit``: this object, unless the limit is lower."""
        return self if limit >= self.limit else Permits(limit, self)

    @property
    def free(self) -> bool:
        """Whether a permit is free."""
        level: Permits | None = self
        while level is not None:
            if level.active >= level.limit:
                return False
            level = level.outer
        return True

    def wanted(self, own: asyncio.Future[bool] | None = None) -> bool:
        """Whether somebody in the run waits for a permit before ``own``, which moves behind its equals if it is first."""
        queue = self.root.waiters
        moved = False
        while (first := queue.first()) is not None:
            if first is not own:
                return True
            if moved:
                return False
            queue.send_back()
            moved = True
        return False

    def take_free(self) -> bool:
        """Take a permit if one is free. Returns whether it did."""
        if self.outer is not None:
            if not self.free:
                return False
            self._count(1)
            return True
        active = self.active
        if active >= self.limit:
            return False
        self.active = active + 1
        if active >= self.most:
            self.most = active + 1
        return True

    def take_anyway(self) -> None:
        """Take a permit even beyond the limit, for work that continues after a cancellation; :meth:`settle` compensates."""
        self._count(1)

    def queue(self, call: CallContext) -> asyncio.Future[bool]:
        """Join the queue for ``call``. Returns a future to be awaited with :meth:`wait`; setting it to False leaves the queue."""
        return self.root.waiters.join(self, call.priority, call.path.count("/"))

    async def wait(self, waiter: asyncio.Future[bool]) -> bool:
        """Wait in the queue. Returns True with a permit, False after leaving the queue."""
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.give()
            raise

    async def take(self, call: CallContext) -> None:
        """Take a permit for ``call``. Waits if none is free, and publishes a pair of Wait events then."""
        if not self.take_free():
            with waiting(call):
                await self.wait(self.queue(call))

    def give(self) -> None:
        """Give a permit back."""
        root = self.root
        if root is self and not self.excess:
            self.active -= 1
        else:
            self._count(-1)
        if root.waiting:
            root._serve()
        if not root.active and root.idle is not None:
            root.idle()

    async def settle(self, call: CallContext) -> None:
        """Give up one's own permit and wait for one, as long as more permits are held than the limit."""
        while self._over:
            self.give()
            try:
                await self.take(call)
            except asyncio.CancelledError:
                self.take_anyway()
                raise

    @property
    def _over(self) -> bool:
        level: Permits | None = self
        while level is not None:
            if level.active > level.limit:
                return True
            level = level.outer
        return False

    def _count(self, by: int) -> None:
        level: Permits | None = self
        while level is not None:
            over = level.active > level.limit
            level.active += by
            if level.active > level.most:
                level.most = level.active
            if over is not (level.active > level.limit):
                level.root.excess += by
            level = level.outer

    def _serve(self) -> None:
        """Give the free permits to those in the queue; whoever waits for a full part is passed over."""
        self.waiters.serve(self._goes)

    def _goes(self, permits: Permits) -> bool | None:
        if self.active >= self.limit:
            return None
        if not permits.free:
            return False
        permits._count(1)
        return True


class CallBack:
    """A block in which host code waits for something it runs in its run: the host's permit passes to what runs there.

    Host code may enter several such blocks at once: the first uses the host's own permit, the others take one each, and the
    last returns it to the host. Parameters: ``call`` is the call of the host code, ``inner`` that of what runs in the block.
    """

    __slots__ = ("_call", "_host", "_permits")

    def __init__(self, permits: Permits, call: CallContext, inner: CallContext) -> None:
        self._permits = permits
        self._host = call.host
        self._call = inner

    async def __aenter__(self) -> None:
        host = self._host
        if host is None:
            return
        await host.check()
        host.count += 1
        if host.count > 1:
            try:
                await self._permits.take(self._call)
            except asyncio.CancelledError:
                host.count -= 1
                if not host.count:
                    self._permits.take_anyway()
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        host = self._host
        if host is not None:
            host.count -= 1
            if host.count:
                self._permits.give()


@asynccontextmanager
async def without_permit(permits: Permits | None) -> AsyncGenerator[None, None]:
    """A block that waits, and leaves its permit to other strands of the run."""
    if permits is None:
        yield
        return
    permits.give()
    try:
        yield
    finally:
        permits.take_anyway()
