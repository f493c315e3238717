"""Money that runs share through PostgreSQL is whole nano-dollars: none is lost or gained, in whatever order it is taken."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from agentflow.core.data.limits import NANO, nanos, nanos_covering
from agentflow.core.events.journal_rows import Deposit, EffectRow, EffectState, NewRun
from agentflow.journal.postgres import PostgresJournal
from agentflow.journal.postgres.schema import MIGRATIONS
from tests.support.postgres import Server

RUNS = ("r", "a", "b")
CALLS = some.lists(
    some.tuples(some.sampled_from(RUNS), some.integers(1, 10**9), some.floats(0.0, 1.0)), min_size=1, max_size=12
)
NUMBERS = itertools.count()
NEW = NewRun(program="(f)", digest="d", input={}, queue="default")


async def spent_and_left(url: str, allowed: int, calls: list[tuple[str, int, float]], server: Server) -> list[Any]:
    """Nano-dollars that calls of a tree of runs took and did not give back, and those that the tree still has."""
    form = EffectRow(path="0/0.0", kind="branches", name="pmap", content=b"", state=EffectState.OPEN)
    store, number, spent = PostgresJournal(url), next(NUMBERS), 0
    names = {each: f"{each}{number}" for each in RUNS}
    try:
        await store.jobs.prepare()
        await store.create(names["r"], NEW)
        epoch = (await store.own(names["r"])).run.epoch
        deposit = Deposit(usd=allowed / NANO, tokens=None, held_usd=0.0, held_tokens=0)
        await store.jobs.fork(names["r"], epoch, form, [(names[each], NEW) for each in RUNS[1:]], [], deposit)
        for run, asked, share in calls:
            taken = (await store.jobs.lease(names[run], asked / NANO, 0)).usd
            cost = int(nanos(taken) * share)
            spent += cost
            await store.jobs.give_back(names[run], (nanos(taken) - cost) / NANO, 0)
        left = server.sql(f"select nanos from af_budget where root = '{names['r']}'", url)
        held = server.sql(f"select sum(nanos) from af_lease where root = '{names['r']}'", url)
        return [spent, int(left), int(held)]
    finally:
        await store.aclose()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(allowed=some.integers(0, 5 * 10**9), calls=CALLS)
def test_nothing_is_lost_or_gained(
    postgres_server: Server, postgres_url: str, allowed: int, calls: list[tuple[str, int, float]]
) -> None:
    """Whatever is taken and given back, in what order and by which run: what is left and what was spent are the limit, exactly."""
    spent, left, held = asyncio.run(spent_and_left(postgres_url, allowed, calls, postgres_server))
    assert (spent + left, held) == (allowed, 0) and left >= 0


@given(some.integers(0, 10**15), some.integers(1, 999))
def test_what_is_asked_for_is_enough(whole: int, fraction: int) -> None:
    """A whole number of nano-dollars is asked for as it is, and a part of one more as one more."""
    assert nanos(whole / NANO) == nanos_covering(whole / NANO) == whole
    if whole < 10**9:
        assert nanos_covering((whole + fraction / 1000 + 0.0105) / NANO) == whole + (2 if fraction > 990 else 1)
    assert nanos(float("inf")) == nanos_covering(float("inf")) < 2**63


async def test_shares_of_older_tables_are_rounded(postgres_server: Server, postgres_url: str) -> None:
    """What a database of an earlier version kept as fractions of dollars is the nearest whole number of nano-dollars."""
    postgres_server.sql("create table af_meta(key text primary key, value text not null)", postgres_url)
    for statements in MIGRATIONS[:11]:
        postgres_server.sql(statements, postgres_url)
    postgres_server.sql(
        """insert into af_meta values ('version', '11');
        insert into af_budget values ('r', 0.1::float8 + 0.2::float8, null), ('s', null, 7);
        insert into af_lease(run, root, usd) values ('a', 'r', 0.7); insert into af_lease(run, root) values ('b', 'r')""",
        postgres_url,
    )
    store = PostgresJournal(postgres_url)
    assert await store.list() == []
    await store.aclose()
    left = "select string_agg(coalesce(nanos::text, '-'), ' ' order by root) from af_budget"
    held = "select string_agg(nanos::text, ' ' order by run) from af_lease"
    assert postgres_server.sql(left, postgres_url) == "300000000 -"
    assert postgres_server.sql(held, postgres_url) == "700000000 0"
