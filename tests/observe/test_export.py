"""Exports of recorded runs: the same spans as a live trace, in formats that other tools read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.events.events import Event
from agentflow.observe.export import chrome_trace, otlp
from tests.observe.test_otel import TASK, Telemetry, answer

PROGRAM = f"""{TASK}
(parallel (value-of (t (x "a"))) (value-of (t (x "b"))))
(log-message "half")
(try (first 5) (catch (e) 'caught))
(t)"""


async def recorded(tmp_path: Path, program: str = PROGRAM, **options: Any) -> tuple[list[dict[str, Any]], Telemetry]:
    """A run's events as they are recorded, and what a live trace of it said."""
    events: list[Event] = []
    telemetry = Telemetry(**options)
    async with AgentFlow(provider=ScriptedProvider(answer), root=tmp_path) as flow:
        flow.subscribe(events.append)
        flow.subscribe(telemetry.observer)
        await flow.run(program, run_id="r1")
    return [json.loads(json.dumps(event.to_dict())) for event in events], telemetry


async def test_an_export_says_what_the_live_trace_said(tmp_path: Path) -> None:
    """Name, parent, attributes, status and notes of every span are equal, whether a run is traced or exported later."""
    events, telemetry = await recorded(tmp_path, content=True)
    spans = otlp(events, content=True)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    names = {span["spanId"]: span["name"] for span in spans}
    exported = [
        (
            span["name"],
            names.get(span.get("parentSpanId", "")),
            {each["key"]: next(iter(each["value"].values())) for each in span["attributes"]},
            [event["name"] for event in span["events"]],
        )
        for span in spans
    ]
    ids = {span.context.span_id: span.name for span in telemetry.spans if span.context is not None}

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return {"values": [{"stringValue": each} for each in value]}
        return str(value) if type(value) is int else value

    live = [
        (
            span.name,
            ids[span.parent.span_id] if span.parent is not None else None,
            {key: plain(value) for key, value in (span.attributes or {}).items()},
            [event.name for event in span.events],
        )
        for span in telemetry.spans
    ]

    def by_attributes(row: tuple[Any, ...]) -> str:
        return json.dumps(row[2], sort_keys=True)

    assert sorted(exported, key=by_attributes) == sorted(live, key=by_attributes)
    assert len(spans) == len(telemetry.spans) == 8
    assert otlp(events) == otlp(events) and {len(span["traceId"]) for span in spans} == {32}


async def test_lanes_never_overlap(tmp_path: Path) -> None:
    """In Chrome's format the spans of a lane nest: what is side by side has a lane of its own, freed when it ends."""
    text = f'{TASK} (pmap (lambda (n) (list (t (x "a")) (t (x "b")))) (range 40) 8)'
    events, _ = await recorded(tmp_path, text)
    trace = chrome_trace(events)["traceEvents"]
    complete = [each for each in trace if each["ph"] == "X"]
    assert {each["ph"] for each in trace} == {"M", "X", "i"} and len(complete) == 1 + 40 * 5
    lanes: dict[int, list[tuple[int, int]]] = {}
    for each in complete:
        lanes.setdefault(each["tid"], []).append((each["ts"], each["ts"] + each["dur"]))
    assert 8 <= len(lanes) <= 12
    for spans in lanes.values():
        stack: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while stack and stack[-1] <= begin:
                stack.pop()
            assert not stack or end <= stack[-1]
            stack.append(end)


async def test_a_run_that_was_cut_off_is_exported(tmp_path: Path) -> None:
    """Spans without an end get the last time there is, and are told as unfinished."""
    events, _ = await recorded(tmp_path)
    cut = events[: len(events) // 2]
    spans = otlp(cut)["resourceSpans"][0]["scopeSpans"][0]["spans"]
    unfinished = [
        s["name"] for s in spans if {"key": "error.type", "value": {"stringValue": "unfinished"}} in s["attributes"]
    ]
    assert any(name.startswith("invoke_workflow") for name in unfinished)
    assert all(int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) for span in spans)
