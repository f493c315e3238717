"""Dry samples: the effects that a sample would carry out, and those that it would reuse. No task or tool is carried out, and nothing is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.journal_port import Content
from agentflow.core.call.spending import BATCHED
from agentflow.core.data.frozen import frozen
from agentflow.core.events.journal_rows import EffectRow, OwnedRun, RunRow, StoredResult
from agentflow.durable.dry_replay import Action, DryJournal, DryRecords, DryReplay, ReachedEffect
from agentflow.durable.generations import TaskOverrides
from agentflow.durable.journal import RunJournal
from agentflow.durable.samples import IN_BATCHES, Anew, SampleEnd, SampleRecords, Samples
from agentflow.durable.stored_input import PythonProgram
from agentflow.durable.values.record_values import fingerprint
from agentflow.lang.program import Program
from agentflow.run.run_spec import RunSpec

T = TypeVar("T")


class AnswerMissing(BaseException):
    """Nothing answers a task in a dry sample. No code of the host handles it."""


class DrySampleRecords(SampleRecords, DryRecords):
    """The records of a dry sample. The parameters are those of SampleRecords."""

    is_dry = True

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._kept: dict[str, StoredResult] = {}
        self._missing: dict[str, bytes | None] = {}

    def answer(self, path: str, stored: StoredResult) -> None:
        super().answer(path, stored)
        self._kept[path] = stored

    def missing(self, path: str, key: bytes | None) -> BaseException:
        self._missing[path] = key
        return AnswerMissing(path)

    def lacks(self, path: str) -> bool:
        """Whether something is missing at or below ``path``."""
        return any([f"{each}/".startswith(f"{path}/") for each in self._missing])

    def key(self, path: str) -> bytes | None:
        """The key of the missing result at ``path``."""
        return self._missing.get(path)

    def row_at(self, path: str) -> EffectRow | None:
        """The record of the effect that ended at ``path``, with the cost that a kept result had, at the price of ordinary calls."""
        row = next((each for each in reversed(self.rows) if each.path == path), None)
        stored = self._kept.get(path)
        if row is None or stored is None:
            return row
        cost = stored.cost
        if cost is not None and IN_BATCHES in stored.value:
            cost /= BATCHED
        return replace(row, usage=stored.usage, cost=cost)


class DrySampleJournal(DryJournal):
    """Answers from the records of the case, the store of results, and old values."""

    __slots__ = ()

    def _within(self, **fields: Any) -> RunJournal:
        return DrySampleJournal(self.records, self.codec, self.redactor, replay=self.replay, **fields)

    async def find(
        self,
        kind: str,
        name: str,
        digest: bytes,
        call: CallContext,
        parts: Callable[[], Mapping[str, Any]] | None = None,
    ) -> EffectRow | None:
        if self.at is None and (self.replay.is_second or kind not in _FREE):
            return await super().find(kind, name, digest, call, parts)
        row = self.answering(call, digest)
        if self.at is not None and row is None and kind not in _FREE:
            raise self._dry.missing(call.path, None)
        if self.at is None and row is not None:
            self.replay.reach(kind, name, digest, call.path, call.span, lambda: row)
        return row

    async def record(
        self,
        kind: str,
        name: str,
        digest: bytes,
        call: CallContext,
        work: Callable[[], Awaitable[T]],
        *,
        write: Callable[[T], Any] | None = None,
        read: Callable[[Any], T] | None = None,
        marks: str = "",
        asked: bytes | None = None,
    ) -> T:
        """The kept result of a task, which ``work`` asks for; else the old value."""
        done = super().record(kind, name, digest, call, work, write=write, read=read, marks=marks, asked=asked)
        if self.at is not None:
            return await done
        records, path = self._dry, call.path
        try:
            value = await done
        except asyncio.CancelledError:
            raise
        except BaseException:  # a group, if it was raised in one
            if not records.lacks(path):
                raise
        else:
            if not records.lacks(path):
                row = records.row_at(path)
                self.replay.reach(kind, name, digest, path, call.span, lambda: row)
                return value
        old = self.replay.reach(kind, name, digest, path, call.span, lambda: None, records.key(path))
        if old is None:
            await self.halt(call)
        outcome = self.replayed(old, call)
        return outcome if read is None else read(outcome)

    async def recall(self, kind: str, name: str, content: Content, call: CallContext) -> Any:
        row = self.answering(call, fingerprint(kind, name, self._part(content)))
        if row is None:
            raise self._dry.missing(call.path, None)
        return self.replayed(row, call)

    @property
    def _dry(self) -> DrySampleRecords:
        return cast(DrySampleRecords, self.records)


_FREE = frozenset({"task", "draw"})
"""Kinds of effects that cost nothing up to the question for a kept result."""


@frozen(kw_only=True)
class DryEnd(SampleEnd):
    """How a dry sample ended, and its ``effects`` with their actions."""

    effects: Sequence[tuple[ReachedEffect, Action]] = ()

    @property
    def answered(self) -> bool:
        """Whether nothing would be carried out."""
        return self.status != "open" and all([action == "reused" for _, action in self.effects])


class DrySamples(Samples):
    """Carries out one sample dry in ``replay``, in the flow of ``samples``."""

    def __init__(self, samples: Samples, replay: DryReplay) -> None:
        super().__init__(samples._engine, samples._store, samples._codec, samples._stored, samples._redactor)
        self._replay = replay

    def _opened(
        self,
        owned: OwnedRun,
        root: asyncio.Task[object],
        draw: int,
        answers: Sequence[EffectRow],
        anew: Anew | None,
        program: str,
    ) -> tuple[SampleRecords, RunJournal]:
        records = DrySampleRecords(self._store, owned, root, draw, answers, anew)
        return records, DrySampleJournal(records, self._codec, self._redactor, program=program, replay=self._replay)


async def dry_sample(
    samples: Samples,
    row: RunRow,
    program: Program | PythonProgram,
    spec: RunSpec,
    *,
    tasks: TaskOverrides,
    rows: Sequence[EffectRow] = (),
    draw: int = 0,
    anew: Anew | None = None,
    old: Sequence[EffectRow] = (),
) -> DryEnd:
    """The effects of :meth:`Samples.carry_out` with these arguments. ``old`` are the records that have old values."""
    first = DryReplay(old)

    async def replayed(replay: DryReplay) -> SampleEnd:
        return await DrySamples(samples, replay).carry_out(
            row, program, spec, tasks=tasks, rows=rows, draw=draw, anew=anew
        )

    end = await replayed(first)
    again = DryReplay((), first) if first.is_open else None
    if again is not None:
        await replayed(again)
    return DryEnd(**{each.name: getattr(end, each.name) for each in fields(end)}, effects=first.actions(again))
