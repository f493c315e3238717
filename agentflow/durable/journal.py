"""Durable runs: an effect is answered from its record, or carried out and recorded before anything depends on it.

Leaf effects have records: calls of tasks, tools and host callables, context lookups, timers. Effects that contain others
(``solve``, saved workflows, evaluated programs) run again, and their leaves are answered. A record belongs to a path; paths
do not depend on the order of finished effects. Choices that depend on it are recorded as decisions (:mod:`agentflow.durable.decisions`).
``Journaled`` says which effects have records, and computes the content that identifies each.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from agentflow.core.call.call import CallContext, RunOverrides, RunPort, view_of
from agentflow.core.call.journal_port import Content
from agentflow.core.call.spending import Reservation
from agentflow.core.data.errors import (
    UNRECORDED,
    AgentflowError,
    DataError,
    JournalError,
)
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask, Template
from agentflow.core.data.labels import UNKNOWN
from agentflow.core.data.limits import NANO
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session, Unread
from agentflow.core.data.source import Span
from agentflow.core.data.values import is_long
from agentflow.core.data.walk import LONG_TEXT, in_slices
from agentflow.core.events.effects import CallTool, Effect, HostCall, LogMessage, Step, TaskCall, Timer
from agentflow.core.events.events import EffectReplayed, Outcome
from agentflow.core.events.journal_rows import EffectRow, EffectState, effect_key
from agentflow.core.events.questions import Question
from agentflow.core.ports.ports import Tool
from agentflow.durable.decisions import JournalClock, JournalVerdict, mismatch
from agentflow.durable.deliveries import RunDeliveries
from agentflow.durable.held_events import HeldEvents
from agentflow.durable.run_records import Records
from agentflow.durable.values.codec import Codec, NotData, is_text, text_result, write_usage
from agentflow.durable.values.data_adapter import DataAdapter, adapter_of
from agentflow.durable.values.error_codec import NO_VALUE, bare_error
from agentflow.durable.values.record_values import (
    MARKS,
    SPAN,
    STATE,
    Request,
    as_data,
    counted,
    data_of,
    exchanges_of,
    fingerprint,
    from_data,
    marks_of,
    offsets_in,
    output_of,
    parts_of,
    quick_fingerprint,
    request_of,
    sources_in,
    with_marks,
    with_request,
    with_sources,
    with_span,
    without_below,
)
from agentflow.durable.waiting import answered, batched, rested, signalled, slept
from agentflow.lang.trace import annotate
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import holds_secret, redacted_json, redaction
from agentflow.lib.schema.json_types import left_out, without
from agentflow.run.strand.budget import Budget, Permits
from agentflow.run.strand.perform import EffectRunner

if TYPE_CHECKING:  # few runs have one
    from agentflow.core.call.inbox import Inbox, SaidText
    from agentflow.core.call.run_state import RunState
    from agentflow.core.data.batches import BatchedCall

_FIELDS = len(fields(Usage))


class Meter:
    """Adds up the cost of the model calls within an effect, without those that have records of their own."""

    __slots__ = ("_nanos", "_outer", "_unpriced", "_usage")

    def __init__(self, outer: Meter | None) -> None:
        self._outer = outer
        self._usage: list[int] | None = None
        self._nanos = 0
        self._unpriced = 0

    def add(self, usage: Usage, cost: float | None) -> None:
        """Count a model call; ``cost`` in US dollars, None if unknown. The surrounding effects count it themselves."""
        self._count(write_usage(usage), cost, 1)

    def charging(self, run: RunPort) -> Callable[..., None]:
        """A function that counts a model call here and charges ``run`` for it."""

        def charge_usage(usage: Usage, cost_usd: float | None, put_by: bool = False) -> None:
            self.add(usage, cost_usd)
            run.charge_usage(usage, cost_usd, put_by)

        return charge_usage

    def recorded(self, step: Meter) -> None:
        """Subtract the cost that ``step``, an effect within this one, has recorded itself."""
        self._count(step.usage, step.cost, -1)
        if self._outer is not None:
            self._outer.recorded(step)

    def _count(self, usage: Iterable[int] | None, cost: float | None, sign: int) -> None:
        if usage is not None:
            counted = self._usage = self._usage or [0] * _FIELDS
            for at, tokens in enumerate(usage):
                counted[at] += sign * tokens
        if cost is None:
            self._unpriced += sign
        else:
            self._nanos += sign * round(cost * NANO)

    @property
    def usage(self) -> tuple[int, ...] | None:
        """The tokens in the order of the fields of Usage; None if all are zero."""
        return tuple(self._usage) if self._usage is not None and any(self._usage) else None

    @property
    def cost(self) -> float | None:
        """The cost in USD; None if a price is unknown."""
        return None if self._unpriced else self._nanos / NANO


T = TypeVar("T")


class RunJournal:
    """The records of a run, seen from the run or from one recorded effect in it; a
    :class:`~agentflow.core.call.call.JournalPort`.

    ``program`` is the digest of the run's text, the reference of positions in records; records of other texts have the
    position of the form that runs these, ``outside``. ``at`` is the path of that effect, ``leaf`` its key and ``asked`` the
    digest of its content; ``meter`` counts its cost; ``opening`` returns its record while it is at work: these are None for
    the run itself. ``begun``: the opening was stored because the effect may not be repeated; ``held`` are its events held back.
    """

    __slots__ = (
        "asked",
        "at",
        "begun",
        "codec",
        "held",
        "meter",
        "opening",
        "outside",
        "program",
        "records",
        "redactor",
    )

    def __init__(
        self,
        records: Records,
        codec: Codec,
        redactor: Redactor | None = None,
        *,
        program: str | None = None,
        outside: list[int] | None = None,
        at: str | None = None,
        meter: Meter | None = None,
        asked: bytes | None = None,
        opening: Callable[[], EffectRow] | None = None,
        held: HeldEvents | None = None,
    ) -> None:
        self.held = held
        self.program = program
        self.outside = outside
        self.opening = opening
        self.begun = False
        self.records = records
        self.asked = asked
        self.codec = codec
        self.redactor = redactor
        self.at = at
        self.meter = meter

    dry = False
    """Whether effects are only answered from records and never carried out."""

    @property
    def leaf(self) -> bytes | None:
        """The key of the surrounding recorded effect; computed on demand, since most effects contain no records."""
        return None if self.at is None else effect_key(self.at)

    @property
    def suspending(self) -> bool:
        return self.records.suspending

    @property
    def slice(self) -> int:
        return self.records.run.slice

    @property
    def spent_s(self) -> float:
        return self.records.run.spent_s

    @property
    def usage(self) -> Usage:
        return self.records.usage

    @property
    def cost(self) -> float | None:
        return self.records.cost

    def watch(self, permits: Permits) -> None:
        """Take note of waits of the run that holds ``permits``."""
        self.records.parking.watch(permits)

    def site(self, span: Span | None) -> list[int] | None:
        """The position of an effect at ``span`` in the text of the run."""
        return offsets_in(self.program, span) or self.outside

    def within(self, call: CallContext) -> RunPort:
        site = None if self.outside is not None or self.at is not None else self.site(call.span)
        if site is None:
            return call.run
        journal = copy(self)
        journal.outside = site
        return view_of(call.run, journal=journal)

    def verdict(self, path: str, prefix: str, count: int, budget: object) -> JournalVerdict:
        permits = budget.permits if isinstance(budget, Budget) else None
        return JournalVerdict(self.records, path, prefix, count, UNRECORDED, self.leaf, permits)

    def clock(self, path: str, seconds: float) -> JournalClock:
        return JournalClock(self.records, path, seconds, self.leaf)

    def keep_until(self, timer: asyncio.TimerHandle) -> None:
        self.records.parking.keep_until(timer)

    def deliveries(self, call: CallContext) -> RunDeliveries:
        return self.records.deliveries()

    def elsewhere(self, rt: object, span: Span) -> Any:
        return self.records.elsewhere(self, rt, span)

    async def step(
        self,
        kind: str,
        name: str,
        content: Content | Callable[[], Content],
        call: CallContext,
        work: Callable[[], Awaitable[T]],
        *,
        write: Callable[[T], Any] | None = None,
        read: Callable[[Any], T] | None = None,
        gives: CompiledTask | None = None,
    ) -> T:
        """Do ``work``, or return its recorded result; see :meth:`~agentflow.core.call.call.JournalPort.step`."""
        if call.path == self.at:
            return await work()  # this effect is already being recorded
        parts = content() if callable(content) else content
        digest = fingerprint(kind, name, parts)
        row = await self.find(kind, name, digest, call, lambda: parts)
        adapter = None if gives is None else output_of(gives)
        if adapter is not None:
            write = partial(as_data, adapter)
        if row is None:
            marks = marks_of([*parts.values()])
            own = without_below(parts)
            asked = digest if own is parts else fingerprint(kind, name, own)
            value = await self.record(kind, name, digest, call, work, write=write, read=read, marks=marks, asked=asked)
        else:
            value = self.replayed(row, call)
            value = value if read is None else read(value)
        return value if adapter is None else await self.typed(value, adapter, f"the {kind} {name}", call)

    async def typed(self, outcome: Any, adapter: DataAdapter[Any] | None, what: str, call: CallContext) -> Any:
        """An outcome in its form before storage. One that no longer fits ends the run."""
        try:
            return from_data(adapter, outcome, what, call.path)
        except JournalError as error:
            await self.records.stop(error)

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
        """Do ``work``, which has no record yet, and record its outcome under ``digest``, the digest of its content, with the
        ``marks`` of its parts. ``asked`` is the digest of the parts that its own steps depend on, if fewer."""
        started, site, request = time.time(), self.site(call.span), request_of(call)
        opening = partial(self._opening, kind, name, digest, call, started, request)
        meter = Meter(self.meter)
        held = HeldEvents(self.records, call.run) if call.run.watched else None
        inner = self._within(
            program=self.program,
            outside=site,
            at=call.path,
            meter=meter,
            asked=asked or digest,
            opening=opening,
            held=held,
        )
        own: RunOverrides = {"journal": inner, "charge_usage": meter.charging(call.run)}
        if held is not None:
            own["publish"] = held.publish
        call.run = view_of(call.run, **own)
        session = call.session
        if "/~" in call.path:
            call.session = session.fork()  # concurrent work commits to the same session
        mark = call.session.mark()
        noted = len(shared.noted) if (shared := call.run.shared.state) is not None else 0
        value, failure = None, None
        try:
            value = await work()
        except Exception as error:
            if isinstance(error, UNRECORDED):
                self._lose(kind, name, inner, meter, cancelled=False)
                raise
            failure = annotate(error).at(call.span)
        except BaseException:  # cancelled or suspended: the effect has no outcome to record
            self._lose(kind, name, inner, meter)
            raise
        changes = call.session.changes_since(mark)
        try:
            done = await self._written(value, failure, changes, write)
        except asyncio.CancelledError:
            self._lose(kind, name, inner, meter)
            raise
        except NotData as what:  # it was carried out, and may not be again
            value, failure = None, _no_value(kind, name, what, failure).at(call.span)
            done = await self._written(None, failure, changes)
        if call.reading is not None:
            done = replace(done, data=with_sources(done.data, call.reading))
        if marks:
            done.data[MARKS] = marks  # a dict of this effect alone
        if (shared := call.run.shared.state) is not None and (changed := shared.within(call.path, noted)):
            done.data[STATE] = changed if self.redactor is None else redacted_json(changed, self.redactor)
        failed = failure is not None or (isinstance(value, TaskResult) and value.problem() is not None)
        row = self._ended(kind, name, digest, call, done, meter, started, site, request, failed=failed)
        await self._commit(row, meter, held)
        if row.turns is not None and (done.cleaned or call.session is not session):
            if call.session is session:
                session.go_back(
                    mark
                )  # the stored exchanges lack secrets, and later tasks must send the same as after a replay
            session.apply(self.codec.decode(row.turns))
        if done.same:
            return cast(T, value)
        outcome = await beside(done.much, self.outcome, row.value, call, failure)
        return outcome if read is None else read(outcome)

    def _within(self, **fields: Any) -> RunJournal:
        """The journal of an effect being recorded."""
        return RunJournal(self.records, self.codec, self.redactor, **fields)

    async def _written(
        self,
        value: T | None,
        failure: AgentflowError | None = None,
        changes: dict[str, Any] | None = None,
        write: Callable[[T], Any] | None = None,
    ) -> _Written:
        """The outcome of an effect and its exchanges as data without secrets. Raises NotData."""
        encode, redactor = self.codec.encode, self.redactor
        if failure is None and changes is None and write is None:
            quick = text_result(value)
            if quick is not None and (redactor is None or not redactor.finds(cast(TaskResult, value).content)):
                return _Written({"ok": quick}, same=True)
        much = (failure is None and holds_much(value)) or is_long(changes)
        if failure is not None:
            data: Any = {"error": self.codec.encode_error(failure)}
        else:
            outcome = cast(Any, value) if write is None else write(cast(T, value))
            data = {"ok": await asyncio.to_thread(encode, outcome) if much else encode(outcome)}
        turns = None if changes is None else counted(await beside(much, encode, changes))
        if redactor is None:
            return _Written(data, turns, much)
        if much:
            stored, kept = await in_slices(redaction(data, redactor)), await in_slices(redaction(turns, redactor))
        else:
            stored, kept = redacted_json(data, redactor), None if turns is None else redacted_json(turns, redactor)
        same = stored is data and failure is None and write is None and is_text(value)
        return _Written(stored, kept, much, kept is not turns, same)

    def template(self, template: Template) -> Template:
        overrides = self.records.overrides
        return template if overrides is None else overrides.of(template)

    async def begin(self, call: CallContext) -> bool:
        """Record that something which may not be repeated begins at ``call``, which makes the surrounding effect unrepeatable."""
        if self.opening is None or self.begun:
            return True
        self.begun = await self.records.begin(
            self.opening(),
            lambda: call.warn(
                "durable/in-flight", "it was at work when the run was interrupted, and is carried out again"
            ),
        )
        return self.begun

    async def recall(self, kind: str, name: str, content: Content, call: CallContext) -> Any:
        if self.records.ends_before(call.path):
            return None  # without a digest of the content, which nothing is compared with
        parts = self._part(content)
        row = await self.find(kind, name, fingerprint(kind, name, parts), call, lambda: parts)
        return None if row is None else self.replayed(row, call)

    async def keep(
        self,
        kind: str,
        name: str,
        content: Content,
        value: Any,
        call: CallContext,
        usage: Usage,
        cost: float | None,
        read: Sequence[SaidText] = (),
    ) -> Any:
        try:
            done = await self._written(value)
        except NotData as what:
            self._not_recorded(kind, name, what, call)
            return value
        meter = Meter(None)
        meter.add(usage, cost)
        parts, site = self._part(content), self.site(call.span)
        done = replace(done, data=with_marks(done.data, marks_of([*parts.values()])))
        digest, request = fingerprint(kind, name, parts), request_of(call)
        row = self._ended(kind, name, digest, call, done, meter, time.time(), site, request)
        try:
            await self._commit(
                row, meter, self.held, ends=False, also=self.records.inbox.read_rows(read) if read else ()
            )
        except asyncio.CancelledError:
            if read and not self.records.suspending and not self.records.keeps(row):
                self.records.inbox.unread_again(read)
            raise
        return await beside(done.much, self.outcome, row.value, call)

    def _part(self, content: Content) -> Content:
        """The parts of something within the surrounding effect, which is one of them."""
        return {**content, "the effect around it": None if self.asked is None else self.asked.hex()}

    def pin(self, kind: str, name: str, text: str | None, call: CallContext) -> str | None:
        """The text that was first recorded under this name; see :meth:`~agentflow.core.call.call.JournalPort.pin`."""
        if text is not None and self.redactor is not None and holds_secret((name, text), self.redactor):
            self._not_recorded(kind, name, NotData("a text with a secret"), call)
            return text
        return self.records.pin(kind, name, text)

    async def answer(
        self, question: Question, content: Content, call: CallContext, consult: Callable[[], Awaitable[Any]] | None
    ) -> Any:
        """The answer to ``question``; see :meth:`~agentflow.core.call.call.JournalPort.answer`."""
        return await answered(self, question, content, call, consult)

    async def rest(self, seconds: float, call: CallContext) -> None:
        await rested(self, seconds, call)

    async def signal(self, awaited: Question, content: Content, call: CallContext) -> Any:
        """The value of a signal; see :meth:`~agentflow.core.call.call.JournalPort.signal`."""
        return await signalled(self, awaited, content, call)

    def holds_secret(self, data: Any) -> bool:
        """Whether ``data`` has a secret, and may not be stored."""
        return self.redactor is not None and holds_secret(data, self.redactor)

    async def batched(
        self, asked: BatchedCall, content: Content, call: CallContext, reserved: Reservation | None
    ) -> Mapping[str, Any]:
        return await batched(self, asked, self._part(content), call, reserved)

    def is_put_by(self, call: CallContext) -> bool:
        row = self.records.find(call.path)
        return row is not None and "purse" in row.value

    async def close_hold(self, call: CallContext, usage: Usage | None = None, cost: float | None = None) -> None:
        row = self.records.find(call.path)
        if row is not None and "purse" in row.value:
            await self.records.close_hold(row.value, usage, cost)

    async def inbox(self) -> Inbox | None:
        return await self.records.looked_into()

    def state_changed(self, state: RunState) -> None:
        """Store the state of the run soon, without the secrets in it."""
        redactor = self.redactor
        self.records.state_changed(state.plain if redactor is None else lambda: redacted_json(state.plain(), redactor))

    async def find(
        self,
        kind: str,
        name: str,
        digest: bytes,
        call: CallContext,
        parts: Callable[[], Mapping[str, Any]] | None = None,
    ) -> EffectRow | None:
        """The record of the effect at ``call``; None if it may be carried out. ``parts`` gives those of its content."""
        row = self.records.find(call.path)
        if row is None and self.records.pool is not None:
            row = await self.records.adopt(call.path, digest, self.leaf, self.site(call.span), request_of(call))
        if row is None or row.state == EffectState.OPEN:
            if self.records.stops:
                budget = call.run.budget
                await self.records.reach(call.path, budget.permits if isinstance(budget, Budget) else None)
            return await self.records.take_kept(call.path, digest, self.leaf)
        if row.content != digest:
            await self.records.stop(mismatch(row, f"{kind} {name}", None if parts is None else parts()))
        return row

    def replayed(self, row: EffectRow, call: CallContext) -> Any:
        """The outcome of the effect at ``call`` from its record ``row``."""
        self.records.replayed += 1
        if call.reading is not None:
            sources = sources_in(row)
            call.reading.add(UNKNOWN if sources is None else sources)
        if row.turns is not None:
            self._take_turns(row.turns, call.session)
        if STATE in row.value:
            self.take_state(row.value, call)
        if call.run.watched:
            outcome: Outcome = "ok" if row.state == EffectState.OK else "failed" if "ok" in row.value else "error"
            call.emit(EffectReplayed, kind=row.kind, name=row.name, outcome=outcome)
        return self.outcome(row.value, call)

    def take_state(self, data: Mapping[str, Any], call: CallContext) -> None:
        """Make the changes of the run's state in a record again."""
        from agentflow.core.call.run_state import state_of  # few runs have one

        state_of(call).replay(call.path, data[STATE])

    def _take_turns(self, stored: Any, session: Session) -> None:
        """Add the exchanges of a recorded effect to the conversation.

        They stay encoded until read: most are never read again, and thousands of decoded ones would fill the memory.
        """
        count = exchanges_of(stored)
        if count is None:
            session.apply(self.codec.decode(data_of(stored)))
            return
        for number in range(count):
            session.add_unread(Unread(partial(self._exchange, stored, number)))

    def _exchange(self, stored: Any, number: int) -> list[Any]:
        return self.codec.decode(data_of(stored)["turns"][number])

    def clean(self, text: str) -> str:
        """``text`` without the secrets in it."""
        return text if self.redactor is None else self.redactor.redact(text)

    def row(
        self, kind: str, name: str, digest: bytes, call: CallContext, data: Any, meter: Meter | None, started: float
    ) -> EffectRow:
        """A record that has ended with ``data``, without the secrets in it."""
        clean = data if self.redactor is None else redacted_json(data, self.redactor)
        site, request = self.site(call.span), request_of(call)
        return self._ended(kind, name, digest, call, _Written(clean), meter, started, site, request)

    def _ended(
        self,
        kind: str,
        name: str,
        digest: bytes,
        call: CallContext,
        done: _Written,
        meter: Meter | None,
        started: float,
        site: list[int] | None,
        request: Request | None,
        *,
        failed: bool = False,
    ) -> EffectRow:
        return EffectRow(
            path=call.path,
            kind=kind,
            name=self.clean(name),
            content=digest,
            state=EffectState.FAILED if failed else EffectState.OK,
            leaf=self.leaf,
            value=with_request(done.data if site is None else {**done.data, SPAN: site}, request),
            turns=done.turns,
            usage=None if meter is None else meter.usage,
            cost=0.0 if meter is None else meter.cost,
            started=started,
            ended=time.time(),
        )

    async def _commit(
        self,
        row: EffectRow,
        meter: Meter,
        held: HeldEvents | None,
        *,
        ends: bool = True,
        also: Sequence[EffectRow] = (),
    ) -> None:
        if self.meter is not None:
            self.meter.recorded(meter)
        try:
            await self.records.commit(row, keeps=True, also=also)
        except asyncio.CancelledError:
            if held is not None:
                held.release(None if self.records.keeps(row) else self._unfinished(cancelled=True), ends=ends)
            raise
        if held is not None:
            held.release(ends=ends)

    def _unfinished(self, *, cancelled: bool) -> Outcome:
        return "suspended" if self.suspending else "cancelled" if cancelled else "error"

    def outcome(self, data: Mapping[str, Any], call: CallContext, original: AgentflowError | None = None) -> Any:
        """The outcome of an effect, decoded from its record even on the first execution, so that a replay cannot differ."""
        source = call.span.source if call.span is not None else None
        if "ok" in data:
            return self.codec.decode(data["ok"], source)
        error = self.codec.decode_error(data["error"], source).at(call.span)
        error.__context__ = original
        raise error

    def _not_recorded(self, kind: str, name: str, what: NotData, call: CallContext) -> None:
        call.warn(
            "durable/not-recorded",
            f"the result of the {kind} {name} cannot be stored: {what}; it is carried out again when the run is resumed",
            kind=kind,
            name=name,
        )

    def _opening(
        self, kind: str, name: str, digest: bytes, call: CallContext, started: float, request: Request | None
    ) -> EffectRow:
        return EffectRow(
            path=call.path,
            kind=kind,
            name=self.clean(name),
            content=digest,
            state=EffectState.OPEN,
            leaf=self.leaf,
            value=with_request(with_span(None, self.site(call.span)), request),
            started=started,
        )

    def _lose(self, kind: str, name: str, inner: RunJournal, meter: Meter, *, cancelled: bool = True) -> None:
        """Record the cost of an effect that ended without a recordable outcome, and that it has stopped working."""
        if inner.held is not None:
            inner.held.release(self._unfinished(cancelled=cancelled))
        usage, path = meter.usage, cast(str, inner.at)
        drop = [effect_key(path)] if inner.begun and not self.records.suspending else []
        if usage is not None or drop:
            lost = [] if usage is None else [self.records.lost_row(path, kind, self.clean(name), usage, meter.cost)]
            self.records.commit_soon(lost, drop)
        if usage is not None and self.meter is not None:
            self.meter.recorded(meter)


