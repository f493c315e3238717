"""Parses server-sent events from bytes, incrementally, in linear time and bounded space.

Format: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream. The SDKs' own decoders
join all pending data again for every line, which takes minutes for one event of many short lines.
"""

from __future__ import annotations

from agentflow.core.data.provider_errors import ProtocolError

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Maximum size of an event, and of a line."""


# An own parser: those of the SDKs take a minute for an event of 4 MB in short lines (decision 7)
class SseParser:
    """Takes chunks of bytes and returns complete events as ``(event name, data)`` pairs, both bytes.

    Comments, ``id`` and ``retry`` fields are ignored, and so is an incomplete event at the end of the stream.
    """

    __slots__ = ("_begun", "_carriage", "_data", "_limit", "_name", "_partial", "_partial_size", "_size")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._partial: list[bytes] = []
        self._partial_size = 0
        self._data: list[bytes] = []
        self._size = 0
        self._name = b""
        self._carriage = False
        self._begun = False

    @property
    def pending(self) -> int:
        """Number of bytes of the incomplete event."""
        return self._size + self._partial_size

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """The events that ``chunk`` completes, in order. Raises ProtocolError for an oversized line or event."""
        if self._carriage or b"\r" in chunk:
            chunk = self._line_ends(chunk)
        end = chunk.rfind(b"\n")
        if end < 0:
            self._keep(chunk)
            return []
        if self._partial:
            self._partial.append(chunk[:end])
            text = b"".join(self._partial)
            self._partial.clear()
            self._partial_size = 0
        else:
            text = chunk[:end]
        lines = text.split(b"\n")
        if not self._begun:
            self._begun = True
            lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
        events = self._lines(lines)
        if end + 1 < len(chunk):
            self._keep(chunk[end + 1 :])
        return events

    def _lines(self, lines: list[bytes]) -> list[tuple[bytes, bytes]]:
        events: list[tuple[bytes, bytes]] = []
        data = self._data
        for line in lines:
            if not line:
                if data:
                    events.append((self._name, data[0] if len(data) == 1 else b"\n".join(data)))
                    data.clear()
                    self._size = 0
                self._name = b""
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
                self._size += len(line)
                if self._size > self._limit:
                    raise self._too_large()
            elif line.startswith(b"event:"):
                self._name = line[6:].strip()
        return events

    def _keep(self, piece: bytes) -> None:
        self._partial.append(piece)
        self._partial_size += len(piece)
        if self._partial_size + self._size > self._limit:
            raise self._too_large()

    def _line_ends(self, chunk: bytes) -> bytes:
        """``chunk`` with all line ends as line feeds; a trailing carriage return is held until the next chunk."""
        if self._carriage:
            chunk = b"\r" + chunk
        self._carriage = chunk.endswith(b"\r")
        if self._carriage:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _too_large(self) -> ProtocolError:
        return ProtocolError(
            f"the server sent an event larger than {self._limit:,} bytes",
            code="provider/too-large",
            hint="no model answers with events of that size; check the base URL",
        )
