"""Asks the questions of programs on the terminal."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from agentflow.cli.shared.common import parse_bindings, show_error
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import DataError, cut
from agentflow.core.data.values import to_json
from agentflow.core.events.questions import Question
from agentflow.run.questions import check_answer

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

_WORDS = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
_KINDS = {"boolean": "", "string": "", "integer": "a whole number", "number": "a number"}


def parse_value(text: str) -> Any:
    """Parse a value of the command line: JSON if it is valid JSON, else text."""
    return parse_bindings([f"value={text}"])["value"]


def yes_or_no(text: str) -> bool | None:
    """The meaning of a word for yes or no, in any case; None for any other text."""
    return _WORDS.get(text.strip().casefold())


def asks_yes_or_no(question: Question) -> bool:
    """Whether a question is answered with yes or no: an approval, or one with a boolean answer."""
    return question.reason == "approval" or (question.schema is not None and question.schema.get("type") == "boolean")


def read_answer(question: Question, text: str) -> Any:
    """The answer in ``text``: yes or no in words, JSON, or the text itself, the first that fits. Raises DataError."""
    said = yes_or_no(text) if asks_yes_or_no(question) else None
    answer = parse_value(text) if said is None else said
    try:
        check_answer(question, answer)
    except DataError:
        if isinstance(answer, str):
            raise
        with contextlib.suppress(DataError):
            check_answer(question, text)
            return text
        raise
    return answer


def prompt_session() -> PromptSession[str]:
    """Reads lines from the terminal, with the prompt on standard error: standard output may be a file."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.output import create_output

    return PromptSession(output=create_output(sys.stderr))


async def answer_on_terminal(question: Question) -> Any:
    """Ask a question on the terminal, repeatedly until the answer is valid."""
    session = prompt_session()
    wanted = _wanted(question.schema)
    say(f"\n{question.question}" + (f"\n  wanted: {wanted}" if wanted else ""))
    while True:
        text = await session.prompt_async("[y/n] " if asks_yes_or_no(question) else "answer: ")
        try:
            return read_answer(question, text)
        except DataError as error:
            show_error(error)


def _wanted(schema: Mapping[str, Any] | None) -> str:
    """The required form of an answer, in words where possible; empty for text, and for yes or no."""
    if not schema:
        return ""
    if isinstance(schema.get("enum"), list | tuple):
        return " or ".join(to_json(each) for each in schema["enum"])
    kind = schema.get("type")
    if schema.keys() <= {"type", "title", "description"} and isinstance(kind, str) and kind in _KINDS:
        return _KINDS[kind]
    return f"JSON that fits {cut(to_json(dict(schema)), 500)}"
