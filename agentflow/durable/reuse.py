"""Reuses results of tasks and tools across runs: of those declared with, for example, ``reuse="1d"``.

Results are identified by content, as records are. Of several equal calls at the same time in this flow one is carried out
and the others get its result; other processes see it once it is stored.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from agentflow.core.call.call import CallContext, view_of
from agentflow.core.data.durations import seconds_of
from agentflow.core.data.errors import JournalError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import CompiledTask
from agentflow.core.data.labels import bare, box, outer_sources
from agentflow.core.data.results import TaskResult
from agentflow.core.events.events import EffectReplayed
from agentflow.core.events.journal_rows import StoredResult
from agentflow.core.ports.ports import Tool
from agentflow.core.ports.store_ports import ResultStore
from agentflow.durable.journal import Meter, RunJournal
from agentflow.durable.samples import IN_BATCHES, SampleRecords, code_of
from agentflow.durable.stored_input import draw_here
from agentflow.durable.values.codec import Codec, NotData, read_usage
from agentflow.durable.values.data_adapter import DataAdapter
from agentflow.durable.values.record_values import as_data, fingerprint, from_data, output_of
from agentflow.lib.redact import Redactor
from agentflow.lib.redacted_copy import redacted_json
from agentflow.run.strand.budget import Budget, without_permit

T = TypeVar("T", bound=TaskResult)


class Reuse:
    """The :class:`~agentflow.core.ports.store_ports.ReusePort` of a flow. ``redactor`` removes secrets from the stored data."""

    def __init__(self, store: ResultStore, redactor: Redactor | None = None) -> None:
        self._store = store
        self._redactor = redactor
        self._codec = Codec(following=lambda: True)
        self._flights: dict[tuple[int, bytes], _Flight] = {}

    async def once(
        self,
        gives: Tool | CompiledTask,
        content: object,
        reuse: str,
        call: CallContext,
        work: Callable[[], Awaitable[T]],
    ) -> T:
        """The result of ``work``, or of an equal call at most ``reuse`` old, for example ``"1d"``.

        ``gives`` is the called task or tool. Raises ConfigurationError for one with values that cannot be stored
        (``durable/no-value``, ``durable/secret``).
        """
        apart = _apart(call)
        oldest = _oldest(gives, call)
        asked = _Asked("tool" if isinstance(gives, Tool) else "task", gives.name, output_of(gives), call, oldest)
        if isinstance(gives, Tool) or asked.sample is None:
            draw = [] if asked.draw == 0 else [asked.draw]
            digest = fingerprint("reuse", asked.kind, asked.name, content, *draw, *apart)
        else:  # another key: the stored result has the tool calls too, which scorers ask for
            code = code_of(gives, call)
            digest = fingerprint("sample", asked.name, content, asked.sample.draw, code, asked.draw, *apart)
            if asked.sample.is_dry:
                return await self._dry(asked, asked.sample, digest, reuse)
        key = (id(asyncio.get_running_loop()), digest)
        while (flight := self._flights.get(key)) is not None:
            if any([each.contains(call) for each in self._flights.values()]):
                return await self._result(None, asked, digest, reuse, work)  # it would wait for itself
            budget = call.run.budget
            async with without_permit(budget.permits if isinstance(budget, Budget) else None):
                await flight.ended.wait()
            if flight.result is not None and (answer := self._answer(flight.result, asked)) is not None:
                return cast(T, answer)
        flight = self._flights[key] = _Flight(call)
        try:
            return await self._result(flight, asked, digest, reuse, work)
        finally:
            del self._flights[key]
            flight.ended.set()

    async def _dry(self, asked: _Asked, sample: SampleRecords, digest: bytes, reuse: str) -> Any:
        """The stored result. Raises the error of the sample where there is none."""
        stored = await self._store.find(digest, max(asked.oldest, time.time() - seconds_of(reuse)))
        answer = None if stored is None else self._answer(stored, asked)
        if answer is None:
            raise sample.missing(asked.call.path, digest)
        return answer

    async def _result(
        self,
        flight: _Flight | None,
        asked: _Asked,
        digest: bytes,
        reuse: str,
        work: Callable[[], Awaitable[T]],
    ) -> T:
        stored = await self._store.find(digest, max(asked.oldest, time.time() - seconds_of(reuse)))
        answer = None if stored is None else self._answer(stored, asked)
        if answer is None:
            value, stored = await self._carry_out(asked, work)
            if stored is None:
                return value
            await self._store.keep(digest, stored)
            answer = self._read(stored, asked)
        if flight is not None:
            flight.result = stored
        return answer

    async def _carry_out(self, asked: _Asked, work: Callable[[], Awaitable[T]]) -> tuple[T, StoredResult | None]:
        """The result of ``work``, and its stored form: None for a failure, or for a result other than data."""
        call, name = asked.call, asked.name
        meter = Meter(None)
        call.run = view_of(call.run, charge_usage=meter.charging(call.run))
        session = call.session
        if "/~" in call.path:
            call.session = session.fork()  # concurrent work commits to the same session
        mark = call.session.mark()
        value = await work()
        changes = call.session.changes_since(mark)
        if changes is not None and call.session is not session:
            session.apply(changes)
        if value.status != "COMPLETE" or value.problem() is not None or value.notes.ending is not None:
            return value, None
        try:
            outcome = value if asked.adapter is None else as_data(asked.adapter, value)
            labelled = outcome if call.reading is None else box(outcome, call.reading.given())
            data, turns = self._codec.encode(labelled), None if changes is None else self._codec.encode(changes)
        except NotData:
            return value, None
        if asked.sample is not None:
            data = {"value": data, "calls": asked.sample.calls_below(call.path)}
            if asked.sample.batched_below(call.path):
                data[IN_BATCHES] = True
        if self._redactor is not None:
            data, turns = redacted_json(data, self._redactor), redacted_json(turns, self._redactor)
            name = self._redactor.redact(name)
        usage, cost = meter.usage, meter.cost
        return value, StoredResult(
            kind=asked.kind, name=name, value=data, turns=turns, usage=usage, cost=cost, at=time.time()
        )

    def _answer(self, stored: StoredResult, asked: _Asked) -> Any:
        """A stored result as that of this call; None for one that the class of its value takes no more."""
        call, usage = asked.call, read_usage(stored.usage)
        try:
            answer = self._read(stored, asked)
        except JournalError:
            return None
        if stored.turns is not None:
            call.session.apply(self._codec.decode(stored.turns))
        journal = call.run.journal
        if isinstance(journal, RunJournal):
            journal.records.replayed += 1
            journal.records.saved(usage, stored.cost)
        if asked.sample is not None:
            asked.sample.answer(call.path, stored)
        if call.run.watched:
            call.emit(
                EffectReplayed,
                kind=stored.kind,
                name=stored.name,
                outcome="ok",
                origin="reuse",
                usage=usage,
                cost_usd=stored.cost,
            )
        return answer

    def _read(self, stored: StoredResult, asked: _Asked) -> Any:
        """A stored result; the call has read where it came from. Raises JournalError (``durable/mismatch``)."""
        data = stored.value if asked.sample is None else stored.value["value"]
        value, call = self._codec.decode(data), asked.call
        if call.reading is not None:
            call.reading.add(outer_sources(value))
        return from_data(asked.adapter, bare(value), f"the {asked.kind} {asked.name}", call.path)


@frozen
class _Asked:
    """The call of a task or tool: its name, the adapter of its values, and the time, in seconds since 1970, of the oldest usable
    result, no matter its own maximum age."""

    kind: str
    name: str
    adapter: DataAdapter[Any] | None
    call: CallContext
    oldest: float = 0.0

    @property
    def draw(self) -> int:
        """The current draw: tools have one answer for all."""
        return 0 if self.kind == "tool" else draw_here()

    @property
    def sample(self) -> SampleRecords | None:
        """The records of the sample that the task is called in; None for a tool, and outside of evaluations."""
        return None if self.kind == "tool" else _sample_of(self.call)


def _sample_of(call: CallContext) -> SampleRecords | None:
    records = getattr(call.run.journal, "records", None)
    return records if isinstance(records, SampleRecords) else None


def _oldest(gives: Tool | CompiledTask, call: CallContext) -> float:
    sample = _sample_of(call)
    return 0.0 if sample is None else sample.oldest(gives, call)


def _apart(call: CallContext) -> list[list[str]]:
    """The parts of an identity that separate equal calls under a strict policy: the sources that a call depends on.

    Whether there is a result to reuse depends on whether an earlier call was made. So the later call has to depend on all sources of the earlier one.
    """
    reading = call.reading
    if reading is None or reading.guard.following != "strict" or not reading.sources:
        return []
    return [sorted(reading.sources)]


class _Flight:
    """A call in progress with equal calls waiting for it. ``result`` is its result if reusable."""

    def __init__(self, call: CallContext) -> None:
        self.ended = asyncio.Event()
        self.result: StoredResult | None = None
        self._run_id = call.run_id
        self._path = f"{call.path}/"

    def contains(self, call: CallContext) -> bool:
        """Whether ``call`` is part of this call in progress."""
        return call.run_id == self._run_id and call.path.startswith(self._path)
