"""Long lists that share their parts: what ``cons`` and ``rest`` give, so that they take constant time as in any Lisp.

A :class:`SharedList` lives inside the language only. Primitives read it through :meth:`SharedList.plain`, and wherever a
value leaves a program (arguments of tasks, tools and host callables, the result of a run) :func:`plain_lists` turns it
into a Python list.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

SHARED_FROM = 64
"""Elements from which on sharing pays; shorter lists are Python lists always."""


class SharedList:
    """A list that is never changed: ``count`` elements of ``front``, last to first, and then those of ``base``.

    ``base`` is a Python list, read from ``start`` on, or another SharedList. ``front`` is only ever appended to, by
    whoever holds its end, so lists that share it do not disturb each other.
    """

    __slots__ = ("__weakref__", "base", "count", "front", "length", "start")

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, front: list[Any], count: int, base: list[Any] | SharedList, start: int) -> None:
        self.front = front
        self.count = count
        self.base = base
        self.start = start
        self.length = count + len(base) - start

    @classmethod
    def of(cls, elements: list[Any] | tuple[Any, ...]) -> SharedList:
        """A list with these elements, which are copied: somebody else may change theirs."""
        return cls([], 0, list(elements), 0)

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        return iter(self.plain())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SharedList):
            return self.plain() == other.plain()
        return self.plain() == other if isinstance(other, list) else NotImplemented

    def __repr__(self) -> str:
        return repr(self.plain())

    def plain(self) -> list[Any]:
        """The elements as a new Python list."""
        elements: list[Any] = []
        at: list[Any] | SharedList = self
        start = 0
        while isinstance(at, SharedList):
            if at.count:
                elements += at.front[at.count - 1 :: -1]
            at, start = at.base, at.start
        elements += at[start:] if start else at
        return elements

    def first(self) -> Any:
        """The first element."""
        if self.count:
            return self.front[self.count - 1]
        base = self.base
        return base.first() if isinstance(base, SharedList) else base[self.start]

    def rest(self) -> SharedList | list[Any]:
        """All elements but the first."""
        if self.length <= SHARED_FROM:
            return self.plain()[1:]
        if self.count > 1:
            return SharedList(self.front, self.count - 1, self.base, self.start)
        if self.count:
            return self.base if isinstance(self.base, SharedList) else SharedList([], 0, self.base, self.start)
        assert isinstance(self.base, list)
        return SharedList([], 0, self.base, self.start + 1)

    def after(self, value: Any) -> SharedList:
        """``value``, and then these elements."""
        front = self.front
        if len(front) == self.count:
            front.append(value)
            return SharedList(front, self.count + 1, self.base, self.start)
        return SharedList([value], 1, self, 0)


HELD = frozenset((list, tuple, dict, SharedList))
"""The types of values that may hold a shared list."""


def as_list(value: Any) -> list[Any] | None:
    """The elements of a list of the language, to be read from; None when ``value`` is none."""
    if isinstance(value, list):
        return cast("list[Any]", value)
    if isinstance(value, SharedList):
        return value.plain()
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else None


def plain_lists(value: Any) -> Any:
    """``value`` with Python lists in place of shared ones, at any depth; the same object when there were none.

    Where there are any, all is copied, each object once. Does not recurse.
    """
    if type(value) not in HELD:
        return value
    order: list[Any] = []  # keeps the objects alive, so that no id is used twice
    found: dict[int, Any] = {}
    shared = False
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if id(item) in found:
            continue
        elements: Any = item
        if type(item) is SharedList:
            shared = True
            elements = item.plain()
        found[id(item)] = elements
        order.append(item)
        inside: Any = cast("dict[Any, Any]", elements).values() if isinstance(elements, dict) else elements
        if not HELD.isdisjoint(set(map(type, inside))):
            pending += [each for each in inside if type(each) in HELD]
    if not shared:
        return value
    return _rebuilt(value, order, found)


def _rebuilt(value: Any, order: list[Any], found: dict[int, Any]) -> Any:
    """Copies of all the containers, each once; what refers to one refers to its copy then."""
    copies: dict[int, Any] = {}
    for item in order:
        elements = found[id(item)]
        copies[id(item)] = dict(cast("Mapping[Any, Any]", elements)) if isinstance(elements, dict) else list(elements)
    for copy in copies.values():
        entries = cast("Any", copy).items() if isinstance(copy, dict) else enumerate(cast("list[Any]", copy))
        for key, each in list(entries):
            if type(each) in HELD:
                copy[key] = copies[id(each)]
    return copies[id(value)]
