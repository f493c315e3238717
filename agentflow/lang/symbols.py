"""The symbol table of a text: its names, their bindings and occurrences. Editors answer from it. It knows only offsets and
kinds, not the notation of a text. A text analysed in parts has a :class:`TextSymbols` for each part, with offsets
from the beginning of the part; a :class:`SymbolTable` joins them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, Literal, TypeAlias, TypeVar

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import NameInfo

BindingKind: TypeAlias = Literal["variable", "parameter", "procedure", "task", "macro", "class", "field"]
"""The kind of a binding in a text."""
Role: TypeAlias = Literal["binding", "read", "call", "write", "mention", "argument", "data"]
"""The role of a name: bind, be read, be called, be assigned, be named without a call, name an argument, be data."""
Kind: TypeAlias = Literal[
    "local",
    "global",
    "host",
    "form",
    "macro",
    "primitive",
    "context",
    "task",
    "tool",
    "argument",
    "method",
    "data",
    "unknown",
]
"""The meaning of a name: a binding around it, one at file level, one made by the host, or a word of the language."""
Extent: TypeAlias = tuple[int, int]
"""Offsets of the first character and of the one after the last."""
T = TypeVar("T", "Binding", "Occurrence")


@dataclass(slots=True, eq=False)
class Binding:
    """A name that the text binds, at ``start`` to ``end``.

    ``form`` is the whole definition; ``extent`` is the scope of the name, None at file level. ``parameters`` are those of a
    procedure or task, the last one being ``rest`` if it takes any further arguments; ``info`` describes the parameters of
    a task. ``owner`` is the task that a parameter, or the class that a field belongs to.
    """

    name: str
    kind: BindingKind
    start: int
    end: int
    form: Extent
    extent: Extent | None = None
    parameters: tuple[str, ...] | None = None
    rest: str | None = None
    info: NameInfo | None = None
    owner: str | None = None


@dataclass(slots=True, eq=False)
class Occurrence:
    """A name at ``start`` to ``end``: its role and meaning. ``binding`` binds it, unless it is bound at file level.

    ``owner`` is the task or tool of an argument.
    """

    name: str
    start: int
    end: int
    role: Role
    kind: Kind
    binding: Binding | None = None
    owner: str | None = None


@dataclass(slots=True)
class TextSymbols:
    """The names of a text, or of a part of one; each occurrence at its offset.

    ``opaque`` are the parts with names that a macro may use freely, ``hidden`` the names that expansions use.
    """

    bindings: list[Binding] = field(default_factory=list[Binding])
    occurrences: dict[int, Occurrence] = field(default_factory=dict[int, Occurrence])
    opaque: list[Extent] = field(default_factory=list[Extent])
    hidden: set[str] = field(default_factory=set[str])

    def add(self, occurrence: Occurrence) -> None:
        """Record an occurrence. The role in code wins over that in data."""
        earlier = self.occurrences.get(occurrence.start)
        if earlier is None or earlier.role == "data":
            self.occurrences[occurrence.start] = occurrence


@frozen
class Located(Generic[T]):
    """A binding or an occurrence in a table: ``offset`` is where its part begins."""

    what: T
    offset: int
    part: TextSymbols

    @property
    def start(self) -> int:
        """Offset of the first character of the name."""
        return self.offset + self.what.start

    @property
    def end(self) -> int:
        """Offset after its last character."""
        return self.offset + self.what.end


class SymbolTable:
    """The names of a whole text. ``parts`` are its parts in order, each with the offset at which it begins."""

    def __init__(self, parts: Sequence[tuple[int, TextSymbols]]) -> None:
        self.parts = parts
        self._offsets = [offset for offset, _ in parts]

    def __iter__(self) -> Iterator[Located[Occurrence]]:
        """Every occurrence, in the order of the text."""
        for offset, part in self.parts:
            for at in sorted(part.occurrences):
                yield Located(part.occurrences[at], offset, part)

    def within(self, start: int, end: int) -> Iterator[Located[Occurrence]]:
        """Every occurrence that begins in a part of the text, in order."""
        first = max(0, bisect_right(self._offsets, start) - 1)
        for offset, part in self.parts[first : bisect_right(self._offsets, end)]:
            for at in sorted(part.occurrences):
                if start <= offset + at < end:
                    yield Located(part.occurrences[at], offset, part)

    def at(self, offset: int) -> Located[Occurrence] | None:
        """The name that the character at ``offset``, or the one before it, belongs to."""
        ended: Located[Occurrence] | None = None
        for base, part in self._parts_at(offset):
            for each in part.occurrences.values():
                if each.start <= offset - base < each.end:
                    return Located(each, base, part)
                if each.end == offset - base:
                    ended = Located(each, base, part)
        return ended

    def visible(self, offset: int) -> list[Binding]:
        """The bindings in force at ``offset``, except those at file level, innermost first."""
        around = [
            each
            for base, part in self._parts_at(offset)
            for each in part.bindings
            if each.extent is not None and each.extent[0] < offset - base < each.extent[1]
        ]
        return sorted(around, key=lambda each: _size(each.extent))

    def file_level(self) -> list[Located[Binding]]:
        """The bindings of the text at file level, in order."""
        return [
            Located(each, offset, part) for offset, part in self.parts for each in part.bindings if each.extent is None
        ]

    def bindings_of(self, name: Located[Occurrence]) -> list[Located[Binding]]:
        """The bindings of a name: the one around it, or all of that name at file level; none for a word of the language."""
        each = name.what
        if each.binding is not None:
            return [Located(each.binding, name.offset, name.part)]
        if each.role == "data" or each.kind == "method":
            return []
        if each.role == "argument":
            return [
                Located(binding, offset, part)
                for offset, part in self.parts
                for binding in part.bindings
                if binding.owner is not None and (binding.owner, binding.name) == (each.owner, each.name)
            ]
        return [binding for binding in self.file_level() if binding.what.name == each.name]

    def occurrences_of(self, name: Located[Occurrence]) -> list[Located[Occurrence]]:
        """The occurrences of the same thing, in order; of a name that nothing here binds, all of that name and kind."""
        bindings = self.bindings_of(name)
        local = [each.what for each in bindings if each.what.extent is not None]
        if local:
            owners = {(each.owner, each.name) for each in local if each.owner is not None}
            return [
                each
                for each in self
                if each.what.binding in local
                or (each.what.role == "argument" and (each.what.owner, each.what.name) in owners)
            ]
        if name.what.kind == "method":
            return [each for each in self if (each.what.name, each.what.kind) == (name.what.name, "method")]
        if name.what.role in ("argument", "data"):
            wanted = (name.what.name, name.what.role, name.what.owner)
            return [each for each in self if (each.what.name, each.what.role, each.what.owner) == wanted]
        return [
            each
            for each in self
            if each.what.name == name.what.name
            and each.what.binding is None
            and each.what.role not in ("argument", "data")
            and each.what.kind != "method"
        ]

    def _parts_at(self, offset: int) -> Sequence[tuple[int, TextSymbols]]:
        """The parts that a name at ``offset`` may belong to: that which begins there, or before, and the one before it."""
        index = bisect_right(self._offsets, offset)
        return self.parts[max(0, index - 2) : index]


def _size(extent: Extent | None) -> int:
    return extent[1] - extent[0] if extent is not None else 0
