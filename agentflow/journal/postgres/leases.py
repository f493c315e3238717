"""Money and tokens that a run shares with the runs of its branches, on all machines.

``af_budget`` holds the rest of a whole tree of runs, ``af_lease`` the reservations of each run for its calls in progress.
Reserved amounts have left the budget, so the sum never exceeds the limit; the unspent part of a call returns. Money is
whole nano-dollars: none is lost or gained in any order of reservations and returns.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentflow.core.data.limits import NANO, nanos, nanos_covering
from agentflow.core.events.journal_rows import Deposit, Leased
from agentflow.journal.postgres.connection import AsyncpgConnection

_BACK = """
with mine as (update af_lease l set nanos = 0, tokens = 0 from af_lease b where l.run = $1 and b.run = l.run
  returning l.root, b.nanos, b.tokens)
update af_budget p set nanos = p.nanos + coalesce($2, mine.nanos), tokens = p.tokens + coalesce($3, mine.tokens)
from mine where p.root = mine.root
"""
_END = """
with mine as (delete from af_lease where run = $1 returning root, nanos, tokens),
back as (update af_budget p set nanos = p.nanos + mine.nanos, tokens = p.tokens + mine.tokens
  from mine where p.root = mine.root and p.root <> $1)
delete from af_budget where root = $1
"""
LEASED = "(select l.nanos > 0 or l.tokens > 0 from af_lease l where l.run = r.run)"
"""Whether something is set aside for a run ``r``; null for one that shares no budget."""
_LEFT = """
select b.root, b.nanos, b.tokens from af_lease l join af_budget b on b.root = l.root where l.run = $1 for update of b
"""
_BUSY = "select exists (select from af_lease where root = $1 and run <> $2 and (nanos > 0 or tokens > 0))"


async def share(db: AsyncpgConnection, run: str, branches: Sequence[str], deposit: Deposit | None) -> None:
    """Let the runs of branches take from the budget of ``run``: ``deposit``, or that of the tree it belongs to already."""
    if deposit is not None:
        await db.execute(
            "insert into af_budget(root, nanos, tokens) values ($1, $2, $3)",
            run,
            None if deposit.usd is None else nanos(deposit.usd),
            deposit.tokens,
        )
        await db.execute(
            "insert into af_lease(run, root, nanos, tokens) values ($1, $1, $2, $3)",
            run,
            nanos(deposit.held_usd),
            deposit.held_tokens,
        )
    await db.execute(
        "insert into af_lease(run, root) select b.name, l.root from unnest($2::text[]) as b(name), af_lease l where l.run = $1",
        run,
        list(branches),
    )


async def take(db: AsyncpgConnection, run: str, usd: float, tokens: int) -> Leased:
    """Reserve ``usd`` and ``tokens`` for a run: the full amount, or the rest if no other run has calls in progress."""
    left = await db.fetchrow(_LEFT, run)
    if left is None:
        return Leased(usd=0.0, tokens=0)
    root, left_nanos, left_tokens = left
    money = nanos_covering(usd)
    if (left_nanos is not None and left_nanos < money) or (left_tokens is not None and left_tokens < tokens):
        if await db.fetchval(_BUSY, root, run):  # asked after the lock was had, so that no lease is missed
            return Leased(usd=0.0, tokens=0, later=True)
        money = money if left_nanos is None else max(0, min(money, left_nanos))
        tokens = tokens if left_tokens is None else max(0, min(tokens, left_tokens))
    await db.execute(
        "update af_budget set nanos = nanos - $2, tokens = tokens - $3 where root = $1", root, money, tokens
    )
    await db.execute("update af_lease set nanos = nanos + $2, tokens = tokens + $3 where run = $1", run, money, tokens)
    return Leased(usd=money / NANO, tokens=tokens)


async def give_back(db: AsyncpgConnection, run: str, usd: float, tokens: int) -> None:
    """End the reservation of a run; ``usd`` and ``tokens`` are left of it."""
    await db.execute(_BACK, run, nanos(usd), tokens)


async def free(db: AsyncpgConnection, run: str) -> None:
    """Take back the reservation of a run after its process died."""
    await db.execute(_BACK, run, None, None)


async def end(db: AsyncpgConnection, run: str) -> None:
    """End the share of a run that has ended; with the tree's own run its budget ends."""
    await db.execute(_END, run)
