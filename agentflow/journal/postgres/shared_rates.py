"""The requests of all processes of a database to models: for each model key the times when it has caught up with its
rate.

The generic cell rate algorithm in one statement, by the clock of the server: the calls of a process that stay within the
burst are allowed, and postpone the times by their cost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from agentflow.core.ports.store_ports import RateShare
from agentflow.journal.postgres.connection import AsyncpgConnection
from agentflow.journal.postgres.link import DatabaseLink, PostgresDatabase
from agentflow.journal.writer import Put, Unavailable, WriteJob, Writer

PATIENCE_S = 2.0
"""Seconds before the database counts as unavailable."""
_NEW = "insert into af_rate(key) values ($1) on conflict do nothing"
_SHARE = """
with rate as materialized (select request_at, token_at, held from af_rate where key = $1 for update),
clock as materialized (select extract(epoch from clock_timestamp())::float8 as now from rate),
calls as (
  select n, tokens, sum(tokens) over (order by n) - tokens as before from unnest($5::bigint[]) with ordinality as c(tokens, n)),
fits as (
  select count(*) as calls, coalesce(sum(tokens), 0) as tokens from calls, rate, clock
  where held <= now and greatest(request_at, now) + (n - 1) * $2::float8 <= now + greatest(0, $4::float8 - $2::float8)
    and greatest(token_at, now) + before * $3::float8 <= now + $4::float8)
update af_rate r set
  request_at = case when fits.calls = 0 then r.request_at else greatest(r.request_at, now) + fits.calls * $2::float8 end,
  token_at = case when fits.tokens + $6::bigint = 0 then r.token_at else greatest(r.token_at, now) + (fits.tokens + $6::bigint) * $3::float8 end,
  held = greatest(r.held, now + $7::float8)
from fits, clock where r.key = $1
returning fits.calls, greatest(0, r.request_at - greatest(0, $4::float8 - $2::float8) - now, r.token_at - $4::float8 - now, r.held - now),
  (select count(*) from af_owner where seen > now() - interval '15 s')
"""


class PostgresRates:
    """The :class:`~agentflow.core.ports.store_ports.RateStore` in the database at ``url``, on a connection of its own."""

    def __init__(self, url: str) -> None:
        link = DatabaseLink(url, patience_s=PATIENCE_S)
        self._writer: Writer[AsyncpgConnection] = Writer(_Impatient(link), f"rates in {link.name}")

    def share(
        self,
        key: str,
        seconds: tuple[float, float],
        burst: float,
        calls: Sequence[int],
        more: int = 0,
        hold: float = 0.0,
    ) -> asyncio.Future[RateShare]:
        future: asyncio.Future[RateShare] = asyncio.get_running_loop().create_future()
        self._writer.submit(WriteJob(future, partial(_share, key, seconds, burst, list(calls), more, hold)))
        return future

    async def aclose(self) -> None:
        await self._writer.aclose()


async def _share(
    key: str,
    seconds: tuple[float, float],
    burst: float,
    calls: list[int],
    more: int,
    hold: float,
    db: AsyncpgConnection,
) -> RateShare:
    row = await db.fetchrow(_SHARE, key, *seconds, burst, calls, more, hold)
    if row is None:
        await db.execute(_NEW, key)
        row = await db.fetchrow(_SHARE, key, *seconds, burst, calls, more, hold)
        assert row is not None
    count, delay, processes = row
    return RateShare(count, delay, max(1, processes))


class _Impatient(PostgresDatabase):
    """Work that cannot be done now has failed: calls to models are not kept waiting for a database."""

    def __init__(self, link: DatabaseLink) -> None:
        super().__init__(link, _no_records)

    def transact(self, jobs: Sequence[WriteJob]) -> None:
        try:
            super().transact(jobs)
        except Unavailable as error:
            for job in jobs:
                if not job.done:
                    job.error, job.done = OSError(str(error)), True


async def _no_records(db: AsyncpgConnection, jobs: Sequence[Put]) -> None:
    raise AssertionError("rates have no records")
