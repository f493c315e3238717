"""Watching one prompt from the place that asked it: a run that also hands its deltas to one reader."""

from __future__ import annotations

import asyncio

from agentflow.core.call import CallContext, RunPort
from agentflow.core.events import Event
from agentflow.core.forwarding import ForwardingRun

ALLOWANCE = 64
"""Events a reader may be behind before the producer waits for it."""


class WatchedRun(ForwardingRun):
    """A run as it is, whose events go to ``queue`` too; producers of deltas wait while the reader is behind."""

    def __init__(self, run: RunPort) -> None:
        super().__init__(run)
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self.watched = True
        self.streaming = True

    @property
    def congested(self) -> bool:
        """Whether the reader, or the run's own, is behind."""
        return self.queue.qsize() > ALLOWANCE or super().congested

    def publish(self, event: Event) -> None:
        """To the run's observers and to the reader."""
        super().publish(event)
        self.queue.put_nowait(event)

    async def room(self) -> None:
        """Wait for both."""
        if super().congested:
            await super().room()
        while self.queue.qsize() > ALLOWANCE:
            self._room.clear()
            await self._room.wait()

    async def next(self) -> Event | None:
        """The next event; None after the last."""
        event = await self.queue.get()
        if self.queue.qsize() <= ALLOWANCE // 2:
            self._room.set()
        return event

    def end(self) -> None:
        """No more events will come."""
        self.queue.put_nowait(None)


def watch(call: CallContext, *content: object) -> tuple[WatchedRun, CallContext]:
    """A watched run, and on it the call of the one prompt that starts there, which has the path it has unwatched.

    ``content`` tells the prompt from others where ``call`` has no order.
    """
    inner = call.start(call.span, "Prompt", *content)
    inner.run = watched = WatchedRun(call.run)
    return watched, inner
