"""Rows of the tables: the schema, and how runs and effects become rows and are read back."""

from __future__ import annotations

import json
import json.encoder
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import zip_longest
from struct import Struct
from struct import error as StructError
from typing import Any
from zlib import crc32

from agentflow.core.data.errors import JournalError
from agentflow.core.data.money import total
from agentflow.core.events.journal import EffectRow, EffectState, JsonText, NewRun, RunRow

VERSION = 3
"""The version of the tables. The first summed up records otherwise, and lacked tables; the second counted no deaths."""
BLOB_BYTES = 64 * 1024
"""Length of JSON text above which a value is stored once, by its content."""

SCHEMA = """
create table af_meta(key text primary key, value text not null) without rowid;
create table af_run(run text primary key, base text, program text not null, digest text not null, input text not null,
  status text not null, epoch integer not null default 0, owner text, seq integer not null default 0,
  slice integer not null default 0, deaths integer not null default 0, reached text, wake_at real,
  spent_s real not null default 0, result text, error text,
  created real not null, updated real not null, sum integer not null) without rowid;
create table af_effect(run text not null, key blob not null, path text not null, leaf blob, kind text not null,
  name text not null, content blob not null, state integer not null, value text, turns text, usage text, cost real,
  t0 real, t1 real, sum integer not null, primary key(run, key)) without rowid;
create table af_blob(hash blob primary key, data blob not null) without rowid;
create index af_run_due on af_run(status, wake_at);
"""
EVENT_SCHEMA = """
create table if not exists af_event(number integer primary key, run text not null, slice integer not null,
  seq integer not null, line blob not null);
create table if not exists af_event_content(run text not null, digest text not null, body blob not null,
  primary key(run, digest)) without rowid;
create table if not exists af_event_log(run text primary key, started blob, finished blob, bytes integer not null,
  updated real not null) without rowid;
create index if not exists af_event_run on af_event(run, number);
"""
"""Tables of the event logs of runs; the journal does not need them."""
EVENT_TABLES = frozenset({"af_event", "af_event_content", "af_event_log"})
_KEPT = "run, base, program, digest, input, status, result, error"
RUN = f"{_KEPT}, epoch, seq, slice, deaths, wake_at, spent_s, created, updated, sum"
CREATE = "insert into af_run(run, base, program, digest, input, status, created, updated, sum) values (?, ?, ?, ?, ?, ?, ?, ?, ?)"
EFFECT = "path, leaf, kind, name, content, state, value, turns, usage, cost, t0, t1, sum"
_UNLESS_ENDED = f"""
on conflict(run, key) do update set {", ".join(f"{name.strip()} = excluded.{name.strip()}" for name in EFFECT.split(","))}
  where af_effect.state = 0
"""
_PLACES = ", ".join("?" * 15)
PUT = f"insert into af_effect(run, key, {EFFECT}) values ({_PLACES}) {_UNLESS_ENDED}"
PUT_ALONE = f"""
insert into af_effect(run, key, {EFFECT}) select {_PLACES} where (select epoch from af_run where run = ?) = ? {_UNLESS_ENDED}
"""
"""Stores a record if the run, a parameter after the record's, has the epoch after that: a transaction of one statement."""


def reached(of_run: str) -> str:
    """What has ended of a run ``r``, as SQL of both stores; ``of_run`` is the condition that an effect ``e`` belongs to it."""
    return f"(select count(*) || ' ' || coalesce(max(t1), 0) from af_effect e where {of_run} and e.state > 0)"


def deaths(of_run: str) -> str:
    """How many owners have died one after the other, with the one that just did, and recorded nothing in between."""
    return f"case when r.reached = {reached(of_run)} then r.deaths + 1 else 1 end"


_STATES: tuple[EffectState, ...] = tuple(EffectState)  # by number, in a fraction of the time of a look-up by value

Blobs = dict[bytes, bytes]
"""Values of a batch that are stored by content: JSON text by its hash."""


def dump(data: Any, blobs: Blobs) -> str | None:
    """JSON data as ASCII text; None stays None. A long text is added to ``blobs``, and a reference to it is returned."""
    if data is None:
        return None
    text = str(data) if type(data) is JsonText else _ENCODE(data)
    if len(text) <= BLOB_BYTES:
        return text
    body = text.encode("ascii")
    digest = blake2b(body, digest_size=16).digest()
    blobs[digest] = body
    return f'{{"$b":"{digest.hex()}"}}'


def _encoder() -> Callable[[Any], str]:
    """What writes JSON text, made once: ``JSONEncoder.encode`` makes a writer for each text, in more time than a short one takes.

    There is no search for circles, which takes as long again: the codec writes trees.
    """
    encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # a Python without the part of json that is written in C
        return encoder.encode
    write = make(None, encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False)

    def encode(data: Any) -> str:
        return "".join(write(data, 0))

    return encode


_ENCODE = _encoder()


def keep_blobs(db: sqlite3.Connection, blobs: Blobs) -> None:
    """Store the long values of a batch."""
    if blobs:
        db.executemany("insert or ignore into af_blob values (?, ?)", list(blobs.items()))


def load(text: str | None, db: sqlite3.Connection) -> Any:
    """JSON data that :func:`dump` wrote. Raises JournalError (``durable/corrupt``)."""
    if text is None:
        return None
    try:
        return parse(_whole_text(text, db))
    except ValueError as error:
        raise corrupt(f"a stored value is no JSON: {error}") from None


def load_text(text: str | None, db: sqlite3.Connection) -> JsonText | None:
    """The text of what :func:`load` gives, which nobody may ever ask for. Raises JournalError (``durable/corrupt``)."""
    return None if text is None else JsonText(_whole_text(text, db))


