"""``agentflow runs diff``: compares two runs, joined by the paths of their effects."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from rich.text import Text

from agentflow.cli.shared.amounts import money, seconds
from agentflow.cli.shared.common import write_json
from agentflow.cli.shared.terminal import print_text, screen
from agentflow.durable.catalogue import RunSummary
from agentflow.lib.text.terminal import clean
from agentflow.observe.difference import Pair

_MOST_SHOWN = 100


def show_difference(
    one: RunSummary,
    other: RunSummary,
    pairs: Iterable[Pair],
    *,
    as_json: bool,
) -> None:
    """Print the effects that differ between two runs: a changed input, a changed output only, or present in one run only."""
    rows: list[dict[str, Any]] = []
    for pair in pairs:
        effect, both = pair.either, (pair.first, pair.second)
        rows.append(
            {
                "change": pair.change,
                "kind": effect.kind,
                "name": effect.name,
                "path": effect.path,
                "line": effect.site.line if effect.site else None,
                "seconds": [each.seconds if each else None for each in both],
                "tokens": [each.tokens if each else None for each in both],
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


_WORDS = {
    "input": "other input",
    "output": "other output",
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
