"""Lines of a run's log whose large values were written beforehand, in parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from agentflow.core.data.messages import Message, ModelRequest, ModelResponse, TextPart, ToolResultPart, user
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.walk import LONG_TEXT, finish
from agentflow.core.events.events import Event, Log, ModelFinished, ModelStarted, TaskStarted, ToolFinished, ToolStarted
from agentflow.observe.files import LogLines

HEADER = ("r", 1, 7, "0/3.0", None, None, 1.5)
TEXT = 'ä "text" of\nsome \ud800 length ' * 10_000
WIDE = [{"row": at, "of": ["é", None, 1.5]} for at in range(20_000)]
MESSAGES = (user("short"), Message("user", (ToolResultPart("c", "t", TEXT), TextPart(TEXT[1:]))))
ENDED = (1, "ok", 0.5)


def events() -> Iterator[tuple[str, list[Any], Event]]:
    """Kinds of events that hold large values, with what is prepared before they are published."""
    arguments = {"text": TEXT, "wide": WIDE, "short": [1], "again": TEXT}
    yield "arguments", [arguments], ToolStarted(*HEADER, name="t", arguments=dict(arguments))
    yield "request", [arguments], TaskStarted(*HEADER, name="t", request=SubtaskRequest("atomic", inputs=arguments))
    result = TaskResult("COMPLETE", TEXT, WIDE)
    yield "result", [result], ToolFinished(*HEADER, *ENDED, name="t", result=result)
    yield "log", [TEXT], Log(*HEADER, message=TEXT)
    yield "messages", list(MESSAGES), ModelStarted(*HEADER, request=ModelRequest(MESSAGES, system="s"))
    response = ModelResponse((TextPart("short"), TextPart(TEXT)), "end")
    yield "answer", [response], ModelFinished(*HEADER, *ENDED, response=response)
    other = ModelResponse((TextPart("small"),), "end")
    yield "nothing of it", [WIDE, result], ModelFinished(*HEADER, *ENDED, response=other)


@pytest.mark.parametrize(("values", "event"), [each[1:] for each in events()], ids=[each[0] for each in events()])
def test_a_line_holds_what_was_written_beforehand(values: list[Any], event: Event) -> None:
    """The line and its contents are those of an event whose values were written with it."""
    lines = LogLines()
    for value in values:
        finish(lines.preparation(value))
    ours, whole = lines.entry(event), LogLines().entry(event)
    assert (ours.line, sorted(ours.contents)) == (whole.line, sorted(whole.contents))
    assert lines.entry(event).line == whole.line, "and what is shown again is written again"


@pytest.mark.parametrize("name", ["arguments", "messages", "answer", "result"])
def test_large_values_are_written_in_parts(name: str) -> None:
    """A part of the work makes no more text than takes an encoder about a millisecond."""
    values, event = next(each[1:] for each in events() if each[0] == name)
    lines = LogLines()
    parts = sum(1 for value in values for _ in lines.preparation(value))
    assert parts > len(json.dumps(event.to_dict())) / (5 * LONG_TEXT)


def test_the_event_is_spared_what_was_written() -> None:
    """What was written beforehand is not written again for the event, as a value shows that changed in between."""
    lines, rows = LogLines(), [["row", at] for at in range(20_000)]
    finish(lines.preparation({"rows": rows}))
    rows.clear()
    event = ToolStarted(*HEADER, name="t", arguments={"rows": rows})
    assert b'["row",19999]' in lines.entry(event).line and b"row" not in LogLines().entry(event).line.replace(
        b"rows", b""
    )


def test_what_no_event_shows_is_let_go() -> None:
    """Values that were written beforehand for nothing do not add up."""
    lines = LogLines()
    for at in range(200):
        finish(lines.preparation(TEXT[at:]))
    assert len(lines._ready) <= 64  # pyright: ignore[reportPrivateUsage]
