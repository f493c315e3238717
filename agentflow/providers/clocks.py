"""The four clocks of a model call, and the one timer that enforces them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.frozen import frozen
from agentflow.lib.option_table import policy_of


@frozen(kw_only=True)
class Clocks:
    """Time limits of a model call, in seconds; None means no limit. Time spent waiting for the consumer does not
    count, except that a call always ends at twice its ``wall_s``.

    ``connect_s`` until the connection is open; ``first_byte_s`` from then to the first byte of a streamed answer, and
    ``plain_first_byte_s`` to that of a plain one, which arrives when the whole answer is ready; ``idle_s`` between two
    events (pings and comments do not count); ``wall_s`` the whole call, retries included, unless the request has a
    ``timeout_s`` of its own. Raises ConfigurationError for anything but a positive number.
    """

    connect_s: float | None = 10.0
    first_byte_s: float | None = 120.0
    plain_first_byte_s: float | None = 600.0
    idle_s: float | None = 60.0
    wall_s: float | None = 600.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
                raise ConfigurationError(
                    f"Clocks({field.name}={value!r}): a clock is a positive number of seconds, or None",
                    code="config/clocks",
                )


def clocks_of(stated: Clocks | Mapping[str, Any] | None, usual: Clocks | None = None) -> Clocks:
    """The clocks of a call: as stated, whole or by name over the ``usual`` ones, seconds or None. Raises ConfigurationError
    (``config/clocks``; ``config/option`` for a clock that there is not)."""
    return policy_of(Clocks, "clocks", stated, usual)


class Watch:
    """A movable deadline for the awaits of one call.

    ``asyncio.timeout`` costs two timer operations per use, and a stream moves its deadline with every one of thousands
    of chunks. Here a move is an assignment; the timer checks the current deadline when it fires.

    Parameters: ``end`` is the loop time when the call is ``over`` in any state, also while its consumer works; None
    while it waits to start. ``look`` is the latest loop time for the first firing of the timer: set to the earliest deadline
    that may follow, so that no later move has to bring the timer forward. ``later`` is asked when a deadline has come, for one
    that may be later.
    """

    __slots__ = ("_cancelling", "_due", "_fired", "_first", "_handle", "_loop", "_task", "end", "later", "over")

    def __init__(self, end: float | None = None, look: float | None = None) -> None:
        self.over = False
        self.end = end
        self.later: Callable[[], float] | None = None
        self._first = look
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[object] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._fired = False
        self._cancelling = 0

    def arm(self, due: float | None) -> None:
        """Cancel the current task's await at loop time ``due``, unless :meth:`disarm` is called first."""
        if due is None:
            return
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._cancelling = task.cancelling()
        self._due = due
        handle = self._handle
        if handle is None:
            look, self._first = self._first, None
            self._handle = self._loop.call_at(due if look is None or due < look else look, self._look)
        elif handle.when() > due:
            handle.cancel()
            self._handle = self._loop.call_at(due, self._look)

    def disarm(self) -> None:
        """Disarm the watch: the await is over."""
        self._task = None

    def expired(self) -> bool:
        """Whether this watch alone caused the CancelledError just caught."""
        task = asyncio.current_task()
        if not self._fired or task is None:
            return False
        self._fired = False
        return task.uncancel() <= self._cancelling

    def close(self) -> None:
        """Stop the timer."""
        self._task = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        now = self._loop.time()
        self.over = self.end is not None and now >= self.end
        if self.later is not None and now >= self._due:
            self._due = self.later()
        if self._task is not None and (self.over or now >= self._due):
            self._fired = True
            self._task.cancel()
            self._handle = None
            return
        due = self.end if self._task is None else self._due
        self._handle = None if due is None or self.over else self._loop.call_at(due, self._look)
