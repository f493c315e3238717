"""Bindings as cells: the variables that top-level code reads and writes, and the host's view of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from agentflow.core.data.errors import DataError, UnboundSymbolError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import VARIABLE, Definitions, NameInfo, Names, RecordInfo, Template
from agentflow.core.data.labels import NO_SOURCES, Sources, joined, strip
from agentflow.core.data.values import plain_lists
from agentflow.lib.text.suggest import did_you_mean


class Unbound:
    """The value of a cell before anything is bound to it. There is one, :data:`UNBOUND`; no program ever sees it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "#<unbound>"


UNBOUND: Final = Unbound()


def unbound(name: str, message: str, hint: str | None = None, code: str | None = None) -> UnboundSymbolError:
    """An UnboundSymbolError for ``name``, which its ``name`` attribute (that of NameError) carries too."""
    error = UnboundSymbolError(message, code=code, hint=hint)
    error.name = name
    return error


class Cell:
    """One variable: ``v`` is its value, or :data:`UNBOUND`. Compiled code holds cells, not names."""

    __slots__ = ("v",)

    def __init__(self, v: Any = UNBOUND) -> None:
        self.v = v


class _WriteThrough(Cell):
    """A binding of a frame that the program redefines: writes also go to the environment below."""

    __slots__ = ("_below", "_value")

    def __init__(self, value: Any, below: SexpEnvironment, name: str) -> None:
        self._value = value
        self._below = (below, name)

    @property
    def v(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._value

    @v.setter
    def v(self, value: Any) -> None:
        self._value = value
        below, name = self._below
        below.own(name).v = value


def _check(bindings: object) -> None:
    if not isinstance(bindings, Mapping):
        what = type(bindings).__name__
        raise DataError(f"the bindings of an environment are a {what}", code="data/argument", hint="give a dict")


# Cells, not dicts: reading a global costs one attribute (decision 9)
class SexpEnvironment:
    """Variables and tasks by name, with an optional ``parent`` to look further in.

    Parameters: ``bindings`` maps names to values. Top-level ``define`` and ``set!`` of a program act on the environment
    it runs in, and so does ``defatom``: the host reads results with :meth:`lookup`, and a later program in the same
    environment sees them, and the classes of texts in Python. The tasks are gone with the environment, and so are the ``labels`` of the
    containers that its programs made under a strict policy.
    """

    __slots__ = ("_cells", "_frame", "_presence", "_records", "_tasks", "labels", "owner", "parent")

    def __init__(self, bindings: Mapping[str, Any] | None = None, parent: SexpEnvironment | None = None) -> None:
        self._cells: dict[str, Cell] = {}
        self._tasks: dict[str, Template] = {}
        self._records: dict[str, RecordInfo] = {}
        self._frame = False
        self._presence: dict[str, Sources] | None = None
        self.parent = parent
        self.owner: object = None
        self.labels: object = None
        kind: type = type(bindings)
        if bindings is not None and kind is not dict:
            _check(bindings)
        for name, value in (bindings or {}).items():
            self._cells[str(name)] = Cell(value)

    def lookup(self, name: str) -> Any:
        """The value of ``name`` here or in the nearest enclosing environment. Raises UnboundSymbolError."""
        cell = self.find(str(name))
        if cell is None:
            raise unbound(str(name), f"'{name}' is not bound", did_you_mean(str(name), self.names()))
        return plain_lists(strip(cell.v)[0])

    def define(self, name: str, value: Any) -> None:
        """Bind ``name`` in this environment."""
        self.own(str(name)).v = value

    def set_value_in_scope(self, name: str, value: Any) -> None:
        """Change the nearest existing binding of ``name``. Raises UnboundSymbolError when there is none."""
        cell = self.find(str(name))
        if cell is None:
            hint = did_you_mean(str(name), self.names()) or "bind it first, with define"
            raise unbound(str(name), f"set!: '{name}' is not bound", hint)
        cell.v = value

    def extend(self, bindings: Mapping[str, Any] | None = None) -> SexpEnvironment:
        """A new environment inside this one."""
        return SexpEnvironment(bindings, self)

    def with_bindings(self, bindings: Mapping[str, Any]) -> SexpEnvironment:
        """This environment with ``bindings`` read first, for one run: definitions of the run go to this environment."""
        frame = SexpEnvironment(bindings, self)
        frame._frame = True
        return frame

    @property
    def target(self) -> SexpEnvironment:
        """Where definitions go: here, or for a frame of bindings to the environment below it."""
        at = self
        while at._frame and at.parent is not None:
            at = at.parent
        return at

    def task(self, name: str) -> Template | None:
        """The nearest task that a program defined under ``name``; None without one."""
        at: SexpEnvironment | None = self
        while at is not None:
            template = at._tasks.get(name)
            if template is not None:
                return template
            at = at.parent
        return None

    @property
    def own_tasks(self) -> Mapping[str, Template]:
        """The tasks defined in this environment itself, by name, in the order of their definition."""
        return self._tasks

    def tasks(self) -> dict[str, Template]:
        """All visible tasks by name, outermost first, the nearest of each name."""
        names: dict[str, Template] = {}
        levels: list[dict[str, Template]] = []
        at: SexpEnvironment | None = self
        while at is not None:
            levels.append(at._tasks)
            at = at.parent
        for level in reversed(levels):
            for name, template in level.items():
                names.pop(name, None)
                names[name] = template
        return names

    def define_task(self, template: Template) -> None:
        """Bind a task under its name; one of the same name is replaced."""
        tasks = self.target._tasks
        tasks.pop(template.name, None)
        tasks[template.name] = template

    def record(self, name: str) -> RecordInfo | None:
        """The nearest class that a text in Python declared under ``name``; None without one."""
        own = self._records.get(name)
        return own if own is not None or self.parent is None else self.parent.record(name)

    def records(self) -> frozenset[str]:
        """The names of all such visible classes."""
        own = frozenset(self._records)
        return own if self.parent is None else own | self.parent.records()

    def define_record(self, name: str, record: RecordInfo) -> None:
        """Declare a class of records; a class or variable of the same name is replaced."""
        target = self.target
        target._records[name] = record
        if (cell := target._cells.get(name)) is not None:
            cell.v = UNBOUND

    def find(self, name: str) -> Cell | None:
        """The nearest cell of ``name`` that holds a value, or None."""
        at: SexpEnvironment | None = self
        while at is not None:
            cell = at._cells.get(name)
            if cell is not None and cell.v is not UNBOUND:
                return cell
            at = at.parent
        return None

    def own(self, name: str) -> Cell:
        """The cell of ``name`` that a definition here writes, a new unbound one if there is none."""
        cell = self._cells.get(name)
        if self._frame:
            if cell is None:
                return self.target.own(name)
            if not isinstance(cell, _WriteThrough):
                cell = self._cells[name] = _WriteThrough(cell.v, self.target, name)
        elif cell is None:
            cell = self._cells[name] = Cell()
        return cell

    def linked(self, names: Iterable[tuple[str, bool]]) -> list[Cell]:
        """The cell of each (name, own) for code that reads and writes it: the nearest one with a value, unless its own is wanted."""
        cells: list[Cell] = []
        for name, own in names:  # without a comprehension, which is a call in Python 3.11
            cells.append((None if own else self.find(name)) or self.own(name))
        return cells

    def presence(self, name: str) -> Sources:
        """The sources, under a strict policy, of tests that might give a variable a value here or further out."""
        sources, at = NO_SOURCES, self
        while at is not None:
            if at._presence is not None:
                sources = joined(sources, at._presence.get(name, NO_SOURCES))
            at = at.parent
        return sources

    def note_presence(self, name: str, sources: Sources) -> None:
        """Have it depend on ``sources``, too."""
        target = self.target
        if target._presence is None:
            target._presence = {}
        target._presence[name] = joined(self.presence(name), sources)

    def cells(self) -> Iterable[Cell]:
        """The cells of this environment itself."""
        return self._cells.values()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is bound or defined here or in an enclosing environment."""
        return self.parent is None and not self._cells and not self._tasks and not self._records

    def names(self) -> frozenset[str]:
        """The names bound here and in the environments around."""
        seen: set[str] = set()
        at: SexpEnvironment | None = self
        while at is not None:
            seen.update(name for name, cell in at._cells.items() if cell.v is not UNBOUND)
            at = at.parent
        return frozenset(seen)

    def bindings(self) -> dict[str, Any]:
        """All visible bindings as a dict, by name."""
        values: dict[str, Any] = {}
        for name in sorted(self.names()):
            cell = self.find(name)
            if cell is not None:
                values[name] = plain_lists(strip(cell.v)[0])
        return values

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None


@frozen
class NamesInForce:
    """The names a program can use: variables of ``env``, tasks ``defined`` by programs, the flow's tasks and tools."""

    flow: Names
    env: SexpEnvironment | None = None
    defined: Definitions | None = None

    def describe(self, name: str) -> NameInfo | None:
        # A name that a test may have bound is a variable whichever way the test went.
        if self.env is not None and (self.env.find(name) is not None or self.env.presence(name)):
            return VARIABLE
        template = self.defined.task(name) if self.defined is not None else None
        info = template.info if template is not None else self.flow.describe(name)
        if info is not None or self.env is None or (record := self.env.record(name)) is None:
            return info
        return NameInfo("unknown", record=record)

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        return self.flow.prepare(fields)

    def known_names(self) -> Iterable[str]:
        return [*(self.defined.tasks() if self.defined is not None else ()), *self.flow.known_names()]
