"""Sets in insertion order, so that going over one gives the same in each run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import Any


class OrderedSet(Set[Any]):
    """A set of a program: the keys of the dict ``items``, in the order in which they were added."""

    __slots__ = ("items",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, elements: Iterable[Any] = ()) -> None:
        self.items: dict[Any, None] = dict.fromkeys(elements)

    @classmethod
    def of(cls, items: dict[Any, None]) -> OrderedSet:
        """The set of the keys of ``items``, which it keeps and changes."""
        result = cls()
        result.items = items
        return result

    def plain(self) -> list[Any]:
        """The elements as a new Python list: what a set is wherever it leaves a program."""
        return list(self.items)

    def __contains__(self, value: object) -> bool:
        return value in self.items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self.items))}}}" if self.items else "set()"
