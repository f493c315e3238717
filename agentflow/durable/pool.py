"""Records of an earlier run that a new generation of it may be answered from."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from agentflow.core.call.spending import BATCHED
from agentflow.core.data.labels import Sources
from agentflow.core.data.limits import added
from agentflow.core.data.messages import Usage
from agentflow.core.data.results import NO_USAGE
from agentflow.core.events.journal_rows import BATCH, EffectRow, EffectState
from agentflow.durable.values.codec import read_usage, write_usage
from agentflow.durable.values.record_values import Request, request_in, with_request, with_span

_OWN = frozenset({"decision", "timeout", "workflow", "said", "sent"})
"""Kinds of records that belong to the program that wrote them: decisions about time, the texts it ran, and those said to it."""
_WORK = frozenset({"task", "tool", "host"})
"""Kinds of records left open while something works, not while it waits."""

SPENT = "spent"
"""Key, in the value of an adopted record, of the effect's cost, which the adopting run did not pay."""


class Pool:
    """The successful records of a run, each to be used once.

    Parameters: ``rows`` are all records of that run; with ``exact`` an effect is answered only from the record at its own
    path; ``cut`` is a path: the record there, and those that started after it had ended, are left out. ``used`` are records
    of the generation itself; each already used up one of the pool. The model calls of an ended effect answer equal ones
    of an equal effect, with tasks that do otherwise; with ``inner`` its other steps do, too, for any effect.
    """

    def __init__(
        self,
        rows: Iterable[EffectRow],
        *,
        exact: bool = False,
        cut: str | None = None,
        used: Iterable[EffectRow] = (),
        inner: bool = False,
    ) -> None:
        rows = list(rows)
        self._exact = exact
        self._parts = _parts_of(rows)
        kept = rows if cut is None else before(rows, cut)
        ended = {row.key for row in kept if row.state in (EffectState.OK, EffectState.FAILED)}
        self._steps = {row.path for row in kept if row.leaf in ended}
        answers = [row for row in kept if row.state == EffectState.OK and row.kind not in _OWN]
        self._free = {row.path: row for row in answers if inner or row.kind == "model" or row.path not in self._steps}
        self._open = [row for row in kept if row.state == EffectState.OPEN and row.kind in _WORK]
        self._identities: dict[str, str] = {}
        self._by_content: defaultdict[bytes, dict[Sources | None, deque[str]]] = defaultdict(dict)
        for row in sorted(self._free.values(), key=lambda row: path_order(row.path)):
            request = request_in(row)
            if request is not None:
                self._identities.setdefault(request.identity, row.path)
            alike = self._by_content[row.content]
            alike.setdefault(None if request is None else request.sources, deque()).append(row.path)
        for row in used:
            self.take(row.path, row.content, request_in(row))

    def take(self, path: str, content: bytes, request: Request | None = None) -> EffectRow | None:
        """Take the record for an effect at ``path``: the one there, else the first of equal content; None if there is none.

        Under a strict policy ``request`` has the sources of the effect, and a record answers only an effect with the same sources.
        Its identity is the place, since its path tells of arms. A record of a flow that followed no tests has no sources, and
        answers as in any other flow.
        """
        row = self._at(path, request)
        if row is None or row.content != content or not _depends_on(row, request):
            row = None if self._exact else self._next(content, request)
        if row is not None:
            del self._free[row.path]
        return row

    def _at(self, path: str, request: Request | None) -> EffectRow | None:
        """The free record at the place of an effect."""
        at = None if request is None else self._identities.get(request.identity)
        if at is not None:
            return self._free.get(at)
        row = self._free.get(path)
        return None if request is not None and row is not None and request_in(row) is not None else row

    def _next(self, content: bytes, request: Request | None) -> EffectRow | None:
        """The first of the free records of this content, by path: those of the same sources have the same order whichever arms ran."""
        alike = self._by_content.get(content)
        if alike is None:
            return None
        first: list[str] = []
        for paths in alike.values() if request is None else (alike.get(None), alike.get(request.sources)):
            while paths and paths[0] not in self._free:
                paths.popleft()
            if paths:
                first.append(paths[0])
        return self._free[min(first, key=path_order)] if first else None

    def in_flight(self, opening: EffectRow) -> bool:
        """Whether the effect with this record, or an equal one elsewhere, was at work when the run stopped. True once for each."""
        request = request_in(opening)
        same = [row for row in self._open if row.content == opening.content and _depends_on(row, request)]
        row = next((row for row in same if _same_place(row, opening)), None if self._exact or not same else same[0])
        if row is not None:
            self._open.remove(row)
        return row is not None

    def adopted(
        self, row: EffectRow, path: str, leaf: bytes | None, offsets: list[int] | None, request: Request | None
    ) -> EffectRow:
        """``row`` as the record of the effect at ``path`` in the run that adopts it, at no cost to that run.

        ``offsets`` are where it stands in that run's program, ``request`` has its sources there.
        """
        usage, cost = self.spent(row)
        value = with_request(with_span(row.value, offsets), request)
        if usage is not NO_USAGE:
            value = {**(value or {}), SPENT: [write_usage(usage), cost]}
        return replace(row, path=path, leaf=leaf, value=value, usage=None, cost=0.0)

    @property
    def unused(self) -> list[EffectRow]:
        """The records not used so far, without the steps of ended effects, in the order of their paths."""
        unused = [row for row in self._free.values() if row.path not in self._steps]
        return sorted(unused, key=lambda row: path_order(row.path))

    def spent(self, row: EffectRow) -> tuple[Usage, float | None]:
        """The tokens and US dollars of a recorded effect with its steps, paid by whichever run carried it out."""
        if row.value is not None and SPENT in row.value:
            usage, cost = row.value[SPENT]
            return read_usage(usage), cost
        usage, cost = NO_USAGE, 0.0
        for at in self._with_steps(row):
            if at.usage is not None:
                usage += read_usage(at.usage)
                cost = added(cost, at.cost)
        return usage, cost

    def ordinary(self, row: EffectRow) -> tuple[Usage, float | None]:
        """As :meth:`spent`, at the price of ordinary calls for an effect whose model calls were made in batches."""
        usage, cost = self.spent(row)
        answers = [at.value["ok"] for at in self._with_steps(row) if at.kind == BATCH and at.state == EffectState.OK]
        batched = answers and not any(["fallback" in each for each in answers])
        return usage, cost / BATCHED if batched and cost is not None else cost

    def _with_steps(self, row: EffectRow) -> Iterator[EffectRow]:
        pending = [row]
        while pending:
            at = pending.pop()
            pending += self._parts.get(at.key, ())
            yield at


