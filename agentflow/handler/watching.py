"""Watching one prompt from its caller: a run that also delivers its events to one reader."""

from __future__ import annotations

import asyncio

from agentflow.core.call import CallContext, RunPort
from agentflow.core.events import Event
from agentflow.core.forwarding import ForwardingRun

ALLOWANCE = 64
"""Number of unread events at which the producer waits for the reader."""


class WatchedRun(ForwardingRun):
    """A RunPort that forwards to another and copies its events to a queue; delta producers wait for the reader."""

    def __init__(self, run: RunPort) -> None:
        super().__init__(run)
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self.watched = True
        self.streaming = True

    @property
    def congested(self) -> bool:
        """Whether the reader, or the run's own stream, is behind."""
        return self.queue.qsize() > ALLOWANCE or super().congested

    def publish(self, event: Event) -> None:
        """Publish to the run's observers and to the reader."""
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
    """A watched run, and the call of the prompt that starts in it; the call has the same path as without watching.

    ``content`` identifies the prompt if ``call`` is not ordered.
    """
    inner = call.start(call.span, "Prompt", *content)
    inner.run = watched = WatchedRun(call.run)
    return watched, inner
