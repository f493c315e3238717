"""Copies of lists, dicts, sets, tuples and records without the boxes in them."""

from __future__ import annotations

import copy as shallow
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from agentflow.core.data.fields import HOLDING, attributes_of, field_names, field_values, slots_of
from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import ELEMENTS_PER_STEP, PART, Work


class _Tuple(list[Any]):
    """The parts of the copy of a tuple, until all of them are there."""

    __slots__ = ("kind",)

    def __init__(self, kind: Any = tuple) -> None:
        super().__init__()
        self.kind = kind

    def whole(self, parts: list[Any]) -> Any:
        """The tuple of these parts, of the same class."""
        return cast("Any", tuple).__new__(self.kind, parts)


_COPIES: dict[type[Any], Callable[[], Any]] = {dict: dict, OrderedSet: OrderedSet, tuple: _Tuple}
"""The class of a container's copy, if it is not a list."""


def unboxed_copy(value: Any, holders: set[int], bare: Callable[[Any], Any]) -> Work[Any]:
    """A copy of a container without boxes; each of ``holders`` is copied once, and ``bare`` takes a value out of its box."""
    copies: dict[int, Any] = {}
    pending: list[tuple[Any, Any]] = []
    count = 0

    def copy_of(item: Any) -> Any:
        item = bare(item)
        if id(item) not in holders:
            return item
        copy = copies.get(id(item))
        if copy is None:
            copy = copies[id(item)] = _empty(item)
            pending.append((item, copy))
        return copy

    root = copy_of(value)
    while pending:
        item, copy = pending.pop()
        kind = cast("Any", type(item))
        count += len(item) + 1 if kind in HOLDING else 1
        if count >= PART:
            yield count // ELEMENTS_PER_STEP
            count = 0
        if kind is dict:
            for key, each in cast("dict[Any, Any]", item).items():
                copy[_bare_key(key, bare)] = copy_of(each)
        elif kind is OrderedSet:
            for each in item:
                copy.items[_bare_key(each, bare)] = None
        else:
            parts = [copy_of(each) for each in (item if kind in HOLDING else field_values(item))]
            if type(copy) is _Tuple or kind in HOLDING:
                copy += parts
            else:
                _fill(copy, parts)
    if count >= ELEMENTS_PER_STEP:
        yield count // ELEMENTS_PER_STEP
    return _with_tuples(root, list(copies.values()))


def _empty(item: Any) -> Any:
    """The beginning of a copy, which gets its parts later."""
    kind = cast("type[Any]", type(item))
    if kind in HOLDING:
        return _COPIES.get(kind, list)()
    return _Tuple(kind) if isinstance(item, tuple) else _copied(item)


def _with_tuples(root: Any, copies: list[Any]) -> Any:
    """``root`` with tuples in place of their parts, in it and in all ``copies``."""
    tuples: dict[int, Any] = {}
    for parts in [each for each in copies if type(each) is _Tuple]:
        open_ones = [parts]
        while open_ones:
            at = open_ones[-1]
            inner = [each for each in at if type(each) is _Tuple and id(each) not in tuples]
            if inner:
                open_ones += inner
                continue
            open_ones.pop()
            tuples.setdefault(id(at), at.whole([tuples.get(id(each), each) for each in at]))
    if not tuples:
        return root
    for each in copies:
        _put_in(each, tuples)
    return tuples.get(id(root), root)


def _put_in(container: Any, tuples: dict[int, tuple[Any, ...]]) -> None:
    """Put tuples in the place of their parts in a list, dict or record."""
    if type(container) is list:
        container[:] = [tuples.get(id(part), part) for part in cast("list[Any]", container)]
    elif type(container) is dict:
        entries = cast("dict[Any, Any]", container)
        for key, part in entries.items():
            if id(part) in tuples:
                entries[key] = tuples[id(part)]
    elif type(container) not in HOLDING and type(container) is not _Tuple:
        _fill(container, [tuples.get(id(part), part) for part in field_values(container)])


def _bare_key(key: Any, bare: Callable[[Any], Any]) -> Any:
    """A key of a dict, or an element of a set, without boxes."""
    key = bare(key)
    return tuple([_bare_key(each, bare) for each in cast("tuple[Any, ...]", key)]) if isinstance(key, tuple) else key


def _fill(record: Any, values: list[Any]) -> None:
    """Give the fields of a copied record these values, frozen or not."""
    names = field_names(cast("Any", type(record)))
    for name, before, value in zip(names, field_values(record), values, strict=True):
        if before is not value:
            _store(record, name, value)


def _store(record: object, name: str, value: Any) -> None:
    """Store the value of a field, in a frozen record too."""
    slot = slots_of(type(record)).get(name)
    if slot is None:
        attributes_of(record)[name] = value
    else:
        slot.__set__(record, value)


def _copied(record: object) -> Any:
    """A shallow copy of a record other than a named tuple."""
    kind: Any = type(record)
    try:
        copy: Any = object.__new__(kind)
    except TypeError:  # derived from a class written in C
        return shallow.copy(record)
    for slot in slots_of(kind).values():
        with suppress(AttributeError):  # nothing is stored there
            value: Any = slot.__get__(record, kind)
            slot.__set__(copy, shallow.copy(value) if type(value) in (dict, set) else value)
    with suppress(AttributeError):
        attributes_of(copy).update(attributes_of(record))
    return copy
