"""OpenTelemetry metrics of workers: their pending work and counters. Needs ``opentelemetry-api``, the extra ``otel``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentflow.core.events.journal import FleetCounts, QueueLoad

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

RUNS = "agentflow.queue.runs"
OLDEST = "agentflow.queue.oldest"
TAKEOVERS = "agentflow.fleet.takeovers"
LOST = "agentflow.fleet.sessions_lost"
REFUSED = "agentflow.fleet.refused"
COMMITS = "agentflow.fleet.commits"
COMMIT_TIME = "agentflow.fleet.commit_time"


class QueueGauges:
    """Gauges of the queues: runs by queue, tenant and status, and for how long the oldest queued one has been so."""

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
        self._commits = meter.create_counter(COMMITS, "{transaction}", "Transactions with what runs store")
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
