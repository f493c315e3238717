"""Plans what resuming a durable run would do: a dry replay that stops at effects without a record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import total
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.data.source import Span
from agentflow.core.events.journal_rows import EffectRow, EffectState, OwnedRun, RunRow
from agentflow.core.ports.store_ports import JournalStore
from agentflow.durable.generations import TaskOverrides
from agentflow.durable.journal import RunJournal
from agentflow.durable.pool import Pool, path_order
from agentflow.durable.remote import worker_forms
from agentflow.durable.run_records import Elsewhere, Records, wait_for_end
from agentflow.durable.stored_input import PythonProgram, carry_out
from agentflow.durable.values.codec import Codec, write_usage
from agentflow.lang.program import Program
from agentflow.run.engine import Engine
from agentflow.run.run_spec import RunSpec
from agentflow.run.strand.budget import Budget, Permits, without_permit

_LOOK_S = 0.002
_LOOKS = 3
"""Number of consecutive checks without activity after which the replay has ended."""


@frozen(kw_only=True)
class PlannedEffect:
    """An effect of a plan: its ``action`` is ``reused``, or ``run``.

    ``usage`` (tokens) and ``cost`` (US dollars) are its recorded cost: for one to be run, the last one at this path, else
    the average for its name; None if unknown. ``recorded_at`` is the path of the record that answers it, ``span`` its
    location in the program.
    """

    action: Literal["reused", "run"]
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

    ``effects`` are in the order of their paths. ``complete`` says that there are no others: nothing is run, or nothing
    depends on it. Otherwise the program continues after the effects to be run, depending on their results, and some of the
    ``unused`` records may answer then. ``error`` is the message of the error with which the replay ends, if it does.
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
        """The effects that are carried out first."""
        return [each for each in self.effects if each.action == "run"]


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
    replays: list[_DryRecords] = []

    async def replay() -> None:
        task = asyncio.current_task()
        assert task is not None
        owned = OwnedRun(run=row, records=list(own), usage=write_usage(NO_USAGE) or (0,) * 6, cost=0.0)
        records = _DryRecords(store, owned, task, worker_forms)
        records.pool, records.overrides = pool, overrides
        replays.append(records)
        try:
            async with engine.open(
                program.source.name,
                spec,
                program=program.source.digest,
                grants=program.allow,
                journal=_DryJournal(records, codec, prices),
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

    async with asyncio.TaskGroup() as group:
        group.create_task(replay(), name=f"plan of {row.run}")
    records = replays[0]
    effects = sorted(records.effects, key=lambda each: path_order(each.path))
    unused = [] if pool is None else pool.unused
    return RunPlan(
        run_id=row.run,
        effects=tuple(effects),
        unused=tuple([prices.effect("reused", each.path, each, None) for each in unused]),
        complete=bool(ended) and not any([each.action == "run" for each in effects]),
        error=ended[0] if ended else None,
    )


class _Prices:
    """The recorded cost of effects."""

    def __init__(self, rows: Sequence[EffectRow]) -> None:
        self._all = Pool(rows)
        self._rows = [row for row in rows if row.state in (EffectState.OK, EffectState.FAILED)]

    def effect(self, action: Literal["reused", "run"], path: str, row: EffectRow, span: Span | None) -> PlannedEffect:
        usage, cost = self._all.spent(row)
        at = row.path if action == "reused" else None
        return PlannedEffect(
            action=action, path=path, kind=row.kind, name=row.name, usage=usage, cost=cost, span=span, recorded_at=at
        )

    def expected(self, kind: str, name: str, path: str, span: Span | None) -> PlannedEffect:
        """An effect to be run, with its last cost; unknown if no effect of its kind and name was ever run."""
        like = [row for row in self._rows if row.kind == kind and row.name == name]
        here = [row for row in like if row.path == path]
        if here or len(like) == 1:
            return self.effect("run", path, (here or like)[0], span)
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
        return PlannedEffect(action="run", path=path, kind=kind, name=name, usage=usage, cost=cost, span=span)


class _DryRecords(Records):
    """Records that are never added to. ``effects`` are those that the replay has reached."""

    def __init__(self, store: JournalStore, owned: OwnedRun, root: asyncio.Task[object], elsewhere: Elsewhere) -> None:
        super().__init__(store, owned, root, elsewhere)
        self.effects: list[PlannedEffect] = []
        self._watch: asyncio.TimerHandle | None = None

    async def commit(self, row: EffectRow) -> None:
        """Store nothing: a plan changes no run."""

    def commit_soon(self, rows: Sequence[EffectRow], drop: Sequence[bytes] = ()) -> None:
        """Store nothing: a plan changes no run."""

    def note(self, row: EffectRow) -> asyncio.Future[None]:
        """Store nothing: a plan changes no run."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        stored.set_result(None)
        return stored

    async def halt(self, permits: Permits | None) -> NoReturn:
        """Wait at an effect without a record. When everything in the run waits so, the replay has ended."""
        async with without_permit(permits):
            if self._watch is None:
                self._look(None if permits is None else permits.root, 0)
            await wait_for_end()

    def _look(self, permits: Permits | None, idle: int) -> None:
        """Check every few milliseconds whether anything is active; end after several checks in a row without activity."""
        if idle == _LOOKS:
            self.suspending = True
            self.root.cancel()
        elif not self.root.done():
            idle = 0 if permits is not None and permits.active else idle + 1
            self._watch = asyncio.get_running_loop().call_later(_LOOK_S, self._look, permits, idle)


class _DryJournal(RunJournal):
    """Answers from records, notes the effects it answers, and carries out none."""

    __slots__ = ("prices",)
    dry = True

    def __init__(self, records: _DryRecords, codec: Codec, prices: _Prices) -> None:
        super().__init__(records, codec)
        self.prices = prices

    async def find(
        self,
        kind: str,
        name: str,
        digest: bytes,
        call: CallContext,
        parts: Callable[[], Mapping[str, Any]] | None = None,
    ) -> EffectRow:
        records = self.records
        assert isinstance(records, _DryRecords)
        row = records.find(call.path)
        if row is None and records.pool is not None:
            row = records.pool.take(call.path, digest)
        if row is None or row.state == EffectState.OPEN or (row.path == call.path and row.content != digest):
            records.effects.append(self.prices.expected(kind, name, call.path, call.span))
            budget = call.run.budget
            await records.halt(budget.permits if isinstance(budget, Budget) else None)
        records.effects.append(self.prices.effect("reused", call.path, row, call.span))
        return row

    def pin(self, kind: str, name: str, text: str | None, call: CallContext) -> str | None:
        row = self.records.find(f"@{kind}/{name}")
        return text if row is None else row.value
