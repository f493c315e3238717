"""The sources of the lists, dicts and sets of programs themselves, under a ``strict`` policy.

The contents of a container can carry their sources, but removed elements and its length cannot: these are the container's own.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from agentflow.core.data.labels import NO_SOURCES, Sources, joined
from agentflow.core.data.values import OrderedSet

CONTAINERS = frozenset((list, dict, OrderedSet))
"""The types of values changed in place."""
_FIRST_SWEEP = 1_000


class ContainerLabels:
    """The sources of containers, by their identity.

    The table of a run is that of its environment, which outlives it; tables become one where their containers meet
    (:meth:`join`). ``host`` is that of the host's containers, which several runs of a flow may get.
    """

    __slots__ = ("_entries", "_host", "_into", "_sweep_at")

    def __init__(self, host: ContainerLabels | None = None) -> None:
        self._host = host
        self._into: ContainerLabels | None = None
        self._entries: dict[int, tuple[Any, Sources]] = {}
        self._sweep_at = _FIRST_SWEEP

    def sources(self, container: Any) -> Sources:
        """The sources that all references to a container carry."""
        table = self.whole()
        entry = table._entries.get(id(container))
        if entry is not None:
            return entry[1]
        return NO_SOURCES if table._host is None else table._host.sources(container)

    def note(self, container: Any, sources: Sources) -> None:
        """Make all references to a container carry these sources."""
        table = self.whole()
        table._entries[id(container)] = (container, joined(table.sources(container), sources))
        if len(table._entries) >= table._sweep_at:
            table._sweep()

    def _sweep(self) -> None:
        """Forget the containers without other references."""
        self._entries = {at: entry for at, entry in self._entries.items() if getrefcount(entry[0]) > IN_ENTRY}
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._entries))

    def whole(self) -> ContainerLabels:
        """The table that this one is a part of; itself, if it has met no other."""
        table = self
        while table._into is not None:
            table = table._into
        return table

    def join(self, other: ContainerLabels) -> None:
        """Make this table and another one the same."""
        table, other = self.whole(), other.whole()
        if other is table:
            return
        entries, other._entries, other._into = other._entries, {}, table
        for container, sources in entries.values():
            table.note(container, sources)

    @property
    def is_empty(self) -> bool:
        """Whether no container of the run depends on anything."""
        table = self.whole()
        return not table._entries and (table._host is None or table._host.is_empty)

    def hand_over(self, reached: frozenset[int]) -> None:
        """Keep the sources of the containers with these identities for later runs of the flow: the host has them."""
        table = self.whole()
        for at, (container, sources) in table._entries.items():
            if at in reached and table._host is not None:
                table._host.note(container, sources)


def _in_entry() -> int:
    entry: tuple[Any, ...] = ([],)
    return getrefcount(entry[0])


IN_ENTRY = _in_entry()
"""References to a value with one holder, when read as a part of that holder."""
