"""The memory limit of a run.

Python does not say who holds how much. What can be had at no cost is an upper bound of what a run has *allocated*, freed
or not: its account. What can be had for some microseconds is how far the *process* has grown. A run ends when both are past
its limit: a run that only makes garbage does not grow the process, and one beside which a host loads its model has
not allocated that.
"""

from __future__ import annotations

from weakref import WeakSet

from agentflow.core.errors import LimitExceeded
from agentflow.lib.resident import resident_bytes

BYTES_PER_STEP = 512
"""What a step may allocate that is charged by nothing else: a short list, a closure, 64 references, 4 Kbit of an integer."""
LOOK_EVERY = 8 << 20
"""Bytes of its account after which a run that is past its limit looks at the process."""
GRACE = 1.1
"""Times its limit by which the process may grow while another run, which holds more, is to end first."""
_FIRST_LOOK = 16
"""Part of the limit at which the process is looked at first: growth counts from there. Runs that stay below it cost nothing."""

_LARGE = 8
"""Part of the limit past which what is about to be allocated counts as growth already."""

MemoryAccounts = WeakSet["MemoryAccount"]
"""The accounts of runs beside each other that are large enough to matter."""


class MemoryAccount:
    """What a run, or a part of it with a limit of its own (within ``outer``), has allocated: ``used`` bytes.

    Parameters: ``limit`` in bytes, None for none; ``beside`` the accounts of the runs of the same flow, of which the largest
    goes first.
    """

    __slots__ = ("__weakref__", "_base", "_beside", "_limit", "_next", "_outer", "used")

    def __init__(
        self, limit: int | None, beside: MemoryAccounts | None = None, outer: MemoryAccount | None = None
    ) -> None:
        self._limit = limit
        self._beside = beside
        self._outer = outer
        self._base: int | None = None
        self._next: float = float("inf") if limit is None else limit // _FIRST_LOOK
        self.used = 0

    def within(self, limit: int | None) -> MemoryAccount:
        """The account of a part of this that may allocate ``limit``: this, unless that is less."""
        narrower = limit is not None and (self._limit is None or limit < self._limit)
        return MemoryAccount(limit, self._beside, self) if narrower else self

    def add(self, count: int) -> None:
        """Count bytes, before they are allocated. Raises LimitExceeded (``limits/memory``)."""
        if self._outer is not None:
            self._outer.add(count)
        if self.used + count > self._next:
            self._look(count)
        self.used += count

    def take_back(self, count: int) -> None:
        """Count off what was not allocated after all."""
        self.used -= count
        if self._outer is not None:
            self._outer.take_back(count)

    def _look(self, count: int) -> None:
        """Look at the process, before ``count`` bytes are added to the account. Raises LimitExceeded."""
        limit, resident, used = self._limit, resident_bytes(), self.used + count
        assert limit is not None
        if resident is None:
            self._next = float("inf")
            return
        if self._base is None:
            self._base = resident
            if self._beside is not None:
                self._beside.add(self)
        if used <= limit:
            self._next = limit
            return
        self._next = used + LOOK_EVERY
        grown = resident - self._base
        if count > limit // _LARGE:
            grown += count
        if grown <= limit or (grown <= limit * GRACE and self._another_goes_first()):
            return
        raise LimitExceeded(
            f"the run has allocated {_megabytes(used)}, and the process has grown by {_megabytes(grown)} since it "
            f"began; {_megabytes(limit)} are allowed",
            limit="memory",
            allowed=limit,
            used=grown,
            hint="keep less at once, or raise Limits(memory=...), which is in bytes",
        )

    def _another_goes_first(self) -> bool:
        return any(other.used > self.used for other in self._beside or ())


def _megabytes(count: int) -> str:
    return f"{count / 2**20:,.0f} MB"
