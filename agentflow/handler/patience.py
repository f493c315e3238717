"""Makes waits visible: a pair of events and, after a while, a warning."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from agentflow.core.call import CallContext
from agentflow.core.events import WaitReason, WaitStarted

PATIENCE_S = 1.0
"""Seconds of waiting after which a warning is published."""


@asynccontextmanager
async def waiting(call: CallContext, reason: WaitReason, *, code: str, message: str) -> AsyncGenerator[None, None]:
    """A block that waits: WaitStarted and WaitFinished at the path of ``call``, and a Warning after a while."""
    with call.scope(WaitStarted, call.path, reason=reason) as scope:
        late = asyncio.get_running_loop().call_later(PATIENCE_S, scope.call.warn, code, message)
        try:
            yield
        finally:
            late.cancel()


class PromptClock:
    """The time limit of one prompt; the clock stops while its calls wait for a rate or a budget.

    ``seconds`` is how long the prompt may take; ``timer`` is the time-out that ends it.
    """

    __slots__ = ("_deadline", "_since", "timer")

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._since: float | None = None
        self.timer: asyncio.Timeout | None = None

    @property
    def left(self) -> float:
        """Seconds left."""
        return max(0.001, self._deadline - time.monotonic())

    def stop(self) -> None:
        """Stop the clock."""
        self._since = time.monotonic()
        if self.timer is not None:
            self.timer.reschedule(None)

    def go_on(self) -> None:
        """Start the clock again, with the deadline moved by the time it was stopped."""
        if self._since is not None:
            self._deadline += time.monotonic() - self._since
            self._since = None
            if self.timer is not None:
                self.timer.reschedule(asyncio.get_running_loop().time() + self.left)
