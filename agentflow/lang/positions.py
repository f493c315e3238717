"""Converts between offsets in program text and the line and column numbers of Python code."""

from __future__ import annotations

from bisect import bisect_right

from agentflow.core.data.source import Source, Span

Position = tuple[int, int, int, int]
_LONG_LINE = 2_000


class Positions:
    """Converts positions of one source. Python counts columns in UTF-8 bytes, sources in characters.

    On non-ASCII lines longer than 2,000 characters, columns stay in characters, so that no text makes the conversion
    quadratic.
    """

    __slots__ = ("_ascii", "_starts", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._ascii = source.text.isascii()
        self._starts = source.line_starts

    def of(self, start: int, end: int) -> Position:
        """Line, column, end line and end column as in Python's ``ast``: lines from 1, columns from 0."""
        starts = self._starts
        line = bisect_right(starts, start)
        last = line if line == len(starts) or end < starts[line] else bisect_right(starts, end)
        column, last_column = start - starts[line - 1], end - starts[last - 1]
        if self._ascii:
            return line, column, last, last_column
        return line, self._bytes(line, column), last, self._bytes(last, last_column)

    def _bytes(self, line: int, column: int) -> int:
        text = self.source.line(line)
        if len(text) > _LONG_LINE:
            return column
        return len(text[:column].encode("utf-8", "surrogatepass"))

    def _offset(self, line: int, column: int) -> int:
        starts = self.source.line_starts
        if not 1 <= line <= len(starts):
            return 0
        if not self._ascii:
            text = self.source.line(line)
            if len(text) <= _LONG_LINE:
                column = len(text.encode("utf-8", "surrogatepass")[:column].decode("utf-8", "replace"))
        return min(starts[line - 1] + column, len(self.source.text))

    def span(self, position: tuple[int | None, int | None, int | None, int | None]) -> Span | None:
        """The span of a code position; None if Python was told not to keep positions."""
        line, end_line, column, end_column = position
        if line is None:
            return None
        if column is None or end_line is None or end_column is None:
            start = self._offset(line, 0)
            return Span(self.source, start, start + len(self.source.line(line)))
        return Span(self.source, self._offset(line, column), self._offset(end_line, end_column))
