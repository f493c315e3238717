"""Purses that several processes spend from, in the database of the durable runs.

``af_purse`` has the spending in each period of a purse, ``af_purse_lease`` the amounts that each process has set aside for its
calls in progress. A lease is never larger than the rest, so the sum never exceeds the allowance. A process ends its lease when
its calls have ended, and says their cost. The lease of a process that died, or that let it
expire, counts as spent: its calls may have been paid for. A call that outlives its process, in a batch, has a lease of its own,
a hold, which counts as spent until its cost is known. Money is whole nano-dollars.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from agentflow.core.data.allowances import Allowance, PurseGrant, PurseUse, Spending
from agentflow.core.data.limits import NANO, nanos, nanos_covering
from agentflow.journal.connection import DatabaseConnection, changed
from agentflow.journal.writer import Writer

LEASE_S = 900.0
"""Seconds before a lease neither enlarged nor ended counts as spent: longer than any model call takes."""
KEPT_S = 40 * 86_400.0
"""Seconds that a period is kept after its end."""
_OPEN = "insert into af_purse(name, starts, ends) values ($1, $2, $3) on conflict (name, starts) do nothing"
_SPENT = "select nanos, tokens, calls from af_purse where name = $1 and starts = $2"
_ENDS = "select ends from af_purse where name = $1 and starts = $2"
_LEASES = "select owner, nanos, tokens, calls, expires from af_purse_lease where name = $1 and starts = $2"
_LEASE = """
insert into af_purse_lease as l(name, starts, owner, nanos, tokens, calls, expires) values ($1, $2, $3, $4, $5, $6, $7)
on conflict (name, starts, owner) do update set nanos = l.nanos + excluded.nanos, tokens = l.tokens + excluded.tokens,
  calls = l.calls + excluded.calls, expires = excluded.expires
"""
_END = """
insert into af_purse_lease as l(name, starts, owner, number, expires) values ($1, $2, $3, $4, $5)
on conflict (name, starts, owner) do update set nanos = 0, tokens = 0, calls = 0, number = excluded.number
where l.number < excluded.number
"""
_HOLD = """
insert into af_purse_lease(name, starts, owner, nanos, tokens, calls, expires) values ($1, $2, $3, $4, $5, $6, 0)
on conflict (name, starts, owner) do nothing
"""
_LEND_LESS = """
update af_purse_lease set nanos = nanos - $4, tokens = tokens - $5, calls = calls - $6
where name = $1 and starts = $2 and owner = $3
"""
_CLOSE = "delete from af_purse_lease where name = $1 and starts = $2 and owner = $3"
_SPEND = """
update af_purse set nanos = nanos + $3, tokens = tokens + $4, calls = calls + $5 where name = $1 and starts = $2
"""
_CURRENT = "select name, starts from af_purse where starts <= $1 and (ends is null or ends > $1) order by name, starts"
_FORGET_LEASES = """
delete from af_purse_lease where exists (
  select 1 from af_purse p where p.name = af_purse_lease.name and p.starts = af_purse_lease.starts and p.ends < $1)
