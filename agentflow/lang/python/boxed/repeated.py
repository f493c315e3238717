"""Keys given to a collection more than once while it is built, in a flow with a policy.

A dict keeps the first of equal keys. Its number of keys depends on the sources of the others: so the kept key carries those, too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from agentflow.core.data.labels import BOXED_KEYS, NO_SOURCES, Sources, box, joined, strip
from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import ELEMENTS_PER_STEP, Work, finish, slices
from agentflow.lang.calling import begun


class Repeated:
    """The keys of a collection under construction that were given again, with the sources of the later ones."""

    __slots__ = ("_again",)

    def __init__(self) -> None:
        self._again: dict[Any, Sources] = {}

    def put(self, entries: dict[Any, Any], key: Any, value: Any) -> None:
        """``entries[key] = value``."""
        if type(key) in BOXED_KEYS and key in entries:
            self._add(key)
        entries[key] = value

    def put_all(self, entries: dict[Any, Any], keys: Collection[Any]) -> Work[None]:
        """Note the keys before they are put."""
        if not entries:
            return
        for part in slices(list(keys)):
            if not BOXED_KEYS.isdisjoint(map(type, part)):
                for key in part:
                    if type(key) in BOXED_KEYS and key in entries:
                        self._add(key)
            if len(part) < len(keys):
                yield len(part) // ELEMENTS_PER_STEP

    def _add(self, key: Any) -> None:
        sources = strip(key)[1]
        if sources:
            self._again[key] = joined(self._again.get(key, NO_SOURCES), sources)

    def said(self, entries: dict[Any, Any]) -> Work[dict[Any, Any]]:
        """The entries; keys that were given again also carry the sources of the later ones."""
        if not self._again:
            return entries
        again: dict[Any, Any] = {}
        for part in slices(list(entries.items())):
            again.update([(box(key, self._again.get(key, NO_SOURCES)), value) for key, value in part])
            if len(part) < len(entries):
                yield len(part) // ELEMENTS_PER_STEP
        return again


def said_again(repeated: Repeated, entries: dict[Any, Any]) -> Any:
    """The entries of a comprehension; keys that were given again also carry the sources of the later ones."""
    return begun(repeated.said(entries))


def set_of(keys: list[Any]) -> OrderedSet:
    """The set of a few keys, those of a text."""
    entries: dict[Any, None] = {}
    repeated = Repeated()
    for each in keys:
        repeated.put(entries, each, None)
    return OrderedSet.of(finish(repeated.said(entries)))
