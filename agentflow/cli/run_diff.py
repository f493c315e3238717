"""``agentflow runs diff``: two runs beside each other, joined by the paths of their effects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rich.text import Text

from agentflow.cli.common import write_json
from agentflow.cli.run_show import money, seconds
from agentflow.cli.terminal import print_text, screen
from agentflow.lib.terminal import clean
from agentflow.observe.run_view import Site, message_of
from agentflow.runtime.catalogue import RunSummary

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
_PASSING = frozenset({"usage", "request_id", "cost_usd", "metadata", "timeout_s", "idempotency_key"})
"""Parts of an answer or question that differ between any two runs."""
_MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Done:
    """An effect of a run: what it was asked and what it gave, as JSON data."""

    kind: str
    name: str
    site: Site | None
    asked: Any
    gave: Any
    seconds: float
    tokens: int


def effects_of(events: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Done]:
    """The effects of a run by kind and path; one that was worked on several times as it ended last."""
    open_: dict[int, Mapping[str, Any]] = {}
    done: dict[tuple[str, str], Done] = {}
    for event in events:
        kind, _, end = str(event.get("type")).rpartition("_")
        if kind == "run":
            open_.clear()
        elif kind in _INPUTS and end == "started":
            open_[event.get("seq", 0)] = event
        elif kind in _INPUTS and end == "finished" and (begun := open_.pop(event.get("started", 0), None)) is not None:
            usage: Mapping[str, Any] = event.get("usage") or {}
            done[kind, str(begun.get("path"))] = Done(
                kind,
                str(begun.get("name") or begun.get("model") or kind),
                Site.of(begun.get("span")),
                _lasting({name: begun.get(name) for name in _INPUTS[kind]}),
                _lasting([message_of(event), *[event.get(name) for name in _OUTPUTS[kind]]]),
                event.get("duration_s") or 0.0,
                usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
            )
    return done


def _lasting(data: Any) -> Any:
    """Data without what differs between any two runs."""
    if isinstance(data, Mapping):
        fields = cast("Mapping[str, Any]", data)
        return {name: _lasting(value) for name, value in fields.items() if name not in _PASSING}
    if isinstance(data, list):
        return [_lasting(item) for item in cast("list[Any]", data)]
    return data


def show_difference(
    one: RunSummary,
    other: RunSummary,
    events: tuple[Iterable[Mapping[str, Any]], Iterable[Mapping[str, Any]]],
    *,
    as_json: bool,
) -> None:
    """Print what two runs did differently: where the question changed, where only the answer, what one of them did alone."""
    first, second = (effects_of(each) for each in events)
    rows: list[dict[str, Any]] = []
    for key in dict.fromkeys([*first, *second]):
        a, b = first.get(key), second.get(key)
        effect = b or a
        assert effect is not None
        rows.append(
            {
                "change": _change(a, b),
                "kind": effect.kind,
                "name": effect.name,
                "path": key[1],
                "line": effect.site.line if effect.site else None,
                "seconds": [each.seconds if each else None for each in (a, b)],
                "tokens": [each.tokens if each else None for each in (a, b)],
            }
        )
    counts = {
        name: sum(row["change"] == name for row in rows) for name in ("same", "input", "output", "first", "second")
    }
    if as_json:
        runs = [{"run_id": each.run_id, "state": each.state, "cost_usd": each.cost_usd} for each in (one, other)]
        write_json({"runs": runs, "counts": counts, "effects": rows})
        return
    print_text(screen(sys.stdout), _table(one, other, rows, counts))


def _change(a: Done | None, b: Done | None) -> str:
    if a is None or b is None:
        return "second" if a is None else "first"
    if (a.name, a.asked) != (b.name, b.asked):
        return "input"
    return "same" if a.gave == b.gave else "output"


_WORDS = {
    "input": "asked otherwise",
    "output": "answered otherwise",
    "first": "only in the first",
    "second": "only in the second",
}


def _table(one: RunSummary, other: RunSummary, rows: list[dict[str, Any]], counts: Mapping[str, int]) -> Text:
    shown = Text()
    for label, run in (("first", one), ("second", other)):
        took = "" if run.duration_s is None else seconds(run.duration_s)
        shown.append(f"{label:<7}", "dim").append(clean(f"{run.run_id}  {run.state}  {took}  {money(run.cost_usd)}\n"))
    shown.append(", ".join(f"{counts[name]} {words}" for name, words in _WORDS.items()))
    shown.append(f", {counts['same']} the same\n")
    changed = [row for row in rows if row["change"] != "same"]
    for row in changed[:_MOST_SHOWN]:
        line = f"line {row['line']}" if row["line"] else ""
        took = " -> ".join("" if each is None else seconds(each) for each in row["seconds"])
        shown.append(f"  {_WORDS[row['change']]:<19}", "yellow")
        shown.append(clean(f"{row['kind']} {row['name']}  {line}  {row['path']}  {took}\n"))
    if len(changed) > _MOST_SHOWN:
        shown.append(f"  ... and {len(changed) - _MOST_SHOWN} more; --json has them all\n")
    return shown
