"""An open text: its lines, its survey, and the names of the last version that parsed."""

from __future__ import annotations

import asyncio
import re
import time
from bisect import bisect_right
from collections.abc import Iterable

from lsprotocol.types import (
    Position,
    PositionEncodingKind,
    Range,
    TextDocumentContentChangeEvent,
    TextDocumentContentChangePartial,
)

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import NameInfo
from agentflow.core.data.source import Source, Surface
from agentflow.core.data.walk import PAUSE_S, Work
from agentflow.lang.python.symbols import is_workflow_text
from agentflow.lang.survey import Survey, Surveyor
from agentflow.lang.symbols import Binding, Located, Occurrence, SymbolTable
from agentflow.lsp.notation import NOTATIONS

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


_STATEMENT = re.compile(r"^[^\s#)\]}]", re.MULTILINE)
"""The beginnings of statements at the top of a Python text, or of lines that look so."""
_TRIED = 4


@frozen
class Shift:
    """Maps offsets between the text a table was built from and the current text, which differ in one stretch."""

    before: int
    after: int
    size: int

    @classmethod
    def between(cls, old: str, new: str) -> Shift:
        """Compare two texts by their common prefix and suffix."""
        before = _common_prefix(old, new)
        rest = min(len(old), len(new)) - before
        after = _common_prefix(old[len(old) - rest :][::-1], new[len(new) - rest :][::-1])
        return cls(before, len(old) - after, len(new) - len(old))

    def old(self, offset: int) -> int | None:
        """The offset in the table's text; None inside the stretch that differs."""
        if offset <= self.before:
            return offset
        return offset - self.size if offset - self.size >= self.after else None

    def new(self, offset: int) -> int | None:
        """The offset in the current text; None inside the stretch that differs."""
        if offset <= self.before:
            return offset
        return offset + self.size if offset >= self.after else None


class Document:
    """An open text. Properties are computed when first read and cached until the text changes."""

    def __init__(
        self,
        name: str,
        text: str,
        surveyor: Surveyor,
        *,
        version: int | None = None,
        encoding: PositionEncodingKind | str = PositionEncodingKind.Utf16,
    ) -> None:
        self.name = name
        self.surface: Surface = Source.of(name, "").surface
        self.notation = NOTATIONS[self.surface]
        self.version = version
        self.lines = Lines(text, encoding)
        self._surveyor = surveyor
        self._survey: Survey | None = None
        self._work: Work[Survey] | None = None
        self._last: Survey | None = None
        self._shift: Shift | None = None

    @property
    def text(self) -> str:
        """The current text."""
        return self.lines.text

    def change(self, changes: Iterable[TextDocumentContentChangeEvent], version: int | None = None) -> None:
        """Apply the editor's ``changes``; the text then has this ``version``."""
        self.lines = edited(self.lines, changes)
        self.version = version
        self._survey = self._work = self._shift = None

    @property
    def survey(self) -> Survey:
        """The survey of the current text."""
        while self._survey is None:
            self._advance()
        return self._survey

    async def surveyed(self) -> None:
        """Compute :attr:`survey` in slices, letting other tasks run in between; starts over if the text changes."""
        paused = time.monotonic()
        while self._survey is None:
            self._advance()
            if time.monotonic() - paused > PAUSE_S:
                await asyncio.sleep(0)
                paused = time.monotonic()

    def _advance(self) -> None:
        """Compute the next slice of the survey."""
        self._work = self._work or self._surveying()
        try:
            next(self._work)
        except StopIteration as done:
            self._survey, self._work = done.value, None
        except BaseException:  # drop the failed computation, so that the next reader gets the error too
            self._work = None
            raise

    def _surveying(self) -> Work[Survey]:
        survey = yield from self._surveyor.work(self._source(self.text))
        if survey.symbols is not None:
            self._last = survey
        elif self._last is None:
            # no version has parsed yet: use the forms before the syntax error
            span = survey.diagnostics[0].error.span if survey.diagnostics else None
            for end in self._beginnings(span.start) if span is not None else ():
                self._last = yield from self._surveyor.work(self._source(self.text[:end]))
                if self._last.symbols is not None:
                    break
        return survey

    def _source(self, text: str) -> Source:
        return Source(self.name, text, self.surface)

    def _beginnings(self, start: int) -> list[int]:
        """The beginning of the last form that begins before an offset; in Python of the last few lines that may begin a statement."""
        if self.surface == "sexp":
            at = self.text.rfind("\n(", 0, start + 1) + 1
            return [at] if at else []
        starts = [each.start() for each in _STATEMENT.finditer(self.text, 0, start + 1) if each.start()]
        return starts[: -_TRIED - 1 : -1]

    @property
    def is_program(self) -> bool:
        """Whether the text is a program: a file of Python may be anything else."""
        return self.surface == "sexp" or is_workflow_text(self.text)

    @property
    def is_current(self) -> bool:
        """Whether the current text parses; if not, :attr:`symbols` belong to an earlier version."""
        return self.survey.symbols is not None

    @property
    def _read(self) -> Survey:
        """The survey of the last version that parsed."""
        survey = self.survey
        return survey if survey.symbols is not None or self._last is None else self._last

    @property
    def symbols(self) -> SymbolTable:
        """The names of the last version that parsed."""
        return self._read.symbols or SymbolTable([])

    @property
    def tasks(self) -> dict[str, list[NameInfo]]:
        """The call signatures of the tasks that the text defines, by name."""
        return self._read.tasks

    @property
    def shift(self) -> Shift:
        """The mapping of offsets between the text of :attr:`symbols` and the current one."""
        if self._shift is None:
            self._shift = Shift.between(self._read.source.text, self.text)
        return self._shift

    def name_at(self, offset: int) -> Located[Occurrence] | None:
        """The name at an offset of the current text."""
        old = self.shift.old(offset)
        return None if old is None else self.symbols.at(old)

    def visible(self, offset: int) -> list[Binding]:
        """The bindings in scope at an offset of the current text."""
        old = self.shift.old(offset)
        return self.symbols.visible(self.shift.before if old is None else old)

    def span_now(self, name: Located[Occurrence] | Located[Binding]) -> tuple[int, int] | None:
        """The span of a name of the table in the current text; None if it lies in the stretch that differs."""
        start, end = self.shift.new(name.start), self.shift.new(name.end)
        if start is None or end is None or self.text[start:end] != name.what.name:
            return None
        return start, end


def _common_prefix(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
