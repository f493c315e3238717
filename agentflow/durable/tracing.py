"""Which trace a durable run belongs to, for observers that write traces: stored with the run, and gone on with elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Tracer(Protocol):
    """An observer that knows the current trace: :class:`agentflow.observe.otel.OpenTelemetry`."""

    def carrier(self) -> dict[str, str]:
        """The current trace as headers; empty where there is none."""
        ...

    def go_on(self, carrier: Mapping[str, str]) -> None:
        """Let what the current task does belong to a trace, unless it belongs to one already."""
        ...


def trace_of(observers: Iterable[object]) -> dict[str, str] | None:
    """The current trace; None where nobody writes one."""
    for each in observers:
        if isinstance(each, Tracer) and (carrier := each.carrier()):
            return carrier
    return None


def go_on_with(observers: Iterable[object], stored: Any) -> None:
    """Let what the current task does belong to the trace that :func:`trace_of` gave."""
    if stored:
        for each in observers:
            if isinstance(each, Tracer):
                each.go_on(stored)


__all__ = ["Tracer", "go_on_with", "trace_of"]
