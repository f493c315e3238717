"""Events as lines of a run's log, in which what events share stands once; see :mod:`agentflow.core.event_log`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

from agentflow.core.event_log import CONTENT, PIECES_LINE, LogEntry, reference
from agentflow.core.events import (
    VERSION,
    Event,
    ModelFinished,
    ModelStarted,
    ProgramLoaded,
    TextDelta,
    ThinkingDelta,
    as_data,
)
from agentflow.core.values import opened, to_json

_MOST_KNOWN = 4_096
_ENCODE = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class LogLines:
    """Encodes the events of one run. Parameter ``text`` gives the text of objects without a JSON form."""

    __slots__ = ("_contents", "_encode", "_known", "_text", "_written")

    def __init__(self, text: Callable[[object], str] = str) -> None:
        self._text = text
        self._encode = json.JSONEncoder(
            ensure_ascii=False, separators=(",", ":"), check_circular=False, default=partial(opened, text=text)
        ).encode
        self._written: set[str] = set()
        self._contents: list[tuple[str, bytes]] = []
        self._known: dict[int, tuple[Any, dict[str, str]]] = {}

    def entry(self, event: Event) -> LogEntry:
        """``event`` as a line, with the contents it is the first to need."""
        line = self._line(event)
        contents, self._contents = self._contents, []
        return LogEntry(event.slice, event.seq, line, tuple(contents))

    def _line(self, event: Event) -> bytes:
        try:
            return self._encode(self._fields(event)).encode("utf-8", "backslashreplace")
        except (RecursionError, TypeError, ValueError):  # no plain data: names as keys, a container that holds itself
            return _encoded({name: as_data(value, self._text) for name, value in self._fields(event).items()})

    def _fields(self, event: Event) -> dict[str, Any]:
        """What the line of an event holds, its values as they are."""
        fields = event.fields(self._text)
        if isinstance(event, ModelStarted) and event.request is not None:
            request = event.request
            known = self._known
            shared = self._shared
            data = opened(replace(request, messages=(), tools=(), system="", output_schema=None))
            data["messages"] = [
                known[id(message)][1] if id(message) in known else shared(message) for message in request.messages
            ]
            data["tools"] = [shared(tool) for tool in request.tools]
            if request.system:
                data["system"] = shared(request.system)
            if request.output_schema is not None:
                data["output_schema"] = shared(request.output_schema)
            fields["request"] = data
        elif isinstance(event, ModelFinished) and event.response is not None:
            answer = opened(replace(event.response, parts=()))
            answer["parts"] = self._content(event.response.message())
            fields["response"] = answer
        elif isinstance(event, ProgramLoaded):
            fields["text"] = self._content(event.text)
        return fields

    def _shared(self, value: Any) -> dict[str, str]:
        """The reference to a value that the same object stands for whenever it occurs again."""
        known = self._known.get(id(value))
        if known is not None:
            return known[1]
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        found = self._content(value)
        self._known[id(value)] = (value, found)
        return found

    def _content(self, value: Any) -> dict[str, str]:
        body = self._body(value)
        digest = blake2b(body, digest_size=16).hexdigest()
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
