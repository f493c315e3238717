"""The waits of a durable run for an answer or a time, and the detection that nothing else is going on.

Everything at work in a run holds a permit (:mod:`agentflow.run.strand.permits`) and gives it back to wait here. So a run in
which no permit is held and something waits is idle: it need not be in memory until there is an answer, or it is time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentflow.core.call.call import CallContext
from agentflow.core.events.journal import EffectRow
from agentflow.core.events.questions import Question
from agentflow.run.strand.permits import Permits

PARKED_S = 5.0
"""Seconds from which on a wait may be spent outside of the memory."""


@dataclass(slots=True)
class _Wait:
    """A wait for the answer to ``question``, or until the unix time ``due``."""

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

    ``asked`` are the questions that were open when the run was resumed: each is open until the run waits for it again, or is
    idle without doing so. ``ending`` says that something waits for nothing but the end of the run. ``seq`` is the number of answers that have
    reached the run; ``deadlines`` are the unix times at which active ``timeout`` forms end. Both are stored when the run
    leaves the memory.
    """

    def __init__(self, seq: int, suspend: Callable[[], None], asked: Sequence[Question] = ()) -> None:
        self.seq = seq
        self.ending = False
        self.deadlines: dict[str, float] = {}
        self._suspend = suspend
        self._permits: Permits | None = None
        self._waits: dict[str, _Wait] = {}
        self._asked = {each.path: each for each in asked}
        self._over = False

    def watch(self, permits: Permits) -> None:
        """Watch ``permits``, those of the run, to see when it is idle."""
        self._permits = permits
        permits.idle = self._look_soon

    @property
    def questions(self) -> list[Question]:
        """The questions that are open, in the order in which they were asked; those not yet asked again come last."""
        waits = self._waits.values()
        return [*(each.question for each in waits if each.question and not each.future.done()), *self._asked.values()]

    @property
    def wake_at(self) -> float | None:
        """The unix time at which the run continues by itself; None if it does not."""
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
        """Wait at ``call`` until :meth:`answer` is called for its path, or until the unix time ``due``.

        Returns the answer, or None. The permit, one of ``permits``, is free meanwhile.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._waits[call.path] = _Wait(future, question, due)
        self._asked.pop(call.path, None)
        timer = None if due is None else loop.call_later(max(0.0, due - time.time()), _wake, future)
        if permits is not None:
            permits.give()
        try:
            answer = await future
            if permits is not None:
                await permits.take(call)
            return answer
        except BaseException:  # also when cancelled: the strand leaves with the permit it had before
            if permits is not None:
                permits.take_anyway()
            raise
        finally:
            del self._waits[call.path]
            if timer is not None:
                timer.cancel()

    def answer(self, path: str, answer: Any) -> None:
        """Deliver the answer to the question at ``path``, if something waits for it.

        A run that is being suspended takes no more answers; the store sees the answer and resumes the run.
        """
        wait = self._waits.get(path)
        if wait is not None and not wait.future.done() and not self._over:
            self.seq += 1
            wait.future.set_result(answer)

    def _look_soon(self) -> None:
        if self._waits or self.ending:
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Suspend the run if it is idle. Called late enough that permits in transit are back and woken tasks have run."""
        waits = self._waits.values()
        if self._over or self._permits is None or self._permits.active or not (waits or self.ending):
            return
        if any(each.future.done() for each in waits):
            return
        soonest = self.wake_at
        if self.ending or soonest is None or soonest - time.time() > PARKED_S:
            self._over = True
            self._asked.clear()
            self._suspend()


def question_of(run_id: str, row: EffectRow) -> Question | None:
    """The question of a record; None for a record of something else."""
    if row.kind not in ("question", "approval"):
        return None
    asked: Mapping[str, Any] = row.value
    return Question(
        question=asked["question"],
        schema=asked["schema"],
        reason="approval" if row.kind == "approval" else "question",
        run_id=run_id,
        path=row.path,
    )


def _wake(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_result(None)


__all__ = ["PARKED_S", "Parking", "Rest", "question_of"]
