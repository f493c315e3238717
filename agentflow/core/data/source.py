"""Program text and the spans in it that diagnostics and events point to."""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias

from agentflow.core.data.frozen import frozen

Surface: TypeAlias = Literal["sexp", "python"]
"""The language of a program text: S-expressions, or a subset of Python."""
PYTHON_TEXT = "<python>"
"""The name of a Python text outside any file."""
_EXCERPT_WIDTH = 160
Lines: TypeAlias = tuple[int, int]
"""The first and the last of some lines of a text, from 1."""
NO_LINES: Lines = (1, 0)
is_file_name = re.compile(r"""[^()\[\]{}"';\n]+\.(?:sexp|py)""").fullmatch
"""Matches a program text that looks like the name of a program file, given where the text was wanted."""


@dataclass(frozen=True, eq=False)
class Source:
    """A piece of program text with a display name.

    Parameters: ``name`` its name in messages (a file path, or ``<string>``), ``text`` the whole text, ``surface`` the language
    it is written in, ``lines`` the first and the last line that events may show; None for all.
    """

    name: str
    text: str
    surface: Surface = "sexp"
    lines: Lines | None = None

    @classmethod
    def of(cls, name: str, text: str) -> Source:
        """A text in the language that its name says: Python for a ``.py`` file and for :data:`PYTHON_TEXT`."""
        return cls(name, text, "python" if name.endswith(".py") or name == PYTHON_TEXT else "sexp")

    @classmethod
    def unnamed(cls, text: str, surface: Surface) -> Source:
        """A text outside any file."""
        return cls(PYTHON_TEXT if surface == "python" else "<string>", text, surface)

    @cached_property
    def line_starts(self) -> list[int]:
        """Offset of the first character of each line, in order."""
        starts = [0]
        find = self.text.find
        at = find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = find("\n", at + 1)
        return starts

    @cached_property
    def digest(self) -> str:
        """16-byte blake2b of the text in hex: identifies the content, regardless of the name."""
        return hashlib.blake2b(self.text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    @property
    def place(self) -> str:
        """The location of the text for the user: its name, or the path if the name omits directories."""
        return self.name

    def only(self, lines: Iterable[Lines]) -> str:
        """The text with every other line empty, so that positions do not change."""
        texts = self.text.split("\n")
        kept = {number for first, last in lines for number in range(first, last + 1)}
        return "\n".join([text if at in kept else "" for at, text in enumerate(texts[: max(kept, default=0)], 1)])

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column (both from 1) of a character offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """Text of a line (numbered from 1), without its line end."""
        starts = self.line_starts
        if not 1 <= number <= len(starts):
            return ""
        end = starts[number] if number < len(starts) else len(self.text)
        return self.text[starts[number - 1] : end].rstrip("\r\n")

    def span(self, start: int, end: int) -> Span:
        """The span of the characters ``start`` to ``end`` (exclusive)."""
        return Span(self, start, end)


@dataclass(frozen=True, eq=False, kw_only=True)
class HostSource(Source):
    """The Python file of a host function.

    ``name`` is without directories. Events show the ``lines`` of the function and nothing else of ``file``, named by its
    path.
    """

    file: Source

    @cached_property
    def line_starts(self) -> list[int]:
        return self.file.line_starts

    @cached_property
    def digest(self) -> str:
        """That of the whole file."""
        return self.file.digest

    @property
    def place(self) -> str:
        """The path of the file."""
        return self.file.name


@frozen
class Span:
    """A half-open range of characters of a :class:`Source`; lines and columns are computed on demand."""

    source: Source = field(repr=False)
    start: int
    end: int

    @property
    def line(self) -> int:
        """First line, from 1."""
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        """First column, from 1."""
        return self.source.position(self.start)[1]

    @property
    def end_line(self) -> int:
        """Last line, from 1."""
        return self.source.position(max(self.start, self.end))[0]

    @property
    def end_column(self) -> int:
        """Column just after the last character, from 1."""
        return self.source.position(max(self.start, self.end))[1]

    @property
    def text(self) -> str:
        """The characters the span covers."""
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.name}:{line}:{column}"

    def to_dict(self) -> dict[str, object]:
        """The JSON form for events and machine-readable diagnostics."""
        line, column = self.source.position(self.start)
        end_line, end_column = self.source.position(max(self.start, self.end))
        return {
            "source": self.source.name,
            "line": line,
            "column": column,
            "end_line": end_line,
            "end_column": end_column,
        }

    def excerpt(self) -> str:
        """The first line of the span with carets beneath it, at most 160 columns wide."""
        line, column = self.source.position(self.start)
        text = self.source.line(line).replace("\t", " ")
        last_line, last_column = self.source.position(max(self.start, self.end))
        stop = last_column if last_line == line else len(text) + 1
        width = max(1, stop - column)
        first = 0
        if len(text) > _EXCERPT_WIDTH:
            first = max(0, column - 1 - _EXCERPT_WIDTH // 3)
            text = text[first : first + _EXCERPT_WIDTH]
        lead = column - 1 - first
        width = min(width, max(1, len(text) - lead))
        number = str(line)
        gutter = " " * len(number)
        return f"{gutter} |\n{number} | {text}\n{gutter} | {' ' * lead}{'^' * width}"
