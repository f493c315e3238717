"""Dry replays that continue past an effect without a record, with the value that its place had before.

Later effects may depend on the new value, which is unknown. So a second replay alters each such value: an effect with the
same request in both does not read it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NoReturn, TypeAlias

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import JournalError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.events.journal_rows import EffectRow, EffectState
from agentflow.durable.journal import RunJournal
from agentflow.durable.pool import path_order
from agentflow.durable.run_records import Records, wait_for_end
from agentflow.durable.values.codec import Codec, Shaped
from agentflow.durable.values.data_adapter import DataAdapter
from agentflow.durable.values.record_values import from_data, request_of
from agentflow.lib.redact import Redactor
from agentflow.run.strand.budget import Budget, Permits, without_permit

Action: TypeAlias = "Literal['reused', 'run', 'may run']"
"""A record answers the effect; it is carried out; or it depends on effects being carried out."""


@frozen(kw_only=True)
class ReachedEffect:
    """An effect that a dry replay has reached.

    ``row`` is the record that answers it if ``fits``, else the one with its earlier value; None if its place had none.
    ``follows``: effects to carry out may come before it. ``key`` is that of its result in the store of results, if it would be kept there.
    """

    path: str
    kind: str
    name: str
    digest: bytes
    span: Span | None
    row: EffectRow | None
    fits: bool
    follows: bool
    key: bytes | None = None


# A second replay with altered values shows which effects do not read them (decision 59)
class DryReplay:
    """The effects of one dry replay. ``rows`` are the records of earlier runs, which have the old values.

    With ``first`` it is the second replay, which alters the values of all effects to carry out, or that depend on one.
    """

    def __init__(self, rows: Iterable[EffectRow], first: DryReplay | None = None) -> None:
        self.reached: dict[str, ReachedEffect] = {}
        self.altered: set[str] = set()
        """The paths with old values, or values altered by this replay."""
        self.blind = False
        """Whether a value could not be altered, so that this replay shows nothing more."""
        self._first = first
        self._run: list[str] = []
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._at: dict[tuple[str, str, str], EffectRow] = {}
        self._like: defaultdict[tuple[str, str], list[EffectRow]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: path_order(row.path)):
            if row.state == EffectState.OK:
                self._at.setdefault((row.kind, row.name, row.path), row)
                self._like[row.kind, row.name].append(row)

    def reach(
        self,
        kind: str,
        name: str,
        digest: bytes,
        path: str,
        span: Span | None,
        find: Callable[[], EffectRow | None],
        key: bytes | None = None,
    ) -> EffectRow | None:
        """The record that the replay continues with at an effect; None if it ends there. ``find`` gives the record that answers."""
        if self._first is not None:
            return self._again(self._first, kind, name, digest, path)
        row = find()
        number = self._counts[kind, name]
        self._counts[kind, name] += 1
        fits = row is not None
        follows = any([may_precede(each, path) for each in self._run])
        if row is None:
            like = self._like.get((kind, name), ())
            row = self._at.get((kind, name, path)) or (like[number] if number < len(like) else None)
            self._run.append(path)
            self.altered.add(path)
        self.reached[path] = ReachedEffect(
            path=path, kind=kind, name=name, digest=digest, span=span, row=row, fits=fits, follows=follows, key=key
        )
        return row

    def _again(self, first: DryReplay, kind: str, name: str, digest: bytes, path: str) -> EffectRow | None:
        """As before, with another value for an effect with another request now."""
        before = first.reached.get(path)
        if self.blind or before is None or before.row is None or (before.kind, before.name) != (kind, name):
            return None
        if not before.fits or before.digest != digest:
            self.altered.add(path)
        self.reached[path] = replace(before, digest=digest)
        return before.row

    @property
    def is_second(self) -> bool:
        """Whether it is the second replay."""
        return self._first is not None

    @property
    def is_open(self) -> bool:
        """Whether a second replay could show that a record answers for certain."""
        return any([each.fits and each.follows for each in self.reached.values()])

    def actions(self, again: DryReplay | None) -> list[tuple[ReachedEffect, Action]]:
        """The effects in the order of their paths, each with its action; ``again`` is the second replay."""
        told: list[tuple[ReachedEffect, Action]] = []
        for each in sorted(self.reached.values(), key=lambda each: path_order(each.path)):
            action: Action = "reused" if each.fits else "run"
            if each.follows and not (each.fits and again is not None and again.asks_the_same(each)):
                action = "may run"
            told.append((each, action))
        return told

    def asks_the_same(self, effect: ReachedEffect) -> bool:
        """Whether this second replay has reached ``effect`` with the content that it had in the first."""
        return effect.path in self.reached and effect.path not in self.altered


def may_precede(earlier: str, later: str) -> bool:
    """Whether the effect at ``later`` may depend on the one at ``earlier``: not if they are in two branches of one form, which
    share nothing that changes."""
    for one, other in zip(earlier.split("/"), later.split("/"), strict=False):
        if one != other:
            (number, _, _), (same, _, _) = one.partition("."), other.partition(".")
            return not (number.isdecimal() and number == same)
    return True


_MARK = "~"


class Unalterable(Exception):
    """No other value of the same shape exists."""


def altered(value: Any) -> Any:
    """Another value of the same shape. Raises Unalterable for one other than data."""
    match value:
        case TaskResult():
            parsed = value.parsed_content
            content = f"{_MARK}{value.content}{_MARK}"
            return replace(value, content=content, parsed_content=None if parsed is None else altered(parsed))
        case Shaped():
            return replace(value, data=altered(value.data))
        case None:
            return _MARK
        case bool():
            return not value
        case _:
            return _of_type(value)


def _of_type(value: Any) -> Any:
    kind: object = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return f"{_MARK}{value}{_MARK}"
    if kind is int or kind is float:
        return value + 1
    if kind is list:
        return [altered(each) for each in value]
    if kind is tuple:
        return tuple([altered(each) for each in value])
    if kind is dict:
        return {key: altered(each) for key, each in value.items()}
    raise Unalterable


_LOOK_S = 0.002
_LOOKS = 3
"""Number of consecutive checks without activity that end the replay."""


class DryRecords(Records):
    """Records never added to."""

    _watch: asyncio.TimerHandle | None = None

    async def commit(
        self, row: EffectRow, drop: Sequence[bytes] = (), *, keeps: bool = False, also: Sequence[EffectRow] = ()
    ) -> None:
        """Store nothing: a plan changes no run."""

    async def looked_into(self) -> None:
        """Nothing reaches a plan."""

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


class DryJournal(RunJournal):
    """Answers from records and old values, notes the reached effects, and carries out none."""

    __slots__ = ("replay",)
    dry = True

    def __init__(
        self, records: Records, codec: Codec, redactor: Redactor | None = None, *, replay: DryReplay, **fields: Any
    ) -> None:
        super().__init__(records, codec, redactor, **fields)
        self.replay = replay

    async def find(
        self,
        kind: str,
        name: str,
        digest: bytes,
        call: CallContext,
        parts: Callable[[], Mapping[str, Any]] | None = None,
    ) -> EffectRow | None:
        row = self.replay.reach(kind, name, digest, call.path, call.span, lambda: self.answering(call, digest))
        return await self.halt(call) if row is None else row

    def answering(self, call: CallContext, digest: bytes) -> EffectRow | None:
        """The record that answers the effect at ``call``; None if it would be carried out."""
        path, pool = call.path, self.records.pool
        row = self.records.find(path)
        if row is None and pool is not None:
            row = pool.take(path, digest, request_of(call))
        fits = row is not None and row.state != EffectState.OPEN and (row.path != path or row.content == digest)
        return row if fits else None

    async def halt(self, call: CallContext) -> NoReturn:
        """End the replay in this strand."""
        assert isinstance(self.records, DryRecords)
        budget = call.run.budget
        await self.records.halt(budget.permits if isinstance(budget, Budget) else None)

    def replayed(self, row: EffectRow, call: CallContext) -> Any:
        if call.path not in self.replay.altered or not self.replay.is_second:
            return super().replayed(row, call)
        value = super().replayed(replace(row, turns=None), call)  # the exchange that it added is another, too
        try:
            return altered(value)
        except Unalterable:
            self.replay.blind = True
            return value

    async def typed(self, outcome: Any, adapter: DataAdapter[Any] | None, what: str, call: CallContext) -> Any:
        """An outcome in its form before storage. At an old or altered one that does not fit the replay ends in its strand."""
        if call.path not in self.replay.altered:
            return await super().typed(outcome, adapter, what, call)
        try:
            return from_data(adapter, outcome, what, call.path)
        except JournalError:
            await self.halt(call)

    def pin(self, kind: str, name: str, text: str | None, call: CallContext) -> str | None:
        row = self.records.find(f"@{kind}/{name}")
        return text if row is None else row.value
