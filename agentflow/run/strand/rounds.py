"""Reports the progress of loops of known length to observers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from agentflow.core.call.call import CallContext
from agentflow.core.data.source import Span
from agentflow.core.events.events import LoopProgress

EVERY_S = 0.1
"""Seconds between two reports of a loop that only computes."""


class WatchedLoops:
    """Reports the loops of one strand that somebody watches.

    Parameters: ``call`` is that of the strand; ``effects`` returns the number of effects of the run so far. A round is
    reported if there was an effect since the last report, or after a tenth of a second: rounds that only compute are over
    before anybody has read about them.
    """

    __slots__ = ("_call", "_due", "_effects", "_seen")

    def __init__(self, call: CallContext, effects: Callable[[], int]) -> None:
        self._call = call
        self._effects = effects
        self._seen = -1
        self._due = 0.0

    def rounds(self, rounds: range, span: Span) -> Iterator[int]:
        """Iterate over ``rounds`` of the loop at ``span``, reporting them as they begin. If any was, the end is reported too."""
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
