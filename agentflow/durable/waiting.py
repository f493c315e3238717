"""The waits of durable runs, as records: for answers and for times.

A wait has an open record from its beginning. An answer ends the record, in any process; a time is
stored as an absolute time. So a resumed run neither asks nor waits a second time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from agentflow.core.call.call import CallContext
from agentflow.core.call.journal_port import Content
from agentflow.core.call.spending import Reservation
from agentflow.core.data.values import plain
from agentflow.core.events.effects import Timer
from agentflow.core.events.events import WaitStarted
from agentflow.core.events.journal_rows import BATCH, EffectRow, EffectState, effect_key
from agentflow.core.events.questions import Question
from agentflow.durable.decisions import mismatch
from agentflow.durable.run_records import CLEANUP, PARKED_S, Records, own_key_in
from agentflow.durable.values.codec import Codec
from agentflow.durable.values.record_values import STATE, fingerprint, marks_of, with_marks
from agentflow.run.questions import fitting_signal, permits_of, unanswered, waiting

if TYPE_CHECKING:  # few runs have batches
    from agentflow.core.data.batches import BatchedCall


class WaitRecords(Protocol):
    """The parts of a run's records that waits need: a :class:`~agentflow.durable.journal.RunJournal`."""

    @property
    def records(self) -> Records: ...
    @property
    def codec(self) -> Codec: ...

    async def find(
        self, kind: str, name: str, digest: bytes, call: CallContext, parts: Callable[[], Content] | None = None
    ) -> EffectRow | None: ...
    def replayed(self, row: EffectRow, call: CallContext) -> Any: ...
    def outcome(self, data: Mapping[str, Any], call: CallContext) -> Any: ...
    def take_state(self, data: Mapping[str, Any], call: CallContext) -> None: ...
    def state_changed(self, state: Any) -> None: ...
    def clean(self, text: str) -> str: ...
    def holds_secret(self, data: Any) -> bool: ...
    def row(
        self, kind: str, name: str, digest: bytes, call: CallContext, data: Any, meter: None, started: float
    ) -> EffectRow: ...


async def answered(
    journal: WaitRecords,
    question: Question,
    content: Content,
    call: CallContext,
    consult: Callable[[], Awaitable[Any]] | None,
) -> Any:
    """The answer to ``question``: from its record, from ``consult``, or from ``flow.send``. A question is never asked twice.

    ``content`` is the part of the question that identifies its record.
    """
    name, records = journal.clean(question.question)[:80], journal.records
    try:
        row = await _begin(journal, question.reason, name, content, call)
        if row is not None and row.state != EffectState.OPEN:
            return journal.replayed(row, call)
        if consult is not None:
            data = {**_asked(question), "ok": journal.codec.encode(await consult())}
            ended = _row(journal, question.reason, name, content, call, EffectState.OK, data)
            await records.commit(ended)
            return journal.outcome(ended.value, call)
        if CLEANUP in call.path:
            return unanswered(question, call)
        if row is None:
            await records.commit(
                _row(journal, question.reason, name, content, call, EffectState.OPEN, _asked(question))
            )
        else:
            question = _asked_before(question, row)
        with waiting(question, call):  # not before: who sees the event may answer at once
            data = await records.parking.wait(call, permits_of(call), question=question)
            if STATE in data:
                from agentflow.core.call.run_state import state_of  # few runs have one

                journal.take_state(data, call)
                journal.state_changed(state_of(call))
            return journal.outcome(data, call)
    except asyncio.CancelledError:
        if not records.suspending:
            records.commit_soon([], drop=[effect_key(call.path)])  # the question is withdrawn
        raise


async def signalled(journal: WaitRecords, awaited: Question, content: Content, call: CallContext) -> Any:
    """The value of the signal that ``awaited`` describes: from its record, or the next one that comes, which may have come before.

    ``content`` is the part of it that identifies its record.
    """
    name, records, inbox = awaited.signal or "", journal.records, journal.records.inbox
    row = await _begin(journal, "signal", journal.clean(name), content, call)
    if row is not None and row.state != EffectState.OPEN:
        return journal.replayed(row, call)
    if CLEANUP in call.path:
        return unanswered(awaited, call)
    sent, is_waiting = None, False
    try:
        if row is None:
            row = _row(journal, "signal", name, content, call, EffectState.OPEN, _asked(awaited))
            await records.commit(row)
        else:
            awaited = _asked_before(awaited, row)
        await inbox.refresh()
        with ExitStack() as waits:
            while (sent := fitting_signal(inbox, awaited, call)) is None:
                if not is_waiting:
                    is_waiting = True
                    waits.enter_context(inbox.waiting(name, call.path))
                    waits.enter_context(waiting(awaited, call))
                await records.parking.wait(call, permits_of(call), question=awaited)
        data = {**_asked(awaited), "ok": sent.value}
        ended = _row(journal, "signal", name, content, call, EffectState.OK, data, row.started)
        await records.commit(ended, also=inbox.read_rows([sent]))
        return journal.outcome(ended.value, call)
    except asyncio.CancelledError:
        if not records.suspending:
            if sent is None:
                records.commit_soon([], drop=[effect_key(call.path)])  # nothing waits any more
            else:
                inbox.unread_again([sent])
        raise


