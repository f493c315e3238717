"""Wraps the command's text at words, to the width of the terminal: the one module that breaks lines of prose."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

from agentflow.lib.text.safe_text import clean

DEFAULT_COLUMNS = 80
"""Columns without a terminal, if ``COLUMNS`` is not set."""
_WHOLE = re.compile(r"\s*\d* \||\s*-->|\s+(?:agentflow|pip|python3?) ")
"""Lines never broken: excerpts of programs, their locations, and commands to copy."""
_LABEL = re.compile(r"\s*\S+(?: \S+){0,2} {2,}(?=\S)")
"""The label of a row in columns; the text behind it continues below its own beginning."""
_WORDS = re.compile(r"( +)")


def columns(stream: TextIO) -> int:
    """The width to write to ``stream``: ``COLUMNS``, else that of its terminal, else :data:`DEFAULT_COLUMNS`."""
    chosen = os.environ.get("COLUMNS", "")
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    try:
        return os.get_terminal_size(stream.fileno()).columns or DEFAULT_COLUMNS
    except (OSError, ValueError):
        return DEFAULT_COLUMNS


def wrapped(text: str, width: int) -> str:
    """``text`` with its lines of prose broken at spaces, at most ``width`` columns wide.

    A word longer than a line stays whole: it may be a path. Lines of program text and commands are not broken.
    """
    return "\n".join([_wrapped(line, width) for line in text.split("\n")])


def _wrapped(line: str, width: int) -> str:
    if len(line) <= width or _WHOLE.match(line):
        return line
    label = _LABEL.match(line)
    indent = len(line) - len(line.lstrip(" ")) + 2 if label is None or label.end() > width // 2 else label.end()
    rows = [""]
    for piece in _WORDS.split(line):
        if len(rows[-1]) + len(piece.rstrip(" ")) > width and rows[-1].strip():
            rows[-1] = rows[-1].rstrip(" ")
            rows.append(" " * indent)
        if len(rows) == 1 or rows[-1].strip() or piece.strip():
            rows[-1] += piece
    return "\n".join(rows).rstrip(" ")


def say(text: str, stream: TextIO | None = None) -> None:
    """Write ``text`` to standard error, or to ``stream``, wrapped, and at once.

    Control characters are left out: the text may come from a model.
    """
    out = sys.stderr if stream is None else stream
    out.write(wrapped(clean(text), columns(out)) + "\n")
    out.flush()


class StreamedWords:
    """Wraps a text that arrives in pieces: each word is written when it is complete.

    ``width`` is in columns. Lines in a fence of Markdown are program text, and stay whole.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self._line = 0
        self._start = ""
        self._word = ""
        self._fenced = False

    def feed(self, piece: str) -> str:
        """The text to write now."""
        out: list[str] = []
        for char in piece:
            if not char.isspace():
                self._word += char
                continue
            out.append(self.rest())
            if char == "\n":
                self._fenced ^= self._start.startswith("```")
                self._line, self._start = 0, ""
            else:
                self._line += 1
            out.append(char)
        return "".join(out)

    def rest(self) -> str:
        """The held word, for the end of the text."""
        word, self._word = self._word, ""
        if not self._line:
            self._start = word
        breaks = bool(word) and not self._fenced and self._line > 0 and self._line + len(word) > self._width
        self._line = len(word) + (0 if breaks else self._line)
        return f"\n{word}" if breaks else word
