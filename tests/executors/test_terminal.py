"""What reaches a terminal, and what an approver reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.lib.text.safe_text import clean, escape


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("ünïcödé 日本 👩‍👩‍👧", "ünïcödé 日本 👩‍👩‍👧"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hfake", "fake"),
        ("a\x1b]0;title\x07b", "ab"),
        ("a\x1b]52;c;ZXZpbA==\x1b\\b", "ab"),
        ("a\x1bP1$r0m\x1b\\b", "ab"),
        ("a\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\b", "alinkb"),
        ("a\x1b]unterminated\nnext", "a\nnext"),
        ("\x9b31mred", "red"),
        ("a\x1b(0b", "ab"),
        ("over\rwritten", "over\nwritten"),
        ("dos\r\n", "dos\n"),
        ("back\b\b\b\bspace", "backspace"),
        ("\u202etxt.exe", "txt.exe"),
        ("a\u2066b\u2069\u200fc", "abc"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("tag\U000e0041s", "tags"),
        ("nul\0bell\a", "nulbell"),
        ("\x1b", ""),
        ("\x1b[", ""),
    ],
)
def test_clean(text: str, shown: str) -> None:
    """Sequences and controls go, text stays; a carriage return cannot overwrite."""
    assert clean(text) == shown


@given(st.text())
def test_clean_leaves_no_control(text: str) -> None:
    """No escape, no control but tab and line end, and cleaning twice changes nothing."""
    shown = clean(text)
    assert not any((ord(char) < 32 and char not in "\t\n") or 0x7F <= ord(char) <= 0x9F for char in shown)
    assert clean(shown) == shown


@given(st.text())
def test_escape_shows_every_control(text: str) -> None:
    """What an approver reads is one line without a character that acts."""
    shown = escape(text)
    assert not any(ord(char) < 32 or 0x7F <= ord(char) <= 0x9F or char in "\u202e\u2066" for char in shown)
    shown.encode()


def test_escape_with_lines() -> None:
    """Line ends may be kept where the text is shown as a block."""
    assert escape("a\n\tb\x1b[0m", lines=True) == "a\n\tb\\x1b[0m"
    assert escape("a\nb\u202e") == "a\\nb\\u202e"
