"""Bindings as cells: what top-level code reads and writes, and what the host sees of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentflow.core.errors import UnboundSymbolError
from agentflow.core.shared_list import plain_lists
from agentflow.lib.suggest import did_you_mean


class Unbound:
    """The value of a cell that nothing has been bound to yet. There is one, :data:`UNBOUND`; no program ever sees it."""

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


class SexpEnvironment:
    """Variables by name, with an optional ``parent`` to look further in.

    Parameters: ``bindings`` maps names to values. Top-level ``define`` and ``set!`` of a program act on the environment
    it runs in, so the host reads results with :meth:`lookup` and a later program sees them.
    """

    __slots__ = ("_cells", "owner", "parent")

    def __init__(self, bindings: Mapping[str, Any] | None = None, parent: SexpEnvironment | None = None) -> None:
        self._cells: dict[str, Cell] = {}
        self.parent = parent
        self.owner: object = None
        for name, value in (bindings or {}).items():
            self._cells[str(name)] = Cell(value)

    def lookup(self, name: str) -> Any:
        """The value of ``name`` here or in the nearest enclosing environment. Raises UnboundSymbolError."""
        cell = self.find(str(name))
        if cell is None:
            raise unbound(str(name), f"'{name}' is not bound", did_you_mean(str(name), self.names()))
        return plain_lists(cell.v)

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
        """This environment's own cell of ``name``, made (unbound) when it has none."""
        cell = self._cells.get(name)
        if cell is None:
            cell = self._cells[name] = Cell()
        return cell

    def names(self) -> frozenset[str]:
        """The names bound here and in the environments around."""
        seen: set[str] = set()
        at: SexpEnvironment | None = self
        while at is not None:
            seen.update(name for name, cell in at._cells.items() if cell.v is not UNBOUND)
            at = at.parent
        return frozenset(seen)

    def bindings(self) -> dict[str, Any]:
        """All bindings in sight as a dict, by name."""
        found: dict[str, Any] = {}
        for name in sorted(self.names()):
            cell = self.find(name)
            if cell is not None:
                found[name] = plain_lists(cell.v)
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None
