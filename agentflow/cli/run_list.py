"""Lists earlier runs: those whose events were recorded, and the durable ones, joined by their ids."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from agentflow.cli.amounts import seconds
from agentflow.cli.common import Exit, UsageError, write_json, write_out
from agentflow.cli.state import database, state_directory, stored_runs
from agentflow.core.event_log import LogBounds
from agentflow.core.store_ports import EventStore
from agentflow.core.values import plain
from agentflow.journal.urls import database_file, is_postgres, open_events, open_store
from agentflow.lib.terminal import clean
from agentflow.observe.files import EventFiles
from agentflow.runtime.catalogue import RunCatalogue, RunSummary


@contextlib.asynccontextmanager
async def open_catalogue(directory: str | None = None, db: str | None = None) -> AsyncGenerator[RunCatalogue, None]:
    """The runs of the command; with ``directory`` those of its event files, with ``db`` those of that database.

    Raises ConfigurationError for a URL that names no database.
    """
    if directory is not None:
        stores: Sequence[EventStore] = [EventFiles(Path(directory))]
        journal = None
    else:
        url = database(db)
        stores = [*([EventFiles(state_directory() / "runs")] if db is None else []), open_events(url)]
        journal = open_store(url) if is_postgres(url) or database_file(url).is_file() else None
    async with contextlib.aclosing(RunCatalogue(stores, journal)) as catalogue:
        yield catalogue


async def list_runs(directory: str | None, db: str | None, *, limit: int, as_json: bool) -> int:
    """Print runs, the last changed first."""
    async with open_catalogue(directory, db) as catalogue:
        runs = await catalogue.list(limit=limit)
    if as_json:
        write_json([asdict(run) for run in runs])
        return Exit.OK
    for run in runs:
        write_out(clean(_line(run)).rstrip() + "\n")
    if not runs:
        write_out("no runs yet; agentflow run FILE records one\n")
    return Exit.OK


def _line(run: RunSummary) -> str:
    when = datetime.fromtimestamp(run.updated).strftime("%Y-%m-%d %H:%M:%S")
    took = f"{run.duration_s:8.2f} s" if run.duration_s is not None else " " * 10
    cost = f"${run.cost_usd:.4f}" if run.cost_usd else ""
    error = " ".join((run.error or "").split())[:200]
    return f"{when}  {run.state:<10} {took}  {cost:>8}  {run.run_id}  {run.name}  {error}"


async def list_durable(url: str | None, *, as_json: bool) -> int:
    """Print the durable runs of a database, the last changed first."""
    async with stored_runs(url) as flow:
        runs = await flow.runs()
    if as_json:
        write_json(plain(runs))
        return Exit.OK
    for run in runs:
        when = datetime.fromtimestamp(run.updated).strftime("%Y-%m-%d %H:%M:%S")
        write_out(clean(f"{when}  {run.status:<10} {run.run_id}  {run.name}  {run.error or ''}").rstrip() + "\n")
    if not runs:
        write_out("no durable runs; agentflow run FILE --durable starts one, --db sqlite:///FILE looks elsewhere\n")
    return Exit.OK


async def show_load(url: str | None, *, as_json: bool) -> int:
    """Print what the workers of a database have to do."""
    async with stored_runs(url) as flow:
        loads = await flow.load()
    if as_json:
        write_json(plain(loads))
        return Exit.OK
    for each in loads:
        tenant = f" for {each.tenant}" if each.tenant else ""
        line = f"{each.queue}{tenant}: {each.queued} queued, {each.running} at work, {each.waiting} waiting"
        write_out(clean(line + (f"; the first for {seconds(each.oldest_s)}" if each.queued else "")) + "\n")
    if not loads:
        write_out("workers have nothing to do\n")
    return Exit.OK


async def collect(directory: str | None, db: str | None, bounds: LogBounds, *, as_json: bool) -> int:
    """Remove the oldest logs beyond ``bounds``, and say which."""
    async with open_catalogue(directory, db) as catalogue:
        gone = await catalogue.gc(bounds)
    if as_json:
        write_json({"removed": gone})
    else:
        write_out("".join(f"removed {clean(run)}\n" for run in gone) or "nothing to remove\n")
    return Exit.OK


async def collect_durable(
    older_than: str | None, keep: int | None, megabytes: int | None, db: str | None, *, as_json: bool
) -> int:
    """Remove the durable runs that ended so long ago, and the oldest beyond the bounds; say how many. Raises UsageError."""
    async with stored_runs(db) as flow:
        try:
            count = await flow.remove_runs(older_than, keep=keep, megabytes=megabytes)
        except ValueError as error:
            raise UsageError(str(error), hint="for example --older-than 30d") from None
    if as_json:
        write_json({"removed": count})
    else:
        write_out(f"removed {count} durable runs\n")
    return Exit.OK
