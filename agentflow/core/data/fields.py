"""The declared fields of records of the host: of dataclasses, models and named tuples. Programs read them, and change the lists in them."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    return [stored_field(record, name, None) for name in field_names(type(record))]


# As stored: no method, property or descriptor of a class of the host runs because a program holds a record of it
def stored_field(record: object, name: str, missing: Any) -> Any:
    """The value of a declared field; ``missing`` if nothing is stored under its name."""
    kind: Any = type(record)
    if issubclass(kind, tuple):
        return tuple.__getitem__(cast("tuple[Any, ...]", record), field_names(kind).index(name))
    slot = slots_of(kind).get(name)
    try:
        return attributes_of(record).get(name, missing) if slot is None else slot.__get__(record, kind)
    except AttributeError:
        return missing


@lru_cache(maxsize=512)
def slots_of(kind: Any) -> Mapping[str, MemberDescriptorType]:
    """The slots of a class and of those that it is derived from."""
    levels: list[Mapping[str, Any]] = [vars(each) for each in reversed(kind.__mro__)]
    return {name: each for level in levels for name, each in level.items() if type(each) is MemberDescriptorType}


def attributes_of(record: object) -> dict[str, Any]:
    """The attributes of a record other than slots. Raises AttributeError for one that has slots alone."""
    return object.__getattribute__(record, "__dict__")
