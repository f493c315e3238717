"""Filters of runs: which fields they have, and the part of a filter that a store can select by itself."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar, cast, get_args

from agentflow.core.data.batches import BatchWait
from agentflow.core.events.events import Outcome
from agentflow.core.events.journal_rows import BATCH, ENDED, EffectState, RunRow, RunStatus
from agentflow.core.events.run_query import RunQuery
from agentflow.core.ports.store_ports import JournalStore
from agentflow.lib.text.filters import Filter, FilterField, Term, parse_filter

EXAMPLE = "status=failed label.product=support name=answer* cost>0.10 since=7d"
RUN_STATES: tuple[str, ...] = tuple(dict.fromkeys([*get_args(RunStatus), *get_args(Outcome), "unfinished"]))
RUN_FIELDS: Mapping[str, FilterField] = MappingProxyType(
    {
        "id": FilterField(),
        "status": FilterField(words=RUN_STATES),
        "name": FilterField(),
        "label": FilterField(keys=True),
        "error": FilterField(),
        "cost": FilterField(kind="number"),
        "duration": FilterField(kind="seconds"),
        "score": FilterField(kind="number", keys=True),
        "since": FilterField(kind="since"),
        "until": FilterField(kind="until"),
    }
)
"""The fields of runs: ``cost`` in US dollars, ``duration`` in seconds; ``since`` and ``until`` are about the last change."""
_PAGE = 200
"""Runs read at a time where only some of them fit."""
ANY = Filter()
"""The filter that every run fits."""
R = TypeVar("R")
Filterable: TypeAlias = Any
"""A RunInfo or a RunSummary: the listed form of a run."""


def run_filter(where: str = "", *, since: str | None = None, labels: Mapping[str, str] | None = None) -> Filter:
    """The filter of runs that ``where`` says; ``since`` and the exact ``labels`` are further terms of it.

    Raises ConfigurationError (``config/filter``).
    """
    read = parse_filter(where, RUN_FIELDS, EXAMPLE)
    if since is not None:
        read += parse_filter(f"since={json.dumps(since)}", RUN_FIELDS, EXAMPLE)
    terms = [Term(field="label", key=name, value=value, literal=True) for name, value in (labels or {}).items()]
    return read + Filter(tuple(terms))


def fits(run: Filterable, where: Filter) -> bool:
    """Whether a listed run fits."""

    def get(name: str, key: str) -> Any:
        match name:
            case "id":
                return run.run_id
            case "status":
                return getattr(run, "status", None) or run.state
            case "label":
                return None if run.labels is None else run.labels.get(key)
            case "score":
                return run.scores.get(key)
            case "cost":
                return run.cost_usd
            case "duration":
                return run.duration_s
            case "since" | "until":
                return run.updated
            case _:
                return getattr(run, name)

    return where.fits(get)


async def listed(
    store: JournalStore,
    where: Filter,
    limit: int,
    of: Callable[[RunRow], R | None],
    *,
    among: frozenset[str] = frozenset(),
    scores: bool = False,
) -> list[R]:
    """At most ``limit`` runs of a store that fit, the last changed first, as ``of`` gives them; None: not that run.

    ``among`` are the statuses that they may have, if not all. The selections that the store cannot make are made here, a
    page after the other. The ``scores`` of runs are read if they are asked for, or a term names one. Raises JournalError.
    """
    runs: list[R] = []
    scored = Filter(tuple([term for term in where.terms if term.field == "score"]))
    plain = Filter(tuple([term for term in where.terms if term.field != "score"]))
    scores = scores or bool(scored)
    query = query_of(where, among)
    page = max(limit, _PAGE) if where or among else limit
    while len(runs) < limit:
        rows = await store.list(limit=page, query=query)
        shown = [run for run in map(of, rows) if run is not None]
        fitting = [run for run in shown if fits(run, plain)]
        if scores:
            read = await asyncio.gather(*[scores_of(store, cast(Any, run).run_id) for run in fitting])
            fitting = [cast(R, replace(cast(Any, run), scores=each)) for run, each in zip(fitting, read, strict=True)]
        runs += [run for run in fitting if fits(run, scored)]
        if len(rows) < page:
            break
        query = replace(query, after=(rows[-1].updated, rows[-1].run))
        await asyncio.sleep(0)
    return runs[:limit]


# No column and no table: a run has ended, and has no owner who could write to it (decision 61)
def score_key(run: str) -> bytes:
    """The key of the scores of a run, among the results."""
    return blake2b(f"score\0{run}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


async def scores_of(store: JournalStore, run: str) -> dict[str, float]:
    """The stored scores of a run by name; empty for one that was not scored."""
    stored = await store.results.find(score_key(run), 0.0)
    return {} if stored is None else {name: float(score) for name, score in stored.value["scores"].items()}


async def batches_of(store: JournalStore, run: RunRow) -> tuple[BatchWait, ...]:
    """The model calls of a run that wait for batches."""
    rows = [] if run.status in ENDED else await store.effects(run.run, EffectState.OPEN, (BATCH,))
    return tuple(await store.batches.waits([row.value["id"] for row in rows])) if rows else ()


def query_of(where: Filter, among: frozenset[str] = frozenset()) -> RunQuery:
    """The query that a store can run for a filter ``among`` statuses (empty: all): all runs that fit, and perhaps others."""
    statuses: frozenset[str] = among
    holds: list[str] = []
    since, until = None, None
    for term in where.terms:
        value = term.value
        if not isinstance(value, str):
            if term.field == "since":
                since = value if since is None else max(since, value)
            elif term.field == "until":
                until = value if until is None else min(until, value)
        elif term.sign == "=" and term.field == "status" and term.begins[1]:
            wanted = {value, "running"} if value == "queued" else {value}  # one with a dead owner is shown as queued
            statuses = (statuses & wanted or frozenset({""})) if statuses else frozenset(wanted)
        elif term.sign == "=" and term.field in ("name", "label") and value:
            begin, whole = term.begins
            name = json.dumps(term.key or term.field)
            holds.append(f"{name}:{json.dumps(begin)[: None if whole else -1]}")
    return RunQuery(statuses=tuple(sorted(statuses)), since=since, until=until, holds=tuple(holds))
