"""The sent events of one run, kept for readers that connect, disconnect and reconnect.

A reader is just a position, the last event it has read, so slow readers do not delay others and their number is unlimited.
The log keeps lifecycle events up to a limit, dropping the oldest first, and each delta until the event that ends its
message, which holds the whole text.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, TypeAlias, cast

from agentflow.serve.error_responses import bare_error, bare_warning

Position: TypeAlias = tuple[int, int]
"""The position of an event in its run: the slice, and the event's number in the slice."""

Earlier: TypeAlias = Callable[[Position, Position], AsyncIterator[bytes]]
"""Yields the frames of the events after one position and up to another, which the log no longer keeps."""

MAX_EVENTS = 50_000
"""Maximum number of lifecycle events kept per run."""
MAX_BYTES = 32 * 2**20
"""Maximum number of bytes of events kept per run."""
AT_ONCE = 256 * 1024
"""Maximum number of bytes sent to a reader at once."""
MAX_LINES = 2**20
"""Maximum number of bytes returned as lines."""
_PARTS = 16
_position = attrgetter("position")


class LoggedEvent(NamedTuple):
    """An event: its position, its ``frame`` of the stream, and for a delta the number of the event it is a piece of; ``bare`` is the
    frame for readers who may not see everything, if different."""

    position: Position
    frame: bytes
    piece_of: int | None
    bare: bytes | None = None

    def shown(self, everything: bool) -> bytes:
        """The frame for a reader who may see ``everything``, or not."""
        return self.frame if everything or self.bare is None else self.bare


