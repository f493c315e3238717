"""Reports of runs: ``run --report FILE`` and ``runs report``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agentflow.cli.runs.run_list import open_catalogue
from agentflow.cli.runs.run_read import read_run
from agentflow.cli.shared.common import Exit, UsageError, write_json, write_out
from agentflow.lib.file_writer import write_private


async def report_runs(
    run: str | None, other: str | None, output: str | None, directory: str | None, db: str | None, *, as_json: bool
) -> int:
    """Write a recorded run as an HTML page, with ``other`` also its difference to that run. Returns the exit code."""
    from agentflow.observe.report.build import report_html
    from agentflow.providers.shown import wire_of
    from agentflow.providers.table import Router
    from agentflow.settings import load_settings

    runs: list[list[dict[str, Any]]] = []
    names: list[str] = []
    async with open_catalogue(directory, db) as catalogue:
        for name in (run, other) if other is not None else (run,):
            summary, events = await read_run(catalogue, name)
            if not events:
                raise UsageError(
                    f"the events of {summary.run_id} were not recorded, or were removed",
                    hint="agentflow runs show prints what is known",
                )
            runs.append(events)
            names.append(summary.run_id)
    settings = load_settings()
    router = Router(settings.model, **settings.for_router())
    path = Path(output or f"{names[0]}.html")
    page = await asyncio.to_thread(lambda: report_html(*runs, wire=wire_of(router)))
    try:
        await asyncio.to_thread(write_private, path, page)
    except OSError as error:
        raise UsageError(f"the report cannot be written to {path}: {error.strerror or error}") from error
    if as_json:
        write_json({"ok": True, "file": str(path), "runs": names})
    else:
        write_out(f"{path}\n")
    return Exit.OK


async def export_run(
    run: str | None, form: str, directory: str | None, db: str | None, *, content: bool, as_json: bool
) -> int:
    """Export a recorded run in the format of another tool. Returns the exit code."""
    from agentflow.observe.export import chrome_trace, otlp

    if form not in ("chrome", "otlp"):
        raise UsageError(
            f"--format {form}: write chrome or otlp", hint="chrome is for Perfetto and speedscope, otlp for collectors"
        )
    async with open_catalogue(directory, db) as catalogue:
        _, events = await read_run(catalogue, run)
    write_json(chrome_trace(events) if form == "chrome" else otlp(events, content=content))
    return Exit.OK
