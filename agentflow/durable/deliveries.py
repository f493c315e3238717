"""The order in which outcomes reach the asyncio tasks of a workflow, recorded before the code sees them.

Names of tasks do not decide who completes first: code that takes results as they come (``as_completed``, queues, ``wait``)
depends on the order. So outcomes are delivered one by one, each when the code waits again, and a replay delivers in the
recorded order. A call that the code cancelled has its place in that order too: when the run is resumed it waits for its cancel.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Protocol

from agentflow.core.data.errors import JournalError
from agentflow.core.events.journal_rows import EffectRow, EffectState, effect_key

PREFIX = "@order/"
"""Start of the paths of these records, which are none of effects."""
CALM = 8
"""Turns of the loop in a row in which all code waits, after which it does wait: callbacks of futures pass the word on in between."""
LATEST = 1_000
"""Turns of the loop after which the next outcome is delivered although some code does not wait."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of Python, on which it depends which functions of asyncio create tasks."""


class OrderRecords(Protocol):
    """The parts of a run's records that deliveries need."""

    def note(self, row: EffectRow) -> asyncio.Future[None]: ...
    def commit_soon(self, rows: list[EffectRow], drop: list[bytes] = ...) -> None: ...
    async def stop(self, error: JournalError) -> Any: ...
    def rests(self) -> None: ...
    def pin(self, kind: str, name: str, text: str | None) -> str | None: ...
    def cut(self, line: str) -> None: ...
    def uncut(self, line: str) -> None: ...


class _Entry:
    """A recorded place in the order: ``at`` is the number of the delivery, and for calls lost after it a second number."""

    __slots__ = ("at", "event", "future", "lost", "over")

    def __init__(self, at: tuple[int, int], event: str, *, lost: bool) -> None:
        self.at = at
        self.event = event
        self.lost = lost
        self.future: asyncio.Future[None] | None = None
        self.over = False


class RunDeliveries:
    """The :class:`~agentflow.core.call.deliveries_port.Deliveries` of one run, whose records are ``rows``."""

    def __init__(self, records: OrderRecords, rows: Iterable[EffectRow]) -> None:
        self._records = records
        self._python: str | None = None
        self._order = sorted((_entry_of(row) for row in rows if row.path.startswith(PREFIX)), key=lambda each: each.at)
        self._next = 0
        self._of: defaultdict[str, deque[_Entry]] = defaultdict(deque)
        for entry in self._order:
            self._of[entry.event].append(entry)
        last = self._order[-1].at if self._order else (0, 0)
        self._number, self._lost = last
        self._fresh: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._untaken: dict[str, bytes] = {}
        self._cut: list[tuple[EffectRow, bytes | None]] = []
        self._watched: list[Callable[[], bool]] = []
        self._worker: asyncio.Task[None] | None = None
        self._calm = True

    @property
    def cuts(self) -> bool:
        return bool(self._cut) or any(each.lost and not each.over for each in self._order)

    def watch(self, calm: Callable[[], bool]) -> None:
        self._watched.append(calm)
        self.stir()
        if self._python is None:
            self._python = self._records.pin("python", "asyncio", PYTHON) or PYTHON

    def unwatch(self, calm: Callable[[], bool]) -> None:
        self._watched = [each for each in self._watched if each != calm]

    def stir(self) -> None:
        self._calm = False

    def resting(self) -> bool:
        """Whether nothing is about to be delivered, and all code waits. If that is not sure yet, the records hear of it later."""
        if not self._calm:
            self._go_on()
        return self._calm

    async def begins(self, event: str, line: str) -> None:
        self.stir()
        if self._python is not None and self._python != PYTHON:
            await self._records.stop(_foreign(self._python))
        for row, untaken in self._cut:
            self._records.commit_soon([row], [] if untaken is None else [untaken])
        self._cut.clear()
        entry = self._first(event)
        if entry is not None and entry.lost:
            self._records.cut(line)

    async def passes(self, event: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = self._first(event)
        if entry is None:
            self._fresh.append((event, future))
        elif not entry.lost:  # one that was lost waits for its cancel, though its effect was recorded
            entry.future = future
        self.stir()
        self._go_on()
        await future
        self._untaken.pop(event, None)

    def lost(self, event: str, line: str) -> None:
        self.stir()
        entry = self._first(event)
        if entry is not None:
            if entry.lost:
                self._records.uncut(line)
            entry.over = True
            self._go_on()
            return
        self._lost += 1
        untaken = self._untaken.pop(event, None)  # delivered, and cancelled before the code had it
        self._cut.append((self._row(event, lost=True), untaken))

    def _first(self, event: str) -> _Entry | None:
        """The first recorded place of ``event`` that was not come to yet."""
        entries = self._of.get(event)
        while entries and entries[0].over:
            entries.popleft()
        return entries[0] if entries else None

    def _row(self, event: str, *, lost: bool) -> EffectRow:
        now, at = time.time(), (self._number, self._lost)
        return EffectRow(
            path=_path(at),
            kind="decision",
            name="",
            content=b"",
            state=EffectState.OK,
            value={"at": [*at], "event": event, "lost": lost},
            started=now,
            ended=now,
        )

    def _go_on(self) -> None:
        if self._worker is None:
            # without the context of the code, whose task this is not
            self._worker = asyncio.get_running_loop().create_task(self._work(), context=Context())

    async def _work(self) -> None:
        try:
            while True:
                await self._settled()
                if not await self._deliver():
                    self._calm = True
                    return
        finally:
            self._worker = None
            self._records.rests()

    async def _settled(self) -> None:
        calm = 0
        for _ in range(LATEST):
            await asyncio.sleep(0)
            calm = calm + 1 if all(each() for each in self._watched) else 0
            if calm == CALM:
                return

    async def _deliver(self) -> bool:
        """Deliver the next outcome. False if there is none, or its call is still at work."""
        order = self._order
        while self._next < len(order) and order[self._next].over:
            self._next += 1
        if self._next < len(order):
            entry = order[self._next]
            if entry.future is None:
                return False
            entry.over = True
            self._deliver_to(entry.future, entry.event, effect_key(_path(entry.at)))
            return True
        while self._fresh:
            event, future = self._fresh.popleft()
            if future.done():
                continue
            number, lost = self._number, self._lost
            self._number, self._lost = number + 1, 0
            row = self._row(event, lost=False)
            self._number, self._lost = number, lost
            try:
                await self._records.note(row)
            except JournalError:
                return False
            self._number, self._lost = number + 1, 0
            if future.done():  # cancelled meanwhile: it was not delivered, and nothing has its number
                self._records.commit_soon([], [row.key])
                continue
            self._deliver_to(future, event, row.key)
            return True
        return False

    def _deliver_to(self, future: asyncio.Future[None], event: str, key: bytes) -> None:
        if not future.done():
            self._untaken[event] = key
            future.set_result(None)


def _entry_of(row: EffectRow) -> _Entry:
    value = row.value
    number, lost = value["at"]
    return _Entry((number, lost), value["event"], lost=value["lost"])


def _path(at: tuple[int, int]) -> str:
    return f"{PREFIX}{at[0]}.{at[1]}"


def _foreign(python: str) -> JournalError:
    return JournalError(
        f"the run began with Python {python}, and this is {PYTHON}: functions of asyncio create other tasks there, so that the"
        " records of its tasks could not be told apart",
        code="durable/mismatch",
        hint=f"resume it with Python {python}",
    )
