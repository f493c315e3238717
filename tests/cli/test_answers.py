"""What ``run`` and ``eval`` say of an answer: on a terminal as it comes, elsewhere once it is whole, and nowhere twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_command import MODEL, model_options, prompt_of
from tests.cli.test_terminal import ANSWER, terminal_environment
from tests.support.model_server import ModelServer, Request
from tests.support.model_server_wire import Reply
from tests.support.terminal import Terminal, in_terminal

TASKS = """
(defatom note (params (q string)) (instructions "Note {{q}}"))
(defatom ask (params (q string)) (instructions "Ask {{q}}"))
(defatom count (params (q string)) (instructions "Ask {{q}}") (output_format json))
"""
HELPER, DATA = "a helper's own words", '{"cats": 3}'


def reply(request: Request) -> Any:
    """Says one thing to a helper, another slowly."""
    prompt = prompt_of(request)
    if "Ask" not in prompt:
        return Reply(text=HELPER)
    return Reply(text=DATA if "count" in prompt else ANSWER, chunk_s=0.1)


pytestmark = pytest.mark.slow


async def evaluated(tmp_path: Path, program: str, **options: Any) -> Terminal:
    """What a terminal shows of ``agentflow run``."""
    async with ModelServer(reply) as server:
        arguments = ("run", "-e", TASKS + program, *model_options(MODEL, server.url))
        code, terminal = await in_terminal(*arguments, environment=terminal_environment(tmp_path), **options)
    assert code == 0, "\n".join(terminal.lines)
    return terminal


@pytest.mark.parametrize(
    "program", ['(ask (q (content (note (q "x")))))', '(begin (note (q "x")) (value-of (ask (q "y"))))']
)
async def test_an_answer_streams_and_stands_there_once(tmp_path: Path, program: str) -> None:
    """The call that gives the program's value is written as it comes, others are not, and the value is not said again."""
    terminal = await evaluated(tmp_path, program)
    begun = [
        line for rows in terminal.shown for line in rows if ANSWER.startswith(line) and 5 < len(line) < len(ANSWER)
    ]
    assert begun, "the answer grew on the screen"
    assert terminal.lines.count(ANSWER) == 1 and "\n".join(terminal.lines).count(ANSWER) == 1
    assert HELPER not in terminal.lines


@pytest.mark.parametrize(
    ("program", "value"),
    [
        ('(string-upcase (content (ask (q "x"))))', ANSWER.upper()),
        ('(value-of (count (q "count")))', '{"cats" 3}'),
    ],
)
async def test_a_value_that_no_model_said_so_is_written_when_it_is_whole(
    tmp_path: Path, program: str, value: str
) -> None:
    """What the program makes of an answer, and data, are values of their own: written once, and nothing before them."""
    terminal = await evaluated(tmp_path, program)
    assert terminal.lines.count(value) == 1
    assert not {ANSWER, DATA} & set(terminal.lines)


async def test_in_a_pipe_the_value_comes_once_and_plain(tmp_path: Path) -> None:
    """Standard output that is not a terminal gets the value and a line's end, whatever is shown beside it."""
    reader, writer = os.pipe()
    try:
        await evaluated(tmp_path, '(ask (q "x"))', standard_output=writer)
        os.close(writer)
        writer = -1
        assert os.read(reader, 65_536) == f"{ANSWER}\n".encode()
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
