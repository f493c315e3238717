"""Exports recorded runs in Chrome's trace format (Perfetto, speedscope) and OTLP (any OpenTelemetry backend).

Sources: "Trace Event Format" of the Chromium project; the JSON encoding of the OpenTelemetry protocol 1.x. Both stand on the
table of :mod:`agentflow.observe.event_spans`, so that an export equals a live trace.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from agentflow.observe.conventions import edition_of
from agentflow.observe.event_spans import Attributes, Closed, Key, SpanFold, SpanStart, Told, Written

_RECORDED = Mapping[str, Any]
_KINDS = {"internal": 1, "client": 3}


@dataclass(slots=True)
class _Span:
    name: str
    kind: str
    start: float
    parent: int | None
    seq: int
    attributes: Attributes
    end: float = 0.0
    notes: list[tuple[float, str, Attributes]] = field(default_factory=list[tuple[float, str, Attributes]])
    error: str | None = None
    failed: bool = False
    finished: bool = False


def spans_of(records: Iterable[_RECORDED], written: Written) -> list[_Span]:
    """The spans of one slice of a run, by start. A span without an end ends with the last event, and says so."""
    fold, spans, last = SpanFold(written), dict[Key, _Span](), 0.0
    for record in records:
        last = max(last, record["time"])
        step = fold(record)
        if step is None:
            continue
        key, change = step
        if isinstance(change, SpanStart):
            around = fold.around(record)
            parent = None if around is None else around[2]
            spans[key] = _Span(change.name, change.kind, record["time"], parent, key[2], change.attributes)
        elif isinstance(change, Told):
            spans[key].attributes.update(change.attributes)
        elif isinstance(change, Closed):
            span = spans[key]
            span.end, span.finished = record["time"], True
            span.error, span.failed = change.error_type, change.failed
            span.attributes.update(change.attributes)
        else:
            spans[key].notes.append((record["time"], change.name, change.attributes))
    for span in spans.values():
        if not span.finished:
            span.end, span.error = last, "unfinished"
    return sorted(spans.values(), key=lambda span: (span.start, span.seq))


def _stretches(records: Iterable[_RECORDED]) -> dict[tuple[str, int], list[_RECORDED]]:
    """The records by run and slice; ``seq`` starts again in each."""
    parts: dict[tuple[str, int], list[_RECORDED]] = {}
    for record in records:
        parts.setdefault((record["run_id"], record.get("slice", 1)), []).append(record)
    return parts


def chrome_trace(records: Iterable[_RECORDED]) -> dict[str, Any]:
    """Recorded events in Chrome's trace format: a process per run, a lane per branch open at the same time.

    Times are in microseconds. Opens in Perfetto (ui.perfetto.dev), ``chrome://tracing`` and speedscope.
    """
    events: list[dict[str, Any]] = []
    written = Written(edition_of(None))
    for number, ((run_id, part), stretch) in enumerate(_stretches(records).items(), 1):
        spans = spans_of(stretch, written)
        name = f"{spans[0].name} {run_id}" if spans else run_id
        label = name if part == 1 else f"{name}, slice {part}"
        events.append({"ph": "M", "pid": number, "name": "process_name", "args": {"name": label}})
        for span, lane in _lanes(spans):
            common = {"pid": number, "tid": lane}
            arguments: dict[str, Any] = dict(span.attributes)
            if span.error is not None:
                arguments["error.type"] = span.error
            events.append(
                {
                    "ph": "X",
                    "name": span.name,
                    "cat": span.kind,
                    "ts": _micros(span.start),
                    "dur": max(0, _micros(span.end) - _micros(span.start)),
                    "args": arguments,
                    **common,
                }
            )
            events += [
                {"ph": "i", "s": "t", "name": name, "ts": _micros(time), "args": dict(attributes), **common}
                for time, name, attributes in span.notes
            ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _lanes(spans: list[_Span]) -> list[tuple[_Span, int]]:
    """Each span with a lane: its parent's if free, else the first free one."""
    stacks: list[list[tuple[float, int]]] = []
    lanes: dict[int, int] = {}
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    placed: list[tuple[_Span, int]] = []
    for span in spans:
        lane = lanes.get(span.parent) if span.parent is not None else None
        if lane is None or not _nests(stacks[lane], span):
            while busy and busy[0][0] <= span.start:
                heapq.heappush(free, heapq.heappop(busy)[1])
            lane = heapq.heappop(free) if free else len(stacks)
            if lane == len(stacks):
                stacks.append([])
            stacks[lane].clear()
            heapq.heappush(busy, (span.end, lane))
        stacks[lane].append((span.end, span.seq))
        lanes[span.seq] = lane
        placed.append((span, lane))
    return placed


def _nests(stack: list[tuple[float, int]], span: _Span) -> bool:
    """Whether the innermost open span of a lane is the parent of the span, and ends after it."""
    while stack and stack[-1][0] <= span.start and stack[-1][1] != span.parent:
        stack.pop()
    return bool(stack) and stack[-1][1] == span.parent and span.end <= stack[-1][0]


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)


def otlp(records: Iterable[_RECORDED], *, content: bool = False, edition: str | None = None) -> dict[str, Any]:
    """Recorded events as an OTLP trace export request, in JSON: post it to ``/v1/traces`` of a collector.

    Trace and span ids are digests of run, slice and ``seq``: the same run exported twice is the same trace. ``content`` and
    ``edition`` are those of :class:`~agentflow.OpenTelemetry`. Raises ConfigurationError (``config/otel-edition``) for an
    edition that is not stored.
    """
    written = Written(edition_of(edition), content)
    schema_url = written.edition.schema_url
    spans: list[dict[str, Any]] = []
    for (run_id, part), stretch in _stretches(records).items():
        for span in spans_of(stretch, written):
            spans.append(_otlp_span(span, run_id, part))
    scope = {"scope": {"name": "agentflow"}, "schemaUrl": schema_url, "spans": spans}
    resource = {"attributes": _attributes({"service.name": "agentflow"})}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [scope], "schemaUrl": schema_url}]}


def _otlp_span(span: _Span, run_id: str, part: int) -> dict[str, Any]:
    attributes = span.attributes if span.error is None else {**span.attributes, "error.type": span.error}
    data: dict[str, Any] = {
        "traceId": _id(16, run_id),
        "spanId": _id(8, run_id, part, span.seq),
        "name": span.name,
        "kind": _KINDS[span.kind],
        "startTimeUnixNano": _nanos(span.start),
        "endTimeUnixNano": _nanos(span.end),
        "attributes": _attributes(attributes),
        "events": [
            {"timeUnixNano": _nanos(time), "name": name, "attributes": _attributes(attributes)}
            for time, name, attributes in span.notes
        ],
        "status": {"code": 2} if span.failed else {},
    }
    if span.parent is not None:
        data["parentSpanId"] = _id(8, run_id, part, span.parent)
    return data


def _id(size: int, *parts: object) -> str:
    return hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=size).hexdigest()


def _nanos(seconds: float) -> str:
    return str(int(seconds * 1_000_000) * 1_000)


def _attributes(values: Attributes) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in values.items()]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, list):
        return {"arrayValue": {"values": [_value(each) for each in value]}}  # pyright: ignore[reportUnknownVariableType]
    return {"stringValue": str(value)}
