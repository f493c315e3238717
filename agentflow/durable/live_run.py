"""A durable run that this process works on or follows: its handle, and the state set by the objects that work on it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from agentflow.core.data.messages import Usage
from agentflow.core.events.journal import RunStatus
from agentflow.durable.handle import DurableRun, RunEnd
from agentflow.durable.records import Records, Rest
from agentflow.durable.stored_input import PythonProgram
from agentflow.lang.program import Program
from agentflow.run.run_spec import RunSpec


class RunWork(NamedTuple):
    """Everything needed to resume a run in this process. ``again``: it had ended before."""

    program: Program | PythonProgram
    spec: RunSpec
    again: bool


class LiveRun(DurableRun):
    """The handle of a run that works or waits here, or is followed while workers carry it out.

    ``work`` resumes it; None if it is only followed. ``cancelled``: it is being cancelled for good. ``adopted``: this
    process took it over from one that died, and no caller has asked for it since.
    """

    def __init__(
        self,
        run_id: str,
        cancel: Callable[[str], Awaitable[None]],
        work: RunWork | None = None,
        *,
        cancelled: bool = False,
    ) -> None:
        super().__init__(run_id, cancel=cancel)
        self.work = work
        self.cancelled = cancelled
        self.adopted = False
        self.task: asyncio.Task[None] | None = None

    @property
    def resting(self) -> bool:
        """Whether it waits, and is not in memory."""
        return self._resting

    @property
    def records(self) -> Records | None:
        """Its records in its present slice, or the last one."""
        return self._records

    @property
    def at_work(self) -> bool:
        """Whether this process executes it."""
        return self.task is not None and not self.task.done()

    @property
    def is_live(self) -> bool:
        """Whether this process works on the run, or resumes it when it has waited."""
        return self._end is None and (self._resting or self.at_work)

    @property
    def is_lost(self) -> bool:
        """Whether its work stopped without an end, a wait or another process that continues it."""
        return self._end is None and not self._resting and self._elsewhere is None

    @property
    def on_trial(self) -> bool:
        """Whether it is at work here and has recorded nothing yet."""
        return not self._still.is_set() and (self._records is None or not self._records.advanced)

    async def ended(self) -> None:
        """Wait until it has ended or was given up."""
        await self._ended.wait()

    def wake(self) -> Callable[[], None] | None:
        """End the rest in which it waits. Returns a function that restores it, None if it did not rest."""
        if not self._resting:
            return None
        self._resting = False
        return self._wait_again

    def _wait_again(self) -> None:
        self._resting = True

    def begin(self, task: asyncio.Task[None], before: tuple[Usage, float | None]) -> None:
        """Record that ``task`` works on it; ``before`` is the usage of earlier slices."""
        self._still.clear()
        self._before = before
        self.task = task

    def write_to(self, records: Records) -> None:
        """Record where the slice that begins keeps its records."""
        self._records = records

    def stop(self) -> asyncio.Task[None] | None:
        """Cancel it for good, once. Returns its work, to be awaited; None if it is not at work."""
        work = self.task
        if work is None or work.done() or self._resting:
            return None
        if not self.cancelled:
            self.cancelled = True
            # A task that is cancelled before its first step would never run its handlers.
            asyncio.get_running_loop().call_soon(work.cancel)
        return work

    def settle(self, end: RunEnd) -> None:
        """Record the end, and wake all who wait for it."""
        if end.status != "waiting":
            self._resting, self._questions, self.wake_at = False, [], None
        self._end = end
        self._still.set()
        self._ended.set()

    def cancelled_late(self) -> None:
        """Record that it is cancelled for good, if it was given up: it began to wait just then, or to store its end."""
        if self._end == RunEnd("queued"):
            self.settle(RunEnd("cancelled"))

    def abandon(self) -> None:
        """Give up the run: its event loop was closed, so nothing can wait for it there any more."""
        self._ended, self._still = asyncio.Event(), asyncio.Event()
        self.settle(RunEnd("waiting" if self._resting else "queued"))

    def follow(self, status: RunStatus, rest: Rest | None = None) -> None:
        """Record the status of a run that workers carry out; ``rest`` is its wait."""
        self._elsewhere = status
        if rest is not None:
            self.rest(rest)
        elif self._resting:
            self._resting, self._questions, self.wake_at = False, [], None
            self._still.clear()

    def rest(self, rest: Rest) -> None:
        """Record that the run waits and has left the memory."""
        self._resting = True
        self._questions, self.wake_at = rest.questions, rest.wake_at
        self._still.set()

    def suspend(self) -> None:
        """Give the run up, to be resumed later."""
        if self._resting:
            self.settle(RunEnd("waiting"))
        if self._records is not None:
            self._records.suspending = True
        if self.task is not None:
            self.task.cancel()