def _whole_text(text: str, db: sqlite3.Connection) -> str:
    if not text.startswith('{"$b":'):
        return text
    try:
        digest = bytes.fromhex(json.loads(text)["$b"])
    except ValueError as error:
        raise corrupt(f"a stored value is no JSON: {error}") from None
    row = db.execute("select data from af_blob where hash = ?", (digest,)).fetchone()
    if row is None or blake2b(row[0], digest_size=16).digest() != digest:
        raise corrupt("a stored value is damaged")
    return row[0].decode("ascii")


_READ = json.JSONDecoder().raw_decode


def parse(text: str) -> Any:
    """The data of a JSON text without surrounding space, as ``json.loads``, in half the time for short texts.

    Raises ValueError.
    """
    data, end = _READ(text)
    if end != len(text):
        raise ValueError(f"more than one value, from character {end} on")
    return data


def effect_values(run: str, row: EffectRow, blobs: Blobs) -> tuple[Any, ...]:
    """The values of :data:`PUT` for a record."""
    name = row.name
    fields = (
        row.path,
        row.leaf,
        row.kind,
        name if name.isascii() else name.encode("utf-8", "backslashreplace").decode("utf-8"),
        row.content,
        int(row.state),
        dump(row.value, blobs),
        dump(row.turns, blobs),
        None if row.usage is None else _ENCODE(row.usage),
        row.cost,
        row.started,
        row.ended,
    )
    return (run, row.key, *fields, effect_checksum(fields))


_REALS = Struct("<3d").pack


def effect_checksum(fields: Sequence[Any]) -> int:
    """The checksum of a record's columns: as :func:`checksum`, in half the time, since there are thousands."""
    path, leaf, kind, name, content, state, value, turns, usage, cost, started, ended = fields
    text = f"{path} {kind} {name} {state} {value} {turns} {usage}".encode("utf-8", "surrogatepass")
    reals = _REALS(
        -1.0 if cost is None else cost, -1.0 if started is None else started, -1.0 if ended is None else ended
    )
    return crc32(text, crc32(reals, crc32(content, crc32(leaf or b""))))


def _is_whole(fields: Sequence[Any]) -> bool:
    try:
        return effect_checksum(fields[:-1]) == fields[-1]
    except (TypeError, StructError):  # a column of another type
        return False


def effect_of(fields: tuple[Any, ...], db: sqlite3.Connection) -> EffectRow:
    """The record whose columns are :data:`EFFECT`. Raises JournalError (``durable/corrupt``)."""
    if not _is_whole(fields):
        raise corrupt("the record of an effect is damaged")
    path, leaf, kind, name, content, state, value, turns, usage, cost, started, ended, _ = fields
    return EffectRow(
        path=path,
        leaf=leaf,
        kind=kind,
        name=name,
        content=content,
        state=_STATES[int(state)],
        value=load(value, db),
        turns=load_text(turns, db),
        usage=None if usage is None else tuple(parse(usage)),
        cost=cost,
        started=started,
        ended=ended,
    )


def spent(db: sqlite3.Connection, run: str) -> tuple[tuple[int, ...], float | None]:
    """The tokens and USD of all records of a run; None for USD if a price is unknown."""
    rows = db.execute("select usage, cost from af_effect where run = ? and usage is not null", (run,)).fetchall()
    counts = parse(f"[{','.join([usage for usage, _ in rows])}]")
    usage = [sum(column) for column in zip_longest(*counts, fillvalue=0)]  # an older version had fewer counts
    return tuple(usage), total([cost for _, cost in rows])


def run_values(run: str, new: NewRun, now: float, blobs: Blobs) -> tuple[Any, ...]:
    """The values of a new, queued run for :data:`CREATE`."""
    summed = (run, new.base, _ENCODE(new.program), new.digest, dump(dict(new.input), blobs))
    return (*summed, "queued", now, now, checksum((*summed, "queued", None, None)))


def run_of(fields: tuple[Any, ...], db: sqlite3.Connection) -> RunRow:
    """The run whose columns are :data:`RUN`. Raises JournalError (``durable/corrupt``)."""
    summed, (epoch, seq, slice, deaths, wake_at, spent, created, updated, total) = fields[:8], fields[8:]
    run, base, program, digest, input_, status, result, error = summed
    if checksum(summed) != total:
        raise corrupt(f"the stored run '{run}' is damaged")
    return RunRow(
        run=run,
        base=base,
        program=json.loads(program),
        digest=digest,
        input=load(input_, db),
        status=status,
        epoch=epoch,
        seq=seq,
        slice=slice,
        wake_at=wake_at,
        spent_s=spent,
        result=load(result, db),
        error=load(error, db),
        created=created,
        updated=updated,
        deaths=deaths,
    )


def change_run(db: sqlite3.Connection, run: str, now: float, **columns: Any) -> None:
    """Set columns of a stored run, and its checksum with them."""
    values = db.execute(f"select {_KEPT} from af_run where run = ?", (run,)).fetchone()
    names = [name.strip() for name in _KEPT.split(",")]
    total = checksum([columns.get(name, value) for name, value in zip(names, values, strict=True)])
    set_ = ", ".join(f"{name} = ?" for name in (*columns, "updated", "sum"))
    db.execute(f"update af_run set {set_} where run = ?", (*columns.values(), now, total, run))


def checksum(fields: Iterable[Any]) -> int:
    """A checksum of a row, to detect damage that SQLite does not check for."""
    return crc32(repr(tuple(fields)).encode("ascii", "backslashreplace"))


def corrupt(what: str) -> JournalError:
    """The error for a damaged database."""
    return JournalError(
        f"the database of durable runs is damaged: {what}",
        code="durable/corrupt",
        hint="restore it from a backup, or name another; nothing was run",
    )
