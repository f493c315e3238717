"""The events of one run as they are sent, kept for readers that come, go and come again.

A reader is a number: what it has read last. So a slow one holds nobody up, and as many as like may read. Lifecycle events are
kept up to a bound, the oldest go first; a delta is kept until what it is a piece of has ended, because that event has the whole.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from operator import attrgetter
from typing import NamedTuple, TypeAlias

Place: TypeAlias = tuple[int, int]
"""Where an event stands in its run: its slice, and its number in that."""

Earlier: TypeAlias = Callable[[Place, Place], AsyncIterator[bytes]]
"""Gives the frames of the events after one place and up to another, which are not kept."""

MAX_EVENTS = 50_000
"""Lifecycle events of a run that are kept."""
MAX_BYTES = 32 * 2**20
"""Bytes of a run's events that are kept."""
AT_ONCE = 256 * 1024
"""Bytes that a reader is given at once."""
MAX_LINES = 2**20
"""Bytes of them that are given as lines."""
_PARTS = 16
_place = attrgetter("place")


class Entry(NamedTuple):
    """An event: its place, its ``frame`` of the stream, and of a delta the number of what it is a piece of."""

    place: Place
    frame: bytes
    piece_of: int | None


class EventLog:
    """The kept events of one run. ``cut`` is the place of the last one that is not kept any more."""

    def __init__(self, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._entries: list[Entry] = []
        self._pieces: dict[Place, int] = {}
        self._news = asyncio.Event()
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.size = 0
        self.cut: Place | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, place: Place, frame: bytes, *, piece_of: int | None = None, ends: int | None = None) -> None:
        """Keep an event. ``piece_of`` is what a delta is a piece of; ``ends`` what has ended with this event."""
        if ends is not None:
            self._drop_pieces((place[0], ends))
        if piece_of is not None:
            whole = (place[0], piece_of)
            self._pieces[whole] = self._pieces.get(whole, 0) + 1
        self._entries.append(Entry(place, frame, piece_of))
        self.size += len(frame)
        if len(self._entries) > self._max_events or self.size > self._max_bytes:
            self._drop_oldest()
        self._wake()

    def _drop_pieces(self, whole: Place) -> None:
        count = self._pieces.pop(whole, 0)
        if not count:
            return
        start = bisect_right(self._entries, whole, key=_place)
        kept: list[Entry] = []
        for entry in self._entries[start:]:
            if entry.piece_of == whole[1] and entry.place[0] == whole[0]:
                self.size -= len(entry.frame)
            else:
                kept.append(entry)
        self._entries[start:] = kept

    def _drop_oldest(self) -> None:
        """Drop a part of the events, so that this is not done for each."""
        count = len(self._entries) // _PARTS + 1
        while self.size - sum([len(each.frame) for each in self._entries[:count]]) > self._max_bytes:
            count += 1
        gone, self._entries = self._entries[:count], self._entries[count:]
        self.size -= sum([len(each.frame) for each in gone])
        lasting = [each.place for each in gone if each.piece_of is None]
        self.cut = lasting[-1] if lasting else self.cut

    def since(self, place: Place) -> list[Entry]:
        """The kept events after ``place``, some of them: as many as are sent at once."""
        start = end = bisect_right(self._entries, place, key=_place)
        size = 0
        while end < len(self._entries) and (end == start or size < AT_ONCE):
            size += len(self._entries[end].frame)
            end += 1
        return self._entries[start:end]

    def lines(self, limit: int = MAX_LINES) -> str:
        """The kept events, deltas left out, as JSON, a line each: the last of them, at most ``limit`` bytes."""
        lines: list[bytes] = []
        for entry in reversed(self._entries):
            if entry.piece_of is None:
                lines.append(entry.frame.partition(b"data: ")[2].rstrip())
                limit -= len(lines[-1]) + 1
                if limit < 0:
                    lines.pop()
                    break
        return b"".join([line + b"\n" for line in reversed(lines)]).decode()

    def close(self) -> None:
        """Note that no event follows."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if not self._news.is_set():
            self._news.set()

    async def follow(self, place: Place, earlier: Earlier) -> AsyncGenerator[bytes, None]:
        """The events after ``place``, those that are kept and then those that come, until the last.

        What is not kept any more ``earlier`` gives, at the beginning as well as to a reader that has fallen behind.
        """
        while True:
            if self.cut is not None and place < self.cut:
                until = self.cut
                async for frames in earlier(place, until):
                    yield frames
                place = until
                continue
            entries = self.since(place)
            if entries:
                place = entries[-1].place
                yield b"".join([each.frame for each in entries])
            elif self.closed:
                return
            else:
                if self._news.is_set():
                    self._news = asyncio.Event()  # those who wait for the one before have been woken
                await self._news.wait()


def frame_of(place: Place, data: bytes) -> bytes:
    """An event as it is sent; ``data`` is its JSON text."""
    return b"id: %d.%d\ndata: %b\n\n" % (*place, data)


def read_place(text: str) -> Place | None:
    """A place as it is written, ``SLICE.SEQ`` or ``SEQ`` of the first slice; None for what is none."""
    slice_text, dot, seq = text.strip().rpartition(".")
    if not dot:
        slice_text = "1"
    if not (slice_text.isascii() and slice_text.isdigit() and seq.isascii() and seq.isdigit() and len(text) < 40):
        return None
    return int(slice_text), int(seq)


__all__ = ["Earlier", "Entry", "EventLog", "Place", "frame_of", "read_place"]
