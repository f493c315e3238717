"""Watching one prompt from the place that asked it: a run that also hands its deltas to one reader."""

from __future__ import annotations

import asyncio

from agentflow.core.call import CallContext, RunPort
from agentflow.core.events import Event
from agentflow.core.limits import Limits

ALLOWANCE = 64
"""Events a reader may be behind before the producer waits for it."""


class WatchedRun:
    """A run as it is, whose events go to ``queue`` too; producers of deltas wait while the reader is behind."""

    def __init__(self, run: RunPort) -> None:
        self._run = run
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._room = asyncio.Event()
        self.next_seq = run.next_seq
        self.slice = run.slice
        self.programs = run.programs
        self.watched = True
        self.streaming = True
        self.charge_model_call = run.charge_model_call
        self.charge_usage = run.charge_usage
        self.approve = run.approve
        self.services = run.services
        self.run_subtask = run.run_subtask
        self.call_value = run.call_value
        self.take_over = run.take_over
        self.check_program = run.check_program
        self.run_program = run.run_program

    @property
    def run_id(self) -> str:
        """The run's identity."""
        return self._run.run_id

    @property
    def limits(self) -> Limits:
        """The run's limits."""
        return self._run.limits

    @property
    def budget(self) -> object:
        """The run's budget."""
        return self._run.budget

    @property
    def congested(self) -> bool:
        """Whether the reader, or the run's own, is behind."""
        return self.queue.qsize() > ALLOWANCE or self._run.congested

    def publish(self, event: Event) -> None:
        """To the run's observers and to the reader."""
        self._run.publish(event)
        self.queue.put_nowait(event)

    async def room(self) -> None:
        """Wait for both."""
        if self._run.congested:
            await self._run.room()
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
