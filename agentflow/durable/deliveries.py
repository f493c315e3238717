"""The order of the outcomes that reach the asyncio tasks of a workflow, recorded before the code sees them.

Names of tasks do not decide who completes first: code that takes results as they come (``as_completed``, queues, ``wait``)
depends on the order. So outcomes are delivered one by one, each when the code waits again, and a replay delivers in the
recorded order. A call that the code cancelled has its place in that order too: when the run is resumed it waits for its cancel.
So does a timer of asyncio's that fired: when the run is resumed it fires at its place, without the time before it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import Context
from dataclasses import replace
from typing import Any, Protocol

from agentflow.core.call.deliveries_port import TIMERS, TimerPort
from agentflow.core.data.errors import JournalError
from agentflow.core.data.known_names import ordinal_of
from agentflow.core.events.journal_rows import EffectRow, EffectState
from agentflow.run.strand.budget import Permits

PREFIX = "@order/"
"""Start of the paths of these records, which are none of effects."""
CALM = 8
"""Consecutive turns of the loop with all code waiting before it counts as such: callbacks of futures pass the word on in between."""
LATEST = 1_000
"""Turns of the loop before the next outcome is delivered although some code does not wait."""
PATIENCE_S = 15.0
"""Minimum seconds that the next recorded outcome may be missing while others wait for it."""
SLOWER = 10
"""How many times longer than when it was recorded it may take: waits outside agentflow are not seen."""
LONGEST_S = 600.0
"""Maximum seconds that it may be missing."""
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""The version of Python, which decides which functions of asyncio create tasks."""


class OrderRecords(Protocol):
    """The parts of a run's records that deliveries need."""

    def commit_soon(self, rows: list[EffectRow], drop: list[bytes] = ...) -> None: ...
    def note(self, row: EffectRow) -> asyncio.Future[None]: ...
    async def stop(self, error: JournalError) -> Any: ...
    def abandon(self, error: Exception) -> None: ...
    def rests(self) -> None: ...
    def counting(self) -> bool: ...
    def pin(self, kind: str, name: str, text: str | None) -> str | None: ...
    async def reach(self, path: str, permits: Permits | None) -> None: ...
    def cut(self, line: str) -> None: ...
    def uncut(self, line: str) -> None: ...


class _Entry:
    """A recorded place in the order: ``at`` is the number of the delivery, and for calls lost after it a second number.

    ``row`` is the record; it is the last place in it unless it is ``forced``; ``waited`` is the time in seconds since the place before.
    ``line`` is that of a call that has begun and waits to be cancelled; ``number`` counts the places.
    """

    __slots__ = ("event", "future", "line", "lost", "number", "over", "row", "waited")

    def __init__(self, row: EffectRow, forced: str | None = None) -> None:
        self.row = row
        self.event: str = forced or row.value["event"]
        self.lost: bool = forced is None and row.value["lost"]
        self.waited = 0.0
        self.future: asyncio.Future[None] | None = None
        self.line: str | None = None
        self.number = 0
        self.over = False


