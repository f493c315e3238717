"""The one wall clock of a run."""

from __future__ import annotations

import asyncio
from types import TracebackType

from agentflow.core.data.errors import LimitExceeded
from agentflow.run.strand.budget import Budget, out_of_time


class WallClock:
    """Ends its block with LimitExceeded when the wall time of ``budget`` is up; the time starts with the block.

    ``spent_s`` are the seconds already used by earlier slices of a durable run.
    """

    __slots__ = ("_budget", "_timer")

    def __init__(self, budget: Budget, spent_s: float = 0.0) -> None:
        self._budget = budget
        self._timer = asyncio.timeout(budget.start_clock(spent_s))

    async def __aenter__(self) -> WallClock:
        await self._timer.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        final = await self.end(kind, error, trace)
        if final is not None and final is not error:
            raise final

    async def end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> BaseException | None:
        """Stop the clock. Returns the error of the block, or LimitExceeded if it ended because the time was up."""
        try:
            await self._timer.__aexit__(kind, error, trace)
            if not (isinstance(error, TimeoutError) and self._timer.expired()):
                return error
        except TimeoutError:
            pass
        assert self._budget.wall_s is not None
        late: LimitExceeded = out_of_time(self._budget.wall_s)
        late.__suppress_context__ = True
        late.partial = getattr(error, "partial", ())
        return late
