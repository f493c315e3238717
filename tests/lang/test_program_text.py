"""A program's text means the same wherever it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.values import Symbol
from agentflow.lang.diagnosis import check_program
from agentflow.lang.formatter import format_text
from agentflow.lang.printer import print_value

TEXTS = {
    "\ufeff(+ 1 2)": 3,
    "\ufeff ; a comment\n(+ 1 2)": 3,
    '(length "a\x00\ufeff")': 3,
    "(+ 1 2) ; \x00": 3,
    "(+ 1 2)\x00": "syntax/character",
    "(define a\ufeff 1)": "syntax/character",
    "'(a \x1b[31m)": "syntax/character",
    "\ufeff": "syntax/empty",
}


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
async def test_text_of_a_host_is_read_as_that_of_a_file(text: str, tmp_path: Path) -> None:
    """A byte-order mark and characters that nobody sees included."""
    file = tmp_path / "program.sexp"
    file.write_bytes(text.encode())
    outcomes: list[object] = []
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        for program in (text, file):
            try:
                outcomes.append((await flow.run(program)).value)
            except AgentflowError as error:
                outcomes.append(error.code)
    assert outcomes == [TEXTS[text]] * 2


def test_a_byte_order_mark_is_no_token() -> None:
    """The formatter drops it, as it drops other blanks before the first form."""
    assert format_text("\ufeff(+ 1\n 2)") == "(+ 1\n   2)\n"


def test_a_name_that_cannot_be_read_is_not_printed_as_one() -> None:
    """What is printed for it reads again as the same symbol."""
    text = print_value(Symbol("a\ufeff"))
    assert text != "a\ufeff" and check_program(text) == []


async def test_bindings_of_a_host_may_be_a_plain_dict(tmp_path: Path) -> None:
    """``evaluate_string`` makes an environment of it and leaves it as it is."""
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        bindings = {"a": 1}
        assert await flow.evaluator.evaluate_string("(define b 2) (set! a 5) (+ a b)", bindings) == 7
        assert bindings == {"a": 1}


async def test_keys_of_a_lookup_are_known_before_it_is_made(tmp_path: Path) -> None:
    """An untrusted program that asks memory with an unknown key has not begun."""
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run('(begin (log-message "ran") (get_context (qeury "x")))', allow=["get_context"])
    assert caught.value.code == "context/key" and caught.value.hint == "did you mean 'query'?"
    assert caught.value.span is not None and caught.value.span.text == '(qeury "x")'