def _no_value(kind: str, name: str, what: NotData, failure: AgentflowError | None) -> AgentflowError:
    """The failure of an effect that was carried out but has an outcome other than data."""
    if failure is not None:
        return bare_error(failure)
    return DataError(
        f"the {kind} {name} was carried out, and its result cannot be stored: {what}",
        code=NO_VALUE,
        hint="return data, or annotate the return value with a type that pydantic writes and reads; agentflow runs fork RUN --at"
        " PATH carries it out again",
    )


@frozen
class _Written:
    """The outcome of an effect, and the exchanges (``turns``) it added to the conversation, as they are stored.

    ``much``: reading them would block the loop; ``cleaned``: secrets were removed from the exchanges; ``same``: the value
    read back equals the outcome.
    """

    data: Any
    turns: Any = None
    much: bool = False
    cleaned: bool = False
    same: bool = False


def holds_much(value: object) -> bool:
    """Whether encoding or decoding ``value``, an outcome or the content of an effect, would block the loop."""
    if isinstance(value, TaskResult):
        return len(value.content) > LONG_TEXT or (value.parsed_content is not None and is_long(value.parsed_content))
    return is_long(value)


async def beside(much: bool, work: Callable[..., T], *arguments: Any) -> T:
    """The result of ``work(*arguments)``, computed in a thread if ``much`` is true."""
    return await asyncio.to_thread(work, *arguments) if much else work(*arguments)


