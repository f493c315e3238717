"""Removes ended runs, and results kept for reuse, from the database of durable runs, oldest first."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from agentflow.core.data.event_log import LogBounds
from agentflow.core.events.journal import ENDED
from agentflow.journal import openings, summaries

ROW_BYTES = 160
"""Size of a row without its texts, in bytes."""
_MARKS = ", ".join(f"'{status}'" for status in sorted(ENDED))
_REMOVABLE = f"""
select run, updated from af_run where status in ({_MARKS}) and run not in
  (select base from af_run where base is not null and status not in ({_MARKS}))
"""


def collect(db: sqlite3.Connection, before: float | None, bounds: LogBounds | None) -> int:
    """Remove rows older than the unix time ``before``, then the oldest until the rest is within ``bounds``.

    Runs that have not ended stay, and so do runs whose records they may need. Returns the number of removed runs.
    """
    ended = sorted(db.execute(_REMOVABLE).fetchall(), key=itemgetter(1))
    runs = [run for run, updated in ended if before is not None and updated < before]
    results: list[bytes] = []
    if before is not None:
        results = [key for (key,) in db.execute("select content from af_result where at < ?", (before,))]
    _remove(db, runs, results)
    if bounds is not None:
        gone = set(runs)
        left = [each for each in ended if each[0] not in gone]
        more, results = excess(bounds, _run_sizes(db), left, _result_sizes(db))
        _remove(db, more, results)
        runs += more
    return len(runs)


def excess(
    bounds: LogBounds,
    sizes: Mapping[str, int],
    ended: Sequence[tuple[str, float]],
    results: Sequence[tuple[float, bytes, int]],
) -> tuple[list[str], list[bytes]]:
    """The oldest of the ``ended`` runs and of the results: those to remove so that the others are within bounds.

    ``sizes`` are the bytes of all runs; ``ended`` has the runs that may go, each with its time, ``results`` the time, key
    and bytes of each.
    """
    total, count = sum(sizes.values()) + sum(size for _, _, size in results), len(sizes)
    runs_gone: list[str] = []
    results_gone: list[bytes] = []
    oldest: list[tuple[float, bool, Any, int]] = sorted(
        [
            *[(updated, True, run, sizes[run]) for run, updated in ended],
            *[(at, False, key, n) for at, key, n in results],
        ],
        key=itemgetter(0),
    )
    for _, is_run, key, size in oldest:
        if total <= bounds.bytes and count <= bounds.runs:
            break
        if is_run:
            runs_gone.append(key)
            count -= 1
        elif total <= bounds.bytes:
            continue
        else:
            results_gone.append(key)
        total -= size
    return runs_gone, results_gone


def _result_sizes(db: sqlite3.Connection) -> list[tuple[float, bytes, int]]:
    blobs = _blob_sizes(db)
    rows = db.execute("select content, at, value, turns from af_result").fetchall()
    return [(at, key, ROW_BYTES + _size(value, blobs) + _size(turns, blobs)) for key, at, value, turns in rows]


def _run_sizes(db: sqlite3.Connection) -> dict[str, int]:
    blobs = _blob_sizes(db)
    sizes: defaultdict[str, int] = defaultdict(int)
    for run, *texts in db.execute("select run, program, input, result, error from af_run"):
        sizes[run] = ROW_BYTES + sum(_size(text, blobs) for text in texts)
    for run, length, *texts in db.execute("select run, length(path) + length(name), value, turns from af_effect"):
        sizes[run] += ROW_BYTES + length + sum(_size(text, blobs) for text in texts)
    for run, size in openings.sizes(db):
        sizes[run] += size
    return sizes


def _blob_sizes(db: sqlite3.Connection) -> dict[str, int]:
    return dict(db.execute("select lower(hex(hash)), length(data) from af_blob").fetchall())


def _size(text: str | None, blobs: dict[str, int]) -> int:
    """Size of a stored value in bytes, with the blob it refers to (counted once per reference)."""
    if text is None:
        return 0
    return blobs.get(text[7:39], 0) if text.startswith('{"$b":') else len(text)


def _remove(db: sqlite3.Connection, runs: list[str], results: list[bytes]) -> None:
    if runs:
        summaries.keep(db, runs)
    db.executemany("delete from af_effect where run = ?", [(run,) for run in runs])
    db.executemany("delete from af_run where run = ?", [(run,) for run in runs])
    openings.remove(db, runs)
    db.executemany("delete from af_result where content = ?", [(key,) for key in results])
    if runs or results:
        _sweep(db)


def _sweep(db: sqlite3.Connection) -> None:
    """Remove blobs that no value refers to."""
    columns = [("af_effect", name) for name in ("value", "turns")]
    columns += [("af_run", name) for name in ("input", "result", "error")]
    columns += [("af_session", "state"), ("af_turn", "value"), ("af_result", "value"), ("af_result", "turns")]
    used = " union ".join(
        f"select substr({name}, 8, 32) from {table} where {name} like '{{\"$b\":%'" for table, name in columns
    )
    db.execute(f"delete from af_blob where lower(hex(hash)) not in ({used})")


__all__ = ["ROW_BYTES", "collect", "excess"]
