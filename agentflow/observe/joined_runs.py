"""Joins two recorded runs, effect by effect, by kind and path. For ``runs diff`` and for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.events.journal_rows import EffectRow, EffectState
from agentflow.observe.run_view import Site, message_of

Record: TypeAlias = Mapping[str, Any]
Change: TypeAlias = Literal["same", "input", "output", "first", "second"]
"""``input``: a different question; ``output``: a different answer to the same question; ``first``, ``second``: only there."""

_INPUTS: Mapping[str, tuple[str, ...]] = {
    "task": ("name", "request"),
    "tool": ("name", "arguments"),
    "context": ("input",),
    "model": ("model", "request"),
}
_OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "task": ("result",),
    "tool": ("result",),
    "context": ("paths",),
    "model": ("response",),
}
_PASSING = frozenset({"usage", "request_id", "cache_key", "cost_usd", "metadata", "timeout_s", "idempotency_key"})
"""Parts of an answer or question that differ between any two runs."""
_NO_EFFECTS = frozenset({"decision", "timeout", "timer", "workflow", "model"})
"""Kinds of records about times, about the texts that a run read, and about answers within a task, which have ids."""


@frozen
class DoneEffect:
    """An effect of a run: its input and output as JSON data. ``at`` is the slice and ``seq`` of its start."""

    kind: str
    name: str
    path: str
    at: tuple[int, int]
    site: Site | None
    asked: Any
    gave: Any
    seconds: float
    tokens: int


@frozen
class EffectPair:
    """An effect in the first run and in the second: either may lack it."""

    change: Change
    first: DoneEffect | None
    second: DoneEffect | None

    @property
    def either(self) -> DoneEffect:
        """The effect as the second run did it, or else the first."""
        effect = self.second or self.first
        assert effect is not None
        return effect


def effects_of(events: Iterable[Record]) -> dict[tuple[str, str], DoneEffect]:
    """The effects of a run by kind and path; one that was tried several times as it ended last."""
    open_: dict[int, Record] = {}
    done: dict[tuple[str, str], DoneEffect] = {}
    for event in events:
        kind, _, end = str(event.get("type")).rpartition("_")
        if kind == "run":
            open_.clear()
        elif kind in _INPUTS and end == "started":
            open_[event.get("seq", 0)] = event
        elif kind in _INPUTS and end == "finished" and (begun := open_.pop(event.get("started", 0), None)) is not None:
            usage: Mapping[str, Any] = event.get("usage") or {}
            path = str(begun.get("path"))
            done[kind, path] = DoneEffect(
                kind,
                str(begun.get("name") or begun.get("model") or kind),
                path,
                (begun.get("slice", 1), begun.get("seq", 0)),
                Site.of(begun.get("span")),
                _lasting({name: begun.get(name) for name in _INPUTS[kind]}),
                _lasting([message_of(event), *[event.get(name) for name in _OUTPUTS[kind]]]),
                event.get("duration_s") or 0.0,
                usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
            )
    return done


def recorded_effects(rows: Iterable[EffectRow], lasting: Callable[[Any], Any]) -> dict[tuple[str, str], DoneEffect]:
    """The effects of a durable run by kind and path, from its journal, which has only a digest of each input.

    ``lasting`` removes the parts of a recorded value that differ between any two runs.
    """
    done: dict[tuple[str, str], DoneEffect] = {}
    for number, row in enumerate(rows):
        if row.state in (EffectState.OK, EffectState.FAILED) and row.kind not in _NO_EFFECTS:
            done[row.kind, row.path] = DoneEffect(
                row.kind,
                row.name or row.kind,
                row.path,
                (1, number),
                None,
                row.content.hex(),
                lasting(row.value),
                (row.ended or 0.0) - (row.started or row.ended or 0.0),
                sum((row.usage or ())[:2]),
            )
    return done


def pairs_of(first: Iterable[Record], second: Iterable[Record]) -> list[EffectPair]:
    """The effects of two runs joined, in the order of the first and then of the second."""
    return joined(effects_of(first), effects_of(second))


def joined(a: Mapping[tuple[str, str], DoneEffect], b: Mapping[tuple[str, str], DoneEffect]) -> list[EffectPair]:
    """As :func:`pairs_of`, of effects that were read already."""
    keys = dict.fromkeys([*a, *b])
    return [EffectPair(_change(a.get(key), b.get(key)), a.get(key), b.get(key)) for key in keys]


def _change(a: DoneEffect | None, b: DoneEffect | None) -> Change:
    if a is None or b is None:
        return "second" if a is None else "first"
    if (a.name, a.asked) != (b.name, b.asked):
        return "input"
    return "same" if a.gave == b.gave else "output"


def _lasting(data: Any) -> Any:
    """Data without the parts that differ between any two runs."""
    if isinstance(data, Mapping):
        fields = cast("Mapping[str, Any]", data)
        return {name: _lasting(value) for name, value in fields.items() if name not in _PASSING}
    if isinstance(data, list):
        return [_lasting(item) for item in cast("list[Any]", data)]
    return data
