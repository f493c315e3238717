"""The costs of tasks and tools, as a table that fits the terminal's width."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.text import Text

from agentflow.cli.shared.amounts import money, seconds
from agentflow.lib.text.safe_text import clean
from agentflow.observe.run_view import Tally

_NAME = 32
_LEAST_NAME = 12
_COLUMNS: Mapping[str, Callable[[Tally], str]] = {
    "calls": lambda tally: f"{tally.calls:,}",
    "failed": lambda tally: f"{tally.failures:,}" if tally.failures else "",
    "time": lambda tally: seconds(tally.seconds),
    "tokens": lambda tally: f"{_tokens(tally):,}" if _tokens(tally) else "",
    "cached": lambda tally: f"{tally.cached_tokens / tally.input_tokens:.0%}" if tally.cached_tokens else "",
    "cost": lambda tally: money(tally.cost_usd) if _tokens(tally) else "",
}
_FIRST_TO_GO = ("cached", "failed", "tokens", "time", "calls")


def cost_table(tasks: Mapping[str, Tally], width: int) -> Text:
    """The tasks and tools in ``width`` columns, most expensive first; empty if there are none.

    Empty columns are left out, and on a narrow terminal also the least important ones.
    """
    rows = sorted(tasks.items(), key=lambda each: (-(each[1].cost_usd or 0.0), -each[1].seconds))
    cells = {title: [show(tally) for _, tally in rows] for title, show in _COLUMNS.items()}
    widths = {title: max(len(title), *map(len, texts)) for title, texts in cells.items() if any(texts)}
    for title in _FIRST_TO_GO:
        if _LEAST_NAME + _total(widths) > width:
            widths.pop(title, None)
    names = [clean(" ".join(name.split())) for name, _ in rows]
    longest = min(max(map(len, names), default=0), _NAME, max(1, width - _total(widths)))
    shown = Text()
    if rows:
        shown.append("\n" + " " * longest + "".join(f"  {title:>{widths[title]}}" for title in widths) + "\n", "dim")
    for at, name in enumerate(names):
        shown.append(f"{name[:longest]:<{longest}}")
        for title, size in widths.items():
            shown.append(f"  {cells[title][at]:>{size}}", "red" if title == "failed" else "")
        shown.append("\n")
    return shown


def _tokens(tally: Tally) -> int:
    return tally.input_tokens + tally.output_tokens


def _total(widths: Mapping[str, int]) -> int:
    return sum(2 + size for size in widths.values())
