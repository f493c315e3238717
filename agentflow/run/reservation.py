"""Reservations: before a call is sent, the most it may cost is reserved, so that no limit of money or tokens is exceeded.

A call that does not fit waits for those in flight, which usually cost less than they reserved. If no call is in flight, its
answer is capped to the rest, provided it is enough for an answer. See
:class:`~agentflow.core.call.spending.Purse`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from agentflow.core.call.spending import PriceQuote
from agentflow.core.data.errors import LimitExceeded, clip
from agentflow.core.data.limits import NANO, Limits, total
from agentflow.core.data.messages import ModelResponse, Usage
from agentflow.core.events.journal_rows import Deposit, Leased
from agentflow.lib.event_loop import WaitQueue

ASK_AGAIN_S = 0.2
"""Seconds before a run asks again for money and tokens that others may have returned."""


class Lender(Protocol):
    """Lends shares to a run and takes them back."""

    def lease(self, usd: float, tokens: int) -> asyncio.Future[Leased]:
        """Set US dollars and tokens aside."""
        ...

    def give_back(self, usd: float, tokens: int) -> None:
        """Release all reservations; the arguments are their unspent parts."""
        ...


class Lease:
    """The share of a run's funds: ``usd`` and ``tokens`` are the limits of all sharers together (None: none).

    ``add`` adds a taken share to the funds, and wakes its waiters.
    """

    __slots__ = ("_again", "_asked_for", "_given", "_lender", "_none_for", "_pending", "tokens", "usd")

    def __init__(
        self, lender: Lender, usd: float | None, tokens: int | None, add: Callable[[float, int], None]
    ) -> None:
        self.usd = usd
        self.tokens = tokens
        self._lender = lender
        self._given = add
        self._pending: asyncio.Future[Leased] | None = None
        self._again: asyncio.TimerHandle | None = None
        self._asked_for: object = None
        self._none_for: object = None

    def asks(self, call: object, usd: float, tokens: int) -> bool:
        """Request the amount ``call`` lacks, unless the last request failed for it; False then."""
        if self._pending is not None or self._again is not None:
            return True
        if call is self._none_for:
            return False
        self._asked_for = call
        self._pending = self._lender.lease(usd, tokens)
        self._pending.add_done_callback(self._answered)
        return True

    def give_back(self, usd: float, tokens: int) -> None:
        """Return all taken shares; the arguments are their unspent parts."""
        self._none_for = None
        self._lender.give_back(usd, tokens)

    def _answered(self, future: asyncio.Future[Leased]) -> None:
        self._pending = None
        failed = future.cancelled() or future.exception() is not None  # the store stops the run then
        leased = Leased(usd=0.0, tokens=0) if failed else future.result()
        if leased.later:
            self._again = asyncio.get_running_loop().call_later(ASK_AGAIN_S, self._ask_again)
        else:
            self._none_for = self._asked_for
            self._given(leased.usd, leased.tokens)

    def _ask_again(self) -> None:
        self._again = None
        self._given(0.0, 0)


LEAST_ANSWER = 256
"""Tokens below which a cap is not lowered; for a small limit, a quarter of it."""
GRAIN_USD = 1e-12
"""Tolerance in dollars: sums of fractions are not exact."""

_FREE = PriceQuote(0.0, 0.0)


class RunFunds:
    """The remaining funds of a run, or of a part of it. Implements :class:`~agentflow.core.call.spending.Purse`.

    Parameters: ``limits`` has the tokens and the US dollars; ``outer`` are the funds around these, which are charged too;
    ``used`` (tokens) and ``cost`` (US dollars) were spent before. Calls wait in the queue of the outermost funds; those that
    need other funds may pass. ``calls`` is the number of reservations. Funds with a ``lease`` share their limits with runs
    elsewhere: ``tokens`` and ``usd`` are then the shares taken so far. ``purse`` is the name of the purse around them. With
    ``unknown`` the cost of earlier calls is unknown, so that no limit of money can be kept.
    """

    __slots__ = (
        "calls",
        "capped",
        "held_tokens",
        "held_usd",
        "lease",
        "outer",
        "priced",
        "purse",
        "root",
        "tokens",
        "unknown",
        "usd",
        "used_tokens",
        "used_usd",
        "waiters",
    )

    def __init__(
        self,
        limits: Limits,
        outer: RunFunds | None = None,
        *,
        used: Usage | None = None,
        cost: float | None = None,
    ) -> None:
        self.purse: str | None = None if outer is None else outer.purse
        self.tokens = limits.tokens
        self.usd = limits.usd
        self.lease: Lease | None = None
        self.outer = outer
        self.root: RunFunds = self if outer is None else outer.root
        self.priced: bool = self.usd is not None or (outer is not None and outer.priced)
        self.capped: bool = self.priced or self.tokens is not None or (outer is not None and outer.capped)
        self.used_tokens = 0 if used is None else used.total_tokens
        self.used_usd = cost or 0.0
        self.unknown = self.usd is not None and cost is None and self.used_tokens > 0
        self.held_tokens = 0
        self.held_usd = 0.0
        self.calls = 0
        self.waiters: WaitQueue[HeldCall] = WaitQueue()

    @property
    def usd_left(self) -> float | None:
        """US dollars left to spend here and in the outer funds; None if there is no limit."""
        above = None if self.outer is None else self.outer.usd_left
        if self.usd is None:
            return above
        here = max(0.0, self.whole("usd") - self.used_usd)
        return here if above is None else min(here, above)

    def whole(self, limit: str) -> float:
        """The limit of all sharers together, in US dollars (``usd``) or tokens; 0 without one."""
        own = self if self.lease is None else self.lease
        return (own.usd if limit == "usd" else own.tokens) or 0

    def deposit(self) -> Deposit:
        """The rest, to be shared with runs elsewhere."""
        return Deposit(
            usd=None if self.usd is None else self.usd - self.used_usd - self.held_usd,
            tokens=None if self.tokens is None else self.tokens - self.used_tokens - self.held_tokens,
            held_usd=self.held_usd,
            held_tokens=self.held_tokens,
        )

    def share(self, lender: Lender) -> None:
        """From now on take shares from ``lender``, in addition to present reservations."""
        self.lease = Lease(lender, self.usd, self.tokens, self._leased)
        if self.usd is not None:
            self.usd = self.used_usd + self.held_usd
        if self.tokens is not None:
            self.tokens = self.used_tokens + self.held_tokens

    def _leased(self, usd: float, tokens: int) -> None:
        if self.usd is not None:
            self.usd = total((self.usd, usd))
        if self.tokens is not None:
            self.tokens += tokens
        self.root.serve()

    def asks(self, held: HeldCall) -> bool:
        """Whether the amount ``held`` lacks here is being requested elsewhere."""
        if self.lease is None:
            return False
        usd = 0.0 if self.usd is None else self.used_usd + self.held_usd + held.cost - self.usd
        tokens = 0 if self.tokens is None else self.used_tokens + self.held_tokens + held.tokens - self.tokens
        return self.lease.asks(held, max(0.0, usd), max(0, tokens))

    def idle(self) -> None:
        """Return unspent shares when no call is in progress."""
        if self.lease is None:
            return
        usd = 0.0 if self.usd is None else self.usd - self.used_usd
        tokens = 0 if self.tokens is None else self.tokens - self.used_tokens
        if self.usd is not None:
            self.usd = self.used_usd
        if self.tokens is not None:
            self.tokens = self.used_tokens
        self.lease.give_back(usd, tokens)

    def spent(self, usage: Usage, cost_usd: float | None) -> None:
        """Count the cost of a call in these funds only: the outer run counts it in its own."""
        self.used_tokens += usage.total_tokens
        if cost_usd is not None:
            self.used_usd = (round(self.used_usd * NANO) + round(cost_usd * NANO)) / NANO

    def reserve(
        self,
        input_tokens: int,
        cap: int,
        quote: PriceQuote | None,
        model: str,
        *,
        priority: int = 0,
        exact: bool = False,
        put_by: bool = False,
    ) -> HeldCall:
        """Reserve the maximum cost of a call; see :meth:`agentflow.core.call.spending.Purse.reserve`."""
        if self.unknown:
            raise self._unknown()
        if quote is None:
            if self.priced:
                raise self._unpriced(model)
            quote = _FREE
        held = HeldCall(self, input_tokens, cap, quote, exact)
        if put_by:
            held.top = self.account
            if held.settle() is None:  # it has not to wait for others: the purse has its part
                return held
        root = self.root
        if (root.waiters.entries and root.waiters.first() is not None) or held.settle():
            waiter = root.waiters.join(held, priority)
            root.serve()
            if not waiter.done():
                held.waiter = waiter
            else:
                waiter.result()
        return held

    def serve(self) -> None:
        """Wake the waiters that now have enough, and those that never will."""
        short: set[RunFunds] = set()

        def goes(held: HeldCall) -> bool | None:
            if not (short and held.needs(short)):
                lacking = held.settle()
                if not lacking:
                    return True
                short.update(lacking)
            return None if self in short else False  # all waiters behind need these funds too

        self.waiters.serve(goes)

    def fits(self, held: HeldCall) -> bool:
        """Whether ``held`` fits in addition to the present reservations."""
        if self.tokens is not None and self.used_tokens + self.held_tokens + held.tokens > self.tokens:
            return False
        return self.usd is None or self.used_usd + self.held_usd + held.cost <= self.usd + GRAIN_USD

    def room(self, held: HeldCall) -> tuple[int, str]:
        """Tokens left for the answer of ``held`` if there are no other reservations, and the limit that sets this number.

        Raises LimitExceeded if they are too few.
        """
        room = asked = held.cap
        limit = "tokens"
        if self.tokens is not None:
            left = self.tokens - self.used_tokens
            whole = int(self.whole("tokens"))
            least = asked if held.exact else min(LEAST_ANSWER, whole // 4, asked)
            room = min(room, left - held.input_tokens)
            if room < max(1, least):
                raise self._short(
                    f"{self.owner} has used {whole - left:,} of {whole:,} tokens: the {max(0, left):,} left are too "
                    f"few for a call with about {held.input_tokens:,} tokens of input and {max(1, least):,} of answer",
                    "tokens",
                )
        if self.usd is not None:
            left_usd = self.usd - self.used_usd + GRAIN_USD
            each = held.quote.output_usd
            whole_usd = self.whole("usd")
            least = asked if held.exact or not each else int(min(LEAST_ANSWER, whole_usd / 4 / each, asked))
            left_usd -= held.quote.input_usd
            fits = left_usd / each if each else asked if left_usd >= 0 else 0
            if fits < room:
                room, limit = int(fits), "usd"
            if fits < max(1, least):
                raise self._short(
                    f"{self.owner} has cost ${whole_usd - self.usd + self.used_usd:.4f} of ${whole_usd:.4f}: what is left is too little for a call "
                    f"whose input costs up to ${held.quote.input_usd:.4f}, and a token of its answer ${each:.6f}",
                    "usd",
                )
        return room, limit

    @property
    def owner(self) -> str:
        """The owner of the funds, as named in errors."""
        return "the run" if self.lease is None else "the run with its branches"

    def _short(self, message: str, limit: str) -> LimitExceeded:
        used = self.used_tokens if limit == "tokens" else self.used_usd
        return LimitExceeded(message, limit=limit, allowed=self.whole(limit), used=used)

    def _unknown(self) -> LimitExceeded:
        return LimitExceeded(
            f"the run has called models without a known price before, so it cannot be kept within ${self.whole('usd'):g}",
            limit="usd",
            allowed=self.whole("usd"),
            code="limits/unpriced",
            hint="limit its tokens, Limits(tokens=...), or give it a purse, which counts from now on",
        )

    def _unpriced(self, model: str) -> LimitExceeded:
        usd = next(funds.whole("usd") for funds in self.levels() if funds.usd is not None)
        return LimitExceeded(
            f"the price of the model {clip(model, 200)!r} is not known, so it cannot be kept within ${usd:g}",
            limit="usd",
            allowed=usd,
            used=self.used_usd,
            code="limits/unpriced",
            hint=f"state it, in dollars per million tokens: AgentFlow(prices={{{model!r}: Price(input=3, output=15)}}), or in "
            f'agentflow.toml [prices."{clip(model, 200)}"] and below it input = 3 and output = 15, then agentflow trust',
        )

    @property
    def account(self) -> RunFunds | None:
        """The purse around the funds of the run; None without one."""
        return None if self.purse is None else self.root

    async def put_by(self, held: HeldCall, id: str) -> tuple[str, float] | None:
        """Set the amount of ``held`` aside; see :meth:`agentflow.core.call.spending.Reservation.put_by`."""
        return None

    def levels(self) -> list[RunFunds]:
        """These funds and those around them, the innermost first."""
        levels: list[RunFunds] = []
        funds: RunFunds | None = self
        while funds is not None:
            levels.append(funds)
            funds = funds.outer
        return levels


class HeldCall:
    """The reservation of one call. Implements :class:`~agentflow.core.call.spending.Reservation`."""

    __slots__ = (
        "_bound",
        "_funds",
        "_held",
        "cap",
        "cost",
        "exact",
        "input_tokens",
        "quote",
        "tokens",
        "top",
        "waiter",
    )

    def __init__(self, funds: RunFunds, input_tokens: int, cap: int, quote: PriceQuote, exact: bool) -> None:
        self._funds = funds
        self._held = False
        self.top: RunFunds | None = None
        """The funds from which on the amount is not held here."""
        self.exact = exact
        self.waiter: asyncio.Future[bool] | None = None
        self._bound: tuple[str, RunFunds] | None = None
        self.input_tokens = input_tokens
        self.quote = quote
        self.cap = cap
        self.tokens = input_tokens + cap
        self.cost = quote.input_usd + cap * quote.output_usd

    @property
    def waits(self) -> bool:
        """Whether :meth:`granted` has to be awaited."""
        return self.waiter is not None

    async def granted(self) -> None:
        """Wait until the reservation fits. Raises LimitExceeded if too little is left."""
        waiter = self.waiter
        if waiter is None:
            return
        try:
            await waiter
        except BaseException:  # also when cancelled: the reserved part is free, and the next waiter is served
            waiter.cancel()
            self.free()
            self._funds.root.serve()
            raise

    def settle(self) -> list[RunFunds] | None:
        """Reserve, with a lowered cap if need be. Returns None, or the funds that others must release first.

        Raises LimitExceeded if too little is left and there is no call to wait for.
        """
        funds: RunFunds | None = self._funds
        while funds is not self.top and funds is not None:
            if not funds.fits(self):
                break
            funds = funds.outer
        else:
            self._take()
            return None
        short = [each for each in self._levels() if not each.fits(self)]
        if asking := [each for each in short if each.asks(self)]:
            return asking
        rooms = [(*each.room(self), each) for each in short if not each.calls]
        if lacking := [each for each in short if each.calls]:
            return lacking
        room, limit, least = min(rooms, key=lambda row: row[0])
        self._bound = (limit, least)
        self.cap = room
        self.tokens = self.input_tokens + room
        self.cost = self.quote.input_usd + room * self.quote.output_usd
        self._take()
        return None

    def _levels(self) -> list[RunFunds]:
        levels = self._funds.levels()
        return levels if self.top is None else levels[: levels.index(self.top)]

    def _take(self) -> None:
        self._held = True
        funds: RunFunds | None = self._funds
        while funds is not self.top and funds is not None:
            funds.calls += 1
            funds.held_tokens += self.tokens
            funds.held_usd = (round(funds.held_usd * NANO) + round(self.cost * NANO)) / NANO
            funds = funds.outer

    def needs(self, funds: set[RunFunds]) -> bool:
        """Whether one of ``funds`` is charged for this call."""
        return not funds.isdisjoint(self._funds.levels())

    def free(self) -> None:
        """Release the reservation, or leave the queue. Later calls do nothing."""
        if not self._held:
            if self.waiter is not None:
                self.waiter.cancel()
            return
        self._held = False
        for funds in self._levels():
            self._release(funds)
        root = self._funds.root
        if root.waiters.entries:
            root.serve()

    def _release(self, funds: RunFunds) -> None:
        funds.calls -= 1
        funds.held_tokens -= self.tokens
        funds.held_usd = (round(funds.held_usd * NANO) - round(self.cost * NANO)) / NANO
        if not funds.calls:
            funds.idle()

    async def put_by(self, id: str) -> tuple[str, float] | None:
        account = self._funds.account
        if account is None or self.top is account:
            return None
        hold = await account.put_by(self, id)
        if hold is not None and self._held:
            self._release(account)
            self.top = account
            account.serve()
        return hold

    @property
    def lowered(self) -> bool:
        """Whether ``cap`` is less than was asked for."""
        return self._bound is not None

    def check(self, response: ModelResponse) -> None:
        """Raise LimitExceeded (``limits/cut-off``), with the partial text, if the lowered cap has cut the answer off.

        A server may call such an answer complete.
        """
        if self._bound is None:
            return
        stop, used = response.stop_reason, response.usage.output_tokens
        if stop != "max_tokens" and (stop != "end" or used < self.cap):
            return
        limit, funds = self._bound
        money = limit == "usd"
        error = LimitExceeded(
            f"the answer was cut off after {self.cap:,} tokens, all that was left for it",
            limit=limit,
            allowed=funds.whole(limit),
            used=funds.used_usd if money else funds.used_tokens,
            code="limits/cut-off",
        )
        error.details["partial"] = clip(response.text)
        error.details["request_id"] = response.request_id
        raise error
