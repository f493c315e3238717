"""The order of the outcomes that reach the asyncio tasks of a durable workflow, as the rooms below the runtime see it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from typing import Protocol

TIMERS = "/@timers"
"""End of the lines of timers: tasks have a number in this place."""


def timer_event(line: str, number: int) -> str:
    """The event of the timer of this number on a line."""
    return f"{line}{TIMERS}#{number}"


class TimerPort(Protocol):
    """A timer that the code of a workflow has made."""

    event: str
    context: Context

    @property
    def cancelled(self) -> bool:
        """Whether the code has cancelled it."""
        ...

    @property
    def may_be_early(self) -> bool:
        """Whether it may fire before its time."""
        ...

    def fire(self, _: object = None) -> None:
        """Carry out its callback, unless it was cancelled."""
        ...

    def fire_early(self) -> None:
        """Have its time come now."""
        ...


class Deliveries(Protocol):
    """The order of the outcomes that reach the code of workflows: the recorded one, then that of their arrival.

    An ``event`` names one call of a ``line``, which is the path of those calls; both are the same in every run.
    """

    @property
    def cuts(self) -> bool:
        """Whether calls without tasks beside them count too: one was cancelled just now, or the records have more places."""
        ...

    def watch(self, calm: Callable[[], bool]) -> None:
        """Ask ``calm`` whether the code of some tasks waits: the next outcome is delivered when all do."""
        ...

    def unwatch(self, calm: Callable[[], bool]) -> None:
        """Ask it no more."""
        ...

    def stir(self) -> None:
        """Note that code is about to run."""
        ...

    async def begins(self, event: str, line: str) -> None:
        """A call begins. If it was cancelled according to the records, its first effect without a record waits for that."""
        ...

    def loses(self, event: str) -> bool:
        """Whether the call is yet to be cancelled according to the records: it waits for that in :meth:`passes`."""
        ...

    async def passes(self, event: str, *, alone: bool) -> None:
        """The call has an outcome; returns when the code may have it. ``alone``: no other task of its workflow is there."""
        ...

    def expects(self, timer: TimerPort) -> None:
        """The code has made a timer. If it has fired according to the records, it fires when its place comes."""
        ...

    def fires(self, timer: TimerPort) -> None:
        """The time of a timer has come: it fires in its turn among the outcomes."""
        ...

    def ends(self, line: str, effects: int) -> None:
        """The work of a call on ``line`` has ended, with all branches in it: recorded places in its first ``effects`` effects are none
        any more. A branch that was stopped may have got further when it was recorded."""
        ...

    def lost(self, event: str, line: str) -> None:
        """The call was cancelled before its outcome was delivered. Recorded once another call begins: the code went on."""
        ...
