"""The memory limit of a run.

Python does not say which run holds how much memory. Free of cost is an upper bound of what a run has *allocated*, whether
freed or not: its account. For some microseconds, one can read how much the *process* has grown. A run ends when both exceed
its limit: a run that only creates garbage does not grow the process, and a run is not charged for a model that the host
loads meanwhile.
"""

from __future__ import annotations

from weakref import WeakSet

from agentflow.core.data.errors import LimitExceeded
from agentflow.lib.resident import resident_bytes

BYTES_PER_STEP = 512
"""Bytes that a step may allocate without being charged: a short list, a closure, 64 references, an integer of 4 Kbit."""
LOOK_EVERY = 8 << 20
"""Bytes added to the account of a run past its limit after which it checks the process."""
GRACE = 1.1
"""Factor of its limit by which the process may grow while another run, which has allocated more, is to end first."""
_FIRST_LOOK = 16
"""Fraction of the limit (1/16) at which the process is first measured: growth counts from there. Smaller runs cost nothing."""

_LARGE = 8
"""Fraction of the limit (1/8) beyond which an allocation counts as growth before it happens."""

MemoryAccounts = WeakSet["MemoryAccount"]
"""The accounts of concurrent runs that are large enough to matter."""


class MemoryAccount:
    """What a run, or a part of it with a limit of its own (within ``outer``), has allocated: ``used`` bytes.

    Parameters: ``limit`` in bytes, None for none; ``beside`` the accounts of the flow's other runs, of which the largest
    ends first.
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
        """The account of a part that may allocate ``limit`` bytes: this account, unless the limit is lower."""
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
        """Subtract bytes that were not allocated after all."""
        self.used -= count
        if self._outer is not None:
            self._outer.take_back(count)

    def _look(self, count: int) -> None:
        """Measure the process before ``count`` bytes are added to the account. Raises LimitExceeded."""
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
