"""How runs and effects become rows and are read back, in both databases.

Texts are JSON in ASCII: PostgreSQL's ``jsonb`` takes neither lone surrogates nor NUL, and reorders keys.
"""

from __future__ import annotations

import json
import json.encoder
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from agentflow.core.data.limits import total
from agentflow.core.events.journal_rows import EffectRow, EffectState, JsonText, RunRow
from agentflow.core.events.run_query import RunQuery
from agentflow.journal.connection import DatabaseConnection, Row
from agentflow.journal.errors import corrupt

LONG = 64 * 1024
"""Characters of a JSON text above which it may be stored apart from its row, which refers to it by ``@`` and its digest."""
KEPT = "run, base, program, digest, input, status, result, error"
"""The columns of a run that the checksum of its row covers."""
_KEPT_COUNT = KEPT.count(",") + 1
EFFECT = "path, leaf, kind, name, content, state, value, turns, usage, cost, t0, t1"
EFFECT_CHANGED = ", ".join(f"{name} = excluded.{name}" for name in EFFECT.split(", "))
VALUE, TURNS = 6, 7
"""The positions of value and turns among the columns :data:`EFFECT`."""
OWNER, REF = -2, -1
"""The positions of a run's owner, and of the reference that its effects name it by, among the columns :attr:`Rows.run`."""
_STATES: tuple[EffectState, ...] = tuple(EffectState)  # by number, in a fraction of the time of a look-up by value
_UNSAFE = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED = re.compile(r"\\u([0-9a-f]{4})")


def escape(text: str) -> str:
    """``text`` with NUL and lone surrogates escaped, which a database does not store."""
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def unescape(text: str) -> str:
    """The inverse of :func:`escape`."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 16)), text) if "\\" in text else text


def _encoder() -> Callable[[Any], str]:
    """The writer of JSON text, created once: ``JSONEncoder.encode`` creates a writer for each text, which takes longer than
    writing a short one.

    It does not search for cycles, which would take as long again: the codec writes trees.
    """
    encoder = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
    make: Any = getattr(json.encoder, "c_make_encoder", None)
    if make is None:  # a Python without the part of json written in C
        return encoder.encode
    write = make(None, encoder.default, json.encoder.encode_basestring_ascii, None, ":", ",", False, False, False)

    def encode(data: Any) -> str:
        return "".join(write(data, 0))

    return encode


_ENCODE = _encoder()


def dump(data: Any) -> str | None:
    """JSON data as ASCII text; None stays None."""
    if data is None:
        return None
    return str(data) if type(data) is JsonText else _ENCODE(data)


_READ = json.JSONDecoder().raw_decode


def parse(text: str) -> Any:
    """The data of a JSON text without surrounding space, as ``json.loads``, in half the time for short texts.

    Raises ValueError.
    """
    data, end = _READ(text)
    if end != len(text):
        raise ValueError(f"more than one value, from character {end} on")
    return data


def load(text: str | None) -> Any:
    """JSON data that :func:`dump` wrote. Raises JournalError (``durable/corrupt``)."""
    if text is None:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise corrupt(f"a stored value is not JSON: {error}") from None


def effect_values(row: EffectRow) -> tuple[Any, ...]:
    """The values of a record's key and its columns :data:`EFFECT`; ``usage`` as JSON text. Raises TypeError, ValueError, RecursionError."""
    return (
        row.key,
        escape(row.path),
        row.leaf,
        row.kind,
        escape(row.name),
        row.content,
        int(row.state),
        dump(row.value),
        dump(row.turns),
        None if row.usage is None else _ENCODE(row.usage),
        None if row.cost is None else float(row.cost),
        None if row.started is None else float(row.started),
        None if row.ended is None else float(row.ended),
    )


