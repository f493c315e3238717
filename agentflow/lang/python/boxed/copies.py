"""Copies of values that share no list, dict or set with the originals."""

from __future__ import annotations

from copy import copy
from typing import Any, cast

from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import ELEMENTS_PER_STEP, Work, slices

_COPIED = frozenset((list, dict, tuple, OrderedSet))


def own_copy(value: Any) -> Work[tuple[Any, list[Any]]]:
    """A deep copy of ``value`` with one copy of each container, and the lists, dicts and sets created for it.

    Contents of boxes, and objects of other types, stay the same objects.
    """
    if type(value) not in _COPIED:
        return value, []
    copies: dict[int, Any] = {}
    pending: list[tuple[Any, bool]] = [(value, False)]
    while pending:
        item, ready = pending.pop()
        if ready:
            yield from _fill(copies, item)
        elif id(item) not in copies:
            copies[id(item)] = _shell(item)
            pending.append((item, True))
            for part in slices(_parts(item)):
                pending += [(each, False) for each in part if type(each) in _COPIED and id(each) not in copies]
                yield len(part) // ELEMENTS_PER_STEP
    return copies[id(value)], [each for each in copies.values() if type(each) is not tuple]


def _shell(item: Any) -> Any:
    if isinstance(item, OrderedSet):
        return OrderedSet.of(item.items.copy())
    return copy(item)  # of a tuple: itself


def _parts(item: Any) -> Any:
    if type(item) is dict:
        return list(cast("dict[Any, Any]", item).values())
    return () if type(item) is OrderedSet else item  # elements of a set hold no lists, dicts and sets


def _fill(copies: dict[int, Any], item: Any) -> Work[None]:
    """Put the finished copies of its parts into the copy of ``item``."""
    parts = _parts(item)
    if _COPIED.isdisjoint(map(type, parts)):
        return
    filled: Any = copies[id(item)]
    if filled is item:  # a tuple
        copies[id(item)] = tuple([copies.get(id(each), each) for each in parts])
        return
    keys: Any = range(len(parts)) if isinstance(item, list) else list(item)
    for part in slices(keys):
        for key in part:
            each: Any = filled[key]
            if type(each) in _COPIED:
                filled[key] = copies[id(each)]
        yield len(part) // ELEMENTS_PER_STEP
