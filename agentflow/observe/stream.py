"""Delivers the events of a run to its readers: plain observers, async observers, and the caller's own stream.

Publishing is synchronous and never waits. Every observer that keeps up gets all lifecycle events; one that falls behind
loses deltas. Only the caller's own stream and a recorder can slow a run down: the first its delta producers, the second
also new effects.

Observers get redacted copies, and only if there is something to remove; the live values stay unchanged. Deltas are pieces
of a text: from the first piece that may belong to a secret (four characters of a known one, or the beginning of a key) a
stream is redacted thoroughly, and pieces are held back until they are clear; ordinary text passes unchanged.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from operator import is_
from typing import Any, cast

from agentflow.core.call.call import is_stray
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.messages import ModelRequest
from agentflow.core.data.source import Source, Span
from agentflow.core.events.events import (
    DeltaBase,
    Event,
    LoopProgress,
    ModelFinished,
    ModelStarted,
    PartialOutput,
    ProgramLoaded,
    TextDelta,
    ThinkingDelta,
    ToolArgumentsDelta,
    ToolProgress,
    text_getter,
)
from agentflow.core.ports.store_ports import Pacer
from agentflow.lib.redact import GRAM, MIN_SECRET, RedactedStream, Redactor
from agentflow.lib.redacted_copy import holds_secret, redacted

_log = logging.getLogger(__name__)

MAX_UNREAD = 10_000
"""Number of unread lifecycle events before an observer is disconnected."""
DELTA_ALLOWANCE = 64
"""Number of unread deltas at which an observer loses further ones, or the caller's stream makes producers wait."""


class Subscriber:
    """A queue of events for one reader.

    Parameters: ``lossy`` drops deltas past the allowance; otherwise :attr:`congested` turns true and producers wait.
    ``limit`` is the number of unread lifecycle events before the reader is disconnected; None is never. ``late`` is
    true while an async observer handles an event.
    """

    __slots__ = (
        "_deltas", "_limit", "_lossy", "_queue", "_room", "_wake", "closed", "congested", "dropped", "late", "overrun",
    )  # fmt: skip

    def __init__(self, *, lossy: bool, limit: int | None = MAX_UNREAD) -> None:
        self._queue: deque[Event] = deque()
        self._deltas = 0
        self._lossy = lossy
        self._limit = limit
        self._wake: asyncio.Event = asyncio.Event()
        self._room: asyncio.Event = asyncio.Event()
        self.congested = False
        self.closed = False
        self.late = False
        self.overrun = False
        self.dropped = 0

    def put(self, event: Event) -> None:
        """Queue an event, or drop a delta past the allowance."""
        if self.closed:
            return
        if isinstance(event, DeltaBase):
            if self._deltas >= DELTA_ALLOWANCE and (self._lossy or isinstance(event, ToolProgress | LoopProgress)):
                self.dropped += 1
                return
            self._deltas += 1
            if self._deltas >= DELTA_ALLOWANCE:
                self.congested = not self._lossy
                self._room.clear()
        elif self._limit is not None and len(self._queue) - self._deltas >= self._limit:
            self.overrun = True
            _log.warning("an event reader is disconnected: %d events unread", self._limit)
            self.close()
            return
        self._queue.append(event)
        self._wake.set()

    def close(self) -> None:
        """Accept no more events; queued ones can still be read. Wakes waiting producers."""
        self.closed = True
        self.congested = False
        self._room.set()
        self._wake.set()

    def discard(self) -> None:
        """Drop unread events and accept no more."""
        self._queue.clear()
        self._deltas = 0
        self.close()

    async def room(self) -> None:
        """Wait until the reader has taken enough deltas, or has left."""
        while self.congested:
            await self._room.wait()

    async def next(self) -> Event | None:
        """Wait for the next event; None after the last one."""
        while not self._queue:
            if self.closed:
                return None
            self._wake.clear()
            await self._wake.wait()
        event = self._queue.popleft()
        if isinstance(event, DeltaBase):
            self._deltas -= 1
            if self.congested and self._deltas <= DELTA_ALLOWANCE // 2:
                self.congested = False
                self._room.set()
        return event

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self.next()) is not None:
            yield event
        if self.overrun:
            raise AgentflowError(
                f"this reader fell behind: more than {MAX_UNREAD} events were unread, later ones were not kept",
                code="stream/overrun",
                hint="read events as they come, or subscribe a plain function with flow.subscribe",
            )


Observer = Callable[[Event], Awaitable[None] | None]


def is_async_observer(observer: Observer) -> bool:
    """Whether ``observer`` is an async function or has an async ``__call__``."""
    call: Any = getattr(observer, "__call__", None)  # noqa: B004 - the instance's own method decides
    return inspect.iscoroutinefunction(observer) or inspect.iscoroutinefunction(call)


def takes_deltas(observer: Observer) -> bool:
    """Whether ``observer`` takes deltas: its attribute ``deltas``, by default true."""
    return bool(getattr(observer, "deltas", True))


def pacers_of(observers: Iterable[Observer]) -> tuple[Pacer, ...]:
    """The observers that a run waits for."""
    return tuple([cast(Pacer, each) for each in observers if hasattr(each, "congested") and hasattr(each, "room")])


