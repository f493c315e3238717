"""OpenTelemetry metrics of what workers have to do. Needs ``opentelemetry-api``, the extra ``otel``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentflow.core.journal import QueueLoad

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

RUNS = "agentflow.queue.runs"
OLDEST = "agentflow.queue.oldest"


class QueueGauges:
    """Gauges of the queues: runs by queue, tenant and status, and for how long the oldest queued one has been so."""

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        from opentelemetry import metrics

        meter = metrics.get_meter("agentflow", meter_provider=meter_provider)
        self._runs = meter.create_gauge(RUNS, "{run}", "Runs that workers have to do")
        self._oldest = meter.create_gauge(OLDEST, "s", "Time since the oldest queued run was queued")
        self._known: set[tuple[str, str]] = set()

    def record(self, loads: Sequence[QueueLoad]) -> None:
        """Set the gauges to ``loads``; queues that are no longer among them become 0."""
        by_key = {(each.queue, each.tenant): each for each in loads}
        self._known |= set(by_key)
        for queue, tenant in sorted(self._known):
            load = by_key.get((queue, tenant))
            common = {"agentflow.queue": queue, "agentflow.tenant": tenant}
            counts = (0, 0, 0) if load is None else (load.queued, load.running, load.waiting)
            for status, count in zip(("queued", "running", "waiting"), counts, strict=True):
                self._runs.set(count, {**common, "agentflow.status": status})
            self._oldest.set(0.0 if load is None else load.oldest_s, common)


__all__ = ["OLDEST", "RUNS", "QueueGauges"]
