"""Events as lines of a run's log, in which values shared by events are written once; see :mod:`agentflow.core.data.event_log`."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, cast

from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.event_log import CONTENT, PIECES_LINE, LogEntry, reference
from agentflow.core.data.messages import Message, ModelResponse
from agentflow.core.data.values import is_long, json_bytes, opened, to_json
from agentflow.core.data.walk import CHARACTERS_PER_STEP, Work
from agentflow.core.events.events import (
    VERSION,
    Event,
    ModelFinished,
    ModelStarted,
    ProgramLoaded,
    TextDelta,
    ThinkingDelta,
    as_data,
)

_MOST_KNOWN = 4_096
_DIGEST = 16
_MOST_READY = 64
"""Values written beforehand that no event has shown yet."""
_PIECE = 262_144
"""Bytes that are added to a digest at once."""
_WITHIN = 4
_ENTRIES = 256
"""Levels below a field, and entries of a container, that are looked through for values written beforehand."""
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class LogLines:
    """Encodes the events of one run. Parameter ``text`` gives the text of objects without a JSON form."""

    __slots__ = ("_cached", "_contents", "_encode", "_mark", "_ready", "_text", "_written")

    def __init__(self, text: Callable[[object], str] = str) -> None:
        self._text = text
        self._encode = json.JSONEncoder(
            ensure_ascii=False, separators=(",", ":"), check_circular=False, default=partial(opened, text=text)
        ).encode
        self._written: set[str] = set()
        self._contents: list[tuple[str, bytes]] = []
        self._cached: dict[int, tuple[Any, dict[str, str]]] = {}
        self._ready: dict[int, tuple[Any, bytes]] = {}
        self._mark = ""

    def preparation(self, value: Any) -> Work[None]:
        """Write large values beforehand and in parts: ``value``, or those in it if it is a dict of arguments.

        The next event that shows the same object contains the written text, so the value must not change in between.
        """
        if isinstance(value, ModelResponse | Message):
            shared = value.parts if isinstance(value, ModelResponse) else value
            if id(shared) not in self._cached and is_long(shared):
                body = yield from self._bytes(value.message() if isinstance(value, ModelResponse) else value)
                digest = blake2b(digest_size=_DIGEST)
                for start in range(0, len(body), _PIECE):
                    digest.update(body[start : start + _PIECE])
                    yield _PIECE // CHARACTERS_PER_STEP
                self._keep(shared, self._content(body, digest.hexdigest()))
            return
        parts: Iterable[Any] = cast("dict[Any, Any]", value).values() if type(value) is dict else (value,)
        for each in parts:
            if id(each) not in self._ready and is_long(each):
                body = yield from self._bytes(each)
                if len(self._ready) >= _MOST_READY:
                    del self._ready[next(iter(self._ready))]
                self._ready[id(each)] = (each, body)

    def _bytes(self, value: Any) -> Work[bytes]:
        try:
            return (yield from json_bytes(value, text=self._text))
        except ValueError:  # nested too deep, or its text is too long
            return self._body(as_data(value, self._text))

    def entry(self, event: Event) -> LogEntry:
        """``event`` as a line, with the contents it is the first to need."""
        line = self._line(event)
        contents, self._contents = self._contents, []
        return LogEntry(event.slice, event.seq, line, tuple(contents))

    def _line(self, event: Event) -> bytes:
        fields = self._fields(event)
        shown: list[int] = []
        if self._ready:
            fields = {name: self._marked(value, shown, _WITHIN) for name, value in fields.items()}
        try:
            line = self._encode(fields).encode("utf-8", "backslashreplace")
        except (RecursionError, TypeError, ValueError):  # no plain data: names as keys, a container that holds itself
            line = _encoded({name: as_data(value, self._text) for name, value in fields.items()})
        if not shown:
            return line
        texts = line.split(f'"{self._mark}"'.encode())
        bodies = [self._ready[key][1] for key in shown]
        for key in set(shown):
            del self._ready[key]
        return b"".join([each for pair in zip(texts, [*bodies, b""], strict=True) for each in pair])

    def _marked(self, value: Any, shown: list[int], within: int) -> Any:
        """``value`` with marks instead of values already written, whose keys are appended to ``shown``."""
        if id(value) in self._ready:
            shown.append(id(value))
            self._mark = self._mark or os.urandom(16).hex()
            return self._mark
        if within and dataclasses.is_dataclass(value):
            value = opened(value)
        elif within and isinstance(value, ContextGenerationInput):
            value = dict(value)
        entries = cast("dict[Any, Any]", value) if within and type(value) is dict else {}
        if entries and len(entries) <= _ENTRIES:
            return {key: self._marked(each, shown, within - 1) for key, each in entries.items()}
        return cast(Any, value)

    def _fields(self, event: Event) -> dict[str, Any]:
        """The fields of an event's line, with unconverted values."""
        fields = event.fields(self._text)
        if isinstance(event, ModelStarted) and event.request is not None:
            request = event.request
            cached = self._cached
            shared = self._shared
            data = opened(replace(request, messages=(), tools=(), system="", output_schema=None))
            data["messages"] = [
                cached[id(message)][1] if id(message) in cached else shared(message) for message in request.messages
            ]
            data["tools"] = [shared(tool) for tool in request.tools]
            if request.system:
                data["system"] = shared(request.system)
            if request.output_schema is not None:
                data["output_schema"] = shared(request.output_schema)
            fields["request"] = data
        elif isinstance(event, ModelFinished) and event.response is not None:
            response = event.response
            answer = opened(replace(response, parts=()))
            cached = self._cached.get(id(response.parts))
            answer["parts"] = self._content(self._body(response.message())) if cached is None else cached[1]
            fields["response"] = answer
        elif isinstance(event, ProgramLoaded):
            fields["text"] = self._content(self._body(event.text))
        return fields

    def _shared(self, value: Any) -> dict[str, str]:
        """The reference to a value that recurs as the same object."""
        cached = self._cached.get(id(value))
        return self._keep(value, self._content(self._body(value))) if cached is None else cached[1]

    def _keep(self, value: Any, content: dict[str, str]) -> dict[str, str]:
        """Remember that ``content`` is the reference to ``value``."""
        if len(self._cached) >= _MOST_KNOWN:
            self._cached.clear()
        self._cached[id(value)] = (value, content)
        return content

    def _content(self, body: bytes, digest: str = "") -> dict[str, str]:
        """The reference to a value whose JSON text is ``body``."""
        digest = digest or blake2b(body, digest_size=_DIGEST).hexdigest()
        if digest not in self._written:
            self._written.add(digest)
            self._contents.append((digest, body))
        return reference(digest)

    def _body(self, value: Any) -> bytes:
        try:
            return self._encode(value).encode("utf-8", "backslashreplace")
        except (RecursionError, TypeError, ValueError):
            return _encoded(as_data(value, self._text))


