"""Branches as separate runs: begun together, and counted when they end.

``af_fork`` has a row for each form with branches at work: ``need`` of them are unfinished; in state 1 one of them has
failed and the others are to be cancelled, in state 2 the surrounding run no longer waits for them, in state 3 one has won a
race. ``error`` is the outcome that settled the form: the failure, or the path of the winner; before that the failures that
did not settle it. The row of the surrounding run is touched once, when the last branch has ended, so that its own records
meet no lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agentflow.core.events.journal_rows import BranchEnd, EffectRow, EffectState, NewRun
from agentflow.journal.errors import owned_run
from agentflow.journal.postgres.connection import AsyncpgConnection
from agentflow.journal.postgres.rows import ADD, PostgresRows, beginning
from agentflow.journal.rows import dump, effect_values, load
from agentflow.journal.sessions import store_exchanges

_RUNS = """
insert into af_run(run, program, digest, input, queue, tenant, priority, parent, fork)
  select run, program, digest, input, queue, tenant, priority, $8, $9
  from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[])
    as b(run, program, digest, input, queue, tenant, priority)
on conflict (run) do nothing
"""
_UNBEGUN = """
with unbegun as materialized (
  select rid from af_run where fork = $1 and status = 'queued' and epoch = 0 for update skip locked)
update af_run r set status = 'cancelled', cancelling = true, updated = now() from unbegun u where r.rid = u.rid returning r.run
"""
_RESTING = """
with resting as materialized (
  select rid from af_run where fork = $1 and status in ('waiting', 'interrupted') for update skip locked)
update af_run r set status = 'queued', cancelling = true, seq = seq + 1, wake_at = null, updated = now()
  from resting s where r.rid = s.rid returning r.run
"""
_OPEN, _FAILED, _GIVEN_UP, _WON = 0, 1, 2, 3


async def begin(
    db: AsyncpgConnection,
    run: str,
    epoch: int,
    form: EffectRow,
    branches: Sequence[tuple[str, NewRun]],
    opening: Sequence[Any],
) -> bool:
    """Store the open record of a form with the runs of its branches. False, and nothing is stored, if it has a record.

    Raises JournalError (``durable/owned``).
    """
    row = await db.fetchrow("select rid, epoch from af_run where run = $1 for update", run)
    if row is None or row[1] != epoch:
        raise owned_run(run)
    rid = row[0]
    if await db.fetchval(ADD, rid, *effect_values(form)) is None:
        return False
    fork = await db.fetchval(
        "insert into af_fork(run, key, need) values ($1, $2, $3) returning id", run, form.key, len(branches)
    )
    names = [name for name, _ in branches]
    columns = zip(*[beginning(new) for _, new in branches], strict=True)
    await db.execute(_RUNS, names, *[list(column) for column in columns], run, fork)
    last = await store_exchanges(db, opening)
    if last is not None:
        await db.execute("insert into af_opening select name, $2 from unnest($1::text[]) as b(name)", names, last)
    return True


async def give_up(db: AsyncpgConnection, run: str, epoch: int, key: bytes) -> list[str]:
    """Forget the open record of a form and cancel its branches. Returns the runs that need a job to be cancelled.

    Raises JournalError (``durable/owned``).
    """
    row = await db.fetchrow("select rid, epoch from af_run where run = $1 for update", run)
    if row is None or row[1] != epoch:
        raise owned_run(run)
    await db.execute("delete from af_effect where rid = $1 and key = $2 and state = 0", row[0], key)
    query = "select id from af_fork where run = $1 and key = $2 and state <> $3 for update"
    fork = await db.fetchval(query, run, key, _GIVEN_UP)
    if fork is None:
        return []
    await db.execute("update af_fork set state = $2 where id = $1", fork, _GIVEN_UP)
    begun = await _cancel(db, fork)
    await db.execute("delete from af_fork where id = $1 and need = 0", fork)
    return begun


async def is_wanted(db: AsyncpgConnection, run: str) -> bool:
    """Whether a branch is not cancelled, and cannot be before the end of this transaction: a later cancellation sees its
    changes."""
    query = "select f.state from af_run r join af_fork f on f.id = r.fork where r.run = $1 for share of f"
    return await db.fetchval(query, run) in (_OPEN, None)


async def ended(db: AsyncpgConnection, rows: PostgresRows, run: str, end: BranchEnd) -> list[str]:
    """Deliver the end of a branch, the run ``run``, to the surrounding run. Returns the runs that need a job.

    The first that settles the form cancels the other branches; of those that end later only successes are kept, so that
    another attempt at the form need not repeat them. The costs of the others are kept too.
    """
    row = await db.fetchrow(
        "select f.id, f.run, f.key, f.state, f.error, p.rid from af_run r join af_fork f on f.id = r.fork join af_run p on p.run = f.run"
        " where r.run = $1 for update of f",
        run,
    )
    if row is None:
        return []
    fork, parent, key, state, told, rid = row
    record = end.record
    failed = record.state == EffectState.FAILED
    counts = not failed and state != _GIVEN_UP
    path, outcome = record.path, record.value
    if not counts:
        record = replace(
            record, path=f"{record.path}!{run}", state=EffectState.LOST, content=b"", value=None, turns=None
        )
    if counts or record.usage is not None:
        [stored] = await rows.offload(db, [row[1]], [effect_values(record)])
        await db.execute(ADD, rid, *stored)
    begun: list[str] = []
    if state == _OPEN and end.settles:
        settled = (_FAILED, dump(outcome)) if failed else (_WON, dump({"ok": path}))
        await db.execute("update af_fork set state = $2, error = $3 where id = $1", fork, *settled)
        begun = await _cancel(db, fork)
    elif state == _OPEN and failed:
        failures: dict[str, Any] = {**(load(told) or {}), path: outcome}
        await db.execute("update af_fork set error = $2 where id = $1", fork, dump(failures))
    counted = await db.fetchrow("update af_fork set need = need - 1 where id = $1 returning need, state, error", fork)
    assert counted is not None
    left, state, told = counted
    if left > 0:
        return begun
    await db.execute("delete from af_fork where id = $1", fork)
    if state == _GIVEN_UP:
        return begun
    lost = state == _FAILED or (state == _OPEN and told is not None)
    await db.execute(
        "update af_effect set state = $3, value = $4, t1 = extract(epoch from now()) where rid = $1 and key = $2 and state = 0",
        rid,
        key,
        int(EffectState.FAILED if lost else EffectState.OK),
        '{"ok":null}' if told is None else told if state != _OPEN else dump({"ok": None, "failures": load(told)}),
    )
    await db.execute(
        "update af_run set seq = seq + 1, updated = now(),"
        " status = case when status = 'waiting' then 'queued' else status end where rid = $1",
        rid,
    )
    return [*begun, parent]


async def _cancel(db: AsyncpgConnection, fork: int) -> list[str]:
    """Cancel the idle branches: those at work are found by their workers. Returns those that need a job."""
    unbegun = await db.fetch(_UNBEGUN, fork)
    await db.execute("update af_fork set need = need - $2 where id = $1", fork, len(unbegun))
    await db.execute("delete from af_lease where run = any($1)", [run for (run,) in unbegun])
    return [run for (run,) in await db.fetch(_RESTING, fork)]