class Fanout:
    """All observers of one run.

    Parameters: ``observers`` plain callables and the callables of async observers; ``own`` the caller's own stream;
    ``drop`` is called with an observer that failed, so that later runs do not use it. An observer with a false attribute
    ``deltas`` gets lifecycle events only; an async one with a true attribute ``keeps_all`` is never disconnected for
    falling behind. A :class:`~agentflow.core.ports.store_ports.Pacer` makes producers of deltas
    wait, as the caller's own stream does. Attributes: ``watched``: there are observers; ``streaming``: there are observers
    of deltas; ``needs_tasks``: there are async observers, which :meth:`pump` serves.

    Plain observers are called at once, one after the other, in the task and the context that publish: the code that
    continues there sees the context variables they set.
    """

    __slots__ = ("_async", "_drop", "_plain", "needs_tasks", "own", "pacers", "streaming", "watched")

    def __init__(
        self,
        observers: tuple[Observer, ...],
        own: Subscriber | None = None,
        drop: Callable[[Observer], None] = lambda observer: None,
    ) -> None:
        self._drop = drop
        self._plain: list[Callable[[Event], Any]] = []
        self._async: list[tuple[Observer, Subscriber]] = []
        self.own = own
        self.pacers = pacers_of(observers) if observers else ()
        self.watched = bool(observers) or own is not None
        self.streaming = own is not None
        for observer in observers:
            self.streaming = self.streaming or takes_deltas(observer)
            if is_async_observer(observer):
                limit = None if getattr(observer, "keeps_all", False) else MAX_UNREAD
                self._async.append((observer, Subscriber(lossy=True, limit=limit)))
            else:
                self._plain.append(observer)
        self.needs_tasks = bool(self._async)

    @property
    def congested(self) -> bool:
        """Whether delta producers must wait: for the caller's own stream, or for a recorder."""
        if self.own is not None and self.own.congested:
            return True
        for pacer in self.pacers:  # noqa: SIM110 - asked at every delta, where a generator costs more than the question
            if pacer.congested:
                return True
        return False

    async def room(self) -> None:
        """Wait until delta producers may continue."""
        if self.own is not None:
            await self.own.room()
        for pacer in self.pacers:
            await pacer.room()

    def publish(self, event: Event) -> None:
        """Hand ``event`` to all readers. An observer that raises is disabled and logged; the run continues."""
        delta = isinstance(event, DeltaBase)
        for observer in self._plain:
            if delta and not takes_deltas(observer):
                continue
            try:
                result = observer(event)
            except BaseException as error:  # an observer is foreign code; its failure must not be the run's
                if not isinstance(error, Exception) and not is_stray(
                    error, cancelled=True
                ):  # its cancellation, an interrupt
                    raise
                self._disable(observer, "failed")
                continue
            if result is not None and inspect.isawaitable(result):
                _close(result)
                self._disable(observer, "returns an awaitable but is not an async function")
        for observer, subscriber in self._async:
            if not delta or takes_deltas(observer):
                subscriber.put(event)
        if self.own is not None:
            self.own.put(event)

    def _disable(self, observer: Observer, why: str) -> None:
        _log.warning("observer %r %s; it is disabled", observer, why, exc_info=True)
        self._plain = [other for other in self._plain if other is not observer]
        self._drop(observer)

    async def pump(self) -> None:
        """Run the async observers until :meth:`close`."""
        async with asyncio.TaskGroup() as group:
            for observer, subscriber in self._async:
                group.create_task(self._feed(observer, subscriber))

    async def _feed(self, observer: Observer, subscriber: Subscriber) -> None:
        while (event := await subscriber.next()) is not None:
            try:
                result = observer(event)
                if result is not None:
                    subscriber.late = True
                    await result
                subscriber.late = False
            except BaseException as error:  # an observer is foreign code; its failure must not be the run's
                if not isinstance(error, Exception) and not is_stray(
                    error, cancelled=True
                ):  # its cancellation, an interrupt
                    raise
                _log.warning("async observer %r failed; it is disabled", observer, exc_info=True)
                subscriber.discard()
                self._drop(observer)
                return

    def drop_late(self) -> None:
        """Disable the async observers that still have unread events: later runs do without them."""
        for observer, subscriber in self._async:
            if subscriber.late:
                _log.warning("async observer %r still had not taken all events of its run; it is dropped", observer)
                self._drop(observer)

    def close(self) -> None:
        """Accept no more events; async observers end after reading the queued ones."""
        for _, subscriber in self._async:
            subscriber.close()
        if self.own is not None:
            self.own.close()


def _close(awaitable: object) -> None:
    close = getattr(awaitable, "close", None)
    if close is not None:
        close()


MOST_REMEMBERED = 4_096
"""Number of messages, tools and sources with a cached redacted form, per run."""
MOST_KEPT = 8
"""Number of large values in errors with a cached redacted form."""
PIECES = (TextDelta, ThinkingDelta, ToolArgumentsDelta)
"""Events with a piece of a text each; a secret may extend over several."""
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

        There is none for a held back delta. Held back text comes before the end of its model call, so the last of
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
        """``value`` and its redacted form, cached as long as the value lives."""
        if len(self._shown) >= MOST_REMEMBERED:
            self._shown.clear()
        pair = self._shown[id(value)] = (value, redacted(value, self._redactor))
        return pair


def _settled(value: Any, redactor: Redactor) -> Any:
    """Partial structured data without secrets, and without the end of a text that may be the beginning of a secret."""
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

    Redacting every piece thoroughly would double the cost of a delta. Any part of a secret passed on before the
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
        """The held-back part."""
        return self.thorough.finish() if self.thorough is not None else ""
