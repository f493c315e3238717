"""Traces of runs that several processes work on."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from agentflow import AgentFlow, Durable
from agentflow.observe.otel import OpenTelemetry
from tests.scale.workers import detached, working


async def test_the_slices_of_a_run_and_its_branches_stand_in_one_trace(postgres_url: str) -> None:
    """That of the span which was current where the run was started; a branch stands below the slice that began it."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("host")
    async with (
        AgentFlow(model="offline", durable=Durable(postgres_url, take_over=False)) as starter,
        AgentFlow(model="offline", durable=postgres_url) as worker,
    ):
        for flow in (starter, worker):
            flow.subscribe(OpenTelemetry(tracer_provider=provider))
        with tracer.start_as_current_span("request") as request:
            run = await detached(starter, "r", "(pmap :on workers (lambda (x) (+ x 1)) (list 1 2))")
        untraced = await detached(starter, "s", "(+ 1 2)")
        async with working(worker):
            assert (await run.result()).value == [2, 3] and (await untraced.result()).value == 3
    spans: dict[int, Any] = {span.context.span_id: span for span in exporter.get_finished_spans()}
    host = request.get_span_context()
    inside = [span for span in spans.values() if span.context.trace_id == host.trace_id and span.name != "request"]
    assert len([span for span in spans.values() if span.name.startswith("invoke_workflow")]) == 5
    slices = [span for span in inside if span.parent.span_id == host.span_id]
    assert len(slices) == 2 and len(inside) == 4
    branches = [span for span in inside if span not in slices]
    first = min(slices, key=lambda span: span.start_time)
    assert {span.parent.span_id for span in branches} == {first.context.span_id}
