"""An observer that keeps the events of runs and writes reports of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.events.events import DeltaBase, Event
from agentflow.lib.file_writer import write_private
from agentflow.observe.report.html import Wire, report_html


class Report:
    """Keeps the events of every run in memory, for ``flow.subscribe(report)``, and writes them as HTML files.

    Parameters: ``wire`` returns the HTTP request of a model call, so that it can be copied as curl.
    """

    deltas = False
    bounds = True

    def __init__(self, *, wire: Wire | None = None) -> None:
        self._runs: dict[str, list[Event]] = {}
        self._wire = wire

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if not isinstance(event, DeltaBase):
            self._runs.setdefault(event.run_id, []).append(event)

    async def write(self, path: str | Path, run_id: str | None = None, other: str | None = None) -> None:
        """Write a report of a run (default: the last started) to ``path``, which only the user who owns the file may read.

        ``other`` is an earlier run to compare with. Raises ConfigurationError (``report/unknown-run``) for a run that was
        not observed, OSError.
        """
        chosen = run_id if run_id is not None else next(reversed(self._runs), "")
        runs = [self._records(name) for name in (chosen, other) if name is not None]
        await asyncio.to_thread(self._write, Path(path), runs)

    def _records(self, run_id: str) -> list[Event]:
        if run_id not in self._runs:
            raise ConfigurationError(
                f"no run '{clip(run_id, 80)}' was seen" if run_id else "no run was seen",
                code="report/unknown-run",
                hint="subscribe the report before the run: flow.subscribe(report)",
            )
        return self._runs[run_id]

    def _write(self, path: Path, runs: list[list[Event]]) -> None:
        records: list[list[dict[str, Any]]] = [[event.to_dict() for event in run] for run in runs]
        write_private(path, report_html(*records, wire=self._wire))
