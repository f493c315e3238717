"""The use of a run so far, shared by all its strands, and its permits: how many strands may be active at once.

A run begins with one active strand. A form that waits for its branches gives its permit to the first of them and takes
it back from the last (:mod:`agentflow.run.strand.crew`), and so does host code while a procedure or program that it called
runs (:class:`CallBack`). So the holder of a permit can continue without another one, and forms nested to any depth end
under a limit of 1.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from dataclasses import replace
from sys import getrefcount
from time import monotonic
from types import TracebackType
from typing import Any, Protocol
from weakref import WeakSet

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Span
from agentflow.core.events.events import WaitStarted
from agentflow.lib.event_loop import WaitQueue

try:
    import resource
except ImportError:  # not on Windows
    resource = None


def resident_bytes() -> int | None:
    """Bytes of memory that the process occupies: now where the system says so, else at its peak; None if it does not."""
    try:
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
    except OSError:
        pages = None
    if resource is None:
        return None
    if pages is not None:
        return pages * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1_024)


def waiting(call: CallContext) -> AbstractContextManager[object]:
    """A block while ``call`` waits for a permit; publishes a pair of Wait events if there are observers."""
    return call.scope(WaitStarted, call.path, reason="permit") if call.run.watched else nullcontext()


# Permits count active strands: forms nested to any depth end under a limit of 1 (decision 15)
class Permits:
    """The permits of a run or, within ``outer`` ones, of a part of it that has fewer.

    ``active`` is the number of permits held, ``most`` the highest number so far. A permit of a part is also one of the run.
    All wait in the run's queue, ordered by priority and then by depth in the run, deepest first: begun work ends before more
    begins, and nested forms have few waiting strands. ``idle`` of the run's permits is called when none is held, if
    only for a moment.
    """

    __slots__ = ("active", "excess", "idle", "limit", "most", "outer", "root", "waiters", "waiting")

    def __init__(self, limit: int, outer: Permits | None = None) -> None:
        self.limit = max(1, limit)
        self.outer = outer
        self.root: Permits = self if outer is None else outer.root
        self.active = 1
        self.most = 1
        self.excess = 0
        self.idle: Callable[[], None] | None = None
        self.waiters: WaitQueue[Permits] = WaitQueue()
        self.waiting = self.waiters.entries

    def within(self, limit: int) -> Permits:
        """The permits of a part that may hold ``limit``: this object, unless the limit is lower."""
        return self if limit >= self.limit else Permits(limit, self)

    @property
    def free(self) -> bool:
        """Whether a permit is free."""
        level: Permits | None = self
        while level is not None:
            if level.active >= level.limit:
                return False
            level = level.outer
        return True

    def wanted(self, own: asyncio.Future[bool] | None = None) -> bool:
        """Whether a waiter in the run comes before ``own``, which moves behind its equals if it is first."""
        queue = self.root.waiters
        moved = False
        while (first := queue.first()) is not None:
            if first is not own:
                return True
            if moved:
                return False
            queue.send_back()
            moved = True
        return False

    def take_free(self) -> bool:
        """Take a permit if one is free. Returns whether it did."""
        if self.outer is not None:
            if not self.free:
                return False
            self._count(1)
            return True
        active = self.active
        if active >= self.limit:
            return False
        self.active = active + 1
        if active >= self.most:
            self.most = active + 1
        return True

    def take_anyway(self) -> None:
        """Take a permit even beyond the limit, for work that continues after a cancellation; :meth:`settle` compensates."""
        self._count(1)

    def queue(self, call: CallContext) -> asyncio.Future[bool]:
        """Join the queue for ``call``. Returns a future to be awaited with :meth:`wait`; setting it to False leaves the queue."""
        return self.root.waiters.join(self, call.priority, call.path.count("/"))

    async def wait(self, waiter: asyncio.Future[bool]) -> bool:
        """Wait in the queue. Returns True with a permit, False after leaving the queue."""
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self.give()
            raise

    async def take(self, call: CallContext) -> None:
        """Take a permit for ``call``. Waits if none is free, and publishes a pair of Wait events then."""
        if not self.take_free():
            with waiting(call):
                await self.wait(self.queue(call))

    def give(self) -> None:
        """Give a permit back."""
        root = self.root
        if root is self and not self.excess:
            self.active -= 1
        else:
            self._count(-1)
        if root.waiting:
            root._serve()
        if not root.active and root.idle is not None:
            root.idle()

    async def settle(self, call: CallContext) -> None:
        """Give up one's own permit and wait for one, as long as more permits are held than the limit."""
        while self._over:
            self.give()
            try:
                await self.take(call)
            except asyncio.CancelledError:
                self.take_anyway()
                raise

    @property
    def _over(self) -> bool:
        level: Permits | None = self
        while level is not None:
            if level.active > level.limit:
                return True
            level = level.outer
        return False

    def _count(self, by: int) -> None:
        level: Permits | None = self
        while level is not None:
            over = level.active > level.limit
            level.active += by
            if level.active > level.most:
                level.most = level.active
            if over is not (level.active > level.limit):
                level.root.excess += by
            level = level.outer

    def _serve(self) -> None:
        """Give the free permits to the queue; waiters of a full part are skipped."""
        self.waiters.serve(self._goes)

    def _goes(self, permits: Permits) -> bool | None:
        if self.active >= self.limit:
            return None
        if not permits.free:
            return False
        permits._count(1)
        return True


