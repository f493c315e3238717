"""Telling how far loops are whose length is known, to those who watch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from agentflow.core.call import CallContext
from agentflow.core.events import LoopProgress
from agentflow.core.source import Span

EVERY_S = 0.1
"""Seconds after which a loop that only computes is told of again."""


class WatchedLoops:
    """The loops of one strand, while somebody watches it.

    Parameters: ``call`` that of the strand; ``effects`` says how many the run has made. A round is told if something was
    done since the last one that was, or a tenth of a second ago: rounds that only compute are over before anybody has read
    of them.
    """

    __slots__ = ("_call", "_due", "_effects", "_seen")

    def __init__(self, call: CallContext, effects: Callable[[], int]) -> None:
        self._call = call
        self._effects = effects
        self._seen = -1
        self._due = 0.0

    def rounds(self, rounds: range, span: Span) -> Iterator[int]:
        """``rounds`` of the loop at ``span``, told as they begin. A loop that was told of is told to be over, however it ends."""
        done, total, was_told, before = 0, len(rounds), False, self._seen
        try:
            for done in rounds:
                if (effects := self._effects()) != before or time.monotonic() > self._due:
                    before = self._seen = effects
                    was_told = True
                    self._tell(span, done, total)
                yield done
            done = total
        finally:
            if was_told:
                self._tell(span, done, total, over=True)

    def _tell(self, span: Span, done: int, total: int, *, over: bool = False) -> None:
        run, call = self._call.run, self._call
        self._due = time.monotonic() + EVERY_S
        if run.streaming:
            header = (run.run_id, run.slice, run.next_seq(), call.path, call.parent, span, time.time())
            run.publish(LoopProgress(*header, done=done, total=total, over=over))
