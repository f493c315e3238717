"""Functions that only lowered texts in Python call, in place of displays and statements that compiled code writes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentflow.core.data.source import Span
from agentflow.core.data.values import OrderedSet
from agentflow.lang.python import compare, displays, methods, requests, support, values
from agentflow.lang.python.rows import code


def as_tuple(*items: Any) -> tuple[Any, ...]:
    """A tuple of these items."""
    return items


def as_set(*keys: Any) -> OrderedSet:
    """A set of these keys."""
    return OrderedSet(list(keys))


def entries_of(spread: tuple[bool, ...], rt: Any, *items: Any) -> Any:
    """A dict of keys and values by turns; where ``spread``, the value is a dict of more."""
    return displays.entries(rt, *[(each, items[2 * at], items[2 * at + 1]) for at, each in enumerate(spread)])


def gathered_of(spread: tuple[bool, ...], rt: Any, *items: Any) -> list[Any]:
    """A list of items; where ``spread``, the item is a list of more."""
    return displays.gathered(rt, *zip(spread, items, strict=True))


@code("o")
def is_false(value: Any) -> bool:
    """``not value``."""
    return not values.truth(value)


def is_within(rt: Any, value: Any, container: Any) -> Any:
    """``value in container``."""
    return compare.contains(rt, value, container)


def call_method(name: str, names: tuple[str, ...], rt: Any, value: Any, *arguments: Any) -> Any:
    """A method, called; the last arguments have ``names``."""
    return methods.method(rt, name, value, arguments, *([names] if names else []))


def call_with_names(function: Callable[..., Any], names: tuple[str, ...], rt: Any, *arguments: Any) -> Any:
    """A function of the language, called; the last arguments have ``names``."""
    count = len(arguments) - len(names)
    return function(rt, *arguments[:count], **dict(zip(names, arguments[count:], strict=True)))


async def call_main(rt: Any, d: int, function: Any, *bound: Any) -> Any:
    """``main`` of a text, called with bindings."""
    return await function.raw(rt, d + 1, *bound)


async def log_text(rt: Any, d: int, separator: Any, items: Any) -> str:
    """The text of ``print(...)``."""
    return await support.log_text(rt, separator, tuple(items))


async def endorsed(rt: Any, d: int, value: Any, reason: Any, span: Span) -> Any:
    """The value of ``endorse(value, reason)``."""
    return await requests.endorsed(rt, value, reason, span)


def itself(env: Any, effect: Any) -> Any:
    """An effect that a function has made."""
    return effect
