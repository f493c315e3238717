"""OpenTelemetry: spans and metrics of runs, from their events. Needs ``opentelemetry-api``, the extra ``otel``."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.events.events import DeltaBase, EventBase, FinishedBase, RunFinished, WaitFinished
from agentflow.core.events.journal_rows import FleetCounts, QueueLoad
from agentflow.core.events.live_scores import LiveScore
from agentflow.lib.distribution import install
from agentflow.observe.conventions import SECONDS, Instrument, edition_of
from agentflow.observe.event_spans import Attributes, Closed, Key, SpanFold, SpanStart, Told, Written, field

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider


_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EVALUATION = "gen_ai.evaluation.result"
_ENDED = 2_000
"""Number of ended runs with remembered spans, for later scores."""
_COST = "agentflow.cost"
_WAIT = Instrument("agentflow.wait.duration", "s", "Duration of waits, for a rate, a permit, an answer", SECONDS)
_DURATIONS = {
    "tool_finished": "execute_tool",
    "task_finished": "invoke_agent",
    "run_finished": "invoke_workflow",
    "context_finished": "retrieval",
}
"""The operation of each event with a duration that the conventions measure."""


@dataclass(slots=True)
class _ModelCall:
    """A model call with an open span: its start in Unix seconds, and the attributes of its metrics."""

    began: float
    attributes: Attributes
    chunked: bool = False


class OpenTelemetry:
    """An observer that writes spans and metrics: ``flow.subscribe(OpenTelemetry())``.

    A run is a span ``invoke_workflow``, with its branches, tasks (``invoke_agent``), model calls (``chat``, one a call,
    attempts as span events), tools and lookups below; the path and the line of the program are on each. Inside a tool, the
    current span is that of the tool, so that spans of the host's own code nest there; the caller's is the parent of the run.

    Parameters: ``edition`` is that of the GenAI conventions whose names are written, "0.1.0" or "1.37.0" (default: as the
    variable AGENTFLOW_OTEL_EDITION says, else the newest); ``content`` adds the input and output of models and tools, redacted,
    at most 64 KiB each (default: as the variable OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says); ``first_chunk`` measures the time to the first piece
    of an answer, which makes the flow stream its calls; ``tracer_provider``, ``meter_provider`` and ``logger_provider`` are the process's by
    default. Scores of evaluations and of live runs (``flow.score``) are events ``gen_ai.evaluation.result``, which the logger writes.
    Raises ConfigurationError: ``config/otel`` without ``opentelemetry-api``, ``config/otel-edition`` for an edition that is not
    stored.
    """

    def __init__(
        self,
        *,
        edition: str | None = None,
        content: bool | None = None,
        first_chunk: bool = False,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        logger_provider: LoggerProvider | None = None,
    ) -> None:
        try:
            from opentelemetry import _logs as logs
            from opentelemetry import context, metrics, trace
        except ImportError as error:
            raise ConfigurationError(
                "OpenTelemetry needs the package opentelemetry-api",
                code="config/otel",
                hint=install("otel"),
            ) from error
        self.deltas = first_chunk
        capture = os.environ.get(_CAPTURE, "").lower() == "true" if content is None else content
        self._edition = edition_of(edition)
        self._fold = SpanFold(Written(self._edition, capture))
        url = self._edition.schema_url
        self._context, self._trace = context, trace
        self._tracer = trace.get_tracer("agentflow", tracer_provider=tracer_provider, schema_url=url)
        self._logger = logs.get_logger("agentflow", logger_provider=logger_provider, schema_url=url)
        meter = metrics.get_meter("agentflow", meter_provider=meter_provider, schema_url=url)
        instruments = self._edition.instruments
        self._metrics = {name: _measuring(meter, each) for name, each in instruments.items()}
        self._waits = _measuring(meter, _WAIT)
        self._cost = meter.create_counter(_COST, "{USD}", "Cost of model calls in US dollars")
        self._spans: dict[Key, tuple[Span, Context]] = {}
        self._models: dict[Key, _ModelCall] = {}
        self._ended: dict[str, SpanContext] = {}

    def __call__(self, event: EventBase) -> None:
        """Take an event, in the task and context that published it."""
        if isinstance(event, DeltaBase):
            self._first_chunk(event)
            return
        step = self._fold(event)
        if step is not None:
            key, change = step
            if isinstance(change, SpanStart):
                self._start(event, key, change)
            elif isinstance(change, Closed):
                self._finish(cast(FinishedBase, event), key, change)
            elif isinstance(change, Told):
                self._tell(key, change)
            else:
                self._spans[key][0].add_event(change.name, change.attributes, _nanoseconds(event.time))
        if isinstance(event, WaitFinished):
            self._waits(event.duration_s, {"agentflow.wait.reason": event.reason})
        if isinstance(event, RunFinished):  # the end of a run closes the spans that its events left open
            for key in self._fold.left_open(event):
                self._spans.pop(key)[0].end(_nanoseconds(event.time))
                self._models.pop(key, None)

    def scored(self, score: LiveScore) -> None:
        """Write a score of a live run or of a sample as the event ``gen_ai.evaluation.result`` of the run's span, by the conventions for generative AI."""
        attributes: dict[str, str | float] = {"gen_ai.evaluation.name": score.name, "agentflow.run.id": score.run_id}
        if score.evaluation:
            attributes |= {
                "agentflow.evaluation.id": score.evaluation,
                "agentflow.evaluation.case": score.case,
                "agentflow.evaluation.variant": score.variant,
            }
        if score.error is not None:
            attributes |= {"error.type": "scorer", "gen_ai.evaluation.explanation": score.error}
        elif score.value is not None:
            attributes["gen_ai.evaluation.score.value"] = float(score.value)
            if isinstance(score.value, bool):
                attributes["gen_ai.evaluation.score.label"] = "pass" if score.value else "fail"
        run = self._ended.get(score.run_id)
        within = None if run is None else self._trace.set_span_in_context(self._trace.NonRecordingSpan(run))
        self._logger.emit(event_name=EVALUATION, context=within, attributes=attributes)

    def carrier(self) -> dict[str, str]:
        """The current trace as the headers of W3C's trace context; empty where no span is current."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        headers: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(headers)
        return headers

    def go_on(self, carrier: Mapping[str, str]) -> None:
        """Let the spans of the current task belong to the trace of :meth:`carrier`, unless a span is current there."""
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        if not self._trace.get_current_span().get_span_context().is_valid:
            self._context.attach(TraceContextTextMapPropagator().extract(carrier))

    def _start(self, event: EventBase, key: Key, row: SpanStart) -> None:
        before = self._context.get_current()
        around = self._fold.around(event)
        parent = before if around is None else self._trace.set_span_in_context(self._spans[around][0], before)
        kind = self._trace.SpanKind.CLIENT if row.kind == "client" else self._trace.SpanKind.INTERNAL
        span = self._tracer.start_span(row.name, parent, kind, row.attributes, start_time=_nanoseconds(event.time))
        if event.type == "model_started":
            names = ("gen_ai.operation.name", "gen_ai.request.model")
            shared = {name: row.attributes[name] for name in names if name in row.attributes}
            self._models[key] = _ModelCall(event.time, shared)
        self._spans[key] = span, before
        self._context.attach(self._trace.set_span_in_context(span, before))

    def _tell(self, key: Key, told: Told) -> None:
        self._spans[key][0].set_attributes(told.attributes)
        provider = told.attributes.get("gen_ai.provider.name")
        if provider is not None and key in self._models:
            self._models[key].attributes["gen_ai.provider.name"] = provider

    def _finish(self, event: FinishedBase, key: Key, end: Closed) -> None:
        span, before = self._spans.pop(key)
        if event.type == "run_finished":
            self._ended[event.run_id] = span.get_span_context()
            if len(self._ended) > _ENDED:
                del self._ended[next(iter(self._ended))]
        span.set_attributes(end.attributes)
        if end.error_type is not None:
            span.set_attribute("error.type", end.error_type)
        if end.failed:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, end.message))
        self._measure(event, end.attributes, end.error_type, self._models.pop(key, None))
        span.end(_nanoseconds(event.time))
        # not detached by a token: the Finished event of a cancelled branch may be published in another context
        self._context.attach(before)

    def _measure(
        self, event: FinishedBase, attributes: Attributes, error: str | None, model: _ModelCall | None
    ) -> None:
        common: Attributes = {} if error is None else {"error.type": error}
        if model is None:
            instrument = self._edition.durations.get(event.type)
            if instrument is not None:
                operation = {"gen_ai.operation.name": _DURATIONS[event.type]}
                self._metrics[instrument.name](event.duration_s, {**operation, **common})
            return
        if "gen_ai.response.model" in attributes:
            model.attributes["gen_ai.response.model"] = attributes["gen_ai.response.model"]
        measured = model.attributes
        self._metrics[self._edition.model_duration.name](event.duration_s, {**measured, **common})
        cost = attributes.get("agentflow.cost_usd")
        if isinstance(cost, float) and cost > 0:
            self._cost.add(cost, measured)
        usage = field(event, "usage")
        for each in self._edition.tokens:
            count = 0 if usage is None else field(usage, each.count)
            if usage is not None or each.always:
                errors = common if each.errors else {}
                self._metrics[each.instrument.name](count, {**measured, **each.attributes, **errors})

    def _first_chunk(self, event: DeltaBase) -> None:
        around = self._fold.around(event)
        model = self._models.get(around) if around is not None else None
        if model is None or around is None or model.chunked:
            return
        model.chunked = True
        seconds = max(0.0, event.time - model.began)
        self._spans[around][0].set_attribute("gen_ai.response.time_to_first_chunk", seconds)
        self._metrics[self._edition.first_chunk.name](seconds, model.attributes)


def _measuring(meter: Meter, instrument: Instrument) -> Callable[[float, Attributes], None]:
    """How a value of an instrument is recorded."""
    name, unit, about, buckets = instrument.name, instrument.unit, instrument.about, instrument.buckets
    if buckets is None:
        return meter.create_counter(name, unit, about).add
    return meter.create_histogram(name, unit, about, explicit_bucket_boundaries_advisory=buckets).record


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


RUNS = "agentflow.queue.runs"
OLDEST = "agentflow.queue.oldest"
TAKEOVERS = "agentflow.fleet.takeovers"
LOST = "agentflow.fleet.sessions_lost"
REFUSED = "agentflow.fleet.refused"
COMMITS = "agentflow.fleet.commits"
COMMIT_TIME = "agentflow.fleet.commit_time"


class QueueGauges:
    """Gauges of the queues: runs by queue, tenant and status, and the waiting time of the oldest queued one."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        from opentelemetry import metrics

        meter = metrics.get_meter("agentflow", meter_provider=meter_provider)
        self._runs = meter.create_gauge(RUNS, "{run}", "Runs that workers have to do")
        self._oldest = meter.create_gauge(OLDEST, "s", "Time since the oldest queued run was queued")
        self._known: set[tuple[str, str]] = set()

    def record(self, loads: Sequence[QueueLoad]) -> None:
        """Set the gauges to ``loads``; queues that have disappeared become 0."""
        by_key = {(each.queue, each.tenant): each for each in loads}
        self._known |= set(by_key)
        for queue, tenant in sorted(self._known):
            load = by_key.get((queue, tenant))
            common = {"agentflow.queue": queue, "agentflow.tenant": tenant}
            counts = (0, 0, 0) if load is None else (load.queued, load.running, load.waiting)
            for status, count in zip(("queued", "running", "waiting"), counts, strict=True):
                self._runs.set(count, {**common, "agentflow.status": status})
            self._oldest.set(0.0 if load is None else load.oldest_s, common)


class FleetCounters:
    """Counters of this process: takeovers, lost sessions, refused records, and its commits."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        from opentelemetry import metrics

        meter = metrics.get_meter("agentflow", meter_provider=meter_provider)
        self._takeovers = meter.create_counter(TAKEOVERS, "{run}", "Runs of dead workers that were queued again")
        self._lost = meter.create_counter(LOST, "{session}", "Sessions that owned runs and were lost")
        self._refused = meter.create_counter(REFUSED, "{batch}", "Records of runs that other workers had taken over")
        self._commits = meter.create_counter(COMMITS, "{transaction}", "Transactions with the data of runs")
        self._commit_time = meter.create_counter(COMMIT_TIME, "s", "Time that these transactions took")
        self._before = FleetCounts()

    def record(self, counts: FleetCounts) -> None:
        """Add the events since the last call."""
        before, self._before = self._before, counts
        self._takeovers.add(counts.takeovers - before.takeovers)
        self._lost.add(counts.sessions_lost - before.sessions_lost)
        self._refused.add(counts.refused - before.refused)
        self._commits.add(counts.commits - before.commits)
        self._commit_time.add(counts.commit_s - before.commit_s)
