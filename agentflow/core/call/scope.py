"""An open pair of events: a Started, and a Finished that is published however the block ends."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from agentflow.core.call.reading import Reading
from agentflow.core.data.labels import NO_SOURCES, joined
from agentflow.core.events.events import ENDINGS, EventBase, Outcome


class Suspendable(Protocol):
    """The records of a durable run as its scopes see them."""

    @property
    def suspending(self) -> bool:
        """Whether the run is given up, to be resumed later."""
        ...


class Watchable(Protocol):
    """A run as its scopes see it."""

    @property
    def journal(self) -> Suspendable | None:
        """The records of the run; None when it is not durable."""
        ...

    @property
    def watched(self) -> bool:
        """Whether anybody takes events."""
        ...


class Emitter(Protocol):
    """The publisher of a scope's events: a :class:`~agentflow.core.call.call.CallContext`."""

    parent: int | None
    reading: Reading | None

    @property
    def run(self) -> Watchable: ...
    def at(self: C, path: str, /) -> C:
        """This call at another path, with a numbering of its own."""
        ...

    def emit(self, kind: type[EventBase], /, **fields: Any) -> int:
        """Publish an event. Returns its ``seq``; 0 when nobody watches."""
        ...


C = TypeVar("C", bound=Emitter)


class Scope(Generic[C]):
    """An open Started/Finished pair; see :meth:`CallContext.scope`. A field that both events have is passed once.

    ``call`` is the call inside; ``watched`` says whether anybody takes its events; without a reader, fields of the Finished event need not be set.
    """

    __slots__ = ("_began", "_fields", "_seq", "_started", "_values", "call", "watched")

    def __init__(self, call: C, started: type[EventBase], fields: dict[str, Any]) -> None:
        self.call = call
        self._started = started
        self._fields = fields
        self.watched = call.run.watched

    def __enter__(self) -> Scope[C]:
        call = self.call
        self._values: dict[str, Any] = {}
        self._began = time.perf_counter()
        fields, reading = self._fields, call.reading
        if reading is not None and reading.sources and ENDINGS[self._started].asked:
            fields = {**fields, "sources": tuple(sorted(reading.sources))}
        self._seq = call.parent = call.emit(self._started, **fields)
        return self

    def change(self, **fields: Any) -> None:
        """Other fields for the Started event, before the block."""
        self._fields = {**self._fields, **fields}

    def set(self, **values: Any) -> None:
        """Fields for the Finished event: ``outcome``, ``error``, ``usage`` or those of its own; ``sources`` besides those of what was read."""
        self._values.update(values)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        values = self._values
        outcome: Outcome
        if error is not None:
            outcome = _outcome_of(error, self.call.run.journal)
            values["error"] = error
        else:
            result = values.get("result")
            outcome = values.get("outcome") or ("failed" if getattr(result, "status", "") == "FAILED" else "ok")
        values["outcome"] = outcome
        ending = ENDINGS[self._started]
        for name in ending.shared:
            if name in self._fields:
                values.setdefault(name, self._fields[name])
        reading = self.call.reading
        if reading is not None and ending.sourced:
            values["sources"] = tuple(sorted(joined(reading.given(), values.get("sources", NO_SOURCES))))
        self.call.emit(ending.kind, started=self._seq, duration_s=time.perf_counter() - self._began, **values)


class QuietScope(Scope[C]):
    """An unwatched pair: it has only the inner call, which its creator sets."""

    __slots__ = ()
    watched = False  # pyright: ignore[reportIncompatibleVariableOverride, reportAssignmentType]

    def __enter__(self) -> QuietScope[C]:
        return self

    def change(self, **fields: Any) -> None:
        """Discard the fields, since nobody watches."""

    def set(self, **values: Any) -> None:
        """Discard the fields, since nobody watches."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class QuietPart(QuietScope[C]):
    """The same at a ``path`` of its own within ``outer``: the inner call is created on first use."""

    __slots__ = ("inner", "outer", "path")

    inner: C | None
    outer: C
    path: str

    @property
    def call(self) -> C:  # pyright: ignore[reportIncompatibleVariableOverride]
        inner = self.inner
        if inner is None:
            inner = self.inner = self.outer.at(self.path)
        return inner


def _outcome_of(error: BaseException, journal: Suspendable | None) -> Outcome:
    if not isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "error"
    return "suspended" if journal is not None and journal.suspending else "cancelled"
