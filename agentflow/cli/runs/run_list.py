"""Lists earlier runs: recorded and durable ones, joined by id."""

from __future__ import annotations

import contextlib
import time
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from agentflow.cli.shared.amounts import seconds
from agentflow.cli.shared.common import Exit, UsageError, moment, print_rows, write_json, write_out
from agentflow.cli.shared.state import database, state_directory, stored_runs
from agentflow.core.data.allowances import PurseUse
from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal_rows import QueueLoad, WorkerInfo
from agentflow.core.ports.store_ports import EventStore
from agentflow.durable.catalogue import RunCatalogue, RunSummary
from agentflow.durable.handle import PastRun, RunInfo
from agentflow.durable.run_filter import run_filter
from agentflow.journal.urls import database_file, is_postgres, open_events, open_store
from agentflow.lib.text.safe_text import clean
from agentflow.observe.files import EventFiles


@contextlib.asynccontextmanager
async def open_catalogue(directory: str | None = None, db: str | None = None) -> AsyncGenerator[RunCatalogue, None]:
    """The runs of the command; with ``directory`` those of its event files, with ``db`` those of that database.

    Raises ConfigurationError if ``db`` is not the URL of a database.
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


async def list_runs(directory: str | None, db: str | None, *, where: str, limit: int, as_json: bool) -> int:
    """Print up to ``limit`` runs that fit the filter ``where``, latest change first. Returns the exit code."""
    chosen = run_filter(where)
    async with open_catalogue(directory, db) as catalogue:
        runs = await catalogue.list(limit=limit, where=chosen)
    return print_rows(runs, _line, _NONE_FIT if where else _NONE, as_json=as_json)


_NONE = "no runs yet; agentflow run FILE records one"
_NONE_FIT = "no run fits; agentflow runs lists all"


def _line(run: RunSummary) -> str:
    when = moment(run.updated)
    took = f"{run.duration_s:8.2f} s" if run.duration_s is not None else " " * 10
    cost = f"${run.cost_usd:.4f}" if run.cost_usd else ""
    error = " ".join((run.error or "").split())[:200]
    return f"{when}  {run.state:<10} {took}  {cost:>8}  {run.run_id}  {run.name}  {error}"


async def list_durable(url: str | None, *, where: str, limit: int, as_json: bool) -> int:
    """Print up to ``limit`` durable runs of a database that fit the filter ``where``, latest change first. Returns the exit code."""

    def line(run: RunInfo) -> str:
        when = moment(run.updated)
        return f"{when}  {run.status:<10} {run.run_id}  {run.name}  {run.error or ''}"

    async with stored_runs(url) as flow:
        runs = await flow.runs(limit, where=where)
    nothing = "no durable runs; agentflow run FILE --durable starts one, --db sqlite:///FILE looks elsewhere"
    nothing = _NONE_FIT if where else nothing
    return print_rows(runs, line, nothing, as_json=as_json)


async def list_past(url: str | None, *, limit: int, as_json: bool) -> int:
    """Print the summaries of removed durable runs, latest change first. Returns the exit code."""

    def line(run: PastRun) -> str:
        when = moment(run.updated)
        cost = f"${run.cost_usd:.4f}" if run.cost_usd else ""
        tokens = f"{run.usage.total_tokens:,} tokens"
        return f"{when}  {run.status:<10} {cost:>8}  {tokens:>14}  {run.run_id}  {run.name}  {run.error or ''}"

    async with stored_runs(url) as flow:
        runs = await flow.store.past_runs(limit)
    return print_rows(runs, line, "no durable runs were removed", as_json=as_json)


async def show_load(url: str | None, *, as_json: bool) -> int:
    """Print the load of the workers of a database. Returns the exit code."""

    def line(each: QueueLoad) -> str:
        tenant = f" for {each.tenant}" if each.tenant else ""
        oldest = f"; the first for {seconds(each.oldest_s)}" if each.queued else ""
        return f"{each.queue}{tenant}: {each.queued} queued, {each.running} at work, {each.waiting} waiting{oldest}"

    async with stored_runs(url) as flow:
        loads = await flow.store.load()
    return print_rows(loads, line, "workers have nothing to do", as_json=as_json)


async def show_purses(url: str | None, *, as_json: bool) -> int:
    """Print the purses of a database in their present periods. Returns the exit code."""

    def line(each: PurseUse) -> str:
        spent, leased = each.spent, each.leased
        ends = "" if each.ends is None else f"  until {moment(each.ends)}"
        cost = f"${spent.usd:.4f}, {spent.tokens:,} tokens, {spent.model_calls:,} model calls"
        held = f", {leased.model_calls:,} in progress" if leased.model_calls else ""
        return f"{each.name}  {cost}{held}{ends}"

    async with stored_runs(url) as flow:
        purses = await flow.store.purses.list(time.time())
    return print_rows(purses, line, "nothing was spent from a purse in its present period", as_json=as_json)


async def show_workers(url: str | None, *, as_json: bool) -> int:
    """Print the workers of a database. Returns the exit code."""

    def line(each: WorkerInfo) -> str:
        since = moment(each.started)
        return f"{each.host}  {each.pid}  {each.runs} of {each.slots} runs  build {each.build[:12]}  since {since}"

    async with stored_runs(url) as flow:
        workers = await flow.store.workers()
    return print_rows(workers, line, "no workers; agentflow worker starts one", as_json=as_json)


async def collect(directory: str | None, db: str | None, bounds: LogBounds, *, as_json: bool) -> int:
    """Remove the oldest logs beyond ``bounds``, and print their runs. Returns the exit code."""
    async with open_catalogue(directory, db) as catalogue:
        gone = await catalogue.gc(bounds)
    if as_json:
        write_json({"removed": gone})
    else:
        write_out("".join(f"removed {clean(run)}\n" for run in gone) or "nothing to remove\n")
    return Exit.OK


async def collect_durable(
    older_than: str | None,
    keep: int | None,
    megabytes: int | None,
    forget: str | None,
    db: str | None,
    *,
    as_json: bool,
) -> int:
    """Remove durable runs that ended longer ago than ``older_than``, the oldest beyond the other bounds, and summaries.

    Prints their number. Returns the exit code. Raises UsageError.
    """
    async with stored_runs(db) as flow:
        try:
            count = await flow.store.remove_runs(older_than, keep=keep, megabytes=megabytes, forget=forget)
        except ValueError as error:
            raise UsageError(str(error), hint="for example --older-than 30d") from None
    if as_json:
        write_json({"removed": count})
    else:
        write_out(f"removed {count} durable runs\n")
    return Exit.OK