class CallBack:
    """A block for host code that waits for something it runs in its run: the host's permit passes to the inner work.

    Host code may enter several such blocks at once: the first uses the host's own permit, the others take one each, and the
    last returns it to the host. Parameters: ``call`` is the call of the host code, ``inner`` that of the work in the block.
    """

    __slots__ = ("_call", "_host", "_permits")

    def __init__(self, permits: Permits, call: CallContext, inner: CallContext) -> None:
        self._permits = permits
        self._host = call.host
        self._call = inner

    async def __aenter__(self) -> None:
        host = self._host
        if host is None:
            return
        await host.check()
        host.count += 1
        if host.count > 1:
            try:
                await self._permits.take(self._call)
            except asyncio.CancelledError:
                host.count -= 1
                if not host.count:
                    self._permits.take_anyway()
                raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        host = self._host
        if host is not None:
            host.count -= 1
            if host.count:
                self._permits.give()


@asynccontextmanager
async def without_permit(permits: Permits | None) -> AsyncGenerator[None, None]:
    """A block that waits, and leaves its permit to other strands of the run."""
    if permits is None:
        yield
        return
    permits.give()
    try:
        yield
    finally:
        permits.take_anyway()


SLICE_S = 0.002
"""Seconds that the branches of a run may take together before other tasks run."""


class Slices:
    """Signals to the branches of one run, for any number of ready ones, when their common slice of the loop is used up.

    ``end`` is the end of the slice on the monotonic clock; a branch that sees it in the past awaits :meth:`pause`.
    """

    __slots__ = ("_next", "end")

    def __init__(self) -> None:
        self.end = monotonic() + SLICE_S
        self._next = False

    async def pause(self) -> None:
        """Let other tasks run, and continue in the next slice."""
        while monotonic() > self.end:
            if not self._next:
                self._next = True
                self.end = 0.0
                asyncio.get_running_loop().call_soon(self._begin)
            await asyncio.sleep(0)

    def _begin(self) -> None:
        self.end = monotonic() + SLICE_S
        self._next = False


BYTES_PER_STEP = 512
"""Bytes that a step may allocate without being charged: a short list, a closure, 64 references, an integer of 4 Kbit."""
LOOK_EVERY = 8 << 20
"""Bytes added to the account of a run past its limit before it checks the process."""
GRACE = 1.1
"""The process may grow by this factor of its limit while another run, which has allocated more, is to end first."""
_FIRST_LOOK = 16
"""Fraction of the limit (1/16) where the process is first measured: growth counts from there. Smaller runs cost nothing."""

_LARGE = 8
"""Fraction of the limit (1/8) beyond which an allocation counts as growth before it happens."""

MemoryAccounts = WeakSet["MemoryAccount"]
"""The sufficiently large accounts of concurrent runs."""


# By account and growth: the process's own figure names no run (decision 16)
class MemoryAccount:
    """The memory allocated by a run, or a part of it with a limit of its own (within ``outer``): ``used`` bytes.

    Parameters: ``limit`` in bytes, None for none; ``beside`` the accounts of the flow's other runs; the largest ends
    first.
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
        """Subtract bytes never allocated after all."""
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


LARGE = 100_000
"""Minimum number of elements of a large list: freeing it takes about a millisecond."""
_AT_ONCE = 1_024
_SLICE_S = 0.002
_EVERY_S = 0.05
_HELD_S = 0.2
"""Seconds after the end of a run during which its lists are still freed here: its error may hold them for a moment."""

_probe: tuple[list[Any]] = ([],)
_ALONE = getrefcount(_probe[0])
"""The reference count of a list held by one container only."""


class LargeLists:
    """The large lists built by a run that still exist."""

    __slots__ = ("_lists", "_timer", "_until")

    def __init__(self) -> None:
        self._lists: list[list[Any]] = []
        self._timer: asyncio.Handle | None = None
        self._until: float | None = None

    def __bool__(self) -> bool:
        return bool(self._lists)

    def add(self, value: list[Any]) -> None:
        """Add a list, to be freed in slices."""
        if not any(each is value for each in self._lists):
            self._lists.append(value)
            if self._timer is None:
                self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._look)

    def free(self) -> bool:
        """Free elements of lists that nothing else refers to, for one slice. Returns whether there are more."""
        lists = self._lists
        end = monotonic() + _SLICE_S
        for at in range(len(lists) - 1, -1, -1):
            if getrefcount(lists[at]) > _ALONE:
                continue
            while lists[at]:
                del lists[at][-_AT_ONCE:]
                if monotonic() > end:
                    return True
            del lists[at]
        return False

    def end(self) -> None:
        """End with the run: free the rest of its lists in slices, and release those held by the host."""
        self._until = monotonic() + _HELD_S
        if self._timer is not None:
            self._timer.cancel()
            self._timer = asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        """Free a slice now and then, as long as there are lists."""
        loop = asyncio.get_running_loop()
        if self.free():
            self._timer = loop.call_soon(self._look)
        elif self._lists and (self._until is None or monotonic() < self._until):
            self._timer = loop.call_later(_EVERY_S, self._look)
        else:
            self._lists.clear()
            self._timer = None


FORM_S = 1.0
"""Seconds allowed to one form."""
GRANTED_S = 2.0
"""Seconds allowed to all forms of programs with grants together while a run is being stopped."""
LEAST_S = 0.01
"""Minimum seconds of a form; with fewer left it gets none: each of thousands would find the time restored since the last."""
HOST_S = 3.0
"""Seconds allowed to all forms of the host's own programs together."""


