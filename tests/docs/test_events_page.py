"""docs/events.md lists every event with its fields: ``python tests/docs/test_events_page.py`` writes the list anew."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from agentflow.core.events.events import EVENTS, DeltaBase, EventBase, FinishedBase

PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"
BEGIN, END = "<!-- events -->\n", "<!-- end -->"


def row(kind: type[EventBase]) -> str:
    base = FinishedBase if issubclass(kind, FinishedBase) else EventBase
    inherited = {field.name for field in dataclasses.fields(base)}
    own = [f"`{f.name}: {f.type}`".replace("|", "\\|") for f in dataclasses.fields(kind) if f.name not in inherited]
    text = " ".join((kind.__doc__ or "").replace("``", "`").split())
    return f"| `{kind.__name__}`{' (delta)' if issubclass(kind, DeltaBase) else ''} | {text} | {', '.join(own)} |"


def listed() -> str:
    head = "| event | meaning | fields |\n|---|---|---|\n"
    return head + "".join(row(kind) + "\n" for kind in EVENTS)


def test_the_page_lists_every_event() -> None:
    """Names, meanings and fields are those of the classes."""
    text = PAGE.read_text("utf-8")
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == listed()


if __name__ == "__main__":
    page = PAGE.read_text("utf-8")
    PAGE.write_text(page[: page.index(BEGIN) + len(BEGIN)] + listed() + page[page.index(END) :], "utf-8")