async def batched(
    journal: WaitRecords, asked: BatchedCall, content: Content, call: CallContext, reserved: Reservation | None
) -> Mapping[str, Any]:
    """The answer to a model call in a batch: from its record, or from the process that gathers batches. Nothing is asked twice.

    The purse's part of ``reserved`` is set aside before the record is made. A call without its record is not sent any more.
    """
    records = journal.records
    row = await _begin(journal, BATCH, asked.model, content, call)
    if row is not None and row.state != EffectState.OPEN:
        return cast("Mapping[str, Any]", journal.replayed(row, call))
    if journal.holds_secret(asked.body):
        return {"fallback": "its request has a secret, which is not stored"}
    if CLEANUP in call.path:
        return {"fallback": "a clean-up has no time to wait"}
    try:
        if row is None:
            data = await records.new_batched(reserved)
            row = _row(journal, BATCH, asked.model, content, call, EffectState.OPEN, data)
            await records.commit(row)
        purse, period = row.value.get("purse", ("", 0.0))
        asked = replace(asked, id=row.value["id"], run=records.run.run, key=row.key, purse=purse, period=period)
        data = await records.in_batch(asked, call)
        return cast("Mapping[str, Any]", journal.outcome(data, call))
    except asyncio.CancelledError:
        if not records.suspending:
            records.commit_soon([], drop=[effect_key(call.path)])  # its answer is wanted no more
        raise


async def slept(journal: WaitRecords, effect: Timer, call: CallContext) -> list[Any]:
    """Wait until the end of ``effect``, counted from its first beginning in any process."""
    content = {"the time": effect.seconds, "whether it varies": effect.jitter}
    row = await _begin(journal, "timer", "", content, call)
    if row is not None and row.state != EffectState.OPEN:
        return journal.replayed(row, call)
    records = journal.records
    if row is None:
        due = time.time() + (random.uniform(0, effect.seconds) if effect.jitter else effect.seconds)
        row = _row(journal, "timer", "", content, call, EffectState.OPEN, {"due": due})
        if effect.seconds:
            records.commit_soon([row])
    due = float(row.value["due"])
    left = due - time.time()
    if left > PARKED_S and CLEANUP not in call.path:
        with call.scope(WaitStarted, call.path, reason="timer"):
            await records.parking.wait(call, permits_of(call), due=due)
    elif left > 0:
        await asyncio.sleep(left)
    await records.commit(_row(journal, "timer", "", content, call, EffectState.OK, {"ok": []}, row.started))
    return []


async def rested(journal: WaitRecords, seconds: float, call: CallContext) -> None:
    """Wait for ``seconds`` without a record; see :meth:`~agentflow.core.call.call.JournalPort.rest`."""
    records, permits = journal.records, permits_of(call)
    if records.cancelling:
        await records.reach(call.path, permits)
    if seconds > PARKED_S and CLEANUP not in call.path:
        with call.scope(WaitStarted, call.path, reason="timer"):
            await records.parking.wait(call, permits, due=time.time() + seconds)
    else:
        await records.parking.wait(call, permits, due=time.time() + seconds)


async def _begin(journal: WaitRecords, kind: str, name: str, content: Content, call: CallContext) -> EffectRow | None:
    """The record of a wait, which may be open; None if it begins now. Stops the run if the record does not fit."""
    digest = fingerprint(kind, content)
    row = await journal.find(kind, name, digest, call, lambda: content)
    if row is None:
        row = journal.records.find(call.path)
        if row is not None and row.content != digest:
            await journal.records.stop(mismatch(row, f"{kind} {name}", content))
    if row is None and journal.records.may_be_left(call.path):
        journal.records.commit_soon([], drop=[effect_key(call.path)])
    return row


def _row(
    journal: WaitRecords,
    kind: str,
    name: str,
    content: Content,
    call: CallContext,
    state: EffectState,
    data: Any,
    started: float | None = None,
) -> EffectRow:
    row = journal.row(
        kind,
        name,
        fingerprint(kind, content),
        call,
        with_marks(data, marks_of([*content.values()])),
        None,
        started or time.time(),
    )
    return row if state == EffectState.OK else replace(row, state=state, ended=None)


def _asked_before(question: Question, row: EffectRow) -> Question:
    """The question with the key that it had when it was asked, whichever policy was in force then."""
    own_key = own_key_in(row)
    return question if question.own_key == own_key else replace(question, own_key=own_key)


def _asked(question: Question) -> dict[str, Any]:
    calls = {"external": question.external, "call": question.call, "limit": question.limit, "signal": question.signal}
    return {
        "question": question.question,
        "schema": question.schema,
        **{name: plain(each) for name, each in calls.items() if each is not None},
    }
