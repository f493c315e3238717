"""Watching one prompt from its caller: a run that also delivers its events to one reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from agentflow.core.call.call import CallContext, RunPort
from agentflow.core.call.forwarding import ForwardingRun
from agentflow.core.events.events import Event

Show = Callable[[Event, Callable[[], int]], Iterable[Event]]
ALLOWANCE = 64
"""Number of unread events at which the producer waits for the reader."""


class WatchedRun(ForwardingRun):
    """A RunPort that forwards to another and copies its events to a queue; delta producers wait for the reader.

    Parameters: ``show`` returns the events to show the reader for an event, with numbers from its second argument.
    """

    def __init__(self, run: RunPort, show: Show | None = None) -> None:
        super().__init__(run)
        self._show = show
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
        for shown in (event,) if self._show is None else self._show(event, self.next_seq):
            self.queue.put_nowait(shown)

    async def room(self) -> None:
        """Wait until the reader and the run's own stream take deltas again."""
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
        """End the stream: no more events will come."""
        self.queue.put_nowait(None)


def watch(call: CallContext, *content: object, show: Show | None = None) -> tuple[WatchedRun, CallContext]:
    """A watched run, and the call of the prompt that starts in it; the call has the same path as without watching.

    ``content`` identifies the prompt if ``call`` is not ordered; ``show`` as for :class:`WatchedRun`.
    """
    inner = call.start(call.span, "Prompt", *content)
    inner.run = watched = WatchedRun(call.run, show)
    return watched, inner
