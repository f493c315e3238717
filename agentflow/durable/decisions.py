"""Decisions that depend on timing, recorded before anything depends on them: which branch settles a form, and whether its
time limit expired.

When a run is resumed, branches that lost run again as far as their records go and wait there to be cancelled, so that they
clean up as they did; so does the body of a form with an expired time limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from functools import partial
from types import TracebackType
from typing import Any

from agentflow.core.data.errors import JournalError
from agentflow.core.events.journal_rows import EffectRow, EffectState
from agentflow.durable.run_records import Records, wait_for_end
from agentflow.durable.values.record_values import differing, fingerprint, marks_in
from agentflow.run.strand.budget import Permits, without_permit

ARRIVAL_S = 5.0
"""Seconds that the settling branch of a replayed form waits until the others have reached their clean-up."""


class JournalVerdict:
    """The :class:`~agentflow.core.call.call.Verdict` of one form."""

    def __init__(
        self,
        records: Records,
        path: str,
        prefix: str,
        count: int,
        unrecorded: tuple[type[Exception], ...],
        leaf: bytes | None,
        permits: Permits | None,
    ) -> None:
        self._records = records
        self._path = path
        self._permits = permits
        self._unrecorded = unrecorded
        self._leaf = leaf
        self._content = fingerprint("decision", count)
        self._row = records.find(path)
        self._claimed = False
        self._stored = asyncio.Event()
        self._recorded: int | None = None
        self._started: set[int] = set()
        self._losers: list[str] = []
        self._absent: set[int] = set()
        self._arrived = asyncio.Event()
        if self._row is not None and self._row.content == self._content:
            self._recorded = int(self._row.value["index"])
            self._started = set(self._row.value["started"])
            self._absent = self._started - {self._recorded}
            for index in self._absent:
                self._losers.append(f"{prefix}{index}")
                records.close_gate(self._losers[-1], partial(self._arrive, index))

    async def begins(self, index: int) -> None:
        if self._recorded is None and not self._claimed:
            self._started.add(index)
        elif index not in self._started:  # also while the decision is being stored
            async with without_permit(self._permits):
                await wait_for_end()

    def _arrive(self, index: int) -> bool:
        """Note that a branch that lost has reached the point of its cancellation."""
        self._absent.discard(index)
        if not self._absent:
            self._arrived.set()
        return True

    async def settles(self, index: int, error: Exception | None) -> bool:
        """Whether branch ``index`` settles the form; recorded when this returns true."""
        await self._check()
        if self._recorded is not None:
            if index != self._recorded:
                self._arrive(index)
                return False
            if self._absent:
                async with without_permit(self._permits):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ARRIVAL_S):
                            await self._arrived.wait()
            for loser in self._losers:
                self._records.open_gate(loser)
            return True
        if self._claimed:
            await self._stored.wait()  # another branch settles the form, and cancels this one once recorded
            return False  # it was cancelled before, and has caught that
        if isinstance(error, self._unrecorded):
            return True
        self._claimed = True
        row = EffectRow(
            path=self._path,
            kind="decision",
            name="",
            content=self._content,
            state=EffectState.OK if error is None else EffectState.FAILED,
            leaf=self._leaf,
            value={"index": index, "started": sorted(self._started)},
            started=time.time(),
            ended=time.time(),
        )
        try:
            await self._records.commit(row)
        finally:
            self._stored.set()
        return True

    async def ends(self, index: int) -> None:
        """Note that branch ``index`` has ended without settling the form. The recorded winner cannot do that."""
        await self._check()
        self._arrive(index)
        if self._recorded == index:
            assert self._row is not None
            await self._records.stop(mismatch(self._row, "a branch that ends otherwise"))

    async def _check(self) -> None:
        if self._row is not None and self._recorded is None:
            await self._records.stop(mismatch(self._row, "a form with another number of branches"))


class JournalClock:
    """The :class:`~agentflow.core.call.call.Clock` of one form.

    When it starts, the time of day of its end is recorded. After an interruption the body is replayed without a time-out;
    the rest of the time counts from the first effect without a record.
    """

    def __init__(self, records: Records, path: str, seconds: float, leaf: bytes | None) -> None:
        self._records = records
        self._path = path
        self._seconds = seconds
        self._leaf = leaf
        self._content = fingerprint("timeout", seconds)
        self._timer = asyncio.timeout(None)
        self._elapsed = False
        self._due = 0.0
        self._started = time.time()

    async def __aenter__(self) -> JournalClock:
        records = self._records
        row = records.find(self._path)
        if row is not None and row.content != self._content:
            await records.stop(mismatch(row, f"a time-out of {self._seconds:g} s"))
        await self._timer.__aenter__()
        if row is None:
            self._due = self._started + self._seconds
            records.commit_soon([self._row(EffectState.OPEN)])
            self._expire_in(self._seconds)
            return self
        self._due, self._started = float(row.value), row.started or 0.0
        if row.state == EffectState.FAILED:
            self._elapsed = True
            records.close_gate(self._path, self._expire)
        elif not records.follows(self._path):
            self._expire_in(self._seconds)
            records.close_gate(self._path, self._go_on)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._records.open_gate(self._path)
        self._records.parking.deadlines.pop(self._path, None)
        if self._elapsed:
            await self._end(kind, error, trace)
            if error is None or isinstance(error, Exception):
                raise TimeoutError  # all effects of its body are recorded, and its time was up
            return None
        try:
            return await self._end(kind, error, trace)
        except TimeoutError:
            await self._records.commit(self._row(EffectState.FAILED))
            raise

    async def _end(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._timer.__aexit__(kind, error, trace)

    def _expire(self) -> bool:
        """End the time at the first effect without a record, as it was recorded."""
        self._expire_in(0)
        return True

    def _go_on(self) -> bool:
        """Start the rest of the time at the first effect without a record."""
        self._records.open_gate(self._path)
        left = self._due - time.time()
        self._expire_in(max(0.0, left))
        return left <= 0

    def _expire_in(self, seconds: float) -> None:
        self._records.parking.deadlines[self._path] = time.time() + seconds
        self._timer.reschedule(asyncio.get_running_loop().time() + seconds)

    def _row(self, state: EffectState) -> EffectRow:
        return EffectRow(
            path=self._path,
            kind="timeout",
            name="",
            content=self._content,
            state=state,
            leaf=self._leaf,
            value=self._due,
            started=self._started,
            ended=None if state == EffectState.OPEN else time.time(),
        )


def mismatch(row: EffectRow, now: str, parts: Mapping[str, Any] | None = None) -> JournalError:
    """The error for an effect ``now`` of a program that differs from its record ``row``; ``parts`` are the parts of the
    new effect, which locate the difference."""
    was, now = f"{row.kind} {row.name}".strip(), now.strip()
    differs = [] if parts is None or was != now else differing(marks_in(row), parts)
    how = f", where something else is {', '.join(differs)}" if differs else ""
    if not how and was == now:
        how = ", with other arguments or another definition"
    return JournalError(
        f"the records do not fit this run: {row.path} was {was}, and is {now} now{how}",
        code="durable/mismatch",
        hint="resume with the original program, model, tasks and tools, or adopt the changes:"
        " agentflow resume RUN --program FILE",
        details={"path": row.path, "was": was, "now": now, **({"differs": differs} if differs else {})},
    )
