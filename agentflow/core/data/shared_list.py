"""Long lists that share their parts: what ``cons`` and ``rest`` give, so that they take constant time as in any Lisp.

A :class:`SharedList` lives inside the language only. Primitives read it through :meth:`SharedList.plain`, and wherever a
value leaves a program (arguments of tasks, tools and host callables, the result of a run) :func:`plain_lists` turns it
into a Python list. So it does with the sets of Python texts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from agentflow.core.data.ordered_set import OrderedSet
from agentflow.core.data.walk import copied, elements, keyed
from agentflow.core.data.work import ELEMENTS_PER_STEP, PART, Work, finish, in_slices, slices

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


_OWN = frozenset((SharedList, OrderedSet))
HELD = frozenset((list, tuple, dict, *_OWN))
"""The types of values that may hold a list or set of the language."""


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
    return value if type(value) not in HELD else finish(unshared(value))[0]


async def plain_result(value: Any) -> Any:
    """The same in slices, for the value of a program."""
    return value if type(value) not in HELD else (await in_slices(unshared(value)))[0]


def unshared(value: Any) -> Work[tuple[Any, bool]]:
    """The work of :func:`plain_lists`; also gives whether any list or dict occurs more than once."""
    holds, repeated = yield from _survey(value)
    if holds:
        value, repeated = yield from copied(value, _python_list, deepest=float("inf"))
    return value, repeated


def _python_list(value: Any) -> Any:
    if type(value) in _OWN:
        return value.plain()
    return value if type(value) not in HELD else value.copy() if keyed(value) else list(value)


def _survey(value: Any) -> Work[tuple[bool, bool]]:
    """Whether there are shared lists in ``value``, and whether any list or dict occurs more than once."""
    keep: dict[int, Any] = {}
    holds = repeated = False
    count = 0
    pending: list[Any] = [value]
    while pending:
        item = pending.pop()
        if id(item) in keep:
            repeated = True
            continue
        keep[id(item)] = item
        own = type(item) in _OWN
        holds = holds or own
        for part in slices(item.plain() if own else elements(item)):
            count += len(part) + 1
            if count >= PART:
                yield count // ELEMENTS_PER_STEP
                count = 0
            if not HELD.isdisjoint(map(type, part)):
                pending += [each for each in part if type(each) in HELD]
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    return holds, repeated
