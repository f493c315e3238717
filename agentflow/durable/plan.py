"""Plans the resumption of a durable run: a dry replay, which takes the old value at an effect without a record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import total
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.source import Span
from agentflow.core.events.journal_rows import EffectRow, EffectState, OwnedRun, RunRow
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.dry_replay import Action, DryJournal, DryRecords, DryReplay, ReachedEffect
from agentflow.durable.generations import TaskOverrides
from agentflow.durable.pool import Pool
from agentflow.durable.remote import worker_forms
from agentflow.durable.stored_input import PythonProgram, carry_out
from agentflow.durable.values.codec import Codec, write_usage
from agentflow.lang.program import Program
from agentflow.run.engine import Engine
from agentflow.run.run_spec import RunSpec


@frozen(kw_only=True)
class PlannedEffect:
    """An effect of a plan. Its ``action`` is ``reused``, ``run``, or ``may run``: its own input, or whether it is reached, may
    depend on the results of effects with ``run``.

    ``usage`` (tokens) and ``cost`` (US dollars) are its recorded cost: for one to be run, the last one at this path, else
    the average for its name; None if unknown. ``recorded_at`` is the path of the record that answers it, or would answer if
    its input stays the same; ``span`` is its location in the program.
    """

    action: Action
    path: str
    kind: str
    name: str
    usage: Usage | None
    cost: float | None
    span: Span | None
    recorded_at: str | None = None


@frozen(kw_only=True)
class RunPlan:
    """The effects of resuming a run, as far as a replay of its records shows.

    ``effects`` are in the order of their paths. At an effect with ``run`` the replay takes the value recorded at its
    place, so that ``may_run`` are the effects that follow if the new value leads the program the same way; in a branch without such a value the
    plan ends. ``complete`` says that other effects are excluded, because nothing is run. Otherwise there may be others, or
    fewer, and some of the ``unused`` records may answer then. ``error`` is the message of the error that ends the replay of a
    complete plan, if any.
    """

    run_id: str
    effects: tuple[PlannedEffect, ...]
    unused: tuple[PlannedEffect, ...]
    complete: bool
    error: str | None = None

    @property
    def reused(self) -> list[PlannedEffect]:
        """The effects that records answer."""
        return [each for each in self.effects if each.action == "reused"]

    @property
    def runs(self) -> list[PlannedEffect]:
        """The effects certain to be carried out."""
        return [each for each in self.effects if each.action == "run"]

    @property
    def may_run(self) -> list[PlannedEffect]:
        """The effects that depend on these: each is carried out unless its input stays the same or it is not reached any more."""
        return [each for each in self.effects if each.action == "may run"]

    @property
    def about(self) -> float | None:
        """The recorded cost of the effects that run or may run, in US dollars; None if one of them is unknown."""
        return cost_of([*self.runs, *self.may_run])[1]


def cost_of(effects: Iterable[PlannedEffect]) -> tuple[Usage, float | None]:
    """The total tokens and US dollars of ``effects``; the cost is None if one of them is unknown."""
    usage, costs = NO_USAGE, list[float | None]()
    for each in effects:
        usage += each.usage or NO_USAGE
        costs.append(each.cost)
    return usage, total(costs)


async def make_plan(
    engine: Engine,
    codec: Codec,
    store: JournalStore,
    row: RunRow,
    program: Program | PythonProgram,
    bindings: dict[str, Any],
    *,
    rows: Sequence[EffectRow],
    own: Sequence[EffectRow],
    pool: Pool | None,
    overrides: TaskOverrides | None,
    spec: RunSpec,
) -> RunPlan:
    """Replay a program from records alone: those in ``own`` at their paths, then those of ``pool``. ``rows`` have the costs."""
    prices = _Prices(rows)
    ended: list[str | None] = []

    async def carried(replay: DryReplay, pool: Pool | None) -> None:
        task = asyncio.current_task()
        assert task is not None
        owned = OwnedRun(run=row, records=list(own), usage=write_usage(NO_USAGE) or (0,) * 6, cost=0.0)
        records = DryRecords(store, owned, task, worker_forms)
        records.pool, records.overrides = pool, overrides
        session = None if spec.session is None else spec.session.fork()
        try:
            async with engine.open(
                program.source.name,
                replace(spec, session=session),
                program=program.source.digest,
                grants=program.allow,
                journal=DryJournal(records, codec, replay=replay),
                quiet=True,
            ) as (_, call):
                call.definitions = overrides
                await carry_out(engine, program, bindings, call)
            ended.append(None)
        except asyncio.CancelledError:
            if not records.suspending:
                raise
        except AgentflowError as error:
            ended.append(f"{error.code}: {error.message}")

    async def ended_replay(replay: DryReplay, pool: Pool | None) -> DryReplay:
        async with asyncio.TaskGroup() as group:
            group.create_task(carried(replay, pool), name=f"plan of {row.run}")
        return replay

    first = await ended_replay(DryReplay(rows), pool)
    again = await ended_replay(DryReplay((), first), None) if first.is_open else None
    effects = [prices.planned(reached, action) for reached, action in first.actions(again)]
    unused = [] if pool is None else pool.unused
    complete = bool(ended) and not first.altered
    return RunPlan(
        run_id=row.run,
        effects=tuple(effects),
        unused=tuple([prices.recorded("reused", each.path, each, None) for each in unused]),
        complete=complete,
        error=ended[0] if complete else None,
    )


class _Prices:
    """The recorded cost of effects."""

    def __init__(self, rows: Sequence[EffectRow]) -> None:
        self._all = Pool(rows)
        self._rows = [row for row in rows if row.state in (EffectState.OK, EffectState.FAILED)]

    def planned(self, reached: ReachedEffect, action: Action) -> PlannedEffect:
        """The effect with its cost; None for an unknown one if no effect of its kind and name was ever run."""
        if reached.fits and reached.row is not None:
            return self.recorded(action, reached.path, reached.row, reached.span)
        return self._expected(action, reached.kind, reached.name, reached.path, reached.span)

    def recorded(self, action: Action, path: str, row: EffectRow, span: Span | None) -> PlannedEffect:
        """The effect with the cost of its record."""
        usage, cost = self._all.spent(row)
        return PlannedEffect(
            action=action,
            path=path,
            kind=row.kind,
            name=row.name,
            usage=usage,
            cost=cost,
            span=span,
            recorded_at=row.path,
        )

    def _expected(self, action: Action, kind: str, name: str, path: str, span: Span | None) -> PlannedEffect:
        """An effect to be run, with its last cost at this path, else the average for its name."""
        like = [row for row in self._rows if row.kind == kind and row.name == name]
        here = [row for row in like if row.path == path]
        if here or len(like) == 1:
            return replace(self.recorded(action, path, (here or like)[0], span), recorded_at=None)
        usage: Usage | None = None
        cost: float | None = None if kind in ("task", "solve") or not like else 0.0
        if like:
            each = [self._all.spent(row) for row in like]
            total, prices = NO_USAGE, [price for _, price in each if price is not None]
            for tokens, _ in each:
                total += tokens
            usage = (
                Usage(*[number // len(each) for number in write_usage(total) or ()]) if total is not NO_USAGE else total
            )
            cost = sum(prices) / len(prices) if prices else None
        return PlannedEffect(action=action, path=path, kind=kind, name=name, usage=usage, cost=cost, span=span)
