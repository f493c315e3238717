"""Purses: named accounts over runs, each with an allowance for a period.

A purse is the outermost of the funds of its runs: before a model call it reserves the most that the call may cost, so that
concurrent runs never exceed its allowance together. Where the flow has a database, a process leases from the purse as much
as its calls in progress need, and settles the lease after their end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from agentflow.core.call.spending import Funds
from agentflow.core.data.allowances import Allowance, AllowanceTable, PurseBalance, Spending, check_purse_name
from agentflow.core.data.errors import AgentflowError, ConfigurationError, LimitExceeded, PurseEmpty, cut
from agentflow.core.data.limits import Limits, added
from agentflow.core.data.messages import Usage
from agentflow.core.ports.store_ports import PurseStore
from agentflow.lib.text.suggest import did_you_mean
from agentflow.run.reservation import ASK_AGAIN_S, GRAIN_USD, HeldCall, RunFunds

T = TypeVar("T")
_log = logging.getLogger(__name__)
_MOST_KEPT = 10_000
"""Number of purses in memory above which those that nothing is spent from are dropped."""


class Purse(RunFunds):
    """A named account over runs. ``flow.run(..., purse="user-42")`` pays from it.

    Parameters: ``clock`` returns unix seconds; with a ``store`` other processes spend from it too, and ``kept_s`` are the seconds
    that it keeps the row of a purse without periods, from its first call on (None: for good); ``whose`` is the owner in
    errors, as in "the key 'ada'". ``used_usd``, ``used_tokens`` and ``used_calls`` are spent in the present period, also by
    other processes as far as is known here; ``held_usd``, ``held_tokens`` and ``calls`` are reserved here.

    A call counts for the period of its end. With a store, the limits of the base class are the spending before and the
    lease.
    """

    __slots__ = (
        "__weakref__",
        "_again",
        "_asked_for",
        "_asking",
        "_clock",
        "_failure",
        "_kept_s",
        "_last",
        "_loaded",
        "_loop",
        "_moves",
        "_none_for",
        "_number",
        "_settled",
        "_starts",
        "_store",
        "_whose",
        "allowance",
        "ends_at",
        "model_calls",
        "name",
        "used_calls",
    )

    def __init__(
        self,
        name: str,
        allowance: Allowance,
        *,
        clock: Callable[[], float] = time.time,
        store: PurseStore | None = None,
        kept_s: float | None = None,
        whose: str | None = None,
    ) -> None:
        super().__init__(Limits(tokens=allowance.tokens, usd=allowance.usd))
        self.name = self.purse = name
        self.allowance = allowance
        self.model_calls = allowance.model_calls
        self.used_calls = 0
        self._clock = clock
        self._whose = whose
        self._kept_s = kept_s
        now = clock()
        self._starts, self.ends_at = allowance.starts(now), allowance.ends(now)
        self._store: PurseStore | None = None
        self._settled = Spending()
        # One opened again in this process, after it was dropped, continues above the numbers of its settlements.
        self._number = time.monotonic_ns()
        self._moves = 0
        self._loaded: float | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._last: asyncio.Task[Any] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._asked_for: HeldCall | None = None
        self._none_for: HeldCall | None = None
        self._failure: AgentflowError | None = None
        if store is not None:
            self.keep_in(store)

    # -- for the host -------------------------------------------------------------------------------------------------

    @property
    def spending(self) -> Spending:
        """The spending in the present period, as far as is known here."""
        self._turn()
        return self._spent

    @property
    def is_idle(self) -> bool:
        """Whether nothing of it is spent, reserved or leased here in the present period."""
        self._turn()
        stored = self._store is not None and self._settled == self._spent
        return not self.calls and self._last is None and (stored or not self._spent)

    @property
    def _row_ends(self) -> float | None:
        """The time when the store may forget this period. The end that a row was made with stays."""
        if self.ends_at is not None or self._kept_s is None:
            return self.ends_at
        return self._clock() + self._kept_s

    async def load(self) -> None:
        """Learn the earlier spending from the store, once in each period. Raises JournalError."""
        self._turn()
        if self._store is not None and self._loaded != self._starts:
            await self._learn(self._store)

    async def _learn(self, store: PurseStore) -> Spending:
        """Take note of the spending of others. Returns the sum of their leases."""
        before, starts = (self._number, self._moves), self._starts
        use = await self._in_order(store.look(self.name, starts))
        if before != (self._number, self._moves):  # calls have ended meanwhile, which the store did not count yet
            return await self._learn(store)
        self._know(use.spent)
        self._loaded = starts
        return use.leased - use.mine

    async def look(self) -> PurseBalance:
        """Its balance in the present period, of all processes. Raises JournalError."""
        self._turn()
        others = Spending() if self._store is None else await self._learn(self._store)
        self._turn()
        held = Spending(usd=self.held_usd, tokens=self.held_tokens, model_calls=self.calls)
        return PurseBalance(
            name=self.name,
            allowance=self.allowance,
            spent=self._spent,
            reserved=held + others,
            ends_at=self.ends_at,
        )

    def allow(self, allowance: Allowance) -> None:
        """Replace its allowance. Begun runs keep the kinds of limits they had."""
        if allowance == self.allowance:
            return
        self.allowance = allowance
        now = self._clock()
        if allowance.starts(now) != self._starts:
            self._begin_period(now)
        self.ends_at = allowance.ends(now)
        self.priced = allowance.usd is not None
        self.capped = self.priced or allowance.tokens is not None
        if self._store is None:
            self.usd, self.tokens, self.model_calls = allowance.usd, allowance.tokens, allowance.model_calls
        else:
            self._none_for = None
            self._lease_only(Spending())
        if self.waiters.entries:
            self.serve()

    def spent_up(self) -> PurseEmpty | None:
        """The error for an empty purse; None while something is left, as known here."""
        self._turn()
        allowed, used = self.allowance, self._spent
        if allowed.tokens is not None and used.tokens >= allowed.tokens:
            return self._short(f"{self.owner} has used all of its {allowed.tokens:,} tokens", "tokens")
        if allowed.usd is not None and used.usd >= allowed.usd:
            return self._short(f"{self.owner} has cost ${used.usd:.4f} of ${allowed.usd:.4f}", "usd")
        if allowed.model_calls is not None and used.model_calls >= allowed.model_calls:
            return self._no_calls()
        return None

    # -- funds --------------------------------------------------------------------------------------------------------

    def whole(self, limit: str) -> float:
        """Its allowance of ``limit``; 0 without one."""
        return getattr(self.allowance, limit) or 0

    def fits(self, held: HeldCall) -> bool:
        self._turn()
        if self.model_calls is not None and self.used_calls + self.calls + 1 > self.model_calls:
            return False
        return not self._is_overspent and super().fits(held)

    def room(self, held: HeldCall) -> tuple[int, str]:
        try:
            if self.model_calls is not None and self.used_calls + 1 > self.model_calls:
                raise self._no_calls()
            if self._is_overspent and (error := self.spent_up()) is not None:
                raise error
            return super().room(held)
        except LimitExceeded:
            self.idle()  # which ends the lease of the part that was left
            raise

    @property
    def _is_overspent(self) -> bool:
        """Whether it has cost more than its allowance: no lease says so to a call without a listed price, whose server states its cost."""
        return self.allowance.usd is not None and self.used_usd > self.allowance.usd + GRAIN_USD

    def spent(self, usage: Usage, cost_usd: float | None) -> None:
        self._turn()
        super().spent(usage, cost_usd)
        self.used_calls += max(1, usage.requests)

    @property
    def owner(self) -> str:
        return self._whose or f"the purse '{self.name}'"

    def _no_calls(self) -> PurseEmpty:
        return self._short(
            f"{self.owner} has made all of its {self.allowance.model_calls:,} model calls", "model_calls"
        )

    def _short(self, message: str, limit: str) -> PurseEmpty:
        used = self._spent
        ends = "it has no further period"
        if self.ends_at is not None:
            ends = f"its period ends at {datetime.fromtimestamp(self.ends_at, UTC):%Y-%m-%d %H:%M} UTC"
        return PurseEmpty(
            f"{message}; {ends}",
            purse=self.name,
            ends_at=self.ends_at,
            limit=limit,
            allowed=self.whole(limit),
            used=getattr(used, limit),
            hint=f"this limit is not the run's but that of {self.owner}, which other runs spend from too",
        )

    @property
    def _spent(self) -> Spending:
        return Spending(usd=self.used_usd, tokens=self.used_tokens, model_calls=self.used_calls)

    def _turn(self) -> None:
        """Begin a new period if the present one has ended."""
        if self.ends_at is not None and (now := self._clock()) >= self.ends_at:
            self._begin_period(now)

    def _begin_period(self, now: float) -> None:
        if self._store is not None:
            self._settle()
        self._starts, self.ends_at = self.allowance.starts(now), self.allowance.ends(now)
        self._settled = Spending()
        self.used_usd, self.used_tokens, self.used_calls = 0.0, 0, 0
        self._none_for = None
        if self._store is not None:
            self._lease_only(Spending())

    # -- leases -------------------------------------------------------------------------------------------------------

    def keep_in(self, store: PurseStore) -> None:
        """Share it from now on, by ``store``, with other processes."""
        if self._store is store:
            return
        self._store, self._loaded = store, None
        self._lease_only(Spending())

    def _lease_only(self, leased: Spending) -> None:
        """Limit reservations to ``leased``, beyond the spending before."""
        limit, allowed = self._settled + leased, self.allowance
        self.usd = None if allowed.usd is None else limit.usd
        self.tokens = None if allowed.tokens is None else limit.tokens
        self.model_calls = None if allowed.model_calls is None else limit.model_calls

    def _know(self, spent: Spending) -> None:
        """Take note of the spending of all other leases."""
        more = spent - self._settled
        self._settled = spent
        self.used_usd = added(self.used_usd, more.usd) or 0.0
        self.used_tokens += more.tokens
        self.used_calls += more.model_calls
        self._add(more)

    def _add(self, more: Spending) -> None:
        """Raise the limits of reservations."""
        if self.usd is not None:
            self.usd = added(self.usd, more.usd)
        if self.tokens is not None:
            self.tokens += more.tokens
        if self.model_calls is not None:
            self.model_calls += more.model_calls

    def asks(self, held: HeldCall) -> bool:
        """Whether the amount ``held`` lacks here is being leased. Raises the error of a lease that failed."""
        if self._store is None or self._is_overspent:
            return False
        self._here()
        if self._asking is not None or self._again is not None:
            return True
        if held is self._none_for:
            if self._failure is not None:
                raise self._failure
            return False
        self._asked_for, self._failure = held, None
        self._asking = self._in_order(self._lease(self._store, held, self._number))
        return True

    async def _lease(self, store: PurseStore, held: HeldCall, number: int) -> None:
        """Lease the amount ``held`` lacks. ``number`` is that of the settlement before the request: if a call ends, and settles,
        before the lease has begun, its grant ends with that settlement."""
        needs = self._lack(held)
        try:
            grant = await store.lease(self.name, self._starts, self._row_ends, self.allowance, needs)
        except AgentflowError as error:
            self._failure, self._none_for = error, self._asked_for
        else:
            if number == self._number:  # else it is ended next, as all leased before
                self._know(grant.spent)
                self._add(grant.granted)
                if grant.later:
                    self._again = asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._ask_again)
                else:
                    self._none_for = self._asked_for
        finally:
            self._asking = None
        self.serve()

    async def put_by(self, held: HeldCall, id: str) -> tuple[str, float] | None:
        if self._store is None:
            return None
        self._turn()
        starts = self._starts
        await self._in_order(self._put_by(self._store, held, id))
        return self.name, starts

    async def _put_by(self, store: PurseStore, held: HeldCall, id: str) -> None:
        """Move the amount of ``held`` from the lease of this process to a hold, which is the spending of others from now on."""
        moved = Spending(
            usd=0.0 if self.usd is None else held.cost,
            tokens=0 if self.tokens is None else held.tokens,
            model_calls=0 if self.model_calls is None else 1,
        )
        await store.hold(self.name, self._starts, self._row_ends, id, moved)
        self._moves += 1
        self._settled = self._settled + moved
        self.used_usd = added(self.used_usd, moved.usd) or 0.0
        self.used_tokens += moved.tokens
        self.used_calls += moved.model_calls

    def _lack(self, held: HeldCall) -> Spending:
        """The amount ``held`` lacks in addition to the present reservations."""
        usd, tokens, calls = 0.0, 0, 0
        if self.usd is not None:
            usd = max(0.0, self.used_usd + self.held_usd + held.cost - self.usd)
        if self.tokens is not None:
            tokens = max(0, self.used_tokens + self.held_tokens + held.tokens - self.tokens)
        if self.model_calls is not None:
            calls = max(0, self.used_calls + self.calls + 1 - self.model_calls)
        return Spending(usd=usd, tokens=tokens, model_calls=calls)

    def _ask_again(self) -> None:
        self._again = None
        self.serve()

    def idle(self) -> None:
        """Settle with the store when no call is in progress."""
        if self._store is not None:
            self._none_for = None
            self._settle()

    def _settle(self) -> None:
        """End the lease of this process, and pass its spending to the store."""
        assert self._store is not None
        spent = self._spent - self._settled
        self._number += 1
        work = self._store.settle(self.name, self._starts, self._row_ends, spent, self._number)
        self._in_order(self._quietly(work))
        self._settled = self._spent
        self._lease_only(Spending())

    async def _quietly(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except AgentflowError as error:
            _log.warning("%s: the spending cannot be stored, so the whole lease counts as spent: %s", self.owner, error)

    def _here(self) -> None:
        """Forget the requests of an event loop that has ended."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._last = self._asking = self._again = None

    def _in_order(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do ``work`` after all work begun before: the store learns of a lease and of its end in their order."""
        self._here()
        before = self._last

        async def after() -> T:
            try:
                if before is not None:
                    await asyncio.wait([before])
                return await work
            finally:
                work.close()

        task = self._last = asyncio.get_running_loop().create_task(after(), name=f"purse {self.name}")
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        if self._last is task:
            self._last = None

    async def settled(self) -> None:
        """Wait until the store knows the cost of the calls that have ended."""
        while self._last is not None and self._loop is asyncio.get_running_loop():
            await asyncio.wait([self._last])


class Purses:
    """The purses of a flow: ``AgentFlow(purses=Purses({"user-*": Allowance(usd=5, per="1d")}))``.

    Parameters: ``allowances`` are the allowances by the name of a purse or a pattern of names (``*``, ``?``); a purse has that
    of its own name, else that of the pattern with the most literal text. ``clock`` returns unix seconds.

    Without ``durable=`` the spending is kept in memory, for all flows with the same object; with it, in the
    database, for all processes. The allowances of the spending process count: give all processes the same. Raises
    ConfigurationError (``config/purse``) for an invalid name or allowance.
    """

    def __init__(self, allowances: Mapping[str, Allowance], *, clock: Callable[[], float] = time.time) -> None:
        self._allowances = AllowanceTable(allowances)
        self._clock = clock
        self._store: PurseStore | None = None
        self._open: WeakValueDictionary[str, Purse] = WeakValueDictionary()
        self._kept: dict[str, Purse] = {}

    def allow(self, name: str, allowance: Allowance) -> None:
        """Set the allowance of a purse, or of a pattern of purses, in this process; the spending stays.

        Only the host can call it: no program, model or client reaches it. Raises ConfigurationError (``config/purse``).
        """
        self._allowances.put(name, allowance)
        for purse in list(self._open.values()):
            now = self._allowances.of(purse.name)
            if now is not None:
                purse.allow(now)

    def find(self, name: str) -> Purse:
        """The purse with this name. Raises ConfigurationError (``config/purse``) for one without an allowance."""
        purse = self._open.get(check_purse_name(name))
        if purse is None:
            allowance = self._allowances.of(name)
            if allowance is None:
                raise self._unknown(name)
            purse = self._open[name] = Purse(name, allowance, clock=self._clock, store=self._store)
            self._kept[name] = purse
            if len(self._kept) > _MOST_KEPT:
                self._kept = {key: each for key, each in self._kept.items() if each is purse or not each.is_idle}
        return purse

    async def look(self, name: str) -> PurseBalance:
        """The balance of a purse in its present period: allowance, spent, reserved, and when the period ends.

        Raises ConfigurationError (``config/purse``) for a purse without an allowance, JournalError.
        """
        return await self.find(name).look()

    async def list(self) -> list[PurseBalance]:
        """The balances of all purses used in their present period, by name. Raises JournalError."""
        names = {name for name, purse in self._open.items() if not purse.is_idle}
        if self._store is not None:
            await self.settled()
            for use in await self._store.list(self._clock()):
                if use.name in self._open or (" " not in use.name and self._allowances.of(use.name) is not None):
                    names.add(use.name)
        balances = [await self.look(name) for name in sorted(names)]
        return [each for each in balances if each.spent or each.reserved]

    def keep_in(self, store: PurseStore) -> None:
        """Keep the spending in ``store`` from now on. Raises ConfigurationError (``config/purse``) if another store has it."""
        if self._store is not None and self._store is not store:
            raise ConfigurationError(
                "these Purses belong to another flow with a database",
                code="config/purse",
                hint="give each flow with durable= Purses of its own: in one database they are the same purses",
            )
        self._store = store
        for purse in self._open.values():
            purse.keep_in(store)

    async def settled(self) -> None:
        """Wait until the store knows the cost of the calls that have ended."""
        for purse in list(self._open.values()):
            await purse.settled()

    async def leave(self, store: PurseStore | None) -> None:
        """Settle with ``store``, which is about to be closed; a flow that has it open again may keep the purses in it."""
        await self.settled()
        if store is not None and self._store is store:
            self._store = None
            self._open.clear()
            self._kept.clear()

    def _unknown(self, name: str) -> ConfigurationError:
        patterns = self._allowances.patterns
        if not patterns:
            return ConfigurationError(
                f"purse='{cut(name, 80)}': this flow has no purses",
                code="config/purse",
                hint=f"AgentFlow(purses=Purses({{{name!r}: Allowance(usd=5, per='1d')}}))",
            )
        return ConfigurationError(
            f"no allowance is for the purse '{cut(name, 80)}'; there are those for {', '.join(patterns[:20])}",
            code="config/purse",
            hint=did_you_mean(name, patterns) or "give the pattern '*' an allowance for all other purses",
        )


def check_payer(purse: Purse | str, funds: Funds | None) -> None:
    """Raise ConfigurationError unless ``purse`` is the one that pays for the run with these ``funds``.

    The parts of a run are charged to its purse: no tool or program can charge another one.
    """
    name = purse.name if isinstance(purse, Purse) else check_purse_name(purse)
    payer = None if funds is None else funds.purse
    if payer != name:
        paid = f"the purse '{cut(payer, 80)}' pays for" if payer else "has no purse"
        raise ConfigurationError(
            f"purse='{cut(name, 80)}' within a run that {paid}",
            code="config/purse",
            hint="leave purse= out there: a run pays for all its parts; name the purse where the run begins",
        )
