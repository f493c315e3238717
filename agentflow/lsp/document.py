"""An open text: its lines, its survey, and the names of the last text that could be read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass

from lsprotocol.types import PositionEncodingKind, TextDocumentContentChangeEvent

from agentflow.core.names import NameInfo
from agentflow.core.source import Source
from agentflow.core.work import PAUSE_S, Work
from agentflow.lang.survey import Survey, Surveyor
from agentflow.lang.symbols import Binding, Located, Occurrence, SymbolTable
from agentflow.lsp.positions import Lines, edited


@dataclass(frozen=True, slots=True)
class Shift:
    """Offsets of the text a table is of, and of the text now: they differ in one stretch."""

    before: int
    after: int
    size: int

    @classmethod
    def between(cls, old: str, new: str) -> Shift:
        """How two texts differ: what they begin and what they end with alike."""
        before = _alike(old, new)
        rest = min(len(old), len(new)) - before
        after = _alike(old[len(old) - rest :][::-1], new[len(new) - rest :][::-1])
        return cls(before, len(old) - after, len(new) - len(old))

    def old(self, offset: int) -> int | None:
        """The offset in the table's text; None where the texts differ."""
        if offset <= self.before:
            return offset
        return offset - self.size if offset - self.size >= self.after else None

    def new(self, offset: int) -> int | None:
        """The offset in the text now; None where the texts differ."""
        if offset <= self.before:
            return offset
        return offset + self.size if offset >= self.after else None


class Document:
    """An open text. What is asked of it is worked out when it is asked for and kept until the text changes."""

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
        self.version = version
        self.lines = Lines(text, encoding)
        self._surveyor = surveyor
        self._survey: Survey | None = None
        self._work: Work[Survey] | None = None
        self._last: Survey | None = None
        self._shift: Shift | None = None

    @property
    def text(self) -> str:
        """The text now."""
        return self.lines.text

    def change(self, changes: Iterable[TextDocumentContentChangeEvent], version: int | None = None) -> None:
        """Apply the editor's changes."""
        self.lines = edited(self.lines, changes)
        self.version = version
        self._survey = self._work = self._shift = None

    @property
    def survey(self) -> Survey:
        """The survey of the text now."""
        while self._survey is None:
            self._go_on()
        return self._survey

    async def surveyed(self) -> None:
        """Work out :attr:`survey`, and let others run in between. When the text changes meanwhile it is begun anew."""
        paused = time.monotonic()
        while self._survey is None:
            self._go_on()
            if time.monotonic() - paused > PAUSE_S:
                await asyncio.sleep(0)
                paused = time.monotonic()

    def _go_on(self) -> None:
        """Do the next part of the survey."""
        self._work = self._work or self._surveying()
        try:
            next(self._work)
        except StopIteration as done:
            self._survey, self._work = done.value, None
        except BaseException:  # what failed is not gone on with: the next who asks is told why again
            self._work = None
            raise

    def _surveying(self) -> Work[Survey]:
        survey = yield from self._surveyor.work(Source(self.name, self.text))
        if survey.symbols is not None:
            self._last = survey
        elif self._last is None:
            # the forms before the one that cannot be read, of a text that never could
            span = survey.diagnostics[0].error.span if survey.diagnostics else None
            end = self.text.rfind("\n(", 0, span.start + 1) + 1 if span is not None else 0
            if end:
                self._last = yield from self._surveyor.work(Source(self.name, self.text[:end]))
        return survey

    @property
    def is_current(self) -> bool:
        """Whether the text now can be read: if not, :attr:`symbols` are those of an earlier one."""
        return self.survey.symbols is not None

    @property
    def _read(self) -> Survey:
        """The survey of the last text that could be read."""
        survey = self.survey
        return survey if survey.symbols is not None or self._last is None else self._last

    @property
    def symbols(self) -> SymbolTable:
        """The names of the last text that could be read."""
        return self._read.symbols or SymbolTable([])

    @property
    def tasks(self) -> dict[str, list[NameInfo]]:
        """What calls of the tasks that the text defines take."""
        return self._read.tasks

    @property
    def shift(self) -> Shift:
        """How the text of :attr:`symbols` differs from the text now."""
        if self._shift is None:
            self._shift = Shift.between(self._read.source.text, self.text)
        return self._shift

    def name_at(self, offset: int) -> Located[Occurrence] | None:
        """The name at an offset of the text now."""
        old = self.shift.old(offset)
        return None if old is None else self.symbols.at(old)

    def visible(self, offset: int) -> list[Binding]:
        """The bindings in force at an offset of the text now."""
        old = self.shift.old(offset)
        return self.symbols.visible(self.shift.before if old is None else old)

    def span_now(self, name: Located[Occurrence] | Located[Binding]) -> tuple[int, int] | None:
        """Where a name of the table is in the text now; None where that has changed."""
        start, end = self.shift.new(name.start), self.shift.new(name.end)
        if start is None or end is None or self.text[start:end] != name.what.name:
            return None
        return start, end


def _alike(one: str, other: str) -> int:
    """How many characters two texts have in common at their beginning."""
    least, most = 0, min(len(one), len(other))
    while least < most:
        middle = (least + most + 1) // 2
        if one[least:middle] == other[least:middle]:
            least = middle
        else:
            most = middle - 1
    return least
