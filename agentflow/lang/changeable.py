"""The lists, dicts and sets that may be changed depending on a condition, under a ``strict`` policy.

The contents of a container can carry their sources, but removed elements and its length cannot. So a container is recorded
if all references to it carry certain sources; only depending on these may it be changed. This is known for a container with
a single reference.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any, cast

from agentflow.core.data.labels import NO_SOURCES, Label, Sources, box, joined, outer_sources
from agentflow.core.data.values import OrderedSet

CONTAINERS = frozenset((list, dict, OrderedSet))
"""The types of values changed in place."""
_HOLDING = CONTAINERS | {Label}
"""The types of elements that are containers, or may hold one."""
_MOST_WITHIN = 30_000
"""The most elements searched for containers: some 30 ms."""
_FIRST_SWEEP = 1_000


class Changeable:
    """The recorded containers of a run, and the variables of the environment that a branch would have bound.

    ``unbound`` maps the name of such a variable to the sources that its lack of a value depends on.
    """

    __slots__ = ("_entries", "_sweep_at", "unbound")

    def __init__(self) -> None:
        self.unbound: dict[str, Sources] = {}
        self._entries: dict[int, tuple[Any, Sources]] = {}
        self._sweep_at = _FIRST_SWEEP

    def sources(self, container: Any) -> Sources:
        """The sources that all references to a container carry."""
        entry = self._entries.get(id(container))
        return NO_SOURCES if entry is None else entry[1]

    def note(self, container: Any, sources: Sources) -> None:
        """Make all references to a container carry these sources."""
        self._entries[id(container)] = (container, joined(self.sources(container), sources))
        if len(self._entries) >= self._sweep_at:
            self._sweep()

    def _sweep(self) -> None:
        """Forget the containers without other references."""
        self._entries = {at: entry for at, entry in self._entries.items() if getrefcount(entry[0]) > IN_ENTRY}
        self._sweep_at = max(_FIRST_SWEEP, 2 * len(self._entries))

    def is_noted(self, container: Any) -> bool:
        """Whether this object, too, holds a reference to a container."""
        return id(container) in self._entries


def upgraded(changeable: Changeable, value: Any, sources: Sources, others: int) -> Any:
    """The value of a variable that may be changed, in itself or its contents, depending on ``sources``: it carries them from
    now on.

    ``others`` are references to the value other than the variable. A container without any is recorded.
    """
    if type(value) is Label:
        if _is_alone(changeable, value, others) and not sources <= changeable.sources(value.value):
            _note(changeable, value.value, joined(value.sources, sources))
    elif (
        type(value) in CONTAINERS and others == changeable.is_noted(value) and not sources <= changeable.sources(value)
    ):
        _note(changeable, value, sources)
    return box(value, sources)


def note_if_alone(changeable: Changeable, value: Any, others: int) -> None:
    """Note a container in a box, if only the box refers to it, and only a variable to the box."""
    if type(value) is Label and _is_alone(changeable, value, others):
        changeable.note(value.value, value.sources)


def _is_alone(changeable: Changeable, boxed: Label, others: int) -> bool:
    return (
        not others
        and type(boxed.value) in CONTAINERS
        and getrefcount(boxed.value) == IN_ENTRY + changeable.is_noted(boxed.value)
    )


def _note(changeable: Changeable, container: Any, sources: Sources) -> None:
    """Record a container, and the unshared ones in it; of very many only some, since no other work runs meanwhile: changing
    one of the others is refused."""
    changeable.note(container, sources)
    pending = [container]
    left = _MOST_WITHIN
    while pending and left > 0:
        item = pending.pop()
        if type(item) is OrderedSet:
            continue
        parts = cast("dict[Any, Any]", item).values() if type(item) is dict else item
        if _HOLDING.isdisjoint(map(type, parts)):
            continue
        for each in parts:
            left -= 1
            if left <= 0:
                break
            if type(each) is Label:
                if (
                    type(each.value) in CONTAINERS
                    and getrefcount(each) == _IN_LOOP
                    and getrefcount(each.value) == IN_ENTRY + changeable.is_noted(each.value)
                ):
                    changeable.note(each.value, sources)
                    pending.append(each.value)
            elif type(each) in CONTAINERS and getrefcount(each) == _IN_LOOP + changeable.is_noted(each):
                changeable.note(each, sources)
                pending.append(each)


def said(changeable: Changeable, value: Any) -> Sources:
    """The sources that a variable's value carries, and those of all references to a container."""
    return joined(outer_sources(value), changeable.sources(value))


def _in_entry() -> int:
    entry: tuple[Any, ...] = ([],)
    return getrefcount(entry[0])


def _in_loop() -> int:
    value: list[list[Any]] = [[]]
    for each in value:
        return getrefcount(each)
    raise AssertionError


IN_ENTRY = _in_entry()
"""References to a value with one holder, when read as a part of that holder."""
_IN_LOOP = _in_loop()
"""References to an element of a container during a loop over it."""
HELD = IN_ENTRY + 1
"""References to the value of a variable that a function receives in a tuple and reads there. If it were a separate argument,
some interpreters would count it and others not, and from 3.14 on this differs by the position of the call: variables are borrowed if that is provably safe."""
