"""From a run to whoever watches it: plain observers, async observers, and the caller's own stream.

Publishing is synchronous and never waits. Lifecycle events reach every observer that keeps up; deltas are what an
observer that falls behind loses. Only the caller's own stream can slow a run down, and only its delta producers.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from agentflow.core.errors import AgentflowError
from agentflow.core.events import DELTAS, Event

_log = logging.getLogger(__name__)

MAX_UNREAD = 10_000
"""Unread lifecycle events past which an observer is disconnected."""
DELTA_ALLOWANCE = 64
"""Unread deltas past which an observer loses more of them, or the caller's stream makes producers wait."""


class Subscriber:
    """A queue of events for one reader.

    Parameters: ``lossy`` drops deltas past the allowance; otherwise :attr:`congested` turns true and producers wait.
    """

    __slots__ = ("_deltas", "_lossy", "_queue", "_room", "_wake", "closed", "congested", "dropped", "overrun")

    def __init__(self, *, lossy: bool) -> None:
        self._queue: deque[Event] = deque()
        self._deltas = 0
        self._lossy = lossy
        self._wake: asyncio.Event = asyncio.Event()
        self._room: asyncio.Event = asyncio.Event()
        self.congested = False
        self.closed = False
        self.overrun = False
        self.dropped = 0

    def put(self, event: Event) -> None:
        """Take an event, or drop it when the rules say so."""
        if self.closed:
            return
        if isinstance(event, DELTAS):
            if self._deltas >= DELTA_ALLOWANCE and self._lossy:
                self.dropped += 1
                return
            self._deltas += 1
            if self._deltas >= DELTA_ALLOWANCE:
                self.congested = not self._lossy
                self._room.clear()
        elif len(self._queue) - self._deltas >= MAX_UNREAD:
            self.overrun = True
            _log.warning("an event reader is disconnected: %d events unread", MAX_UNREAD)
            self.close()
            return
        self._queue.append(event)
        self._wake.set()

    def close(self) -> None:
        """No more events; what is queued can still be read. Waiting producers go on."""
        self.closed = True
        self.congested = False
        self._room.set()
        self._wake.set()

    def discard(self) -> None:
        """Drop what is unread and take nothing more."""
        self._queue.clear()
        self._deltas = 0
        self.close()

    async def room(self) -> None:
        """Wait until the reader has taken enough deltas, or has gone."""
        while self.congested:
            await self._room.wait()

    async def next(self) -> Event | None:
        """The next event; None after the last one."""
        while not self._queue:
            if self.closed:
                return None
            self._wake.clear()
            await self._wake.wait()
        event = self._queue.popleft()
        if isinstance(event, DELTAS):
            self._deltas -= 1
            if self.congested and self._deltas <= DELTA_ALLOWANCE // 2:
                self.congested = False
                self._room.set()
        return event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self.next()) is not None:
            yield event
        if self.overrun:
            raise AgentflowError(
                f"this reader fell behind: more than {MAX_UNREAD} events were unread, later ones were not kept",
                code="stream/overrun",
                hint="read events as they come, or subscribe a plain function with flow.subscribe",
            )


Observer = Callable[[Event], Awaitable[None] | None]


def is_async_observer(observer: Observer) -> bool:
    """Whether calling ``observer`` gives something to await."""
    call: Any = getattr(observer, "__call__", None)  # noqa: B004 - the instance's own method decides
    return inspect.iscoroutinefunction(observer) or inspect.iscoroutinefunction(call)


class Fanout:
    """All observers of one run.

    Parameters: ``observers`` plain callables and the callables of async observers; ``own`` the caller's own stream;
    ``drop`` is told which observer failed, so that later runs do without it.
    """

    __slots__ = ("_async", "_drop", "_plain", "listening", "own")

    def __init__(
        self,
        observers: tuple[Observer, ...],
        own: Subscriber | None = None,
        drop: Callable[[Observer], None] = lambda observer: None,
    ) -> None:
        self._drop = drop
        self._plain: list[Callable[[Event], Any]] = []
        self._async: list[tuple[Observer, Subscriber]] = []
        self.own = own
        for observer in observers:
            if is_async_observer(observer):
                self._async.append((observer, Subscriber(lossy=True)))
            else:
                self._plain.append(observer)
        self.listening = bool(self._plain or self._async or own is not None)

    @property
    def needs_tasks(self) -> bool:
        """Whether :meth:`pump` has anything to do."""
        return bool(self._async)

    @property
    def congested(self) -> bool:
        """Whether the caller's own stream wants delta producers to wait."""
        return self.own is not None and self.own.congested

    def publish(self, event: Event) -> None:
        """Hand ``event`` to everybody. An observer that raises is disabled and logged; the run lives."""
        for observer in self._plain:
            try:
                made = observer(event)
            except Exception:  # noqa: BLE001 - an observer is foreign code; its failure must not be the run's
                self._disable(observer, "failed")
                continue
            if made is not None and inspect.isawaitable(made):
                _close(made)
                self._disable(observer, "returns an awaitable but is no async function")
        for _, subscriber in self._async:
            subscriber.put(event)
        if self.own is not None:
            self.own.put(event)

    def _disable(self, observer: Observer, why: str) -> None:
        _log.warning("observer %r %s; it is disabled", observer, why, exc_info=True)
        self._plain = [other for other in self._plain if other is not observer]
        self._drop(observer)

    async def pump(self) -> None:
        """Run the async observers until :meth:`close`."""
        async with asyncio.TaskGroup() as group:
            for observer, subscriber in self._async:
                group.create_task(self._feed(observer, subscriber))

    async def _feed(self, observer: Observer, subscriber: Subscriber) -> None:
        while (event := await subscriber.next()) is not None:
            try:
                made = observer(event)
                if made is not None:
                    await made
            except Exception:  # noqa: BLE001 - an observer is foreign code; its failure must not be the run's
                _log.warning("async observer %r failed; it is disabled", observer, exc_info=True)
                subscriber.discard()
                self._drop(observer)
                return

    def close(self) -> None:
        """No more events: the async observers end when they have read what is queued."""
        for _, subscriber in self._async:
            subscriber.close()
        if self.own is not None:
            self.own.close()


def _close(awaitable: object) -> None:
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()
