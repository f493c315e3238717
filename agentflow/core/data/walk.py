"""Goes over data of any shape: without recursion, each shared part once, and in parts of
:data:`~agentflow.core.data.walk.Work`.

Containers are distinguished by identity, so data with shared parts costs its size in memory, not its size when written out;
leaves are not distinguished.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar, cast

T = TypeVar("T")
# Long work is a generator, so that the loop gets its turn in the midst of it (decision 18)
Work: TypeAlias = Generator[int, None, T]
"""Long work: yields the steps that the next part costs, returns the result."""

ELEMENTS_PER_STEP = 64
CHARACTERS_PER_STEP = 1_024
BITS_PER_STEP = 4_096
PART = 2_048
"""Elements in a part of work that takes Python about half a microsecond each."""
LONG_TEXT = 65_536
"""Minimum characters of a text processed in parts, where that can wait."""
PAUSE_S = 0.002
"""Seconds of work before it yields to the loop."""


def finish(work: Work[T]) -> T:
    """Carry out work at once; gives its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value


async def in_slices(work: Work[T]) -> T:
    """Carry out work, and let others run every few milliseconds; gives its result."""
    paused = time.monotonic()
    try:
        while True:
            next(work)
            if time.monotonic() - paused > PAUSE_S:
                await asyncio.sleep(0)
                paused = time.monotonic()
    except StopIteration as done:
        return done.value
    finally:
        work.close()


def slices(elements: Sequence[Any], size: int = PART) -> Iterator[Sequence[Any]]:
    """The elements in slices of at most ``size``; a short list is its own slice."""
    if len(elements) <= size:
        return iter((elements,))
    return (elements[start : start + size] for start in range(0, len(elements), size))


MAX_DEPTH = 1_000
"""Maximum nesting of data to compare, copy or write out."""
LEAVES = frozenset((str, int, float, bool, type(None)))
"""The types of values without parts."""


def _elements(base: Any) -> Callable[[Any], list[Any]]:
    return lambda value: [*base.__iter__(value)]


def _entries(value: Any, base: Any = dict) -> dict[Any, Any]:
    return dict(base.items(value))


_COPIES: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
    (dict, _entries),
    *[(each, _elements(each)) for each in (list, tuple, set, frozenset)],
)
_EXACT: frozenset[Any] = frozenset([*LEAVES, *[base for base, _ in _COPIES]])
_CONTAINERS = frozenset((list, dict))

Sizes: TypeAlias = dict[int, tuple[int, int, Any]]
"""By identity of a container: the least number of characters of its text, its depth, and itself."""


class TooDeep(ValueError):
    """Data is nested deeper than 1,000 levels, or within itself."""

    def __init__(self) -> None:
        super().__init__(f"data is nested deeper than {MAX_DEPTH} levels")


class TooLong(ValueError):
    """The text of data would have more characters than are allowed: at least ``size``."""

    def __init__(self, size: int) -> None:
        self.size = size
        super().__init__(f"its text would have {size if size < 10**18 else 'more than 10^18'} characters")


def exact(value: Any) -> Any:
    """``value``, or of a class derived from a plain type the plain value, a list for tuples and sets. Runs no method of the class."""
    kind = cast("type[Any]", type(value))
    if kind in _EXACT:
        return value
    return next((copy(value) for base, copy in _COPIES if issubclass(kind, base)), value)


def elements(container: Any) -> list[Any]:
    """The elements of a list, the values of a dict."""
    return list(container.values()) if keyed(container) else container


def keyed(container: Any) -> bool:
    """Whether a list or dict is a dict."""
    return type(container) is dict


def copied(value: Any, opened: Callable[[Any], Any], *, deepest: float = MAX_DEPTH) -> Work[tuple[Any, bool]]:
    """A copy of data, each container copied once; and whether any occurs more than once.

    ``opened`` is called with each value other than a leaf. It returns a new list or dict, with its parts then replaced by
    their copies in turn, or anything else, which is the copy. Raises TooDeep past ``deepest`` levels.
    """
    root = [value]
    copies: dict[int, Any] = {}
    keep: list[Any] = []  # keeps the originals alive, so that no id is used twice
    shared = False
    count = 0
    pending: list[tuple[Any, int]] = [(root, 0)]
    while pending:
        target, depth = pending.pop()
        at = 0
        named = keyed(target)
        for keys in slices(list(target) if named else target):
            count += len(keys)
            if count >= PART:
                yield count // ELEMENTS_PER_STEP
                count = 0
            for key in keys:
                item = target[key] if named else key
                at += 1
                if type(item) in LEAVES:
                    continue
                copy = copies.get(id(item))
                if copy is not None:
                    shared = True
                else:
                    copy = opened(item)
                    if type(copy) in _CONTAINERS:
                        if depth > deepest:
                            raise TooDeep
                        copies[id(item)] = copy
                        keep.append(item)
                        pending.append((copy, depth + 1))
                target[key if named else at - 1] = copy
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    return root[0], shared


def sizes(data: Any) -> Work[Sizes]:
    """Measures each container in JSON ``data``; parts come before their containers.

    A part that occurs a thousand times counts a thousand times, but is measured once. Raises TooDeep.
    """
    measured: Sizes = {}
    opened: dict[int, tuple[int, list[Any]]] = {}
    count = 0
    stack = [] if type(data) in LEAVES else [data]
    while stack:
        item = stack[-1]
        key = id(item)
        if key in measured:
            stack.pop()
            continue
        within: list[Any] = []
        if key in opened:
            size, within = opened[key]
            depth = 0
            size += 2 * len(within)
            for part in slices(within):
                count += len(part)
                if count >= PART:
                    yield count // ELEMENTS_PER_STEP
                    count = 0
                inner = [measured[id(each)] for each in part]
                size += sum([each[0] for each in inner])
                depth = max(depth, max([each[1] for each in inner]))
            if depth >= MAX_DEPTH:
                raise TooDeep
            measured[key] = max(size, 2), depth + 1, item
            stack.pop()
            continue
        opened[key] = 0, within
        size = _keys_size(item)
        for part in slices(elements(item)):
            count += len(part) + 1
            if count >= PART:
                yield count // ELEMENTS_PER_STEP
                count = 0
            kinds = set(map(type, part))
            if str in kinds:
                texts = [len(each) for each in part if type(each) is str]
                size += sum(texts) + len(texts)
            below = [] if LEAVES.issuperset(kinds) else [each for each in part if type(each) not in LEAVES]
            size += 3 * (len(part) - len(below))
            if below:
                if any([id(each) in opened and id(each) not in measured for each in below]):
                    raise TooDeep  # within itself
                within += below
                stack += below
        if within:
            opened[key] = size, within
        else:
            measured[key] = max(size, 2), 1, item
    return measured


def _keys_size(item: Any) -> int:
    return sum(map(len, item)) + 4 * len(item) if keyed(item) else 0
