"""The collections that texts write out with parts of others in them: ``[a, *b]`` and ``{key: value, **more}``."""

from __future__ import annotations

from typing import Any, cast

from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import Work
from agentflow.lang.calling import begun
from agentflow.lang.charging import charge_collection, check_collection
from agentflow.lang.python import compare, values
from agentflow.lang.python.boxed.keyed import merged
from agentflow.lang.python.boxed.repeated import Repeated
from agentflow.lang.python.changes import as_keys
from agentflow.lang.python.rows import code


@code("k", within=True)
def gathered(rt: Any, *parts: tuple[bool, Any]) -> list[Any]:
    """The items of ``[a, *b]``."""
    items: list[Any] = []
    for starred, value in parts:
        if starred:
            check_collection(rt, len(items) + len(value), "'*'")
            items.extend(value)
        else:
            items.append(value)
    return items


@code("o")
def as_tuple(items: list[Any]) -> Any:
    """The tuple of items, in a flow with a policy."""
    return tuple(items)


@code("o", keys=True, within=True, long="always")
def as_set(items: list[Any]) -> Any:
    """The set of items."""
    return begun(_as_set(items))


def _as_set(items: list[Any]) -> Work[OrderedSet]:
    return OrderedSet.of((yield from as_keys(items)))


@code("e")
def spread_dict(value: Any) -> Any:
    """``value`` of ``{**value}``."""
    if type(value) is not dict:
        values.wanted("'**'", "a dict", value)
    return cast("dict[Any, Any]", value)


@code("k", keys=True, within=True, long="always")
def entries(rt: Any, *parts: tuple[bool, Any, Any]) -> Any:
    """The dict of ``{key: value, **more}``."""
    return begun(_entries(rt, parts))


def _entries(rt: Any, parts: tuple[tuple[bool, Any, Any], ...]) -> Work[dict[Any, Any]]:
    result: dict[Any, Any] = {}
    repeated = Repeated()
    for spread, key, value in parts:
        if not spread:
            repeated.put(result, compare.key(key), value)
            continue
        charge_collection(rt, len(result) + len(value), "'**'")
        yield from repeated.put_all(result, value)
        yield from merged(result, value)
    return (yield from repeated.said(result))