def _effect_of(fields: Row) -> EffectRow:
    path, leaf, kind, name, content, state, value, turns, usage, cost, started, ended, _ = fields
    return EffectRow(
        path=unescape(path),
        leaf=leaf,
        kind=kind,
        name=unescape(name),
        content=content,
        state=_STATES[int(state)],
        value=load(value),
        turns=None if turns is None else JsonText(turns),
        usage=None if usage is None else tuple(parse(usage)),
        cost=cost,
        started=started,
        ended=ended,
    )


def selected(query: RunQuery | None) -> tuple[str, list[Any]]:
    """The conditions of a list of runs, each behind an ``and``, and their parameters from ``$2`` on.

    A separately stored input is not looked into: its run is listed.
    """
    texts: list[str] = []
    values: list[Any] = []

    def add(text: str, *more: Any) -> None:
        names = [f"${number}" for number in range(len(values) + 2, len(values) + 2 + len(more))]
        texts.append(" and " + text.format(*names))
        values.extend(more)

    if query is None:
        return "", values
    if query.since is not None:
        add("updated >= to_timestamp({})", query.since)
    if query.until is not None:
        add("updated < to_timestamp({})", query.until)
    if query.after is not None:
        at, run = query.after
        add("updated <= to_timestamp({0}) and (updated < to_timestamp({0}) or run > {1})", at, run)
    if query.statuses:
        add("status = any({})", list(query.statuses))
    for held in query.holds:
        pattern = re.sub(r"([!%_])", r"!\1", held)
        add("(input like {} escape '!' or input like '@%')", f"%{pattern}%")
    return "".join(texts), values


def is_long(text: Any) -> bool:
    """Whether a text may be stored apart from its row."""
    return text is not None and len(text) > LONG


def is_apart(text: Any) -> bool:
    """Whether a text is stored apart from its row; no JSON text begins so."""
    return bool(text) and text[0] == "@"


