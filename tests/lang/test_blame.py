"""An error underlines the part of a call that is wrong: the argument, or the call itself, not what is around it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import AgentflowError

TASKS = """
(defatom ask (params (n integer)) (instructions "{{n}}"))
(defatom data (params) (instructions "x") (output_format json))
"""

WRONG = [
    ('(+ 1 "a")', '"a"'),
    ('(list 1 (string-append "a" (+ 1 2) "b"))', "(+ 1 2)"),
    ("(car 5)", "5"),
    ('(map (lambda (x) (- x "q")) (list 1))', '"q"'),
    ("(map car 5)", "5"),
    ('(apply + (list 1 "a"))', '(apply + (list 1 "a"))'),
    ('(sort (list 1 "a") (lambda (a b) (< a b)))', "a"),
    ('(let ((f +)) (f 1 "a"))', '(f 1 "a")'),
    ('(map + (list 1) (list "a"))', '(map + (list 1) (list "a"))'),
    ('(defmacro twice (x) `(+ ,x ,x)) (twice "a")', '(twice "a")'),
    ('(value-of (act (x "q")))', '(x "q")'),
    ("(value-of (act (x 1) (yy 2)))", "(yy 2)"),
    ("(value-of (act))", "(act)"),
    ('(value-of (ask (n "z")))', '(n "z")'),
    ("(value-of (ask))", "(ask)"),
    ('(let ((r (ask (n "z")))) (list 1 (value-of r)))', '(n "z")'),
    ('(let ((t \'ask)) (value-of (t (n "z"))))', '(n "z")'),
    ("(value-of (data))", "(data)"),
    ("(value-of (fail (x 1)))", "(fail (x 1))"),
]


@pytest.mark.parametrize(("program", "underlined"), WRONG, ids=[each[0] for each in WRONG])
async def test_the_part_that_is_wrong_is_underlined(program: str, underlined: str, tmp_path: Path) -> None:
    """For primitives by position, for tasks and tools by name; where the text does not show the argument, the call."""

    async def act(x: int, y: str = "") -> int:
        """Act."""
        return x

    async def fail(x: int) -> object:
        """Fail."""
        return {"status": "FAILED", "content": "no", "notes": {}}

    async with AgentFlow(provider=ScriptedProvider(["words"] * 3), root=tmp_path, tools=[act, fail]) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run(TASKS + program)
    assert caught.value.span is not None and caught.value.span.text == underlined


async def test_a_failed_result_says_where_it_comes_from(tmp_path: Path) -> None:
    """Its error has the span of the call, whether or not the program ever raises it; each call its own."""
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        first, second = (await flow.run(f"{TASKS} (list (ask) (begin (ask)))")).value
    assert isinstance(first.error, AgentflowError) and isinstance(second.error, AgentflowError)
    assert first.error.span is not None and second.error.span is not None
    assert first.error.span.text == second.error.span.text == "(ask)"
    assert first.error.span.start < second.error.span.start


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Sure! Here\nis it: 1, 2", "it begins with 'Sure! Here is it: 1, 2'"),
        ("x" * 500, f"it begins with '{'x' * 77}...'"),
        ("", "it is empty"),
    ],
)
async def test_an_answer_that_is_no_json_is_shown_by_its_beginning(answer: str, said: str, tmp_path: Path) -> None:
    """Not by what a parser says of it, which is in the details for those who want it."""
    async with AgentFlow(provider=ScriptedProvider([answer] * 3), root=tmp_path) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run(f"{TASKS} (value-of (data))")
    error = caught.value
    assert error.code == "task/invalid-output"
    assert error.message == f"the answer is not the JSON asked for: {said}"
    assert error.details["parse_error"]


async def test_a_long_call_is_underlined_whole(tmp_path: Path) -> None:
    """Its text is not read again for an error that a loop may raise a thousand times."""
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run(f'(+ {"1 " * 2_000} "a")')
    assert caught.value.span is not None and caught.value.span.text.startswith("(+ 1")