Piece = TextDelta | ThinkingDelta
"""Pieces of text: the commonest events by far, which differ from the one before in number, time and text alone."""


class PieceLine(list[Piece]):
    """Pieces of one stream that share a line.

    It spans no more time than the recorder's writer leaves between two looks, so that the times of the first and the last
    piece are enough.
    """

    def entry(self) -> LogEntry:
        """The line."""
        first, last = self[0], self[-1]
        follow = last.seq - first.seq == len(self) - 1
        data = {
            **replace(first, text="").to_dict(),
            "type": PIECES_LINE,
            "of": first.type,
            "seq": first.seq if follow else [piece.seq for piece in self],
            "until": last.time,
            "text": [piece.text for piece in self],
        }
        return LogEntry(first.slice, last.seq, _encoded(data))


def content_line(digest: str, body: bytes) -> bytes:
    """The line that holds a content, in a log that is a file."""
    return b'{"v":%d,"type":"%s","digest":"%s","value":%s}' % (VERSION, CONTENT.encode(), digest.encode(), body)


def _encoded(data: Any) -> bytes:
    """JSON data as bytes on one line. Lone surrogates are escaped, as JSON can."""
    try:
        line = _ENCODE(data)
    except RecursionError:  # far down in the stack, or far down in the data
        line = to_json(data)
    return line.encode("utf-8", "backslashreplace")