class EventLog:
    """The kept events of one run. ``cut`` is the position of the last event that was dropped."""

    def __init__(self, *, max_events: int = MAX_EVENTS, max_bytes: int = MAX_BYTES) -> None:
        self._entries: list[LoggedEvent] = []
        self._pieces: dict[Position, int] = {}
        self._news = asyncio.Event()
        self._max_events = max_events
        self._max_bytes = max_bytes
        self.size = 0
        self.cut: Position | None = None
        self.closed = False

    def __len__(self) -> int:
        return len(self._entries)

    def add(
        self,
        position: Position,
        frame: bytes,
        *,
        bare: bytes | None = None,
        piece_of: int | None = None,
        ends: int | None = None,
    ) -> None:
        """Append an event, with a separate frame for readers who may not see everything, if it differs. ``piece_of``: the
        event that a delta is a piece of; ``ends``: the event that has this one as its last piece."""
        if ends is not None:
            self._drop_pieces((position[0], ends))
        if piece_of is not None:
            whole = (position[0], piece_of)
            self._pieces[whole] = self._pieces.get(whole, 0) + 1
        self._entries.append(LoggedEvent(position, frame, piece_of, bare))
        self.size += len(frame)
        if len(self._entries) > self._max_events or self.size > self._max_bytes:
            self._drop_oldest()
        self._wake()

    def _drop_pieces(self, whole: Position) -> None:
        count = self._pieces.pop(whole, 0)
        if not count:
            return
        start = bisect_right(self._entries, whole, key=_position)
        kept: list[LoggedEvent] = []
        for entry in self._entries[start:]:
            if entry.piece_of == whole[1] and entry.position[0] == whole[0]:
                self.size -= len(entry.frame)
            else:
                kept.append(entry)
        self._entries[start:] = kept

    def _drop_oldest(self) -> None:
        """Drop a share of the events at once, to spread the cost over many additions."""
        count = len(self._entries) // _PARTS + 1
        while self.size - sum([len(each.frame) for each in self._entries[:count]]) > self._max_bytes:
            count += 1
        gone, self._entries = self._entries[:count], self._entries[count:]
        self.size -= sum([len(each.frame) for each in gone])
        lasting = [each.position for each in gone if each.piece_of is None]
        self.cut = lasting[-1] if lasting else self.cut

    def since(self, position: Position) -> list[LoggedEvent]:
        """The kept events after ``position``, as many as are sent at once."""
        start = end = bisect_right(self._entries, position, key=_position)
        size = 0
        while end < len(self._entries) and (end == start or size < AT_ONCE):
            size += len(self._entries[end].frame)
            end += 1
        return self._entries[start:end]

    def lines(self, limit: int = MAX_LINES, *, everything: bool = True) -> str:
        """The kept events without deltas as JSON lines: the last ones, at most ``limit`` bytes; ``everything``: see :meth:`follow`."""
        lines: list[bytes] = []
        for entry in reversed(self._entries):
            if entry.piece_of is None:
                lines.append(entry.shown(everything).partition(b"data: ")[2].rstrip())
                limit -= len(lines[-1]) + 1
                if limit < 0:
                    lines.pop()
                    break
        return b"".join([line + b"\n" for line in reversed(lines)]).decode()

    def close(self) -> None:
        """Mark the log as complete."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if not self._news.is_set():
            self._news.set()

    async def follow(
        self, position: Position, earlier: Earlier, *, everything: bool = True
    ) -> AsyncGenerator[bytes, None]:
        """The events after ``position``, the kept ones and then new ones, until the last.

        ``earlier`` supplies dropped events, at the start and whenever the reader has fallen behind. ``everything``: the
        reader may see the parts that :func:`bare` removes.
        """
        while True:
            if self.cut is not None and position < self.cut:
                until = self.cut
                async for frames in earlier(position, until):
                    yield frames
                position = until
                continue
            entries = self.since(position)
            if entries:
                position = entries[-1].position
                yield b"".join([each.shown(everything) for each in entries])
            elif self.closed:
                return
            else:
                if self._news.is_set():
                    self._news = asyncio.Event()  # the waiters of the previous one have been woken
                await self._news.wait()


def bare(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """An event in the form for readers who may not see the host: the same object if it contains no part of the host.

    The host's Python, the address of its model server, and details of its settings, servers, files and commands in errors
    and warnings are left out. Old events that do not name the owner of the Python they contain lose all of it.
    """
    if event.get("type") == "program_loaded" and event.get("host", event.get("language") == "python"):
        name = str(event.get("name")).replace("\\", "/").rpartition("/")[2]
        return {**event, "name": name, "text": ""}
    if event.get("type") == "warning":
        return bare_warning(event)
    shown = {**event, "server": ""} if event.get("server") else event
    if (error := _bare(shown.get("error"))) is not None:
        shown = {**shown, "error": error}
    result = _fields(shown.get("result"))
    notes = _fields(result.get("notes"))
    if (error := _bare(notes.get("error"))) is not None:
        return {**shown, "result": {**result, "content": error["message"], "notes": {"error": error}}}
    parts = {name: told for name in ("failed_parts", "errors") if (told := _bare_parts(notes.get(name))) is not None}
    return {**shown, "result": {**result, "notes": {**notes, **parts}}} if parts else shown


def _bare_parts(parts: object) -> list[dict[str, Any]] | None:
    """The failures of several parts, each with its error or as one, in the form for readers who may not see the host; None
    if nothing changes."""
    told: list[dict[str, Any]] = []
    changed = False
    for each in map(_fields, cast("list[object]", parts) if isinstance(parts, list) else ()):
        error = _bare(each.get("error", each))
        changed = changed or error is not None
        told.append(each if error is None else {**each, "error": error} if "error" in each else error)
    return told if changed else None


def _fields(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _bare(error: object) -> dict[str, Any] | None:
    """An error in place of one that readers may not see who may not see the host; None if they may."""
    told = bare_error(_fields(error)) if error else None
    return None if told is error else told


def frame_of(position: Position, data: bytes) -> bytes:
    """An event as a server-sent event; ``data`` is its JSON text."""
    return b"id: %d.%d\ndata: %b\n\n" % (*position, data)


def parse_position(text: str) -> Position | None:
    """Parse a position, ``SLICE.SEQ``, or ``SEQ`` of the first slice; None if ``text`` is invalid."""
    slice_text, dot, seq = text.strip().rpartition(".")
    if not dot:
        slice_text = "1"
    if not (slice_text.isascii() and slice_text.isdigit() and seq.isascii() and seq.isdigit() and len(text) < 40):
        return None
    return int(slice_text), int(seq)
