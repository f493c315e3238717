"""Durable runs: effects are answered from their records, or carried out and recorded before anything follows from them.

Leaves have records: calls of tasks, tools and host callables, context lookups, timers. What contains them (``solve``, saved
workflows, evaluated programs) runs again, and its leaves answer. A record belongs to a path; paths do not depend on the
order in which anything finishes. What does depend on it is recorded as a decision (:mod:`agentflow.runtime.decisions`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agentflow.core.call import CallContext, RunPort
from agentflow.core.effects import Effect, GetContext, HostCall, TaskCall, Timer, ToolCall
from agentflow.core.errors import AgentflowError, ConfigurationError, JournalError, LimitExceeded
from agentflow.core.events import EffectReplayed, Outcome
from agentflow.core.forwarding import ForwardingRun
from agentflow.core.journal import EffectRow, EffectState, effect_key
from agentflow.core.messages import Usage
from agentflow.core.names import NameInfo, Template
from agentflow.core.results import TaskResult
from agentflow.lang.trace import annotate
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import redacted
from agentflow.runtime.budget import Budget
from agentflow.runtime.codec import Codec, NotData, fingerprint, write_usage
from agentflow.runtime.decisions import JournalClock, JournalVerdict, mismatch
from agentflow.runtime.perform import EffectRunner
from agentflow.runtime.records import Records

UNRECORDED = (LimitExceeded, ConfigurationError, JournalError)
"""Errors that are no outcome of an effect: with a higher limit or another setting it would go on."""


class RunJournal:
    """The records of a run, seen from the run or from one recorded effect in it; a :class:`~agentflow.core.call.JournalPort`.

    ``leaf`` is the key of that effect, ``meter`` counts what it costs; both None for the run itself.
    """

    __slots__ = ("codec", "leaf", "meter", "records", "redactor")

    def __init__(
        self,
        records: Records,
        codec: Codec,
        redactor: Redactor | None = None,
        *,
        leaf: bytes | None = None,
        meter: Meter | None = None,
    ) -> None:
        self.records = records
        self.codec = codec
        self.redactor = redactor
        self.leaf = leaf
        self.meter = meter

    @property
    def suspending(self) -> bool:
        """Whether the run is given up without an end."""
        return self.records.suspending

    def verdict(self, path: str, prefix: str, count: int) -> JournalVerdict:
        """Who settles the form at ``path``."""
        return JournalVerdict(self.records, path, prefix, count, UNRECORDED, self.leaf)

    def clock(self, path: str, seconds: float) -> JournalClock:
        """The time-out of the form at ``path``."""
        return JournalClock(self.records, path, seconds, self.leaf)

    async def perform(self, effect: Effect, leaf: LeafKind, call: CallContext, runner: EffectRunner) -> Any:
        """Answer a leaf from its record, or carry it out and record it."""
        content = fingerprint(leaf.kind, leaf.name, leaf.content, runner.definition(effect, call))
        records = self.records
        row = records.find(call.path)
        if row is not None and row.state != EffectState.OPEN:
            return await self._replay(row, leaf, content, call)
        budget = call.run.budget
        await records.reach(call.path, budget.permits if isinstance(budget, Budget) else None)
        run = _LeafRun(call.run, self, call.path)
        call.run = run
        mark = call.session.mark()
        started = time.time()
        value, failure = None, None
        try:
            value = await runner.perform(effect, call)
        except Exception as error:
            if isinstance(error, UNRECORDED):
                self._lose(leaf, run, call.path)
                raise
            failure = annotate(error).at(call.span)
        except BaseException:
            self._lose(leaf, run, call.path)
            raise
        try:
            data = {"ok": self.codec.encode(value)} if failure is None else {"error": self.codec.encode_error(failure)}
        except NotData as what:
            self._not_recorded(leaf, what, call)
            self._lose(leaf, run, call.path)
            if failure is not None:
                raise failure from failure.__cause__
            return value
        changes = call.session.changes_since(mark)
        turns = None if changes is None else self.codec.encode(changes)
        if self.redactor is not None:
            data, turns = redacted(data, self.redactor), redacted(turns, self.redactor)
        failed = failure is not None or (isinstance(value, TaskResult) and value.failed)
        row = EffectRow(
            path=call.path,
            kind=leaf.kind,
            name=leaf.name,
            content=content,
            state=EffectState.FAILED if failed else EffectState.OK,
            leaf=self.leaf,
            value=data,
            turns=turns,
            usage=run.meter.usage,
            cost=run.meter.cost,
            started=started,
            ended=time.time(),
        )
        if self.meter is not None:
            self.meter.recorded(run.meter)
        await records.commit(row)
        return self._outcome(data, call, failure)

    async def _replay(self, row: EffectRow, leaf: LeafKind, content: bytes, call: CallContext) -> Any:
        if row.content != content:
            await self.records.stop(mismatch(row, f"{leaf.kind} {leaf.name}"))
        self.records.replayed += 1
        if row.turns is not None:
            call.session.apply(self.codec.decode(row.turns))
        if call.run.watched:
            outcome: Outcome = "ok" if row.state == EffectState.OK else "failed" if "ok" in row.value else "error"
            call.emit(EffectReplayed, kind=row.kind, name=row.name, outcome=outcome)
        return self._outcome(row.value, call)

    def _outcome(self, data: Mapping[str, Any], call: CallContext, original: AgentflowError | None = None) -> Any:
        """What an effect gives, read back from its record: a first execution too cannot differ from a replayed one."""
        source = call.span.source if call.span is not None else None
        if "ok" in data:
            return self.codec.decode(data["ok"], source)
        error = self.codec.decode_error(data["error"], source).at(call.span)
        error.__context__ = original
        raise error

    def _not_recorded(self, leaf: LeafKind, what: NotData, call: CallContext) -> None:
        call.warn(
            "durable/not-recorded",
            f"what the {leaf.kind} {leaf.name} gave cannot be stored: {what}; it is carried out again when the run is"
            " gone on with",
            kind=leaf.kind,
            name=leaf.name,
        )

    def _lose(self, leaf: LeafKind, run: _LeafRun, path: str) -> None:
        """Record what an effect had cost that has no outcome to record."""
        usage = run.meter.usage
        if usage is not None:
            self.records.commit_soon([self.records.lost_row(path, leaf.kind, leaf.name, usage, run.meter.cost)])
            if self.meter is not None:
                self.meter.recorded(run.meter)


class Meter:
    """What the model calls within an effect cost, without those that have records of their own."""

    __slots__ = ("_cost", "_outer", "_unpriced", "_usage")

    def __init__(self, outer: Meter | None) -> None:
        self._outer = outer
        self._usage = [0] * 6
        self._cost = 0.0
        self._unpriced = 0

    def add(self, usage: Usage, cost: float | None) -> None:
        """Count a model call, within all effects around it too."""
        self._count(write_usage(usage), cost, 1)
        if self._outer is not None:
            self._outer.add(usage, cost)

    def recorded(self, step: Meter) -> None:
        """Leave out what ``step``, an effect within this one, has recorded itself."""
        self._count(step.usage, step.cost, -1)
        if self._outer is not None:
            self._outer.recorded(step)

    def _count(self, usage: Iterable[int] | None, cost: float | None, sign: int) -> None:
        for at, tokens in enumerate(usage or ()):
            self._usage[at] += sign * tokens
        if cost is None:
            self._unpriced += sign
        else:
            self._cost += sign * cost

    @property
    def usage(self) -> tuple[int, ...] | None:
        """The tokens in the order of Usage; None for none."""
        return tuple(self._usage) if any(self._usage) else None

    @property
    def cost(self) -> float | None:
        """The cost in USD; None if a price is unknown."""
        return None if self._unpriced else self._cost


class _LeafRun(ForwardingRun):
    """The run as a recorded effect and all that it starts see it: what they cost is the effect's."""

    def __init__(self, run: RunPort, journal: RunJournal, path: str) -> None:
        super().__init__(run)
        self.meter = Meter(journal.meter)
        self.journal = RunJournal(
            journal.records, journal.codec, journal.redactor, leaf=effect_key(path), meter=self.meter
        )
        self.charge_usage = self._charge

    def _charge(self, usage: Usage, cost_usd: float | None) -> None:
        self.meter.add(usage, cost_usd)
        self._run.charge_usage(usage, cost_usd)


