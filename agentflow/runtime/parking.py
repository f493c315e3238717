"""Who waits in a durable run for an answer or a time, and the moment when nobody does anything else.

Everybody who is at work in a run holds a permit (:mod:`agentflow.runtime.permits`); whoever parks gives it back. So a run
without a permit held, in which somebody is parked, is idle: it need not be in memory until there is an answer, or it is time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentflow.core.call import CallContext
from agentflow.core.questions import Question
from agentflow.runtime.permits import Permits

PARKED_S = 5.0
"""Waits of more seconds than that may be spent outside of the memory."""


@dataclass(slots=True)
class _Wait:
    """Somebody who waits: for the answer to ``question``, or until the unix time ``due``."""

    future: asyncio.Future[Any]
    question: Question | None
    due: float | None


@dataclass(frozen=True, slots=True)
class Rest:
    """What an idle run waits for: the answers to ``questions``, in the order in which they were asked, or a unix time."""

    questions: list[Question]
    wake_at: float | None


class Parking:
    """The waits of one run. ``suspend`` is called when the run is idle.

    ``ending`` says that somebody waits for nothing but the end of the run. ``seq`` counts the answers that the run was given, as far as it has heard of them; ``deadlines`` are the times at which
    forms end that are being run. Both belong to what a store is told when the run leaves the memory.
    """

    def __init__(self, seq: int, suspend: Callable[[], None]) -> None:
        self.seq = seq
        self.ending = False
        self.deadlines: dict[str, float] = {}
        self._suspend = suspend
        self._permits: Permits | None = None
        self._waits: dict[str, _Wait] = {}
        self._over = False

    def watch(self, permits: Permits) -> None:
        """Look at ``permits``, those of the run."""
        self._permits = permits
        permits.idle = self._look_soon

    @property
    def questions(self) -> list[Question]:
        """The questions that are open, in the order in which they were asked."""
        return [wait.question for wait in self._waits.values() if wait.question and not wait.future.done()]

    @property
    def wake_at(self) -> float | None:
        """The unix time at which the run goes on by itself; None if it does not."""
        times = [*self.deadlines.values(), *(each.due for each in self._waits.values() if each.due is not None)]
        return min(times, default=None)

    async def wait(
        self,
        call: CallContext,
        permits: Permits | None,
        *,
        question: Question | None = None,
        due: float | None = None,
    ) -> Any:
        """Wait at ``call`` until :meth:`answer` is called for its path, or until ``due``. Gives the answer, or None.

        Meanwhile somebody else has the permit, one of ``permits``.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waits[call.path] = _Wait(future, question, due)
        timer = None if due is None else loop.call_later(max(0.0, due - time.time()), _wake, future)
        if permits is not None:
            permits.give()
        try:
            answer = await future
            if permits is not None:
                await permits.take(call)
            return answer
        except BaseException:
            if permits is not None:
                permits.take_anyway()
            raise
        finally:
            del self._waits[call.path]
            if timer is not None:
                timer.cancel()

    def answer(self, path: str, answer: Any) -> None:
        """Hand over the answer to the question at ``path``, if somebody waits for it: the run has heard of it then.

        A run that is being suspended hears of nothing any more, and the store will not let it rest.
        """
        wait = self._waits.get(path)
        if wait is not None and not wait.future.done() and not self._over:
            self.seq += 1
            wait.future.set_result(answer)

    def _look_soon(self) -> None:
        if self._waits or self.ending:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Suspend the run if it is idle. A permit that is passed on is back by now, and whoever was woken is awake."""
        waits = self._waits.values()
        if self._over or self._permits is None or self._permits.active or not (waits or self.ending):
            return
        if any(each.future.done() for each in waits):
            return
        soonest = self.wake_at
        if self.ending or soonest is None or soonest - time.time() > PARKED_S:
            self._over = True
            self._suspend()


def _wake(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


__all__ = ["PARKED_S", "Parking", "Rest"]
