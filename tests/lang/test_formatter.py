"""The formatter: what it keeps, how it indents, that it is stable."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow.core.data.errors import LimitExceeded, SexpSyntaxError
from agentflow.lang.formatter import format_text
from agentflow.lang.tokens import tokens

ATOMS = st.sampled_from(
    [
        "x",
        "let",
        "if",
        "cond",
        "summarise-everything",
        "1",
        "-2.5",
        '"text"',
        '"two\nlines"',
        "lambda",
        "define",
        "'q",
        "else",
    ]
)
GAPS = st.sampled_from([" ", " ", "\n", "\n\n\n", "  ; note\n", "\n; alone\n", " #| block |# ", "\t"])


def _list(parts: list[tuple[str, str]], brackets: str, prefix: str) -> str:
    return prefix + brackets[0] + "".join(part + gap for part, gap in parts) + brackets[1]


DATA = st.recursive(
    ATOMS,
    lambda inner: st.builds(
        _list,
        st.lists(st.tuples(inner, GAPS), max_size=6),
        st.sampled_from(["()", "[]", "{}"]),
        st.sampled_from(["", "", "'", "`", ",@", "#;"]),
    ),
    max_leaves=40,
)
TEXTS = st.lists(st.tuples(DATA, GAPS), max_size=4).map(lambda parts: "".join(part + gap for part, gap in parts))


def solid(text: str) -> list[str]:
    """The tokens of a text without the white space: what formatting must preserve."""
    solid = [token for token in tokens(text) if token.kind not in ("space", "newline")]
    return [token.text.rstrip() if token.kind == "comment" else token.text for token in solid]


@given(TEXTS, st.sampled_from([20, 40, 100]))
@settings(max_examples=100, deadline=None)
def test_formatting_keeps_every_token_and_is_stable(text: str, width: int) -> None:
    """Formatting changes spaces and line ends only, and formatting again changes nothing."""
    once = format_text(text, width=width)
    assert solid(text) == solid(once)
    assert format_text(once, width=width) == once


@given(st.text(alphabet="()[]{}'`,@\"\\;#| \nab1.", max_size=60))
@settings(max_examples=250, deadline=None)
def test_any_text_is_formatted_or_refused(text: str) -> None:
    """Text that is not a program is a SexpSyntaxError with a place, never another exception; tokens lose nothing."""
    assert "".join(token.text for token in tokens(text)) == text
    try:
        once = format_text(text)
    except SexpSyntaxError as error:
        assert error.span is not None
    else:
        assert format_text(once) == once


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("(define (f x)\n(* x 2))", "(define (f x)\n  (* x 2))\n"),
        ("(let ((x 1)\n(y 2))\nx)", "(let ((x 1)\n      (y 2))\n  x)\n"),
        ("(let loop ((i 0))\n(loop (+ i 1)))", "(let loop ((i 0))\n  (loop (+ i 1)))\n"),
        ("(if a\nb\nc)", "(if a\n    b\n    c)\n"),
        ("(cond (a 1)\n(else 2))", "(cond (a 1)\n      (else 2))\n"),
        ("(review\n(text x)\n(style y))", "(review\n  (text x)\n  (style y))\n"),
        ("'(a\nb)", "'(a\n  b)\n"),
        ("`(, @x ,@y)", "`(, @x ,@y)\n"),
        (", @", ", @\n"),
        ('{"a" 1\n"b" 2}', '{"a" 1\n "b" 2}\n'),
        ("(f x ; why\n)", "(f x  ; why\n   )\n"),
        ("(a)   (b)\n\n\n\n(c)", "(a)\n(b)\n\n(c)\n"),
        ("", ""),
    ],
)
def test_lisp_indentation(text: str, wanted: str) -> None:
    """Bodies go in by two, arguments under the first one, data under its first element; closers are gathered."""
    assert format_text(text) == wanted


def test_a_long_call_is_broken_under_its_first_argument() -> None:
    """A list that does not fit is broken; one that fits stays as the author wrote it."""
    assert format_text("(f (alpha 1) (beta 2) (gamma 3))", width=20) == "(f (alpha 1)\n   (beta 2)\n   (gamma 3))\n"


@pytest.mark.parametrize("text", ["(", ")", "(]", '"', "#|", "'", "(a ')", "'; x\na"])
def test_broken_text_is_refused_with_its_place(text: str) -> None:
    """Formatting never guesses at what a broken text means."""
    with pytest.raises(SexpSyntaxError) as caught:
        format_text(text)
    assert caught.value.span is not None and caught.value.code == "syntax/format"


def test_deep_nesting_is_refused() -> None:
    """Past 200 levels the text is refused before anything recurses over it."""
    with pytest.raises(LimitExceeded):
        format_text("(" * 100_000 + ")" * 100_000)