@dataclass(frozen=True, slots=True)
class LeafKind:
    """An effect that has a record: its kind and name as events call them, and what it asks for."""

    kind: str
    name: str
    content: Any

    @classmethod
    def of(cls, effect: Effect) -> LeafKind | None:
        """What ``effect`` is; None for one that has no record itself."""
        match effect:
            case TaskCall():
                return cls("task", effect.name, effect.arguments)
            case ToolCall():
                return cls("tool", effect.name, effect.arguments)
            case HostCall():
                return cls("host", effect.name, effect.arguments)
            case GetContext():
                return cls("context", "get_context", [effect.arguments, effect.items])
            case Timer():
                return cls("timer", "", [effect.seconds, effect.jitter])
            case _:
                return None


@dataclass(frozen=True, slots=True)
class Journaled:
    """An :class:`~agentflow.runtime.naming.EffectHandler` before another: the records of the run come first."""

    runner: EffectRunner

    def describe(self, name: str) -> NameInfo | None:
        """What ``name`` is among the flow's tasks and tools."""
        return self.runner.describe(name)

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        """The template of a definition. Raises DataError."""
        return self.runner.prepare(fields)

    def known_names(self) -> Iterable[str]:
        """All task and tool names."""
        return self.runner.known_names()

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        """Carry out an effect, or answer it from its record."""
        journal = call.run.journal
        leaf = LeafKind.of(effect) if isinstance(journal, RunJournal) else None
        if leaf is None or not isinstance(journal, RunJournal):
            return await self.runner.perform(effect, call)
        return await journal.perform(effect, leaf, call, self.runner)


__all__ = ["UNRECORDED", "Journaled", "LeafKind", "Meter", "RunJournal"]