def _depends_on(row: EffectRow, request: Request | None) -> bool:
    """Whether a record may answer a request, by the sources of both, if both flows followed tests."""
    recorded = None if request is None else request_in(row)
    return request is None or recorded is None or recorded.sources == request.sources


def _same_place(row: EffectRow, other: EffectRow) -> bool:
    one, two = request_in(row), request_in(other)
    return row.path == other.path if one is None or two is None else one.identity == two.identity


def before(rows: Iterable[EffectRow], cut: str) -> list[EffectRow]:
    """The records without those at or below the path ``cut`` and those that started after these had ended."""
    rows = list(rows)
    at = [row for row in rows if row.path == cut or row.path.startswith((f"{cut}/", f"{cut}!"))]
    end = max((row.ended for row in at if row.ended is not None), default=None)
    dropped = {row.path for row in at}
    return [
        row for row in rows if row.path not in dropped and (end is None or row.started is None or row.started < end)
    ]


def _parts_of(rows: Iterable[EffectRow]) -> dict[bytes, list[EffectRow]]:
    parts: defaultdict[bytes, list[EffectRow]] = defaultdict(list)
    for row in rows:
        if row.leaf is not None:
            parts[row.leaf].append(row)
    return dict(parts)


def path_order(path: str) -> list[tuple[Any, ...]]:
    """A sort key that orders paths as their effects come in the run; those named by content come last."""
    return [_segment(each) for each in path.split("/")]


def _segment(text: str) -> tuple[Any, ...]:
    head, _, index = text.partition(".")
    number = int(index) if index.isdecimal() else 0
    try:
        ordinal = int(head)
    except ValueError:
        return (2, 0, head, number)
    return (0, ordinal, "", number) if ordinal >= 0 else (1, -ordinal, "", number)