class RunDeliveries:
    """The :class:`~agentflow.core.call.deliveries_port.Deliveries` of one run with the records ``rows``.

    ``patience`` is the minimum time in seconds that others wait for the next recorded outcome while nothing of it is
    seen.
    """

    def __init__(self, records: OrderRecords, rows: Iterable[EffectRow], patience: float = PATIENCE_S) -> None:
        self._records = records
        self._patience = patience
        self._python: str | None = None
        order = sorted((row for row in rows if row.path.startswith(PREFIX)), key=lambda row: tuple(row.value["at"]))
        self._order = [entry for row in order for entry in _entries(row)]
        self._next = 0
        self._of: defaultdict[str, deque[_Entry]] = defaultdict(deque)
        self._within: defaultdict[str, dict[int, list[_Entry]]] = defaultdict(dict)
        self._ended: dict[str, int] = {}
        before = 0.0
        for number, entry in enumerate(self._order):
            entry.number = number
            self._of[entry.event].append(entry)
            for line, effect in _effects_around(entry.event):
                self._within[line].setdefault(effect, []).append(entry)
            at = entry.row.started or 0.0
            entry.waited, before = at - (before or at), at
        self._number, self._lost = order[-1].value["at"] if order else (0, 0)
        self._fresh: deque[tuple[str, asyncio.Future[None]]] = deque()
        self._untaken: dict[str, EffectRow] = {}
        self._cut: list[EffectRow] = []
        self._forced: list[tuple[str, int, int]] = []
        self._ticked = False
        self._timers: dict[str, TimerPort] = {}
        self._stored: asyncio.Future[None] | None = None
        self._watched: list[Callable[[], bool]] = []
        self._held = 0
        self._stopped = 0
        self._worker: asyncio.Task[None] | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._calm = True

    @property
    def cuts(self) -> bool:
        return bool(self._cut) or self._due() is not None

    def watch(self, calm: Callable[[], bool]) -> None:
        self._watched.append(calm)
        self.stir()
        if self._python is None:
            self._python = self._records.pin("python", "asyncio", PYTHON) or PYTHON

    def unwatch(self, calm: Callable[[], bool]) -> None:
        self._watched.remove(calm)

    def stir(self) -> None:
        self._calm = False
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
            self._go_on()  # which sounds it again if nothing comes of that

    def resting(self) -> bool:
        """Whether nothing is about to be delivered, and all code waits. If this is uncertain, the records hear of it later."""
        if not self._calm:
            self._go_on()
        return self._calm and not self._held

    async def begins(self, event: str, line: str) -> None:
        self.stir()
        if self._python is not None and self._python != PYTHON:
            await self._records.stop(_foreign(self._python))
        for row in self._cut:
            self._records.commit_soon([], [row.key])  # which may be that of its delivery: a record that has ended stays
            self._note(row)
        self._cut.clear()
        self._note_ticks()
        entry = self._first(event)
        if entry is not None and entry.lost:
            entry.line = line
            self._stopped += 1
            self._records.cut(line)
            self._go_on()
        # The next steps of the code follow from the order so far: without its record another one might be taken after a kill.
        if self._stored is not None and not self._stored.done():
            self._held += 1
            try:
                await asyncio.wait([self._stored])
            finally:
                self._held -= 1

    def loses(self, event: str) -> bool:
        entry = self._first(event)
        return entry is not None and entry.lost

    async def passes(self, event: str, *, alone: bool) -> None:
        entry = self._first(event)
        self.stir()
        if alone and len(self._watched) == 1 and not self._fresh and self._at_once(event, entry):
            return
        if entry is not None and entry.lost:  # it waits for its cancel, though its effect was recorded
            await self._records.reach(f"{event.rpartition('#')[0]}/", None)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if entry is None:
            self._fresh.append((event, future))
        else:
            entry.future = future
        self._go_on()
        await future
        self._untaken.pop(event, None)

    def expects(self, timer: TimerPort) -> None:
        if self._first(timer.event) is not None:
            self._timers[timer.event] = timer
            self._go_on()

    def fires(self, timer: TimerPort) -> None:
        event = timer.event
        entry = self._first(event)
        self._timers.pop(event, None)
        self.stir()
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.add_done_callback(timer.fire, context=timer.context)
        if entry is None:
            self._fresh.append((event, future))
        else:
            entry.future = future
        self._go_on()

    def lost(self, event: str, line: str) -> None:
        self.stir()
        entry = self._first(event)
        if entry is not None:
            self._pass_over(entry)
            for within in self._within.get(
                line, {}
            ).values():  # perhaps it was cancelled this time before it began them
                for each in within:
                    if each.number < entry.number and not each.over:
                        self._pass_over(each)
            return
        self._note_ticks()  # one of them may have cancelled it
        untaken = self._untaken.pop(event, None)
        if untaken is not None:  # delivered, and cancelled before the code had it: this is its place
            self._cut.append(replace(untaken, value={**untaken.value, "lost": True}))
            return
        self._lost += 1
        self._cut.append(self._row(event, lost=True))

    def ends(self, line: str, effects: int) -> None:
        within = self._within.get(line)
        if within is None:
            return
        for effect in range(self._ended.get(line, 0), effects):
            for entry in within.pop(effect, ()):
                if not entry.over:
                    self._pass_over(entry)
        self._ended[line] = max(effects, self._ended.get(line, 0))

    def _pass_over(self, entry: _Entry) -> None:
        """Continue with the place after that of a call that was cancelled, or is not made any more."""
        entry.over = True
        if entry.line is not None:
            self._stopped -= 1
            self._records.uncut(entry.line)
        self._go_on()

    def _first(self, event: str) -> _Entry | None:
        """The first recorded place of ``event`` yet to be reached."""
        entries = self._of.get(event)
        while entries and entries[0].over:
            entries.popleft()
        return entries[0] if entries else None

    def _due(self) -> _Entry | None:
        """The recorded place that comes next."""
        while self._next < len(self._order) and self._order[self._next].over:
            self._next += 1
        return self._order[self._next] if self._next < len(self._order) else None

    def _at_once(self, event: str, entry: _Entry | None) -> bool:
        """Deliver an outcome if nothing else can come first. False if this is uncertain."""
        due = self._due()
        if due is not entry or (entry is not None and entry.lost):
            return False
        if entry is not None:
            entry.over = True
        else:  # No other order is possible. The record must only come before those of later deliveries.
            self._force(event)
        return True

    def _force(self, event: str) -> None:
        line, _, number = event.rpartition("#")
        path, first, last = self._forced.pop() if self._forced else ("", 0, 0)
        if path == line and last + 1 == int(number):
            self._forced.append((line, first, last + 1))
            return
        if path:
            self._forced.append((path, first, last))
        self._forced.append((line, int(number), int(number)))

    def _next_row(self, event: str) -> EffectRow:
        """The record of the delivery of ``event``, which comes next."""
        self._number, self._lost = self._number + 1, 0
        return self._row(event, lost=False)

    def _note(self, row: EffectRow) -> EffectRow:
        """Begin to store a record, which the next call waits for. Returns it, with the deliveries since the one before."""
        if self._forced:
            forced = [*row.value.get("forced", ()), *([*each] for each in self._forced)]
            row = replace(row, value={**row.value, "forced": forced})
            self._forced = []
        self._ticked = False
        self._stored = self._records.note(row)
        return row

    def _note_ticks(self) -> None:
        """Begin to store the timers that have fired since the last record."""
        if self._ticked:
            path, first, last = self._forced.pop()
            if first < last:
                self._forced.append((path, first, last - 1))
            self._note(self._next_row(f"{path}#{last}"))

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
            # without the context of the code: this is not its task
            self._worker = asyncio.get_running_loop().create_task(self._work(), context=Context())

    async def _work(self) -> None:
        try:
            while True:
                await self._settled()
                if not self._deliver():
                    self._calm = True
                    self._watch_for_missing()
                    return
        except Exception as error:  # noqa: BLE001 - else outcomes would wait for their delivery without end
            self._records.abandon(error)
        finally:
            self._worker = None
            self._records.rests()

    async def _settled(self) -> None:
        calm = 0
        ready: Any = getattr(asyncio.get_running_loop(), "_ready", None)  # the callbacks of a loop of asyncio's own
        for _ in range(LATEST):
            await asyncio.sleep(0)
            if ready is not None and not ready:
                return
            calm = calm + 1 if all(each() for each in self._watched) else 0
            if calm == CALM:
                return

    def _deliver(self) -> bool:
        """Deliver the next outcome. False if there is none, or its call is still at work."""
        entry = self._due()
        if entry is not None:
            timer = self._timers.get(entry.event)
            if timer is not None and timer.cancelled:  # the code did it otherwise this time
                del self._timers[entry.event]
                entry.over = True
                return True
            if timer is not None and timer.may_be_early:
                timer.fire_early()
            if entry.future is None:
                return False
            entry.over = True
            self._deliver_to(entry.future, entry.event, entry.row)
            return True
        while self._fresh:
            event, future = self._fresh.popleft()
            if _is_timer(event):
                self._tick(event, future)
                return True
            if not future.done():
                self._deliver_to(future, event, self._note(self._next_row(event)))
                return True
        return False

    def _deliver_to(self, future: asyncio.Future[None], event: str, row: EffectRow) -> None:
        if not future.done():
            if not _is_timer(event):
                self._untaken[event] = row
            future.set_result(None)

    def _tick(self, event: str, future: asyncio.Future[None]) -> None:
        """Fire a timer. Its place is stored with the next one, or before the next call: nothing else follows from it."""
        self._force(event)
        self._ticked = True
        future.set_result(None)

    def _watch_for_missing(self) -> None:
        """Sound the alarm later if others wait for a recorded outcome, or for a recorded cancel. All that led to it is recorded too,
        and takes no time, except the timers of the code."""
        entry = self._due()
        if entry is None:
            return
        if (
            self._fresh
            or self._stopped
            or any(each.future is not None and not each.over for each in self._order[self._next :])
        ):
            seconds = max(self._patience, min(SLOWER * entry.waited, LONGEST_S))
            self._alarm = asyncio.get_running_loop().call_later(seconds, self._missed, entry)

    def _missed(self, entry: _Entry) -> None:
        if self._records.counting():
            self._watch_for_missing()
            return
        for at, (event, future) in enumerate(self._fresh):
            if _is_timer(event):  # it had fired while the code had no tasks, which is not recorded
                del self._fresh[at]
                self._tick(event, future)
                self._go_on()
                return
        path, _, number = entry.event.rpartition("#")
        what = f"call {number} {'was cancelled' if entry.lost else 'had its outcome'}"
        if _is_timer(entry.event):
            path, what = path.removesuffix(TIMERS), f"timer {number} fired"
        self._records.abandon(
            JournalError(
                f"the records do not fit this run: at {path}, {what} next, and the tasks of the workflow"
                " neither make nor cancel it now, so that others would wait for it without end",
                code="durable/mismatch",
                hint="resume with the original workflow; between its calls a task must behave the same each time",
                details={"path": path, "call": number},
            )
        )


def _is_timer(event: str) -> bool:
    return event.rpartition("#")[0].endswith(TIMERS)


def _entries(row: EffectRow) -> Iterator[_Entry]:
    """The places that a record holds: its own, and before it those with no other possible order."""
    for path, first, last in row.value.get("forced", ()):
        for call in range(first, last + 1):
            yield _Entry(row, f"{path}#{call}")
    yield _Entry(row)


def _effects_around(event: str) -> Iterator[tuple[str, int]]:
    """The effects that a call is made in: the line of each, and its number there."""
    path = event.rpartition("#")[0]
    while path:
        path, effect = ordinal_of(path)
        if effect is not None:
            yield path, effect


def _path(at: tuple[int, int]) -> str:
    return f"{PREFIX}{at[0]}.{at[1]}"


def _foreign(python: str) -> JournalError:
    return JournalError(
        f"the run began with Python {python}, and this is {PYTHON}: functions of asyncio create other tasks there, so that the"
        " records of its tasks could not be told apart",
        code="durable/mismatch",
        hint=f"resume it with Python {python}",
    )
