"""The conversations with which durable runs begin: each exchange is stored once for all runs that begin with it.

An exchange refers to the previous one, and its hash covers both; a run refers to the last one.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from agentflow.journal.rows import corrupt, parse

_SCHEMA = (
    "create table if not exists af_exchange(hash blob primary key, before blob, value text not null) without rowid",
    "create table if not exists af_opening(run text primary key, hash blob not null) without rowid",
)
_CHAIN = """
with recursive chain(hash, before, value, depth) as (
  select e.hash, e.before, e.value, 0 from af_opening o join af_exchange e on e.hash = o.hash where o.run = ?
  union all select e.hash, e.before, e.value, depth + 1 from chain c join af_exchange e on e.hash = c.before)
select hash, before, value from chain order by depth desc
"""
_UNUSED = """
delete from af_exchange where hash not in (
  with recursive used(hash) as (
    select hash from af_opening
    union select e.before from used u join af_exchange e on e.hash = u.hash where e.before is not null)
  select hash from used)
"""
_ENCODE = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def make_tables(db: sqlite3.Connection) -> None:
    """Create the tables of openings if they are missing."""
    for statement in _SCHEMA:
        db.execute(statement)


def chained(exchanges: Sequence[Any]) -> list[tuple[bytes, bytes | None, str]]:
    """Rows for a conversation, oldest first: the hash of each exchange, the hash of the previous one, and its text."""
    last: bytes | None = None
    rows: list[tuple[bytes, bytes | None, str]] = []
    for exchange in exchanges:
        text = _ENCODE(exchange)
        before, last = last, _hash(last, text)
        rows.append((last, before, text))
    return rows


def unchained(run: str, rows: Iterable[Sequence[Any]]) -> list[Any]:
    """The conversation before ``run``, decoded from :func:`chained` rows. Raises JournalError (``durable/corrupt``)."""
    exchanges: list[Any] = []
    last: bytes | None = None
    for digest, before, text in rows:
        if before != last or digest != _hash(before, text):
            raise corrupt(f"what was said before the run '{run}' is damaged")
        exchanges.append(parse(text))
        last = digest
    return exchanges


def keep(db: sqlite3.Connection, run: str, exchanges: Sequence[Any]) -> None:
    """Store the conversation before a run: its exchanges as JSON data, oldest first."""
    rows = chained(exchanges)
    db.executemany("insert or ignore into af_exchange values (?, ?, ?)", rows)
    if rows:
        db.execute("insert into af_opening values (?, ?)", (run, rows[-1][0]))


def keep_as(db: sqlite3.Connection, run: str, base: str) -> None:
    """Let ``run`` begin with the same conversation as the run ``base``."""
    db.execute("insert into af_opening select ?, hash from af_opening where run = ?", (run, base))


def read(db: sqlite3.Connection, run: str) -> list[Any]:
    """The conversation before a run. Raises JournalError (``durable/corrupt``)."""
    return unchained(run, db.execute(_CHAIN, (run,)))


def remove(db: sqlite3.Connection, runs: Sequence[str]) -> None:
    """Remove the conversations before ``runs``, and the exchanges that no other run begins with."""
    db.executemany("delete from af_opening where run = ?", [(run,) for run in runs])
    db.execute(_UNUSED)


def sizes(db: sqlite3.Connection) -> list[tuple[str, int]]:
    """Each run with the size of the last exchange before it, by about which it makes its conversation grow."""
    return db.execute(
        "select o.run, length(e.value) from af_opening o join af_exchange e on e.hash = o.hash"
    ).fetchall()


def _hash(before: bytes | None, text: str) -> bytes:
    return blake2b((before or b"") + text.encode("ascii"), digest_size=16).digest()


__all__ = ["chained", "keep", "keep_as", "make_tables", "read", "remove", "sizes", "unchained"]
