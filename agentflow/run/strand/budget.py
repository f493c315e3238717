"""What a run has used so far, shared by all its strands."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Span
from agentflow.run.strand.cleanup import CleanupTime
from agentflow.run.strand.large_lists import LargeLists
from agentflow.run.strand.memory import BYTES_PER_STEP, MemoryAccount, MemoryAccounts
from agentflow.run.strand.permits import Permits
from agentflow.run.strand.slices import Slices


class Fuelled(Protocol):
    """A strand as its budget sees it: ``fuel`` is the number of granted steps it has left."""

    fuel: int


class Budget:
    """Steps, effects, branches and time of one run. Strands take steps in slices and return unused ones.

    ``steps_used`` is exact at any time. A budget with a ``parent`` bounds a part of a run: what it uses also counts for
    the parent, and ``root`` is the budget of the whole run. The time limit ``limits.wall_s`` counts from
    :meth:`start_clock`, the part's own ``wall_s`` from its creation. ``permits`` bound how many strands are active at once,
    ``slices`` how long they keep the loop, ``large_lists`` are freed in slices, ``memory`` what the run allocates (``beside``: the accounts of other runs);
    ``cleanup`` is how long ``finally`` forms may take when it is stopped, ``pausing`` the number of strands that are just
    letting others run. ``met`` is the error raised by a limit of this budget: whatever the budget bounds is over then.
    """

    __slots__ = (
        "_cleanup",
        "_steps_granted",
        "branches_used",
        "deadline",
        "effects_used",
        "large_lists",
        "limits",
        "memory",
        "met",
        "parent",
        "pausing",
        "permits",
        "root",
        "slices",
        "steps",
        "strands",
        "wall_s",
    )

    def __init__(
        self,
        limits: Limits,
        *,
        parent: Budget | None = None,
        steps: int | None = None,
        wall_s: float | None = None,
        beside: MemoryAccounts | None = None,
        cleanup: CleanupTime | None = None,
    ) -> None:
        self.limits = limits
        self.parent = parent
        self.root: Budget = parent.root if parent is not None else self
        self.pausing = 0
        self.steps = limits.steps if steps is None else steps
        self._steps_granted = 0
        self.effects_used = 0
        self.branches_used = 0
        self.permits: Permits = (
            Permits(limits.concurrency) if parent is None else parent.permits.within(limits.concurrency)
        )
        self.memory: MemoryAccount = (
            MemoryAccount(limits.memory, beside) if parent is None else parent.memory.within(limits.memory)
        )
        self.slices: Slices = Slices() if parent is None else self.root.slices
        self.large_lists: LargeLists = LargeLists() if parent is None else self.root.large_lists
        self._cleanup = cleanup
        self.wall_s: float | None = None
        self.deadline: float | None = None
        if wall_s is not None:
            self.start_part_clock(wall_s)
        self.strands: set[Fuelled] = set()
        self.met: LimitExceeded | None = None

    def narrower(self, concurrency: int) -> Budget:
        """The budget of a part in which fewer strands may be active at once; it shares all other counts with this one."""
        part = Budget(replace(self.limits, concurrency=concurrency), parent=self)
        part.steps, part.strands = None, self.strands
        return part

    @property
    def steps_used(self) -> int:
        """Steps taken so far: those granted, minus those that strands have not used yet."""
        used = self._steps_granted
        for strand in self.strands:
            if strand.fuel > 0:
                used -= strand.fuel
        return used

    def grant(self, wanted: int, span: Span | None) -> int:
        """Grant a strand up to ``wanted`` more steps, at least one. Raises LimitExceeded if there are none left.

        A step may allocate, so LimitExceeded may be that of memory.
        """
        self.memory.add(wanted * BYTES_PER_STEP)
        granted = self._grant(wanted, span)
        if granted < wanted:
            self.memory.take_back((wanted - granted) * BYTES_PER_STEP)
        return granted

    def _grant(self, wanted: int, span: Span | None) -> int:
        if self.met is not None:
            raise self.met
        allowed = self.steps
        if allowed is not None:
            left = allowed - self._steps_granted
            if left <= 0:
                left = self._reclaim()
            if left <= 0:
                message = f"the run has used its {allowed:,} steps"
                raise self.meet(LimitExceeded(message, limit="steps", allowed=allowed, used=allowed, span=span))
            wanted = min(wanted, left)
        if self.parent is not None:
            wanted = self.parent._grant(wanted, span)
        self._steps_granted += wanted
        return wanted

    def give_back(self, steps: int) -> None:
        """Take back steps that were granted but not used."""
        if steps > 0:
            self.memory.take_back(steps * BYTES_PER_STEP)
            budget: Budget | None = self
            while budget is not None:
                budget._steps_granted -= steps
                budget = budget.parent

    @property
    def steps_left(self) -> int | None:
        """Steps that can still be taken; None if there is no limit."""
        left: int | None = None
        budget: Budget | None = self
        while budget is not None:
            if budget.steps is not None:
                here = max(0, budget.steps - budget.steps_used)
                left = here if left is None else min(left, here)
            budget = budget.parent
        return left

    def owe(self, steps: int) -> None:
        """Count steps that were already taken. A limit they exceed is reported at the next :meth:`grant`."""
        budget: Budget | None = self
        while budget is not None:
            budget._steps_granted += steps
            budget = budget.parent

    def _reclaim(self) -> int:
        """Take back the unused steps of other strands, so that the limit applies exactly."""
        for strand in self.strands:
            if strand.fuel > 0:
                self.give_back(strand.fuel)
                strand.fuel = 0
        assert self.steps is not None
        return self.steps - self._steps_granted

    def start_clock(self, spent_s: float = 0.0) -> float | None:
        """Start the clock of the whole run, with ``spent_s`` seconds already used. Returns the seconds left; None: no limit."""
        self.wall_s = self.limits.wall_s
        if self.wall_s is None:
            return None
        left = max(0.0, self.wall_s - spent_s)
        self.deadline = time.monotonic() + left
        return left

    def start_part_clock(self, seconds: float | None) -> None:
        """Start the clock of a part of a run, which may take ``seconds``; None: as long as the outer budget."""
        self.wall_s = seconds
        self.deadline = None if seconds is None else time.monotonic() + seconds

    @property
    def cleanup(self) -> CleanupTime:
        """The time allowed to ``finally`` forms while the run is being stopped, counted from the first of them."""
        if self._cleanup is None:
            self._cleanup = CleanupTime() if self.parent is None else self.parent.cleanup
        return self._cleanup

    def check_time(self, span: Span | None) -> None:
        """Raise LimitExceeded past the deadline."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            assert self.wall_s is not None
            raise out_of_time(self.wall_s, span)
        if self.parent is not None:
            self.parent.check_time(span)

    def out_of_time(self) -> bool:
        """Whether the deadline of this budget, or of one around it, has passed."""
        past = self.deadline is not None and time.monotonic() >= self.deadline
        return past or (self.parent is not None and self.parent.out_of_time())

    def charge_effect(self, span: Span | None) -> None:
        """Count one effect before it is carried out. Raises LimitExceeded."""
        if self.met is not None:
            raise self.met
        allowed = self.limits.effects
        if allowed is not None and self.effects_used >= allowed:
            message = f"the run has used its {allowed:,} effects"
            raise self.meet(LimitExceeded(message, limit="effects", allowed=allowed, used=allowed, span=span))
        self.effects_used += 1
        if self.parent is not None:
            self.parent.charge_effect(span)
        elif self.deadline is not None:
            self.check_time(span)

    def charge_branches(self, count: int, span: Span | None) -> None:
        """Count branches before they are forked. Raises LimitExceeded."""
        allowed = self.limits.branches
        if allowed is not None and self.branches_used + count > allowed:
            used = self.branches_used + count
            message = f"the run has used its {allowed:,} branches"
            raise self.meet(LimitExceeded(message, limit="branches", allowed=allowed, used=used, span=span))
        self.branches_used += count
        if self.parent is not None:
            self.parent.charge_branches(count, span)

    def meet(self, error: LimitExceeded) -> LimitExceeded:
        """Remember ``error`` in this budget, and in those around it whose limit is reached with it.

        From then on whatever they bound is over, even if the error is caught; a part with narrower limits ends alone.
        """
        at: Budget | None = self
        while at is not None:
            whole = {"steps": at.steps, "wall_s": at.wall_s}.get(error.limit, getattr(at.limits, error.limit, None))
            if whole is None or whole > error.allowed:
                break
            at.met = error
            at = at.parent
        return error

    def check_over(self) -> None:
        """Raise LimitExceeded again if a limit was reached before."""
        if self.met is not None:
            raise self.met

    def check_met(self) -> None:
        """Raise LimitExceeded if a limit was reached before or the time is up."""
        if self.met is not None:
            raise self.met
        if self.deadline is not None:
            self.check_time(None)


def out_of_time(seconds: float, span: Span | None = None) -> LimitExceeded:
    """The error for a run whose wall time is up."""
    return LimitExceeded(
        f"the run has used its {seconds:g} s", limit="wall_s", allowed=seconds, used=seconds, span=span
    )


def budget_of(call: CallContext) -> Budget:
    """The budget of the run ``call`` belongs to; a fresh one when no runtime opened that run."""
    budget = call.run.budget
    return budget if isinstance(budget, Budget) else Budget(call.run.limits)
