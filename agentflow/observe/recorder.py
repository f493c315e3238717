"""The recorder: encodes events where they happen, into a bounded buffer that a thread empties."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable
from itertools import islice
from typing import Any, TypeAlias

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.event_log import FIRST, EventId, LogBounds, LogEntry
from agentflow.core.data.walk import Work
from agentflow.core.events.events import Event, RunFinished, TextDelta, ThinkingDelta
from agentflow.core.ports.store_ports import EventSink, EventStore
from agentflow.observe.files import LogLines, Piece, PieceLine

BUFFER_BYTES = 8 * 1024 * 1024
"""Amount of unwritten data that makes a run wait before it starts its next effect."""
_URGENT_BYTES = 1024 * 1024
_INTERVAL_S = 0.1
_IDLE_ROUNDS = 10
_PIECE_BYTES = 256
"""The size counted for a piece of streamed text; at most this many characters of it are queued unchanged."""
_TRIM_EVERY = 20
_MOST_LOST = 1_000

_log = logging.getLogger(__name__)


class Recorder:
    """A plain observer that writes every event of its runs to ``sink``; pieces of streamed text only with ``deltas``.

    Publishing never waits for the disk: a thread writes the queued events, at most a tenth of a second later, and ends when
    there are none. While more than ``buffer`` bytes are unwritten, :attr:`congested` is true and runs wait in
    :meth:`room`. Recording stops for a run with events that cannot be written: the logger ``agentflow.observe.recorder``
    says so, :meth:`failure` returns the reason once to a run that still works, :meth:`lost` to later callers, :attr:`error`
    the first of all. ``text`` gives the text of objects without a JSON form; ``trim`` is called now and then in the thread,
    when runs have ended, to remove old records.

    Call :meth:`aclose` after the last run.
    """

    def __init__(
        self,
        sink: EventSink,
        *,
        deltas: bool = False,
        text: Callable[[object], str] = str,
        trim: Callable[[], object] | None = None,
        buffer: int = BUFFER_BYTES,
    ) -> None:
        self.deltas = deltas
        self.error: Exception | None = None
        self.congested = False
        self._sink = sink
        self._text = text
        self._trim = trim
        self._ended = 0
        self._limit = buffer
        self._urgent = min(_URGENT_BYTES, buffer)
        self._many, self._full = (max(1, size // _PIECE_BYTES) for size in (self._urgent, buffer))
        self._lines: dict[str, LogLines] = {}
        # The data to be written. Publishers append to one end, the thread takes from the other: neither needs the lock.
        self._queue: deque[Piece | _Line | _Mark] = deque()
        self._size = 0
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._hurry = self._closing = False
        self._thread: threading.Thread | None = None
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._failed: dict[str, Exception] = {}
        self._untold: dict[str, Exception] = {}
        self._lost: dict[str, Exception] = {}

    def __call__(self, event: Event) -> None:
        """Take one event."""
        kind = type(event)
        if kind is TextDelta or kind is ThinkingDelta:  # which can no longer change: it is encoded later, with others
            piece: Any = event
            if len(piece.text) <= _PIECE_BYTES:
                queue = self._queue
                queue.append(piece)
                if self._thread is None or (len(queue) >= self._many and (not self._hurry or len(queue) >= self._full)):
                    with self._lock:
                        self._hasten()
                return
        run = event.run_id
        entry = self._lines_of(run).entry(event)
        last = kind is RunFinished
        if last:
            del self._lines[run]
        self._queue.append((run, entry, last))
        with self._lock:
            self._size += entry.size
            if self._thread is None or self._size >= self._urgent:
                self._hasten()

    def preparation(self, run: str, value: object) -> Work[None]:
        """Write a large value beforehand, in parts: the next event of ``run`` that shows it contains the written text."""
        return self._lines_of(run).preparation(value)

    def _lines_of(self, run: str) -> LogLines:
        lines = self._lines.get(run)
        if lines is None:
            lines = self._lines[run] = LogLines(self._text)
        return lines

    def _hasten(self) -> None:
        """Ensure that queued events are written soon; called with the lock held."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="agentflow recorder")
            self._thread.start()
        size = self._size + len(self._queue) * _PIECE_BYTES
        if size >= self._urgent and not self._hurry:
            self._hurry = True
            self._wake.notify()
        self.congested = size >= self._limit

    async def room(self) -> None:
        """Wait until half of the buffer is written, if it is full."""
        while self.congested:
            await self._progress(lambda: not self.congested)

    async def flush(self) -> None:
        """Wait until everything published before is written."""
        mark = _Mark()
        self._queue.append(mark)
        with self._lock:
            self._hasten()
        while not mark.written:
            await self._progress(lambda: mark.written, hurry=True)

    async def _progress(self, done: Callable[[], bool], *, hurry: bool = False) -> None:
        """Wait until the thread has written its current batch, or the queue; not at all when it is ``done``."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._wake:
            if done():
                return
            self._waiting.append((loop, future))
            if hurry and not self._hurry:
                self._hurry = True
                self._wake.notify()
        await future

    def failure(self, run: str) -> Exception | None:
        """Why a run is not recorded any further, unless that was asked before."""
        return self._untold.pop(run, None) if self._untold else None

    def lost(self, run: str) -> Exception | None:
        """Why the record of a run lacks its end, once that was written or :meth:`flush` has waited for it; None if it does not.

        The last 1,000 such runs are known.
        """
        return self._failed.get(run) or self._lost.get(run)

    async def aclose(self) -> None:
        """Write the rest, and release the sink."""
        with self._wake:
            thread = self._thread
            self._closing = self._hurry = True
            self._wake.notify()
        if thread is not None:
            await asyncio.to_thread(thread.join)
        self._closing = self._hurry = False
        await asyncio.to_thread(self._sink.close)

    # -- in the thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while batch := self._next():
            runs: dict[str, list[LogEntry | PieceLine]] = {}
            streams: dict[tuple[str, int | None, str], PieceLine] = {}
            ended: set[str] = set()
            marks: list[_Mark] = []
            size = len(batch) * _PIECE_BYTES
            last_piece: Piece | None = None
            line = PieceLine()
            for item in batch:
                if isinstance(item, tuple):
                    run, entry, last = item
                    size += entry.size
                    runs.setdefault(run, []).append(entry)
                    streams = {key: line for key, line in streams.items() if key[0] != run}
                    last_piece = None
                    if last:
                        ended.add(run)
                elif isinstance(item, _Mark):
                    marks.append(item)
                else:
                    if (
                        last_piece is None
                        or item.parent != last_piece.parent
                        or item.run_id is not last_piece.run_id
                        or type(item) is not type(last_piece)
                    ):
                        line = streams.setdefault((item.run_id, item.parent, item.type), PieceLine())
                        if not line:
                            runs.setdefault(item.run_id, []).append(line)
                    last_piece = item
                    line.append(item)
            for run, entries in runs.items():
                written = [each if isinstance(each, LogEntry) else each.entry() for each in entries]
                self._append(run, written, last=run in ended)
            self._written(size, marks)
            if ended:
                self._clear_old(len(ended))

    def _next(self) -> list[Piece | _Line | _Mark]:
        """The events queued since the last call; empty if none came in time, and then the thread is to end."""
        queue = self._queue
        with self._wake:
            while True:
                for _ in range(_IDLE_ROUNDS):
                    if not self._closing:
                        self._wake.wait_for(lambda: self._hurry, _INTERVAL_S)
                    if count := len(queue):
                        self._hurry = self._closing
                        self._size += count * _PIECE_BYTES  # while it is written it is still there
                        return [queue.popleft() for _ in range(count)]
                    if self._closing:
                        break
                # A publisher that appends from now on starts another thread, unless it was in time for this one.
                me, self._thread = self._thread, None
                if not queue:
                    return []
                self._thread = me

    def _append(self, run: str, entries: list[LogEntry], *, last: bool) -> None:
        try:
            if run not in self._failed:
                self._sink.append(run, entries, last=last)
        except Exception as error:  # noqa: BLE001 - any error that keeps a store from writing ends its record, not the run
            self._failed[run] = error
            self._untold[run] = error
            self.error = self.error or error
            _log.warning("the events of run %s are not recorded any further: %s", run, error)
        if last:
            self._untold.pop(run, None)
            self._lost.pop(run, None)
            if (failed := self._failed.pop(run, None)) is not None:
                self._lost[run] = failed
                if len(self._lost) > _MOST_LOST:
                    del self._lost[next(iter(self._lost))]

    def _clear_old(self, ended: int) -> None:
        """Remove old records after the first run, and then at regular intervals of runs."""
        due = self._ended % _TRIM_EVERY == 0 or self._ended % _TRIM_EVERY + ended > _TRIM_EVERY
        self._ended += ended
        if due and self._trim is not None:
            try:
                self._trim()
            except Exception as error:  # noqa: BLE001 - too much is kept, which does not justify losing a record
                _log.warning("old records of runs are not removed: %s", error)

    def _written(self, size: int, marks: list[_Mark]) -> None:
        with self._wake:
            self._size -= size
            for mark in marks:
                mark.written = True
            if self._size + len(self._queue) * _PIECE_BYTES <= self._limit // 2:
                self.congested = False
            waiting, self._waiting = self._waiting, []
        for loop, future in waiting:
            with contextlib.suppress(RuntimeError):  # the loop that waited has ended
                loop.call_soon_threadsafe(_settle, future)


_Line: TypeAlias = tuple[str, LogEntry, bool]
"""The run of an event, its line, and whether it is the last."""


class _Mark:
    """A position in the queue; a caller wants it ``written`` up to there."""

    __slots__ = ("written",)

    def __init__(self) -> None:
        self.written = False


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


_AT_ONCE = 100
"""Events read at once."""


class Recording:
    """Records runs in ``store``: :attr:`recorder` is the observer that writes, :meth:`events` reads.

    ``text`` renders objects without a JSON form; ``wire`` returns the HTTP request of a model call, for reports.
    """

    def __init__(
        self, store: EventStore, text: Callable[[object], str] = str, wire: Callable[..., Any] | None = None
    ) -> None:
        self.wire = wire
        self._store = store
        self.recorder = Recorder(store, text=text, trim=lambda: store.gc(LogBounds()))

    async def events(self, run_id: str) -> list[dict[str, Any]]:
        """The JSON data of a run's events, up to the last published one.

        Raises AgentflowError (``record/failed``) if not all of them could be written.
        """
        await self._written(run_id)
        return await asyncio.to_thread(lambda: list(self._store.read(run_id, FIRST)))

    async def has(self, run_id: str) -> bool:
        """Whether events of a run were recorded, in this process or an earlier one."""
        await self.recorder.flush()
        return await asyncio.to_thread(self._store.find, run_id) is not None

    async def batches(self, run_id: str, after: EventId) -> AsyncGenerator[list[dict[str, Any]]]:
        """The JSON data of a run's events after ``after``, some at a time, up to the last published one.

        Raises AgentflowError (``record/failed``) if not all of them could be written.
        """
        await self._written(run_id)
        reading = iter(self._store.read(run_id, after))
        while batch := await asyncio.to_thread(lambda: list(islice(reading, _AT_ONCE))):
            yield batch

    async def _written(self, run_id: str) -> None:
        await self.recorder.flush()
        error = self.recorder.lost(run_id)
        if error is not None:
            raise AgentflowError(
                f"the record of run {run_id} lacks its end, which could not be written: {error}",
                code="record/failed",
                hint="make room where runs are recorded, or record elsewhere: AgentFlow(record=DIRECTORY)",
            ) from error

    async def aclose(self) -> None:
        """Write the queued events, and close the store."""
        await self.recorder.aclose()
