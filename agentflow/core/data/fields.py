"""The declared fields of records of the host: of dataclasses, models and named tuples. Programs read them, and change the lists in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
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
    """The values of the declared fields of a record; none for any other value."""
    return [getattr(record, name, None) for name in field_names(type(record))]
