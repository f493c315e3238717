"""Converts between an editor's lines and columns and character offsets."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable

from lsprotocol.types import (
    Position,
    PositionEncodingKind,
    Range,
    TextDocumentContentChangeEvent,
    TextDocumentContentChangePartial,
)

_LINE_END = re.compile(r"\r\n|\n|\r")
_UTF8, _UTF32 = PositionEncodingKind.Utf8, PositionEncodingKind.Utf32


class Lines:
    """The lines of a text; columns count units of ``encoding`` (UTF-16 unless the editor negotiated another).

    A position outside the text is clamped to the nearest one inside.
    """

    def __init__(self, text: str, encoding: PositionEncodingKind | str = PositionEncodingKind.Utf16) -> None:
        self.text = text
        self.encoding = encoding
        self._starts = [0]
        self._ends: list[int] = []
        for end in _LINE_END.finditer(text):
            self._ends.append(end.start())
            self._starts.append(end.end())
        self._ends.append(len(text))
        self._plain = text.isascii()

    def offset(self, position: Position) -> int:
        """The offset of the character at a position."""
        if position.line >= len(self._starts):
            return len(self.text)
        start, end = self._starts[position.line], self._ends[position.line]
        if self._plain:
            return min(start + position.character, end)
        units = 0
        for at in range(start, end):
            units += self._width(self.text[at])
            if units > position.character:
                return at
        return end

    def position(self, offset: int) -> Position:
        """The position of the character at an offset."""
        line = bisect_right(self._starts, offset) - 1
        start = self._starts[line]
        if self._plain:
            return Position(line, offset - start)
        return Position(line, sum(map(self._width, self.text[start:offset])))

    def width(self, start: int, end: int) -> int:
        """The number of units of the characters from ``start`` up to ``end``, on one line."""
        return end - start if self._plain else sum(map(self._width, self.text[start:end]))

    def range(self, start: int, end: int) -> Range:
        """The range of the characters from ``start`` up to ``end``."""
        return Range(self.position(start), self.position(end))

    def _width(self, character: str) -> int:
        code = ord(character)
        if self.encoding == _UTF32 or code < 0x80:
            return 1
        if self.encoding == _UTF8:
            return 2 if code < 0x800 else 3 if code < 0x10000 else 4
        return 1 if code < 0x10000 else 2


def edited(lines: Lines, changes: Iterable[TextDocumentContentChangeEvent]) -> Lines:
    """The lines after ``changes``, applied in order."""
    for change in changes:
        text = change.text
        if isinstance(change, TextDocumentContentChangePartial):
            start, end = lines.offset(change.range.start), lines.offset(change.range.end)
            text = lines.text[:start] + text + lines.text[max(start, end) :]
        lines = Lines(text, lines.encoding)
    return lines
