"""Diagnostics as people read them: golden renderings of every error of the language, and their bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow.core.data.errors import AgentflowError
from tests.errors.programs import NOT_FROM_A_PROGRAM, PROGRAMS, page, raised_by, renderings
from tests.support.error_codes import raised
from tests.support.python_texts import run_text
from tests.support.world import World

GOLDEN = Path(__file__).parent / "renderings.txt"
NO_TEXT = {"program/unreadable", "program/file-name", "program/kind", "program/surface"}
"""Codes for what is not a program text."""
PYTHON = {
    "dict/missing": "d = {'name': 1}\nd['nam']",
    "field/missing": "d = {'name': 1}\nd.nam",
    "limits/blocks": "\n".join(["    " * depth + "for x in [1]:" for depth in range(25)] + ["    " * 25 + "pass"]),
    "name/not-here": "open('x')",
    "syntax/not-here": "with x as y:\n    pass",
    "syntax/python": "x = [1, 2",
    "type/comparison": "[1] < ['a']",
    "value/invalid": "int('x')",
}
"""The codes that only texts in Python raise."""
FAMILIES = {code.partition("/")[0] for code in PROGRAMS}


async def test_renderings_are_golden() -> None:
    """Code, message, place with carets, hint and program frames are exactly these."""
    assert page(await renderings()) == GOLDEN.read_text("utf-8")


@pytest.mark.parametrize("code", PROGRAMS)
async def test_each_program_raises_its_code(code: str) -> None:
    """The program listed for a code raises that code, with a place in it."""
    error = await raised_by(PROGRAMS[code])
    assert error is not None and error.code == code
    assert error.span is not None and error.span.source.name == "program.sexp"


def test_every_language_code_has_a_rendering() -> None:
    """A new code of the language's families brings a program, or says why there is none."""
    codes = {code for code in raised() if code.partition("/")[0] in FAMILIES}
    assert sorted(codes - set(PROGRAMS) - set(NOT_FROM_A_PROGRAM) - NO_TEXT - set(PYTHON)) == []


@pytest.mark.parametrize("code", PYTHON)
async def test_each_python_text_raises_its_code(code: str) -> None:
    """The text listed for a code raises that code, with a place in it and what to write instead."""
    with pytest.raises(AgentflowError) as caught:
        await run_text(PYTHON[code])
    assert caught.value.code == code
    assert caught.value.span is not None
    assert caught.value.hint or code in ("syntax/python", "value/invalid")


@pytest.mark.parametrize(
    "program",
    [
        "(+ 1 " * 190 + "'x" + ")" * 190,
        "(define (f n) (if (= n 0) (first nil) (+ 1 (f (- n 1)))))\n(f 5000)",
        f'(error "{"x" * 100_000}" (range 10000))',
        f"({'x' * 100_000})",
        f'(+ 1 "{"y" * 100_000}")',
        f"(raise '({'(' * 150}{')' * 150}))",
    ],
    ids=["nested", "recursive", "long message", "long name", "long string", "deep value"],
)
async def test_messages_are_bounded(program: str) -> None:
    """However deep or long the program, a diagnostic stays small and shows each program frame once."""
    with pytest.raises(AgentflowError) as caught:
        await World().run(program)
    text = caught.value.render()
    assert len(text) < 12_000
    frames = [line for line in text.splitlines() if line.startswith("    f at ")]
    assert len(frames) <= 24
