"""A parameter that no text of a prompt uses is told where the task is defined: nobody would tell the model what is given for it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ScriptedProvider
from agentflow.core.data.errors import ConfigurationError, SexpEvaluationError
from agentflow.core.data.source import Source
from agentflow.core.events.events import Event, Warning
from agentflow.lang.diagnosis import diagnose
from agentflow.media import ImagePart


def flow_of() -> AgentFlow:
    """A flow whose model answers."""
    return AgentFlow(provider=ScriptedProvider(["ok"] * 9))


async def test_single_braces_are_refused_where_the_task_is_declared() -> None:
    """``{path}`` is not a slot: the model would read it as it stands."""
    with pytest.raises(ConfigurationError) as refused:

        @flow_of().task
        async def review(path: str) -> str:
            """Review {path}."""

    assert refused.value.code == "tasks/single-braces" and refused.value.hint == "write {{path}}"


async def test_an_unused_parameter_is_warned_of_at_the_function() -> None:
    """A Python warning, in the file of the task."""
    with pytest.warns(UserWarning, match="does not use its parameter 'strict'") as told:

        @flow_of().task
        async def review(path: str, strict: bool = False) -> str:
            """Review {{path}}."""

    assert [each.filename for each in told] == [__file__]


async def test_what_may_be_used_otherwise_is_not_told() -> None:
    """A body that gives the prompt, the system text, files, a lookup, what is attached, and the context of a call."""
    flow = flow_of()
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @flow.task
        async def by_body(path: str, strict: bool) -> str:
            """Review {path}."""
            return f"Review {path}."

        @flow.task(system="You review {{kind}} files, {{call.name}}.", file_paths=["{{path}}"])
        async def elsewhere(kind: str, path: str, call: dict[str, str]) -> str:
            """Review it, as JSON: {"kind": "x"} and {kind}."""

        @flow.task(context={"fresh_context": "enabled", "inherit_context": "none"})
        async def looked_up(topic: str) -> str:
            """Answer."""

        @flow.task
        async def shown(photo: ImagePart, more: list[ImagePart] | None = None, anything: Any = None) -> str:
            """What is this?"""

        @flow.task
        async def called(topic: str, *, ctx: CallContext) -> str:
            """About {{topic}}."""

        review = flow.task(by_body.with_options().__wrapped__)  # type: ignore[attr-defined]
    assert review.name == "by_body"


def told(text: str, surface: Any) -> list[tuple[str, str, str]]:
    """What is said of a text: severity, code and the part that is underlined."""
    found = diagnose(Source("t", text, surface), names=None)
    return [(each.severity, each.error.code, each.error.span.text if each.error.span else "") for each in found]


@pytest.mark.parametrize(
    ("text", "surface"),
    [
        ('@task\ndef f(path: str) -> str:\n    """Review {path}"""\nf("a")', "python"),
        ('(defatom f (params (path)) (instructions "Review {path}")) (f (path "a"))', "sexp"),
    ],
)
async def test_texts_refuse_single_braces(text: str, surface: Any) -> None:
    """Where they stand, when the text is compiled."""
    assert told(text, surface) == [("error", "defatom/place", "{path}")]
    with pytest.raises(SexpEvaluationError, match="single braces"):
        flow_of().compile(text, surface=surface)


@pytest.mark.parametrize(
    ("text", "surface", "doubts"),
    [
        ('@task\ndef f(path: str, n: int) -> str:\n    """Review {{path}}"""\nf("a", 1)', "python", 1),
        ('(defatom f (params (path) (n)) (instructions "Review {{path}}")) (f (path "a") (n 1))', "sexp", 1),
        ('(defatom f (params (path) (n)) (system "{{n}}") (instructions "{{path.a}}")) (f (path 1) (n 1))', "sexp", 0),
        ('(defatom f (params (a-b)) (instructions "{{g(a-b)}}")) (f (a-b 1))', "sexp", 0),
        ('(defatom f (params (n)) (instructions (string-append "a" "b"))) (f (n 1))', "sexp", 0),
        ('(defatom f (params (n)) (instructions "x") (context (fresh_context enabled))) (f (n 1))', "sexp", 0),
    ],
)
async def test_check_doubts_an_unused_parameter(text: str, surface: Any, doubts: int) -> None:
    """``check`` and editors say so as a warning; texts that are computed, and lookups, may use it."""
    codes = [each for each in told(text, surface) if each[1] == "defatom/instructions"]
    assert [each[0] for each in codes] == ["warning"] * doubts


@pytest.mark.parametrize(
    ("text", "surface"),
    [
        ('@task\ndef f(path: str, n: int) -> str:\n    """Review {{path}}"""\nf("a", 1)', "python"),
        ('(defatom f (params (path) (n)) (instructions "Review {{path}}")) (f (path "a") (n 1))', "sexp"),
    ],
)
async def test_a_run_warns_of_an_unused_parameter(text: str, surface: Any) -> None:
    """Whoever runs a text without checking it first hears of it once per run, with the place and what to write."""
    events: list[Event] = []
    async with flow_of() as flow:
        flow.subscribe(events.append)
        for _ in range(2):
            await flow.run(Source("t", text, surface))
    warned = [each for each in events if isinstance(each, Warning) and each.code == "defatom/instructions"]
    assert len(warned) == 2 and "'n'" in warned[0].message
    assert warned[0].details is not None and "t:" in warned[0].details["at"] and "{{n}}" in warned[0].details["hint"]
