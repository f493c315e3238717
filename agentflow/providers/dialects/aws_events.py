"""Parses AWS event frames from bytes, incrementally: Bedrock streams them instead of server-sent events.

Format: https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html. A frame is its length, the length of its
headers, a checksum of both, the headers, a payload, and a checksum of all that; numbers are big-endian.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64decode
from typing import Any, NoReturn, cast

from agentflow.core.data.provider_errors import ProtocolError
from agentflow.providers.dialects.sse import MAX_EVENT_BYTES
from agentflow.providers.dialects.wire import parse_json

_PRELUDE = 12
_LEAST = 16
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
"""Sizes of header values by their type; values of types 6 and 7, bytes and text, state their own."""


class AwsEventParser:
    """Takes chunks of bytes and returns complete events as ``(event name, data)`` pairs, like :class:`SseParser`.

    The payload of a ``chunk`` is a model's event in base64. An exception becomes an event ``error`` of that kind.
    """

    __slots__ = ("_buffer", "_limit")

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._buffer = bytearray()

    @property
    def pending(self) -> int:
        """Number of bytes of the incomplete frame."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> list[tuple[bytes, bytes]]:
        """The events that ``chunk`` completes, in order. Raises ProtocolError for an oversized or damaged frame."""
        self._buffer += chunk
        buffer = self._buffer
        events: list[tuple[bytes, bytes]] = []
        at = 0
        while len(buffer) - at >= _PRELUDE:
            size, headers = _number(buffer, at, 4), _number(buffer, at + 4, 4)
            if zlib.crc32(buffer[at : at + 8]) != _number(buffer, at + 8, 4):
                _damaged("its lengths do not match their checksum")
            if size > self._limit:
                raise ProtocolError(
                    f"the server sent an event larger than {self._limit:,} bytes",
                    code="provider/too-large",
                    hint="no model answers with events of that size; check the base URL",
                )
            if size < _LEAST + headers:
                _damaged("it is shorter than its headers")
            if len(buffer) - at < size:
                break
            frame = bytes(buffer[at : at + size])
            if zlib.crc32(frame[:-4]) != _number(frame, size - 4, 4):
                _damaged("its content does not match its checksum")
            event = _event(_headers(frame[_PRELUDE : _PRELUDE + headers]), frame[_PRELUDE + headers : -4])
            if event is not None:
                events.append(event)
            at += size
        del buffer[:at]
        return events


def _event(headers: dict[str, str], payload: bytes) -> tuple[bytes, bytes] | None:
    """The model's event in a frame; None if the frame has none."""
    kind = headers.get(":message-type", "event")
    if kind == "event":
        if headers.get(":event-type") != "chunk":
            return None
        content = _record(payload).get("bytes")
        if not isinstance(content, str):
            return None
        try:
            return b"", b64decode(content, validate=True)
        except ValueError:
            _damaged("its payload is not base64")
    name = headers.get(":exception-type") or headers.get(":error-code") or kind
    message = headers.get(":error-message") or (_record(payload).get("message") if payload.startswith(b"{") else None)
    error = {"type": name.removesuffix("Exception"), "message": message or ""}
    return b"error", json.dumps({"type": "error", "error": error}).encode()


def _record(payload: bytes) -> dict[str, Any]:
    value = parse_json(payload, "an event's payload")
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _headers(block: bytes) -> dict[str, str]:
    """The text-valued headers of a frame."""
    headers: dict[str, str] = {}
    at = 0
    while at < len(block):
        end = at + 1 + block[at]
        name, kind = block[at + 1 : end].decode("utf-8", "replace"), block[end] if end < len(block) else -1
        at = end + 1
        if kind in (6, 7):
            size = _number(block, at, 2)
            value = block[at + 2 : at + 2 + size]
            at += 2 + size
            if kind == 7:
                headers[name] = value.decode("utf-8", "replace")
        elif kind in _FIXED:
            at += _FIXED[kind]
        else:
            _damaged("a header has an unknown type")
        if at > len(block):
            _damaged("its headers are cut off")
    return headers


def _number(data: bytes | bytearray, at: int, size: int) -> int:
    return int.from_bytes(data[at : at + size], "big")


def _damaged(why: str) -> NoReturn:
    raise ProtocolError(
        f"the server sent a damaged event frame: {why}",
        code="provider/bad-frame",
        hint="look for a proxy that changes the body",
    )