"""
_FORGET = "delete from af_purse where ends < $1"
_NOW = "select extract(epoch from now())::float8"
_Amounts: TypeAlias = tuple[int, int, int]
"""Nano-dollars, tokens and model calls."""
_NONE: _Amounts = (0, 0, 0)


class StoredPurses:
    """The :class:`~agentflow.core.ports.store_ports.PurseStore` of a database that ``writer`` writes to.

    ``lender`` makes this process an owner of leases, and returns its name; ``lives`` says whether another owner lives. Leases
    expire after ``lease_s`` seconds.
    """

    def __init__(
        self,
        writer: Writer[Any],
        lender: Callable[[], Awaitable[str]],
        lives: Callable[[Any, str], Awaitable[bool]],
    ) -> None:
        self._writer = writer
        self._lender = lender
        self._lives = lives
        self._me: str | None = None
        self.lease_s = LEASE_S

    async def lease(
        self, name: str, starts: float, ends: float | None, allowance: Allowance, asked: Spending
    ) -> PurseGrant:
        owner = self._me = await self._lender()
        limits = (None if allowance.usd is None else nanos(allowance.usd), allowance.tokens, allowance.model_calls)
        wanted = (nanos_covering(asked.usd), asked.tokens, asked.model_calls)

        async def work(db: DatabaseConnection) -> PurseGrant:
            at = await self._open(db, name, starts, ends)
            spent, leased, mine = await self._read(db, name, starts, at, " for update")
            left = [
                None if limit is None else max(0, limit - gone - lent - own)
                for limit, gone, lent, own in zip(limits, spent, leased, mine, strict=True)
            ]
            granted = wanted
            if any([room is not None and want > room for want, room in zip(wanted, left, strict=True)]):
                if any(leased):
                    return PurseGrant(granted=Spending(), spent=_spending(spent), later=True)
                granted = _amounts(
                    [want if room is None else min(want, room) for want, room in zip(wanted, left, strict=True)]
                )
            await db.execute(_LEASE, name, starts, owner, *granted, at + self.lease_s)
            return PurseGrant(granted=_spending(granted), spent=_spending(spent))

        return await self._writer.do(work)

    async def settle(self, name: str, starts: float, ends: float | None, spent: Spending, number: int) -> None:
        owner = self._me = await self._lender()
        amounts = (round(spent.usd * NANO), spent.tokens, spent.model_calls)

        async def work(db: DatabaseConnection) -> None:
            at = await self._open(db, name, starts, ends)
            ended = await db.execute(_END, name, starts, owner, number, at)
            if changed(ended):  # else it was committed, and the answer was lost
                await db.execute(_SPEND, name, starts, *amounts)

        await self._writer.do(work)

    async def hold(self, name: str, starts: float, ends: float | None, id: str, held: Spending) -> None:
        owner = self._me = await self._lender()
        amounts = (nanos_covering(held.usd), held.tokens, held.model_calls)

        async def work(db: DatabaseConnection) -> None:
            at = await self._open(db, name, starts, ends)
            if changed(await db.execute(_HOLD, name, starts, _holder(id), *amounts)):
                _, _, mine = await self._read(db, name, starts, at, " for update")
                less = [min(amount, lent) for amount, lent in zip(amounts, mine, strict=True)]
                await db.execute(_LEND_LESS, name, starts, owner, *less)

        await self._writer.do(work)

    async def close(self, name: str, starts: float, id: str, spent: Spending) -> None:
        amounts = (round(spent.usd * NANO), spent.tokens, spent.model_calls)

        async def work(db: DatabaseConnection) -> None:
            if changed(await db.execute(_CLOSE, name, starts, _holder(id))):
                await db.execute(_SPEND, name, starts, *amounts)

        await self._writer.do(work)

    async def look(self, name: str, starts: float) -> PurseUse:
        return await self._writer.do(lambda db: self._use(db, name, starts))

    async def has(self, name: str, starts: float) -> bool:
        """Whether this database has the period of a purse that begins at ``starts``."""
        query = "select count(*) from af_purse where name = $1 and starts = $2"
        return bool(await self._writer.do(lambda db: db.fetchval(query, name, starts)))

    async def list(self, now: float) -> list[PurseUse]:
        async def work(db: DatabaseConnection) -> list[PurseUse]:
            rows = await db.fetch(_CURRENT, now)
            return [await self._use(db, name, starts) for name, starts in rows]

        return await self._writer.do(work)

    async def _use(self, db: DatabaseConnection, name: str, starts: float) -> PurseUse:
        spent, leased, mine = await self._read(db, name, starts, await db.fetchval(_NOW))
        both = _spending(leased) + _spending(mine)
        ends = await db.fetchval(_ENDS, name, starts)
        return PurseUse(name=name, starts=starts, ends=ends, spent=_spending(spent), leased=both, mine=_spending(mine))

    async def _open(self, db: DatabaseConnection, name: str, starts: float, ends: float | None) -> float:
        """Make the row of a period, if it is missing, and remove those that ended long before it. Returns the time of the
        database."""
        at = await db.fetchval(_NOW)
        if changed(await db.execute(_OPEN, name, starts, ends)):
            single = starts == 0 and (ends is None or ends > at)  # a purse without further periods begins at 0
            before = (at if single else starts) - KEPT_S
            await db.execute(_FORGET_LEASES, before)
            await db.execute(_FORGET, before)
        return at

    async def _read(
        self, db: DatabaseConnection, name: str, starts: float, at: float, lock: str = ""
    ) -> tuple[_Amounts, _Amounts, _Amounts]:
        """The spending of a purse, the leases of other living processes, and the lease of this one. ``lock`` keeps others
        from leasing meanwhile."""
        row = await db.fetchrow(f"{_SPENT}{lock}", name, starts)
        spent = _NONE if row is None else _amounts(row)
        leased = mine = _NONE
        for owner, *amounts, expires in await db.fetch(_LEASES, name, starts):
            lent = _amounts(amounts)
            if owner == self._me:
                mine = lent
            elif any(lent):
                if expires > at and await self._lives(db, owner):
                    leased = _sum(leased, lent)
                else:
                    spent = _sum(spent, lent)
        return spent, leased, mine


def _holder(id: str) -> str:
    """The owner of a hold: no process has such a name."""
    return f"call {id}"


def _amounts(row: Sequence[int]) -> _Amounts:
    money, tokens, calls = row
    return money, tokens, calls


def _sum(one: _Amounts, other: _Amounts) -> _Amounts:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def _spending(amounts: _Amounts) -> Spending:
    money, tokens, calls = amounts
    return Spending(usd=money / NANO, tokens=tokens, model_calls=calls)
