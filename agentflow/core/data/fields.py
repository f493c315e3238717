"""The declared fields of records of the host: of dataclasses, models and named tuples. Programs read them, and change the lists in them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import copy as shallow
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from types import MemberDescriptorType
from typing import Any, cast

from agentflow.core.data.values import OrderedSet, SharedList

HOLDING: frozenset[type[Any]] = frozenset((list, tuple, dict, SharedList, OrderedSet))
"""The types of containers that may hold boxes, other than records."""


@lru_cache(maxsize=512)
def field_names(kind: Any) -> tuple[str, ...]:
    """The fields that a class declares, in order; none for any other class."""
    if getattr(kind, "is_procedure", False):
        return ()
    names: Any = getattr(kind, "__pydantic_fields__", None) or getattr(kind, "__dataclass_fields__", None)
    if not names and issubclass(kind, tuple):
        names = getattr(cast("Any", kind), "_fields", ())
    return tuple(cast("Iterable[str]", names)) if isinstance(names, Mapping | tuple) else ()


def field_values(record: object) -> list[Any]:
    """The values of the declared fields of a record, as they are stored; none for any other value."""
    kind: Any = type(record)
    names = field_names(kind)
    if issubclass(kind, tuple):
        return list(tuple.__getitem__(cast("tuple[Any, ...]", record), slice(len(names))))
    return [stored_field(record, name, None) for name in names]


# As stored: no method, property or descriptor of a class of the host runs because a program holds a record of it
def stored_field(record: object, name: str, missing: Any) -> Any:
    """The value of a declared field; ``missing`` if nothing is stored under its name."""
    kind: Any = type(record)
    if issubclass(kind, tuple):
        return tuple.__getitem__(cast("tuple[Any, ...]", record), field_names(kind).index(name))
    slot = _slots(kind).get(name)
    if slot is None:
        return dict.get(_attributes(record), name, missing)
    try:
        return slot.__get__(record, kind)
    except AttributeError:
        return missing


def store_field(record: object, name: str, value: Any) -> None:
    """Store a value that :func:`stored_field` will give, in a frozen record too."""
    slot = _slots(type(record)).get(name)
    if slot is None:
        dict.__setitem__(_attributes(record), name, value)
    else:
        slot.__set__(record, value)


def copied_record(record: object) -> Any:
    """A shallow copy of a record other than a named tuple."""
    kind: Any = type(record)
    try:
        copy: Any = object.__new__(kind)
    except TypeError:  # derived from a class written in C
        return shallow.copy(record)
    for slot in _slots(kind).values():
        with suppress(AttributeError):  # nothing is stored there
            value: Any = slot.__get__(record, kind)
            slot.__set__(copy, shallow.copy(value) if type(value) in (dict, set) else value)
    _attributes(copy).update(_attributes(record))
    return copy


@lru_cache(maxsize=512)
def _slots(kind: Any) -> Mapping[str, MemberDescriptorType]:
    """The slots of a class and of those that it is derived from."""
    levels: list[Mapping[str, Any]] = [vars(each) for each in reversed(kind.__mro__)]
    return {name: each for level in levels for name, each in level.items() if type(each) is MemberDescriptorType}


def _attributes(record: object) -> dict[str, Any]:
    """The attributes of a record other than slots."""
    try:
        return object.__getattribute__(record, "__dict__")
    except AttributeError:
        return {}
