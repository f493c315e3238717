"""Copies without secrets: whatever kind of value holds one, and whatever kind of error."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from pydantic import BaseModel, ValidationError

from agentflow.core.data.errors import LimitExceeded, TaskError
from agentflow.core.data.messages import Message, Native, TextPart, ThinkingPart
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source
from agentflow.core.data.values import Symbol, to_json
from agentflow.core.data.walk import MAX_DEPTH
from agentflow.lib.redact import MARK, Redactor, Secret
from agentflow.lib.redacted_copy import holds_secret, redacted, redacted_json

SECRET = "tomato-harbour-71-violet"
REDACTOR = Redactor([SECRET])


class Point(NamedTuple):
    x: str
    y: int


@dataclass
class Box:
    inside: Any


class Model(BaseModel):
    text: str = ""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (SECRET, MARK),
        ([SECRET, 1], [MARK, 1]),
        ({SECRET: {"a": (SECRET, None)}}, {MARK: {"a": (MARK, None)}}),
        ({SECRET, "b"}, {MARK, "b"}),
        (Point(SECRET, 2), Point(MARK, 2)),
        (Box([Box(SECRET)]), Box([Box(MARK)])),
        (Model(text=SECRET), Model(text=MARK)),
        (Symbol(SECRET), Symbol(MARK)),
        (f"a {SECRET}".encode(), f"a {MARK}".encode()),
        ([Secret("abcdefgh")], [MARK]),
        (Message("user", (TextPart(SECRET),)), Message("user", (TextPart(MARK),))),
        (ThinkingPart("", Native("d", {"t": SECRET})), ThinkingPart("", Native("d", {"t": MARK}))),
    ],
)
def test_values_of_every_kind(value: Any, shown: Any) -> None:
    """The copy equals the value without the secret; the value itself is as it was."""
    before = repr(value)
    assert redacted(value, REDACTOR) == shown
    assert repr(value) == before


def test_a_value_without_secrets_is_itself() -> None:
    """Nothing is copied for nothing."""
    value = {"a": [Box("plain"), TaskError("plain"), Message("user", (TextPart("long enough to be looked at"),))]}
    assert redacted(value, REDACTOR) is value


def test_values_that_contain_themselves_and_deep_ones() -> None:
    """Cycles are copied as cycles; what lies deeper than anybody reads is left out."""
    ring: list[Any] = [SECRET]
    ring.append({"again": ring})
    copied = redacted(ring, REDACTOR)
    assert copied[0] == MARK and copied[1]["again"] is copied
    deep: list[Any] = [SECRET]
    for _ in range(5_000):
        deep = [deep]
    assert holds_secret(deep, REDACTOR) and not holds_secret(redacted(deep, REDACTOR), REDACTOR)
    assert MAX_DEPTH <= 1_000


def test_a_failed_results_exception_goes_with_it() -> None:
    """The exception behind a FAILED result is copied as the result is."""
    live = TaskResult.from_error(TaskError(f"bad {SECRET}"))
    shown = redacted(live, REDACTOR)
    assert isinstance(live.error, TaskError) and SECRET in live.error.message and SECRET in live.content
    assert isinstance(shown.error, TaskError) and shown.error.message == f"bad {MARK}" == shown.content
    assert SECRET not in to_json(shown)


def errors() -> list[Exception]:
    broken = json.JSONDecodeError("bad", f"[{SECRET}", 1)
    attribute = AttributeError("no", name=SECRET, obj=None)
    return [
        OSError(2, "gone", SECRET, None, f"/x/{SECRET}"),
        UnicodeDecodeError("utf-8", SECRET.encode(), 0, 1, SECRET),
        UnicodeEncodeError("ascii", SECRET, 0, 1, "no"),
        broken,
        attribute,
        ImportError("no", name=SECRET, path=SECRET),
        SyntaxError("no", (SECRET, 1, 1, SECRET, 1, 2)),
        StopAsyncIteration(SECRET),
        KeyError(SECRET),
        LimitExceeded(SECRET, limit="steps", allowed=1),
        ExceptionGroup("several", [TaskError(SECRET), ExceptionGroup(SECRET, [ValueError(SECRET)])]),
    ]


@pytest.mark.parametrize("error", errors(), ids=lambda error: type(error).__name__)
def test_errors_of_every_kind(error: Exception) -> None:
    """Same class, nothing of the secret in text, arguments or attributes, and the original is untouched."""
    before = (str(error), repr(error))
    copied = redacted(error, REDACTOR)
    assert type(copied) is type(error) and (str(error), repr(error)) == before
    assert not holds_secret(copied, REDACTOR)
    assert SECRET not in str(copied) + repr(copied) + repr(copied.args)
    assert copied.args is not error.args and len(copied.args) == len(error.args)


def test_an_error_that_cannot_be_copied_is_shown_as_text() -> None:
    """Some classes are built by their library alone; what they say is kept, redacted."""
    with pytest.raises(ValidationError) as caught:
        Model.model_validate({"text": [SECRET]})
    top = TaskError("bad input")
    top.__cause__ = caught.value
    copied = redacted(top, REDACTOR)
    assert "ValidationError" in str(copied.__cause__) and SECRET not in str(copied.__cause__)


def test_positions_in_a_program_hold() -> None:
    """The text of a program is masked, not shortened; its digest stays that of what ran."""
    source = Source("p.sexp", f'(f "{SECRET}"\n  x)')
    shown = redacted(source.span(len(source.text) - 2, len(source.text) - 1), REDACTOR)
    assert shown.text == "x" and (shown.line, shown.column) == (2, 3)
    assert shown.source.text == source.text.replace(SECRET, "*" * len(SECRET)) and shown.source.digest == source.digest


@pytest.mark.parametrize("where", [0, 1, 2, 3])
def test_json_data_is_searched_like_any_value(where: int) -> None:
    """A secret in a text, a key, a list or below a dict of JSON data is found, and data without one stays the same object."""
    texts = ["plain", "a longer text without any", "key-with-letters", "the last one of these"]
    clean = {texts[2]: [texts[0], {"n": [1, None, True, texts[1]]}], "x": (texts[3],)}
    assert redacted_json(clean, REDACTOR) is clean
    texts[where] = f"it is {SECRET}"
    data = {texts[2]: [texts[0], {"n": [1, None, True, texts[1]]}], "x": (texts[3],)}
    shown = redacted_json(data, REDACTOR)
    assert shown == redacted(data, REDACTOR) and SECRET in repr(data) and SECRET not in repr(shown)
