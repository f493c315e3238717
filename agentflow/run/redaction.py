"""Removes secrets from events before any observer sees them.

Observers get copies, and only if there is something to remove; the live values stay unchanged. Deltas are pieces of a text:
from the first piece that may belong to a secret (four characters of a known one, or the beginning of a key) a stream is
redacted thoroughly, and pieces are held back until they are clear; ordinary text passes unchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import is_
from typing import Any, cast

from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.source import Source, Span
from agentflow.core.events.events import (
    Event,
    ModelFinished,
    ModelStarted,
    PartialOutput,
    ProgramLoaded,
    TextDelta,
    ThinkingDelta,
    ToolArgumentsDelta,
    text_getter,
)
from agentflow.lib.redact import GRAM, MIN_SECRET, RedactedStream, Redactor
from agentflow.lib.redacted_copy import holds_secret, redacted

MOST_REMEMBERED = 4_096
"""Number of messages, tools and sources whose redacted form is cached per run."""
MOST_KEPT = 8
"""Number of large values in errors whose redacted form is cached."""
PIECES = (TextDelta, ThinkingDelta, ToolArgumentsDelta)
"""Events that are pieces of a text; a secret may extend over several."""
_Pieces = TextDelta | ThinkingDelta | ToolArgumentsDelta


class EventRedactor:
    """Redacts the events of one run. Parameters: ``redactor`` knows the secrets."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._streams: dict[tuple[str, str, str], _RedactedStream] = {}
        self._shown: dict[int, tuple[Any, Any]] = {}
        self._clean_source: Source | None = None
        self._kept: dict[int, tuple[Any, Any]] = {}

    def keep(self, value: object, shown: object) -> None:
        """Cache the redacted form ``shown`` of a large immutable value for later events; only the last few are kept."""
        if len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[id(value)] = (value, shown)

    def show(self, event: Event, next_seq: Callable[[], int]) -> tuple[Event, ...]:
        """The events to show when ``event`` is published: usually itself, the same object if it holds no secret.

        There is none for a delta that is held back. Held back text comes before the end of its model call, so the last of
        these events needs a number of its own from ``next_seq``.
        """
        if event.span is not None and event.span.source is not self._clean_source:
            event = self._with_clean_span(event, event.span)
        if isinstance(event, PIECES):
            piece = self._delta(event)
            return (piece,) if piece.text else ()
        late: list[Event] = []
        if isinstance(event, ModelFinished):
            for delta in self._settle(event):
                late.append(replace(delta, seq=event.seq))
                event = replace(event, seq=next_seq())
        if self._kept:
            self._redactor.examined.update(self._kept)
        return (*late, self._whole(event))

    def _with_clean_span(self, event: Event, span: Span) -> Event:
        """``event`` with a redacted span: spans refer to the text of a program, which may contain a secret."""
        source, shown = self._shown.get(id(span.source)) or self._search(span.source)
        if shown is source:
            self._clean_source = source
            return event
        return replace(event, span=Span(shown, span.start, span.end))

    def _settle(self, finished: ModelFinished) -> list[_Pieces]:
        """The text held back from the streams of an ended model call, as deltas that still need numbers."""
        late: list[_Pieces] = []
        for key in [key for key in self._streams if key[0] == finished.path]:
            stream = self._streams.pop(key)
            rest = stream.rest()
            if rest:
                late.append(replace(stream.last, text=rest, time=finished.time))
        return late

    def _delta(self, event: _Pieces) -> _Pieces:
        """A delta with the text that may be shown now."""
        key = (event.path, event.type, event.call_id if isinstance(event, ToolArgumentsDelta) else "")
        stream = self._streams.get(key)
        if stream is None:
            stream = self._streams[key] = _RedactedStream(event)
        text = stream.feed(event.text, self._redactor)
        stream.last = event
        return event if text == event.text else replace(event, text=text)

    def _whole(self, event: Event) -> Event:
        """Any other event as it may be shown; the same object when it holds no secret."""
        redactor = self._redactor
        if isinstance(event, ModelStarted) and event.request is not None:
            request = self._request(event.request)
            return event if request is event.request else replace(event, request=request)
        if isinstance(event, ProgramLoaded):
            text, name = redactor.mask(event.text), redactor.redact(event.name)
            return event if (text, name) == (event.text, event.name) else replace(event, text=text, name=name)
        if isinstance(event, PartialOutput):
            value = _settled(event.value, redactor)
            return event if value == event.value else replace(event, value=value)
        return redacted(event, redactor) if holds_secret(text_getter(type(event))(event), redactor) else event

    def _request(self, request: ModelRequest) -> ModelRequest:
        """A request as it may be shown. The messages of a growing conversation are searched once each."""
        shown = self._shown
        messages = [(shown.get(id(message)) or self._search(message))[1] for message in request.messages]
        tools = (shown.get(id(request.tools)) or self._search(request.tools))[1]
        rest = (request.system, request.settings, request.output_schema)
        clean = all(map(is_, messages, request.messages)) and tools is request.tools
        if clean and not holds_secret(rest, self._redactor):
            return request
        system, settings, schema = redacted(rest, self._redactor)
        return replace(
            request, messages=tuple(messages), tools=tools, system=system, settings=settings, output_schema=schema
        )

    def _search(self, value: Any) -> tuple[Any, Any]:
        """``value`` and what is shown of it, remembered for as long as the value is."""
        if len(self._shown) >= MOST_REMEMBERED:
            self._shown.clear()
        pair = self._shown[id(value)] = (value, redacted(value, self._redactor))
        return pair


def _settled(value: Any, redactor: Redactor) -> Any:
    """Partial structured data without secrets, and without the end of a text in which a secret may have begun."""
    if isinstance(value, str):
        stream = redactor.stream()
        shown = stream.feed(value)
        return shown if stream.held >= GRAM else redactor.redact(value)
    if isinstance(value, dict):
        return {redactor.redact(key): _settled(item, redactor) for key, item in cast(dict[str, Any], value).items()}
    if isinstance(value, list):
        return [_settled(item, redactor) for item in cast(list[Any], value)]
    return value


class _RedactedStream:
    """One stream of pieces: passed on unchanged until one looks like the beginning of a secret, redacted from then on.

    Redacting every piece thoroughly would double the cost of a delta. Any part of a secret that is passed on before the
    first suspicion is shorter than any secret.
    """

    __slots__ = ("last", "shown", "thorough")

    def __init__(self, last: _Pieces) -> None:
        self.last = last
        self.shown = ""
        self.thorough: RedactedStream | None = None

    def feed(self, text: str, redactor: Redactor) -> str:
        if self.thorough is not None:
            return self.thorough.feed(text)
        shown = self.shown
        seen = shown + text
        if (
            seen[-GRAM:] not in redactor.grams
            and (len(text) < MIN_SECRET or not redactor.finds(text))
            and not redactor.suspects(seen)
        ):
            self.shown = seen[-redactor.memory :]
            return text
        self.thorough = redactor.stream()
        out = self.thorough.feed(seen)
        return out[len(shown) :] if out.startswith(shown) else out

    def rest(self) -> str:
        """What is held back."""
        return self.thorough.finish() if self.thorough is not None else ""