class Rows(ABC):
    """The rows of one database. ``run`` are the columns that :meth:`run_of` reads.

    Its attributes are the differing parts of statements: ``ref`` is the column of an effect that refers to its run,
    ``sum`` the column of a row's checksum, ``usage`` turns a list of numbers into JSON text; ``more`` are the columns of
    runs on workers, and ``leased`` says whether a run ``r`` has a reservation from a budget. ``listed`` are the runs shown
    in lists.
    """

    ref: str
    sum = "null"
    usage = "usage"
    more: str
    leased = "null"
    listed = "true"

    run: str
    reached: str
    """The ended records of a run ``r``."""
    deaths: str
    """How many owners of ``r`` have died one after the other, with the one that just did, and recorded nothing in between."""
    unsaid_s: str
    """The working time in seconds of a killed owner of ``r``, as far as its records show it."""
    answers: str
    """The condition for records ``e`` outside a finished one."""

    def __init_subclass__(cls) -> None:
        ref = cls.ref
        cls.run = (
            f"{KEPT}, {cls.sum}, epoch, seq, slice, extract(epoch from wake_at)::float8, spent_s,"
            f" extract(epoch from created)::float8, extract(epoch from updated)::float8, deaths, {cls.more}, owner, {ref}"
        )
        of_run = f"from af_effect e where e.{ref} = r.{ref}"
        cls.reached = f"(select count(*) || ' ' || coalesce(max(t1), 0) {of_run} and e.state > 0)"
        cls.deaths = f"case when r.reached = {cls.reached} then r.deaths + 1 else 1 end"
        cls.unsaid_s = f"greatest(0, (select max(t1) {of_run}) - extract(epoch from r.updated)::float8)"
        finished = f"select 1 from af_effect f where f.{ref} = e.{ref} and f.key = e.leaf and f.state in (1, 2)"
        cls.answers = f"(leaf is null or not exists ({finished}))"

    async def put(self, db: DatabaseConnection, data: Any) -> str | None:
        """JSON data as the text of a column, after its large values were stored separately."""
        return dump(data)

    async def load(self, db: DatabaseConnection, text: str | None) -> Any:
        """The JSON data of a column. Raises JournalError (``durable/corrupt``, ``durable/blob``), OSError."""
        return load(await self.apart(db, text) if text is not None and is_apart(text) else text)

    @abstractmethod
    async def apart(self, db: DatabaseConnection, text: str) -> str:
        """The text that a reference to it stands for. Raises JournalError (``durable/corrupt``, ``durable/blob``), OSError."""

    def counts(self, usage: Sequence[int]) -> Any:
        """Numbers of tokens as the value of a column ``usage``."""
        return _ENCODE(usage)

    def is_whole(self, fields: Row) -> bool:
        """Whether a row with its checksum, the last of its fields, is intact."""
        return True

    def is_whole_effect(self, fields: Row) -> bool:
        """:meth:`is_whole` for a record."""
        return True

    def checked(self, fields: Row, what: str) -> Row:
        """The fields of a row without its checksum, the last of them. Raises JournalError (``durable/corrupt``) with ``what`` it is."""
        if not self.is_whole(fields):
            raise corrupt(f"{what} is damaged")
        return fields[:-1]

    async def run_of(self, db: DatabaseConnection, fields: Row) -> RunRow:
        """The run with the columns :attr:`run`. Raises JournalError (``durable/corrupt``)."""
        self.checked(fields[: _KEPT_COUNT + 1], f"the stored run '{fields[0]}'")
        run, base, program, digest, input_, status, result, error = fields[:_KEPT_COUNT]
        epoch, seq, slice, wake_at, spent, created, updated, deaths = fields[_KEPT_COUNT + 1 : _KEPT_COUNT + 9]
        queue, tenant, cancelling, parent, build = fields[_KEPT_COUNT + 9 : OWNER]
        return RunRow(
            run=run,
            base=base,
            program=load(program),
            digest=digest,
            input=await self.load(db, input_),
            status=status,
            epoch=epoch,
            seq=seq,
            slice=slice,
            wake_at=wake_at,
            spent_s=spent,
            result=await self.load(db, result),
            error=await self.load(db, error),
            created=created,
            updated=updated,
            deaths=deaths,
            queue=queue,
            tenant=unescape(tenant),
            cancelling=bool(cancelling),
            parent=parent,
            build=build,
        )

    async def effects(self, db: DatabaseConnection, ref: Any, where: str = "true", *args: Any) -> list[EffectRow]:
        """The records of a run where ``where`` holds, in the order they started. Raises the errors of
        :meth:`load`.

        ``args`` are the parameters from ``$2`` on.
        """
        columns = EFFECT.replace("usage", self.usage)
        query = f"select {columns}, {self.sum} from af_effect e where {self.ref} = $1 and {where} order by t0, path"
        rows = await db.fetch(query, ref, *args)
        records: list[EffectRow] = []
        for row in rows:
            if not self.is_whole_effect(row):
                raise corrupt("the record of an effect is damaged")
            if is_apart(row[VALUE]) or is_apart(row[TURNS]):
                texts = [await self.apart(db, row[at]) if is_apart(row[at]) else row[at] for at in (VALUE, TURNS)]
                row = (*row[:VALUE], *texts, *row[TURNS + 1 :])
            records.append(_effect_of(row))
        return records

    async def spent(self, db: DatabaseConnection, ref: Any) -> tuple[tuple[int, ...], float | None]:
        """The tokens and USD of all records of a run; None for USD if a price is unknown."""
        return sum_of(
            await db.fetch(f"select {self.usage}, cost from af_effect where {self.ref} = $1 and usage is not null", ref)
        )


def sum_of(rows: Iterable[Row]) -> tuple[tuple[int, ...], float | None]:
    """The tokens and USD of rows of usage and cost; None for USD if a price is unknown."""
    rows = list(rows)
    counts = parse(f"[{','.join([usage for usage, _ in rows])}]")
    usage = [sum(column) for column in zip_longest(*counts, fillvalue=0)]  # an older version had fewer counts
    return tuple(usage), total([cost for _, cost in rows])
