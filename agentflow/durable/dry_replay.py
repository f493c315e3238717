"""Dry replays that continue past an effect without a record, with the value that its place had before.

What follows may depend on the new value, which nobody knows yet. So a second replay alters each such value: an effect that is
asked the same in both does not read it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

from agentflow.core.data.frozen import frozen
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.events.journal_rows import EffectRow, EffectState
from agentflow.durable.pool import path_order
from agentflow.durable.values.codec import Shaped

Action: TypeAlias = "Literal['reused', 'run', 'may run']"
"""A record answers the effect; it is carried out; or it depends on effects that are carried out."""


@frozen(kw_only=True)
class ReachedEffect:
    """An effect that a dry replay has reached.

    ``row`` is the record that answers it if ``fits``, else the one whose value it had before; None if its place had none.
    ``follows``: effects that are carried out may come before it.
    """

    path: str
    kind: str
    name: str
    digest: bytes
    span: Span | None
    row: EffectRow | None
    fits: bool
    follows: bool


class DryReplay:
    """The effects of one dry replay. ``rows`` are the records of earlier runs, which have the old values.

    With ``first`` it is the second replay, which alters the values of all effects that are carried out, or depend on one.
    """

    def __init__(self, rows: Iterable[EffectRow], first: DryReplay | None = None) -> None:
        self.reached: dict[str, ReachedEffect] = {}
        self.altered: set[str] = set()
        """The paths whose values are old ones, or altered by this replay."""
        self.blind = False
        """Whether a value could not be altered, so that this replay shows nothing more."""
        self._first = first
        self._run: list[str] = []
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._at: dict[tuple[str, str, str], EffectRow] = {}
        self._like: defaultdict[tuple[str, str], list[EffectRow]] = defaultdict(list)
        for row in sorted(rows, key=lambda row: path_order(row.path)):
            if row.state == EffectState.OK:
                self._at.setdefault((row.kind, row.name, row.path), row)
                self._like[row.kind, row.name].append(row)

    def reach(
        self, kind: str, name: str, digest: bytes, path: str, span: Span | None, find: Callable[[], EffectRow | None]
    ) -> EffectRow | None:
        """The record with which the replay continues at an effect; None if it ends there. ``find`` gives the record that answers."""
        if self._first is not None:
            return self._again(self._first, kind, name, digest, path)
        row = find()
        number = self._counts[kind, name]
        self._counts[kind, name] += 1
        fits = row is not None
        follows = any([may_precede(each, path) for each in self._run])
        if row is None:
            like = self._like.get((kind, name), ())
            row = self._at.get((kind, name, path)) or (like[number] if number < len(like) else None)
            self._run.append(path)
            self.altered.add(path)
        self.reached[path] = ReachedEffect(
            path=path, kind=kind, name=name, digest=digest, span=span, row=row, fits=fits, follows=follows
        )
        return row

    def _again(self, first: DryReplay, kind: str, name: str, digest: bytes, path: str) -> EffectRow | None:
        """As before, with another value for what is asked otherwise now."""
        before = first.reached.get(path)
        if self.blind or before is None or before.row is None or (before.kind, before.name) != (kind, name):
            return None
        if not before.fits or before.digest != digest:
            self.altered.add(path)
        self.reached[path] = replace(before, digest=digest)
        return before.row

    @property
    def is_second(self) -> bool:
        """Whether it is the second replay."""
        return self._first is not None

    @property
    def is_open(self) -> bool:
        """Whether a second replay could show that a record answers for certain."""
        return any([each.fits and each.follows for each in self.reached.values()])

    def actions(self, again: DryReplay | None) -> list[tuple[ReachedEffect, Action]]:
        """The effects in the order of their paths, each with what will be done; ``again`` is the second replay."""
        told: list[tuple[ReachedEffect, Action]] = []
        for each in sorted(self.reached.values(), key=lambda each: path_order(each.path)):
            action: Action = "reused" if each.fits else "run"
            if each.follows and not (each.fits and again is not None and again.asks_the_same(each)):
                action = "may run"
            told.append((each, action))
        return told

    def asks_the_same(self, effect: ReachedEffect) -> bool:
        """Whether this second replay has reached ``effect`` with the content that it had in the first."""
        return effect.path in self.reached and effect.path not in self.altered


def may_precede(earlier: str, later: str) -> bool:
    """Whether the effect at ``later`` may depend on the one at ``earlier``: not if they are in two branches of one form, which
    share nothing that changes."""
    for one, other in zip(earlier.split("/"), later.split("/"), strict=False):
        if one != other:
            (number, _, _), (same, _, _) = one.partition("."), other.partition(".")
            return not (number.isdecimal() and number == same)
    return True


_MARK = "~"


class Unalterable(Exception):
    """There is no other value of the same shape."""


def altered(value: Any) -> Any:
    """Another value of the same shape. Raises Unalterable for one that is not data."""
    match value:
        case TaskResult():
            parsed = value.parsed_content
            content = f"{_MARK}{value.content}{_MARK}"
            return replace(value, content=content, parsed_content=None if parsed is None else altered(parsed))
        case Shaped():
            return replace(value, data=altered(value.data))
        case None:
            return _MARK
        case bool():
            return not value
        case _:
            return _of_type(value)


def _of_type(value: Any) -> Any:
    kind: object = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is str:
        return f"{_MARK}{value}{_MARK}"
    if kind is int or kind is float:
        return value + 1
    if kind is list:
        return [altered(each) for each in value]
    if kind is tuple:
        return tuple([altered(each) for each in value])
    if kind is dict:
        return {key: altered(each) for key, each in value.items()}
    raise Unalterable