class Journaled:
    """An :class:`~agentflow.run.strand.strand.EffectHandler` that answers from the run's records, or passes on to ``runner``.

    It keeps the digests of tools' parameters, by name.
    """

    def __init__(self, runner: EffectRunner) -> None:
        self.runner = runner
        self.names = runner.names
        self._digests: dict[str, tuple[Tool, dict[tuple[str, ...], str]]] = {}

    async def perform(self, effect: Effect, call: CallContext) -> Any:
        """Carry out an effect, or answer it from its record."""
        journal = call.run.journal
        if not isinstance(journal, RunJournal):
            return await self.runner.perform(effect, call)
        asked = effect.asked
        if asked is None:
            if type(effect) is Timer:
                return await slept(journal, effect, call)
            if journal.dry and isinstance(effect, LogMessage):
                return effect.text
            return await self.runner.perform(effect, call)
        kind, name, arguments = asked
        definition = self._definition(effect, call)
        digest = quick_fingerprint(kind, name, arguments, definition)
        if digest is None:
            digest = await beside(is_long(arguments), fingerprint, kind, name, arguments, definition)
        row = await journal.find(kind, name, digest, call, lambda: parts_of(arguments, definition))
        if row is None:
            adapter = self._output_of(effect, call)
            write = None if adapter is None else partial(as_data, adapter)
            work = partial(self.runner.perform, effect, call)
            marks, own = marks_of(arguments, definition), without_below(definition)
            asked = digest if own is definition else fingerprint(kind, name, arguments, own)
            result = await journal.record(kind, name, digest, call, work, write=write, marks=marks, asked=asked)
            return result if adapter is None else await journal.typed(result, adapter, f"the {kind} {name}", call)
        if call.reading is not None:
            sources = sources_in(row)
            if sources is not None:
                call.reading.say(sources, alone=True)
        result = journal.replayed(row, call)
        if not isinstance(result, TaskResult) or result.parsed_content is not None:
            result = await journal.typed(result, self._output_of(effect, call), f"the {kind} {name}", call)
        if call.steps is not None:
            call.steps.append((name, result, call.grants))  # as perform does: later steps may read it
        return result

    def _definition(self, effect: Effect, call: CallContext) -> Any:
        """The content, beyond its arguments, that identifies an effect at ``call``: template, model and history of a task,
        parameters of a tool."""
        if isinstance(effect, TaskCall):
            template = self.runner.tasks.find_compiled(effect.name, call.definitions)
            if template is not None:
                try:
                    request = self.runner.request_from_arguments(template.template, effect.arguments)
                except AgentflowError:
                    return template.fields  # the call fails with the same error every time
                return self.runner.tasks.content(template, request, call)
        if isinstance(effect, TaskCall | CallTool):
            tool = self.runner.tools.find(effect.name, call)
            return None if tool is None else self._digest(tool, effect.arguments)
        return None

    def _output_of(self, effect: Effect, call: CallContext) -> DataAdapter[Any] | None:
        """The adapter for the annotated value of an effect; None for plain data.

        Raises ConfigurationError for values that cannot be stored (``durable/no-value``, ``durable/secret``).
        """
        match effect:
            case TaskCall():
                gives = self.runner.tasks.find_compiled(effect.name, call.definitions) or self.runner.tools.find(
                    effect.name, call
                )
                return None if gives is None else output_of(gives)
            case CallTool():
                tool = self.runner.tools.find(effect.name, call)
                return None if tool is None else output_of(tool)
            case Step():
                return adapter_of(effect.declared or effect.function, f"the step {effect.name}", checks=True)
            case HostCall():
                return adapter_of(effect.function, effect.name or "the host function", checks=False)
            case _:
                return None

    def _digest(self, tool: Tool, arguments: Mapping[str, Any]) -> str:
        """A digest of the parameters that a call of a tool depends on, computed once: those that it must be given, and those that
        it is given. A parameter more that may be left out is nothing to a call that leaves it out."""
        schema = tool.spec.input_schema
        cached = self._digests.get(tool.name)
        if cached is None or cached[0] is not tool:
            cached = self._digests[tool.name] = (tool, {})
        absent = left_out(schema, arguments)
        digest = cached[1].get(absent)
        if digest is None:
            version = () if tool.version is None else (tool.version,)
            digest = cached[1][absent] = fingerprint("tool", without(schema, absent), *version).hex()
        return digest