# Seconds for all clean-up together: many short forms must not add up (decision 20)
class CleanupTime:
    """The time allowed to the ``finally`` forms of a run being stopped: ``each`` form, and all of them together.

    All times are in seconds. Forms of programs with grants (``granted``) cannot use up the time of the host's (``host``).
    Time when several forms run counts once. Used time is restored at the same rate while no form runs, so that a run
    that continues has all of it for its next stop.
    """

    def __init__(
        self,
        each: float = FORM_S,
        *,
        granted: float = GRANTED_S,
        host: float = HOST_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._each = each
        self._now = now
        self._granted = _Allowance(granted, now())
        self._host = _Allowance(host, now())

    @contextmanager
    def form(self, *, trusted: bool) -> Generator[float, None, None]:
        """A block that counts the time of a form, and yields the seconds it may take; at 0 the form runs until it first waits."""
        allowance = self._host if trusted else self._granted
        allowance.settle(self._now())
        allowance.running += 1
        try:
            yield min(self._each, allowance.left) if allowance.left >= LEAST_S else 0.0
        finally:
            allowance.settle(self._now())
            allowance.running -= 1


class _Allowance:
    __slots__ = ("_settled", "_whole", "left", "running")

    def __init__(self, whole: float, now: float) -> None:
        self._whole = self.left = whole
        self._settled = now
        self.running = 0

    def settle(self, now: float) -> None:
        passed, self._settled = now - self._settled, now
        self.left = max(0.0, self.left - passed) if self.running else min(self._whole, self.left + passed)


class Fuelled(Protocol):
    """A strand as its budget sees it: ``fuel`` is the number of granted steps it has left."""

    fuel: int


class Budget:
    """Steps, effects, branches and time of one run. Strands take steps in slices and return unused ones.

    ``steps_used`` is exact at any time. A budget with a ``parent`` bounds a part of a run: its use also counts for the
    parent, and ``root`` is the budget of the whole run. The time limit ``limits.wall_s`` counts from
    :meth:`start_clock`, the part's own ``wall_s`` from its creation. ``permits`` bound how many strands are active at once,
    ``slices`` how long they keep the loop, ``large_lists`` are freed in slices, ``memory`` the allocations of the run (``beside``: the accounts of other runs);
    ``cleanup`` is how long ``finally`` forms may take when it is stopped, ``pausing`` the number of strands just letting
    others run. ``met`` is the error raised by a limit of this budget: the bounded work is over then.
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
        """The budget of a part that allows fewer active strands; it shares all other counts with this one."""
        part = Budget(replace(self.limits, concurrency=concurrency), parent=self)
        part.steps, part.strands = None, self.strands
        return part

    @property
    def steps_used(self) -> int:
        """Steps taken so far: those granted, minus those that strands have yet to use."""
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
        """Take back granted but unused steps."""
        if steps > 0:
            self.memory.take_back(steps * BYTES_PER_STEP)
            budget: Budget | None = self
            while budget is not None:
                budget._steps_granted -= steps
                budget = budget.parent

    @property
    def steps_left(self) -> int | None:
        """Remaining steps; None if there is no limit."""
        left: int | None = None
        budget: Budget | None = self
        while budget is not None:
            if budget.steps is not None:
                here = max(0, budget.steps - budget.steps_used)
                left = here if left is None else min(left, here)
            budget = budget.parent
        return left

    def owe(self, steps: int) -> None:
        """Count already taken steps. A limit they exceed is reported at the next :meth:`grant`."""
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
        """Remember ``error`` in this budget, and in those around it that reach their limit with it.

        From then on the work they bound is over, even if the error is caught; a part with narrower limits ends alone.
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
    """The error for a run past its wall time."""
    return LimitExceeded(
        f"the run has used its {seconds:g} s", limit="wall_s", allowed=seconds, used=seconds, span=span
    )


def budget_of(call: CallContext) -> Budget:
    """The budget of the run ``call`` belongs to; a fresh one when no runtime opened that run."""
    budget = call.run.budget
    return budget if isinstance(budget, Budget) else Budget(call.run.limits)
