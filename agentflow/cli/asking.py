"""Asks the questions of programs on the terminal."""

from __future__ import annotations

import sys
from typing import Any

from agentflow.cli.common import parse_bindings, show_error
from agentflow.core.errors import DataError
from agentflow.core.questions import Question
from agentflow.lib.terminal import clean
from agentflow.runtime.questions import check_answer


def parse_value(text: str) -> Any:
    """Parse a value of the command line: JSON if it is valid JSON, else text."""
    return parse_bindings([f"value={text}"])["value"]


async def answer_on_terminal(question: Question) -> Any:
    """Ask a question on the terminal, repeatedly until the answer is valid."""
    from prompt_toolkit import PromptSession

    session: PromptSession[str] = PromptSession()
    print(f"\n{clean(question.question)}", file=sys.stderr)
    while True:
        answer = parse_value(await session.prompt_async("answer: "))
        try:
            check_answer(question, answer)
        except DataError as error:
            show_error(error)
        else:
            return answer
