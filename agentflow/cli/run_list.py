"""Lists earlier runs: those of event files, and the durable runs of a database."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

from agentflow.cli.common import Exit, write_json, write_out
from agentflow.cli.state import database, state_directory
from agentflow.core.values import plain
from agentflow.lib.terminal import clean


def summary(path: Path) -> dict[str, Any] | None:
    """The run recorded in an event file, or None. The outcome is ``unfinished`` if the file is cut off."""
    run: dict[str, Any] | None = None
    with path.open("r", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if '"run_started"' not in line and '"run_finished"' not in line:
                continue
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event.get("type") == "run_started" and run is None:
                run = {
                    "run_id": event.get("run_id"),
                    "name": event.get("name"),
                    "time": event.get("time"),
                    "outcome": "unfinished",
                    "file": str(path),
                }
            elif run is not None and event.get("type") == "run_finished":
                for key in ("outcome", "duration_s", "usage", "cost_usd"):
                    run[key] = event.get(key)
    return run


def list_recorded(directory: str | None, *, as_json: bool) -> int:
    """Print the runs recorded in ``directory`` (default: where the command writes them), newest first."""
    where = Path(directory) if directory else state_directory() / "runs"
    files = sorted(where.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True) if where.is_dir() else []
    recorded = [run for path in files[:200] if (run := summary(path)) is not None]
    if as_json:
        write_json(recorded)
        return Exit.OK
    for run in recorded:
        when = datetime.fromtimestamp(run["time"]).strftime("%Y-%m-%d %H:%M:%S")
        took = f"{run['duration_s']:8.2f} s" if run.get("duration_s") is not None else " " * 10
        write_out(clean(f"{when}  {run['outcome']:<10} {took}  {run['name']}  {run['file']}") + "\n")
    if not recorded:
        write_out(f"no runs in {where}; --events-file and the demo write them\n")
    return Exit.OK


async def list_durable(url: str | None, *, as_json: bool) -> int:
    """Print the durable runs of a database, the last changed first."""
    from agentflow.app import AgentFlow

    async with AgentFlow(durable=database(url)) as flow:
        runs = await flow.runs()
    if as_json:
        write_json(plain(runs))
        return Exit.OK
    for run in runs:
        when = datetime.fromtimestamp(run.updated).strftime("%Y-%m-%d %H:%M:%S")
        write_out(clean(f"{when}  {run.status:<10} {run.run_id}  {run.name}  {run.error or ''}").rstrip() + "\n")
    if not runs:
        write_out("no durable runs; agentflow run FILE --durable starts one\n")
    return Exit.OK
